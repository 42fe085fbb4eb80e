"""The converted voice is the Piper voice: equal sound, equal durations; and what is no such voice is refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from TTS.utils.synthesizer import Synthesizer

from duolog.models.piper_config import BLANK, BOS, EOS, PAD, PiperConfig, coqui_config, read_piper_config, vocabulary_of
from duolog.models.piper_import import import_piper
from duolog.models.piper_weights import read_weights
from duolog.ports.errors import ConfigurationError, ModelMissing

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
PIPER = ROOT / ".duolog" / "models" / "joe-piper"
TOLERANCE = 1e-4
"""Both noise scales 0: what is left is the order of floating point sums, 4e-5 of full scale when measured."""
SENTENCES = ["Hello there, I was thinking about that today!", "Yes.", "One of the 3.5 million; isn't it?"]


@dataclass(frozen=True, slots=True)
class Imported:
    folder: Path
    onnx_path: Path
    config_path: Path

    def piper_ids(self, phonemes: str) -> list[int]:
        """As Piper does it: begin, pad, then each phoneme and a pad, end."""
        table = json.loads(self.config_path.read_text("utf-8"))["phoneme_id_map"]
        ids = [table[BOS][0], table[PAD][0]]
        for phoneme in phonemes:
            ids += [table[phoneme][0], table[PAD][0]]
        return [*ids, table[EOS][0]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    graphs = sorted(PIPER.glob("*.onnx"))
    if not graphs:
        pytest.skip("no Piper voice in .duolog/models/joe-piper; run `duolog models prepare`")
    folder = tmp_path_factory.mktemp("voices") / "joe"
    config_path = graphs[0].with_name(graphs[0].name + ".json")
    import_piper(graphs[0], config_path, folder)
    return Imported(folder, graphs[0], config_path)


def run_graph(path: Path, ids: list[int], outputs: list[str]) -> list[NDArray[np.float32]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {
        "input": np.array([ids], dtype=np.int64),
        "input_lengths": np.array([len(ids)], dtype=np.int64),
        "scales": np.array([0, 1, 0], dtype=np.float32),
    }
    return [np.asarray(value).squeeze() for value in session.run(outputs, feeds)]


@pytest.mark.slow
def test_coqui_speaks_as_the_piper_graph_does(imported: Imported) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Coqui's own loader warns about its dependencies.
        coqui = Synthesizer(
            tts_checkpoint=imported.folder / "model.pth", tts_config_path=imported.folder / "config.json"
        ).tts_model
    coqui.inference_noise_scale = coqui.inference_noise_scale_dp = 0.0
    for text in SENTENCES:
        phonemes = coqui.tokenizer.phonemizer.phonemize(text)
        ids = coqui.tokenizer.text_to_ids(text)
        (expected,) = run_graph(imported.onnx_path, imported.piper_ids(phonemes), ["output"])
        outputs = coqui.inference(torch.tensor([ids]))
        exported, durations = run_graph(imported.folder / "model.onnx", ids, ["output", "durations"])
        assert np.abs(expected).max() > 0.05
        np.testing.assert_allclose(outputs["model_outputs"].numpy().squeeze(), expected, atol=TOLERANCE)
        np.testing.assert_allclose(exported, expected, atol=TOLERANCE)
        np.testing.assert_array_equal(durations, outputs["durations"].numpy().squeeze())
        assert int(durations.sum()) * 256 == len(expected)
    assert coqui.tokenizer.not_found_characters == []


@pytest.mark.slow
def test_importing_again_replaces_the_folder(imported: Imported) -> None:
    assert sorted(path.name for path in imported.folder.iterdir()) == ["config.json", "model.onnx", "model.pth"]
    assert [path.name for path in imported.folder.parent.iterdir()] == ["joe"]


def test_every_symbol_keeps_its_row(imported: Imported) -> None:
    piper = read_piper_config(imported.config_path)
    vocabulary = vocabulary_of(piper)
    symbols = [PAD, EOS, BOS, BLANK, *vocabulary.characters, *vocabulary.punctuations]
    assert len(symbols) == len(vocabulary.piper_rows) == len(set(symbols))
    for symbol, row in zip(symbols, vocabulary.piper_rows, strict=True):
        assert piper.phoneme_id_map[PAD if symbol == BLANK else symbol] == [row]
    config = coqui_config(piper, vocabulary)
    assert config.audio.sample_rate == piper.audio.sample_rate
    assert config.model_args.num_chars == len(symbols)


def minimal_config(**changes: object) -> dict[str, object]:
    symbols = [PAD, BOS, EOS, " ", "a"]
    return {
        "audio": {"sample_rate": 22050, "quality": "medium"},
        "espeak": {"voice": "en-us"},
        "phoneme_id_map": {symbol: [index] for index, symbol in enumerate(symbols)},
    } | changes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_speakers": 4}, "has 4 speakers"),
        ({"audio": {"sample_rate": 22050, "quality": "high"}}, "quality 'high'"),
        ({"phoneme_type": "text"}, "type 'text'"),
        ({"phoneme_map": {"a": ["b"]}}, "renames phonemes"),
        ({"phoneme_id_map": {"_": [0, 1], "^": [2], "$": [3], " ": [4]}}, "several ids"),
        ({"phoneme_id_map": {"_": [0], "^": [2], "$": [3], " ": [4], "ab": [5]}}, "several characters"),
        ({"phoneme_id_map": {"_": [0]}}, "lacks one of the symbols"),
    ],
)
def test_other_kinds_of_voices_are_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    path = tmp_path / "voice.onnx.json"
    path.write_text(json.dumps(minimal_config(**changes)), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=reason):
        read_piper_config(path)


def test_a_missing_or_garbled_configuration_says_how_to_mend_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"no voice\.onnx\.json beside it; download"):
        read_piper_config(tmp_path / "voice.onnx.json")
    path = tmp_path / "voice.onnx.json"
    for content in ["{", "[]", '{"audio": {"sample_rate": "fast"}}']:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ModelMissing, match="download it again"):
            read_piper_config(path)


def test_a_missing_or_damaged_graph_says_how_to_mend_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="not there"):
        read_weights(tmp_path / "voice.onnx", (0,))
    damaged = tmp_path / "voice.onnx"
    damaged.write_bytes(b"\xff" * 500)
    with pytest.raises(ModelMissing, match="damaged"):
        read_weights(damaged, (0,))


def test_the_configuration_file_tolerates_fields_it_does_not_need() -> None:
    assert PiperConfig.model_validate(minimal_config(piper_version="1.0.0")).num_speakers == 1
