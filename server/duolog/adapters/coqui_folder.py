"""A folder with a Coqui model, looked at without loading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from duolog.ports.errors import ConfigurationError, ModelMissing

GRAPH = "model.onnx"
CHECKPOINTS = ("model.pth", "best_model.pth", "model_file.pth")
"""Names a Coqui checkpoint usually has; another `.pth` file is taken where it is the only one."""

MEND = "run `duolog models prepare`, or point the voice at a Coqui folder with config.json and model.pth"


class _Audio(BaseModel):
    sample_rate: int
    output_sample_rate: int | None = None


class _Args(BaseModel):
    use_speaker_embedding: bool = False
    use_d_vector_file: bool = False
    use_language_embedding: bool = False


class _Config(BaseModel):
    model: str
    audio: _Audio
    model_args: _Args = _Args()
    use_speaker_embedding: bool = False
    use_d_vector_file: bool = False
    use_phonemes: bool = False
    phonemizer: str | None = None
    phoneme_language: str | None = None


@dataclass(frozen=True, slots=True)
class VoiceFolder:
    """What the adapter needs to know of a voice before it is loaded."""

    id: str
    config_path: Path
    checkpoint: Path | None
    graph: Path | None
    sample_rate_hz: int
    language: str
    """ISO 639-1."""
    phonemizer: str | None


def open_folder(voice_id: str, folder: Path) -> VoiceFolder:
    """Raises ModelMissing where the folder lacks or garbles what it must have, ConfigurationError for other models."""
    config_path = folder / "config.json"
    config = _read_config(voice_id, config_path)
    _refuse_other_models(voice_id, config)
    checkpoint, graph = _checkpoint(folder), folder / GRAPH
    if checkpoint is None and not graph.exists():
        raise ModelMissing(f"The voice {voice_id!r} has no checkpoint in the folder {folder.name}; {MEND}.")
    return VoiceFolder(
        id=voice_id,
        config_path=config_path,
        checkpoint=checkpoint,
        graph=graph if graph.exists() else None,
        sample_rate_hz=config.audio.output_sample_rate or config.audio.sample_rate,
        language=_iso_language(config.phoneme_language),
        phonemizer=config.phonemizer if config.use_phonemes else None,
    )


def _read_config(voice_id: str, path: Path) -> _Config:
    try:
        return _Config.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelMissing(f"The voice {voice_id!r} has no config.json in {path.parent.name}; {MEND}.") from error
    except ValidationError as error:
        raise ModelMissing(
            f"The voice {voice_id!r} has a config.json in {path.parent.name} that is no Coqui configuration; {MEND}."
        ) from error


def _refuse_other_models(voice_id: str, config: _Config) -> None:
    args = config.model_args
    several = config.use_speaker_embedding or config.use_d_vector_file
    several = several or args.use_speaker_embedding or args.use_d_vector_file or args.use_language_embedding
    if config.model != "vits" or several:
        kind = "a multi-speaker or multilingual VITS" if config.model == "vits" else f"a {config.model!r} model"
        raise ConfigurationError(f"The voice {voice_id!r} is {kind}; only single-speaker VITS voices can be used.")


def _checkpoint(folder: Path) -> Path | None:
    for name in CHECKPOINTS:
        if (folder / name).exists():
            return folder / name
    others = sorted(folder.glob("*.pth"))
    return others[0] if len(others) == 1 else None


def _iso_language(phoneme_language: str | None) -> str:
    """`en-us` → `en`, espeak-ng's `cmn` → `zh`. Where a model names no language, Coqui takes English."""
    code = (phoneme_language or "en").lower().split("-")[0]
    return {"cmn": "zh", "yue": "zh"}.get(code, code)
