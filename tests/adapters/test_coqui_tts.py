"""What only the Coqui adapter does: pieces equal to the whole, trimming, both engines, folders that are not right."""

from __future__ import annotations

import json
import shutil
from contextlib import aclosing
from pathlib import Path

import anyio
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from TTS.config import load_config

from duolog.adapters.coqui_engines import OnnxEngine, decoder_reach_frames, pieces
from duolog.adapters.coqui_pieces import PieceAssembler
from duolog.adapters.coqui_spelling import SENTENCE_CHARS, SpelledWord, Speller, Spelling, sentence_spans
from duolog.adapters.coqui_tts import CoquiSynthesizer
from duolog.ports.errors import ConfigurationError, ModelMissing
from duolog.ports.tts import SpeechChunk, SpeechRequest

pytestmark = pytest.mark.real

VOICE_FOLDER = Path(__file__).resolve().parents[2] / ".duolog" / "models" / "joe"
REQUEST = SpeechRequest("Hello there, I am here.", voice="joe", language="en")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def voice_folder() -> Path:
    if not (VOICE_FOLDER / "config.json").exists():
        pytest.skip("no voice in .duolog/models/joe; run `duolog models prepare`")
    return VOICE_FOLDER


@pytest.fixture
def copied(voice_folder: Path, tmp_path: Path) -> Path:
    """The voice's folder, to be damaged."""
    folder = tmp_path / "joe"
    folder.mkdir()
    shutil.copy(voice_folder / "config.json", folder)
    for name in ("model.pth", "model.onnx"):
        (folder / name).symlink_to(voice_folder / name)
    return folder


async def spoken(folder: Path, *, use_onnx: bool = True) -> list[SpeechChunk]:
    engine = CoquiSynthesizer({"joe": folder}, use_onnx=use_onnx)
    try:
        async with aclosing(engine.synthesize(REQUEST)) as chunks:
            return [chunk async for chunk in chunks]
    finally:
        await engine.aclose()


def test_pieces_of_the_sound_equal_the_whole(voice_folder: Path) -> None:
    config = load_config(str(voice_folder / "config.json"))
    config.model_args.inference_noise_scale = config.model_args.inference_noise_scale_dp = 0.0
    (spelling,) = Speller(config).spell("I was thinking about that today and I am not sure at all")
    rendering = OnnxEngine(voice_folder / "model.onnx", config, threads=1).render(spelling.ids, 1.0)
    parts = list(rendering.pieces)
    assert len(parts) > 2
    whole = whole_sound(voice_folder / "model.onnx", spelling.ids)
    assert int(rendering.frames.sum()) * config.audio.hop_length == len(whole)
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4)


def whole_sound(path: Path, ids: tuple[int, ...]) -> NDArray[np.float32]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    scales = np.array([0, 1, 0], dtype=np.float32)
    feeds = {"input": np.array([ids]), "input_lengths": np.array([len(ids)]), "scales": scales}
    return np.asarray(session.run(["output"], feeds)[0]).reshape(-1)


@pytest.mark.slow
async def test_the_checkpoint_in_torch_speaks_too(voice_folder: Path) -> None:
    chunks = await spoken(voice_folder, use_onnx=False)
    words = [word for chunk in chunks for word in chunk.words]
    assert [REQUEST.text[word.text_start : word.text_end] for word in words] == REQUEST.text.split()
    assert np.abs(np.concatenate([chunk.samples for chunk in chunks])).max() > 0.05


async def test_speech_begins_within_a_few_milliseconds_and_ends_softly(voice_folder: Path) -> None:
    sound = np.concatenate([chunk.samples for chunk in await spoken(voice_folder)])
    first_audible = int(np.flatnonzero(np.abs(sound) > 0.01)[0])
    assert first_audible <= 22_050 * 15 // 1000
    assert abs(float(sound[-1])) < 1e-3


async def test_a_checkpoint_alone_is_enough(copied: Path) -> None:
    (copied / "model.onnx").unlink()
    (copied / "model.pth").rename(copied / "best_model.pth")
    assert len(await spoken(copied)) > 0


@pytest.mark.parametrize("name", ["config.json", "model.pth and model.onnx"])
async def test_a_missing_part_is_named_with_the_way_to_mend_it(copied: Path, name: str) -> None:
    for part in name.split(" and "):
        (copied / part).unlink()
    with pytest.raises(ModelMissing, match=r"'joe' has no .* run `duolog models prepare`"):
        CoquiSynthesizer({"joe": copied})


