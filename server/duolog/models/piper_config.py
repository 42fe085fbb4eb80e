"""What a Piper voice says about itself, and the Coqui configuration that says the same.

Knows nothing of weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from TTS.config.shared_configs import BaseAudioConfig
from TTS.tts.configs.shared_configs import CharactersConfig
from TTS.tts.configs.vits_config import VitsArgs, VitsConfig

from duolog.ports.errors import ConfigurationError, ModelMissing

PAD, EOS, BOS, BLANK = "_", "$", "^", "<BLNK>"
PUNCTUATION = "!'(),-.:;?\""
"""Symbols of Piper's set that Coqui lists as punctuation; the space is one of its characters."""

HOP_SAMPLES = 256
FFT_SAMPLES = 1024


class _Audio(BaseModel):
    sample_rate: int = Field(gt=0)
    quality: str | None = None


class _Espeak(BaseModel):
    voice: str


class _Inference(BaseModel):
    noise_scale: float = 0.667
    length_scale: float = 1.0
    noise_w: float = 0.8


class PiperConfig(BaseModel):
    """The `.onnx.json` file beside a Piper voice; only what the conversion needs."""

    model_config = ConfigDict(extra="ignore")

    audio: _Audio
    espeak: _Espeak
    inference: _Inference = _Inference()
    phoneme_type: str = "espeak"
    phoneme_map: dict[str, list[str]] = {}
    phoneme_id_map: dict[str, list[int]]
    num_speakers: int = 1
    dataset: str = "piper"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Coqui's symbols in Coqui's order, each with the row it has in Piper's embedding."""

    characters: str
    punctuations: str
    piper_rows: tuple[int, ...]
    """Piper row of each Coqui symbol: pad, eos, bos, blank, characters, punctuations."""


def read_piper_config(path: Path) -> PiperConfig:
    """Raises ModelMissing where the file is absent or no Piper configuration, ConfigurationError for other kinds."""
    try:
        config = PiperConfig.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelMissing(
            f"The Piper voice has no {path.name} beside it; download the .onnx.json file too."
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ModelMissing(
            f"{path.name} is no Piper voice configuration: {place}: {first['msg']}; download it again."
        ) from error
    _refuse_other_kinds(config, path)
    return config


def _refuse_other_kinds(config: PiperConfig, path: Path) -> None:
    reasons = [
        (config.num_speakers > 1, f"has {config.num_speakers} speakers, and only single-speaker voices convert"),
        (config.audio.quality not in {"medium", None}, f"is of quality {config.audio.quality!r}, not medium"),
        (config.phoneme_type != "espeak", f"has phonemes of type {config.phoneme_type!r}, not espeak"),
        (bool(config.phoneme_map), "renames phonemes (phoneme_map), which Coqui's tokenizer cannot do"),
        (any(len(ids) != 1 for ids in config.phoneme_id_map.values()), "gives a phoneme several ids"),
        (any(len(symbol) != 1 for symbol in config.phoneme_id_map), "has phonemes of several characters"),
        (not {PAD, EOS, BOS, " "} <= config.phoneme_id_map.keys(), "lacks one of the symbols _ ^ $ and space"),
    ]
    for refused, reason in reasons:
        if refused:
            raise ConfigurationError(f"The Piper voice {path.name} {reason}; choose another voice.")


def vocabulary_of(config: PiperConfig) -> Vocabulary:
    rows = {symbol: ids[0] for symbol, ids in config.phoneme_id_map.items()}
    symbols = [symbol for symbol in sorted(rows, key=rows.__getitem__) if symbol not in {PAD, EOS, BOS}]
    characters = "".join(symbol for symbol in symbols if symbol not in PUNCTUATION)
    punctuations = "".join(symbol for symbol in symbols if symbol in PUNCTUATION)
    special = (rows[PAD], rows[EOS], rows[BOS], rows[PAD])  # Piper separates phonemes by its pad: Coqui's blank.
    return Vocabulary(characters, punctuations, special + tuple(rows[symbol] for symbol in characters + punctuations))


def coqui_config(config: PiperConfig, vocabulary: Vocabulary) -> VitsConfig:
    """The figures of Piper's `medium` quality are those of its training code."""
    args = VitsArgs(
        num_chars=len(vocabulary.piper_rows),
        resblock_type_decoder="2",
        resblock_kernel_sizes_decoder=[3, 5, 7],
        resblock_dilation_sizes_decoder=[[1, 2], [2, 6], [3, 12]],
        upsample_rates_decoder=[8, 8, 4],
        upsample_kernel_sizes_decoder=[16, 16, 8],
        upsample_initial_channel_decoder=256,
        inference_noise_scale=config.inference.noise_scale,
        inference_noise_scale_dp=config.inference.noise_w,
        length_scale=config.inference.length_scale,
        init_discriminator=False,
    )
    return VitsConfig(
        model_args=args,
        audio=BaseAudioConfig(
            fft_size=FFT_SAMPLES,
            win_length=FFT_SAMPLES,
            hop_length=HOP_SAMPLES,
            sample_rate=config.audio.sample_rate,
        ),
        characters=CharactersConfig(
            characters_class="TTS.tts.utils.text.characters.IPAPhonemes",
            characters=vocabulary.characters,
            punctuations=vocabulary.punctuations,
            pad=PAD,
            eos=EOS,
            bos=BOS,
            blank=BLANK,
            is_unique=False,
            is_sorted=False,
        ),
        run_name=f"piper-{config.dataset}",
        use_phonemes=True,
        phonemizer="espeak",
        phoneme_language=config.espeak.voice,
        text_cleaner=None,
        add_blank=True,
        enable_eos_bos_chars=True,
    )


def write_coqui_config(config: VitsConfig, path: Path) -> None:
    path.write_text(json.dumps(config.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
