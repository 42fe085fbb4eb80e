"""What every SpeechRecognizer keeps to: the same tests for the scripted engine, for one that chooses among engines by
language, and for Whisper with real weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from duolog.adapters.asr_by_language import RecognizerByLanguage
from duolog.adapters.faster_whisper_asr import FasterWhisperRecognizer
from duolog.adapters.scripted_asr import ScriptedRecognizer
from duolog.loadtest.audio_files import read_speech
from duolog.ports.asr import SpeechRecognizer, Transcript, TranscriptionRequest
from duolog.ports.errors import EngineRejected, EngineUnavailable, ModelMissing
from duolog.turns.wording import words_of

MODEL = Path(__file__).resolve().parents[2] / ".duolog" / "models" / "whisper-base"


@pytest.fixture(
    params=[
        pytest.param("scripted", marks=pytest.mark.session),
        pytest.param("by_language", marks=pytest.mark.session),
        pytest.param("whisper", marks=pytest.mark.real),
    ]
)
def engine(request: pytest.FixtureRequest) -> SpeechRecognizer:
    if request.param == "scripted":
        return ScriptedRecognizer()
    if request.param == "by_language":
        return RecognizerByLanguage(ScriptedRecognizer(), {"zh": ScriptedRecognizer(), "de": ScriptedRecognizer()})
    whisper: SpeechRecognizer = request.getfixturevalue("whisper")
    return whisper


@pytest.fixture(scope="module")
def whisper() -> Iterator[FasterWhisperRecognizer]:
    if not (MODEL / "model.bin").exists():
        pytest.skip("no Whisper weights in .duolog/models/whisper-base; run `duolog models prepare`")
    engine = FasterWhisperRecognizer(MODEL)
    yield engine
    anyio.run(engine.aclose)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def tone(seconds: float, level: float = 0.1) -> NDArray[np.float32]:
    return (level * np.sin(2 * np.pi * 300 * np.arange(int(seconds * 16_000)) / 16_000)).astype(np.float32)


def recording(corpus: Path, file: str) -> NDArray[np.float32]:
    return read_speech(corpus / file).astype(np.float32) / np.float32(32_768)


async def transcribe(engine: SpeechRecognizer, *requests: TranscriptionRequest) -> list[Transcript]:
    transcripts = await engine.transcribe(requests)
    assert len(transcripts) == len(requests)
    for transcript, request in zip(transcripts, requests, strict=True):
        assert transcript.text == transcript.text.strip()
        assert transcript.audio_s == pytest.approx(len(request.samples) / 16_000)
        assert transcript.mean_logprob <= 0
        assert 0 <= transcript.no_speech_prob <= 1
        assert transcript.compression_ratio >= 0
        assert transcript.language == (request.language or transcript.language)
    return transcripts


async def test_warms_up(engine: SpeechRecognizer) -> None:
    await engine.warm_up()


async def test_nothing_gives_nothing(engine: SpeechRecognizer) -> None:
    empty = np.zeros(0, np.float32)
    assert await transcribe(engine) == []
    assert (await transcribe(engine, TranscriptionRequest(empty, "en")))[0].text == ""
    assert (await transcribe(engine, TranscriptionRequest(empty, None, partial=True)))[0].text == ""


@pytest.mark.parametrize("samples", [1, 399, 1_599, 1_601, 16_001])
async def test_any_length_is_taken(engine: SpeechRecognizer, samples: int) -> None:
    await transcribe(engine, TranscriptionRequest(tone(2)[:samples], "en", partial=True))


async def test_a_batch_keeps_the_order_of_its_requests(engine: SpeechRecognizer) -> None:
    lengths = (0.5, 2.0, 1.0)
    transcripts = await transcribe(engine, *(TranscriptionRequest(tone(length), "en", True) for length in lengths))
    assert [transcript.audio_s for transcript in transcripts] == pytest.approx(lengths)


async def test_a_batch_may_hold_finals_partials_and_languages(engine: SpeechRecognizer) -> None:
    requests = [
        TranscriptionRequest(tone(length), language, partial)
        for length, language, partial in (
            (0.5, "zh", False),
            (0.2, None, True),
            (0.0, "en", False),
            (1.0, "en", True),
            (0.3, "zh", True),
            (0.7, None, False),
        )
    ]
    transcripts = await transcribe(engine, *requests)
    assert [transcript.audio_s for transcript in transcripts] == pytest.approx([0.5, 0.2, 0.0, 1.0, 0.3, 0.7])
    assert transcripts[2].text == ""


async def test_audio_of_any_length_is_heard_to_its_end(engine: SpeechRecognizer) -> None:
    beyond, short = await transcribe(
        engine, TranscriptionRequest(tone(62), "en", partial=True), TranscriptionRequest(tone(0.4), "en", partial=True)
    )
    assert beyond.audio_s == pytest.approx(62)
    assert short.audio_s == pytest.approx(0.4)


async def test_works_again_after_a_cancelled_request(engine: SpeechRecognizer) -> None:
    with anyio.move_on_after(0.01):
        await engine.transcribe([TranscriptionRequest(tone(20), "en")])
    await transcribe(engine, TranscriptionRequest(tone(0.5), "en", partial=True))


@pytest.mark.real
@pytest.mark.corpus
class TestRealSpeech:
    """Real recordings through real weights."""

    async def test_a_batch_says_what_each_said(self, whisper: FasterWhisperRecognizer, corpus: Path) -> None:
        files = ("en/sb_spk2_snt5.wav", "en/ms_TurnOnTheLamp.wav", "en8k/ast_hello-world.wav")
        requests = [TranscriptionRequest(recording(corpus, file), "en") for file in files]
        fence, lamp, _ = await transcribe(whisper, *requests)
        assert _plain(fence) == "jump the fence and hurry up the bank"
        assert _plain(lamp) == "turn on the lamp"

    async def test_a_partial_does_not_go_round_in_circles(self, whisper: FasterWhisperRecognizer, corpus: Path) -> None:
        request = TranscriptionRequest(recording(corpus, "en8k/ast_phonetic_c_p.wav"), "en", partial=True)
        assert _plain((await transcribe(whisper, request))[0]) == "charlie"

    async def test_the_language_is_detected(self, whisper: FasterWhisperRecognizer, corpus: Path) -> None:
        chinese = TranscriptionRequest(recording(corpus, "zh/wenet_nst_ID002.wav"), None)
        english = TranscriptionRequest(recording(corpus, "en/sb_spk2_snt5.wav"), None)
        assert [transcript.language for transcript in await transcribe(whisper, chinese, english)] == ["zh", "en"]

    async def test_speech_beyond_the_window_is_heard_to_its_end(
        self, whisper: FasterWhisperRecognizer, corpus: Path
    ) -> None:
        sentence = recording(corpus, "en/sb_spk2_snt5.wav")
        pause = np.zeros(16_000 // 2, np.float32)
        long = np.concatenate([part for _ in range(13) for part in (sentence, pause)])
        transcript = (await transcribe(whisper, TranscriptionRequest(long, "en", partial=True)))[0]
        assert len(long) / 16_000 > 30
        assert _plain(transcript).endswith("hurry up the bank")


@pytest.mark.real
class TestRefusals:
    """What Whisper's adapter says to wrong input."""

    async def test_a_language_it_does_not_know(self, whisper: FasterWhisperRecognizer) -> None:
        with pytest.raises(EngineRejected, match="'xx'"):
            await whisper.transcribe([TranscriptionRequest(tone(1), "xx")])

    @pytest.mark.parametrize("samples", [np.full(16_000, np.nan, np.float32), np.zeros((2, 16_000), np.float32)])
    async def test_audio_that_is_none(self, whisper: FasterWhisperRecognizer, samples: NDArray[np.float32]) -> None:
        with pytest.raises(EngineRejected, match="mono audio"):
            await whisper.transcribe([TranscriptionRequest(samples, "en")])

    async def test_missing_files_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ModelMissing, match=r"model\.bin, tokenizer\.json"):
            FasterWhisperRecognizer(tmp_path)

    async def test_a_damaged_model_is_said_to_be_one(self, tmp_path: Path) -> None:
        for name in ("model.bin", "config.json", "tokenizer.json"):
            (tmp_path / name).write_text("damaged")
        engine = FasterWhisperRecognizer(tmp_path)
        with pytest.raises(ModelMissing, match=r"cannot be loaded on cpu .*models prepare"):
            await engine.warm_up()
        await engine.aclose()

    async def test_after_closing_it_is_unavailable(self) -> None:
        if not (MODEL / "model.bin").exists():
            pytest.skip("no Whisper weights in .duolog/models/whisper-base; run `duolog models prepare`")
        engine = FasterWhisperRecognizer(MODEL)
        await engine.aclose()
        await engine.aclose()
        with pytest.raises(EngineUnavailable):
            await engine.warm_up()


def _plain(transcript: Transcript) -> str:
    return " ".join(word.key for word in words_of(transcript.text))