@pytest.mark.parametrize("content", ["", "{", '{"model": "vits"}'])
async def test_a_garbled_configuration_is_named(copied: Path, content: str) -> None:
    (copied / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelMissing, match="no Coqui configuration"):
        CoquiSynthesizer({"joe": copied})


async def test_a_damaged_graph_is_named(copied: Path) -> None:
    (copied / "model.onnx").unlink()
    (copied / "model.onnx").write_bytes(b"\xff" * 1000)
    with pytest.raises(ModelMissing, match=r"model\.onnx in joe is damaged"):
        await spoken(copied)


async def test_a_damaged_checkpoint_is_named(copied: Path) -> None:
    (copied / "model.onnx").unlink()
    whole = (copied / "model.pth").resolve().read_bytes()
    (copied / "model.pth").unlink()
    (copied / "model.pth").write_bytes(whole[:100_000])
    with pytest.raises(ModelMissing, match=r"model\.pth in joe does not load"):
        await spoken(copied)


@pytest.mark.parametrize("change", [{"model": "tacotron2"}, {"use_speaker_embedding": True}])
async def test_other_models_are_refused(copied: Path, change: dict[str, object]) -> None:
    config = json.loads((copied / "config.json").read_text("utf-8")) | change
    (copied / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="only single-speaker VITS"):
        CoquiSynthesizer({"joe": copied})


async def test_no_voice_at_all_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="No voice is configured"):
        CoquiSynthesizer({})


async def test_closing_twice_is_harmless(voice_folder: Path) -> None:
    engine = CoquiSynthesizer({"joe": voice_folder})
    await engine.aclose()
    await engine.aclose()


async def test_the_event_loop_stays_free_while_a_phrase_is_spoken(voice_folder: Path) -> None:
    engine = CoquiSynthesizer({"joe": voice_folder})
    await engine.warm_up()
    beats = 0
    async with anyio.create_task_group() as group:

        async def beat() -> None:
            nonlocal beats
            while True:
                await anyio.sleep(0.001)
                beats += 1

        group.start_soon(beat)
        async with aclosing(engine.synthesize(REQUEST)) as chunks:
            await anext(chunks)
        group.cancel_scope.cancel()
    await engine.aclose()
    assert beats > 3


def test_the_decoders_reach_is_computed_from_its_kernels(voice_folder: Path) -> None:
    config = load_config(str(voice_folder / "config.json"))
    assert 10 <= decoder_reach_frames(config.model_args) <= 13


@pytest.mark.parametrize("total", [1, 24, 45, 46, 47, 100, 1000])
def test_pieces_cover_every_frame_once(total: int) -> None:
    spans = list(pieces(total, 11))
    assert [start for start, _ in spans] == [0, *[end for _, end in spans[:-1]]]
    assert spans[-1][1] == total


@pytest.mark.parametrize("text", ["One. Two, three! Four", "word " * 300, "x" * 2000, "a, " * 200, ""])
def test_long_text_is_cut_into_sentences(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans).split() == text.split()
    assert all(end - start <= 3 * SENTENCE_CHARS for start, end in spans)


def test_silence_is_cut_and_words_move_with_it() -> None:
    silence, tone = np.zeros(1000, dtype=np.float32), np.full(1000, 0.5, dtype=np.float32)
    assembler = PieceAssembler(1000, 100)
    assembler.begin_sentence(Spelling((1, 2, 3), (SpelledWord(0, 3, 1, 3),)), np.array([10, 5, 5]))
    chunks = [*assembler.add(silence), *assembler.add(tone), *assembler.finish()]
    sound = np.concatenate([chunk.samples for chunk in chunks])
    assert len(sound) == 1000
    assert sound[0] == 0
    assert sound[-1] == 0
    assert sound[500] == 0.5
    (word,) = [word for chunk in chunks for word in chunk.words]
    assert (word.start_sample, word.end_sample) == (0, 1000)


def test_sound_that_is_silent_throughout_is_nothing() -> None:
    assembler = PieceAssembler(1000, 100)
    assembler.begin_sentence(Spelling((1,), (SpelledWord(0, 1, 0, 1),)), np.array([3]))
    assert [*assembler.add(np.zeros(300, dtype=np.float32)), *assembler.finish()] == []
