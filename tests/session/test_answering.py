"""One answer by itself: what leaves and when, what its failures sound like, how it stops."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest

from duolog.adapters import scripted_tts
from duolog.adapters.scripted_llm import Fault, Line, ScriptedLanguageModel, ScriptedOptions
from duolog.adapters.scripted_tts import ScriptedSynthesizer
from duolog.ports.errors import EngineUnavailable
from duolog.ports.llm import ChatMessage, GenerationRequest, Role, Sampling
from duolog.ports.tts import SpeechChunk, SpeechRequest
from duolog.serving.batcher import Batcher, BatcherRequest, RequestClass
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.synthesizer import Synthesizer
from duolog.session.answering import SOUND_AHEAD_S, Answer, VoiceStyle
from duolog.session.config import Modality, ResponseOptions
from duolog.session.control import PlayoutReport
from duolog.session.events import AudioDelta, CallEvent, ResponseStatus, TextDelta
from duolog.session.outbox import Outbox
from duolog.session.playing import Playbacks
from duolog.session.response import Outcome, Response
from duolog.session.turn import Turn
from duolog.turns.conversation import Conversation

pytestmark = pytest.mark.session

RATE_HZ = 24_000
STYLE = VoiceStyle(
    voice="scripted", languages=("en",), speed=1.0, rate_hz=RATE_HZ, apology="Sorry.", has_word_timings=True
)
LONG = "Well, let me tell you all about it, from the beginning to the end. " * 12


@dataclass
class Stage:
    """One answer and everything around it."""

    llm: ScriptedLanguageModel
    tts: ScriptedSynthesizer
    batcher: Batcher
    synthesizer: Synthesizer
    turn: Turn = field(default_factory=lambda: Turn("sess", ResponseOptions()))
    outbox: Outbox = field(default_factory=lambda: Outbox(max_audio_ms=600_000))
    conversation: Conversation = field(default_factory=Conversation)
    playbacks: Playbacks = field(default_factory=lambda: Playbacks(reports=True))
    modality: Modality = Modality.AUDIO
    audible: int = 0

    async def answer(self, said: str, *, max_tokens: int = 400) -> Outcome:
        self.turn.response = Response("resp", "item", self.turn.options, self.modality, max_tokens)
        messages = (ChatMessage(Role.USER, said),)
        generation = GenerationRequest("resp", messages, Sampling(max_tokens=max_tokens), "sess")
        request = BatcherRequest(generation, RequestClass.FINAL, anyio.current_time())
        made = Answer(self.turn, self.turn.response, STYLE, self.batcher, self.synthesizer)
        spoken = self.turn.spoken_text is not None
        return await made.run(
            None if spoken else request, self.outbox, self.conversation, self.playbacks, self.note_audible
        )

    def note_audible(self) -> None:
        self.audible += 1

    async def events(self) -> list[CallEvent]:
        """Everything that left."""
        taken = []
        async with aclosing(self.outbox.drain()) as events:
            while len(self.outbox):
                taken.append(await anext(events))
        return taken

    async def said(self) -> tuple[str, float]:
        """The text, and the seconds of sound."""
        events = await self.events()
        text = "".join(event.delta for event in events if isinstance(event, TextDelta))
        return text, sum(len(event.samples) for event in events if isinstance(event, AudioDelta)) / RATE_HZ


@asynccontextmanager
async def stage(**lines: Line) -> AsyncIterator[Stage]:
    llm = ScriptedLanguageModel(ScriptedOptions(lines=lines))
    tts = ScriptedSynthesizer(delay_s=0.05)
    synthesizer = Synthesizer(tts)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(synthesizer.run)
        yield Stage(llm, tts, Batcher(llm, SloPolicy()), synthesizer)
        tasks.cancel_scope.cancel()
    assert (llm.running, tts.running) == (0, 0)


async def test_nothing_leaves_before_the_turn_is_committed() -> None:
    async with stage(hi=Line("Hello yourself.")) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.answer, "hi")
            await anyio.sleep(5)
            assert len(one.outbox) == 0
            assert one.tts.requests, "it is made ahead"
            assert not list(one.conversation)
            one.turn.committed.set()
        assert one.audible == 1
        assert (await one.said())[0] == "Hello yourself."
        assert [item.text for item in one.conversation] == ["Hello yourself."]


async def test_cancelled_answer_stops_all_engines() -> None:
    async with stage(hi=Line(LONG)) as one:
        one.turn.committed.set()
        with anyio.move_on_after(0.3):
            await one.answer("hi")
        await anyio.wait_all_tasks_blocked()  # the synthesizer's own task lets go at its next step
        assert (one.llm.running, one.tts.running) == (0, 0)
        assert one.audible == 1


async def test_text_answer_makes_no_sound() -> None:
    async with stage(hi=Line("Hello yourself.")) as one:
        one.turn.committed.set()
        one.modality = Modality.TEXT
        outcome = await one.answer("hi")
        assert outcome.status is ResponseStatus.COMPLETED
        assert outcome.usage.prompt_tokens > 0
        assert await one.said() == ("Hello yourself.", 0)
        assert one.tts.requests == []


async def test_fixed_text_asks_no_model() -> None:
    async with stage() as one:
        one.turn.committed.set()
        one.turn.spoken_text = "Good morning."
        assert (await one.answer("")).status is ResponseStatus.COMPLETED
        assert (await one.said())[0] == "Good morning."
        assert one.llm.requests == []


async def test_answer_at_the_token_limit_is_incomplete() -> None:
    async with stage(hi=Line(LONG)) as one:
        one.turn.committed.set()
        outcome = await one.answer("hi", max_tokens=5)
        assert (outcome.status, outcome.reason) == (ResponseStatus.INCOMPLETE, "max_output_tokens")


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.TIME_OUT, Fault.STALL])
async def test_model_that_fails_is_apologised_for(fault: Fault) -> None:
    async with stage(hi=Line("x", fault)) as one:
        one.turn.committed.set()
        outcome = await one.answer("hi")
        assert outcome.status is ResponseStatus.FAILED
        assert outcome.error
        text, sound_s = await one.said()
        assert text == "Sorry."
        assert sound_s > 0.2


@pytest.mark.parametrize("fault", [Fault.DIE_MIDWAY, Fault.STALL_MIDWAY])
async def test_model_that_dies_in_the_middle_is_apologised_for_after_what_it_said(fault: Fault) -> None:
    async with stage(hi=Line("Let me think about this for a while. It is a long story.", fault)) as one:
        one.turn.committed.set()
        assert (await one.answer("hi")).status is ResponseStatus.FAILED
        text, _ = await one.said()
        assert text.startswith("Let me think")
        assert text.endswith("Sorry.")


async def test_voice_that_fails_leaves_the_text() -> None:
    async with stage(hi=Line("Hello yourself.")) as one:
        one.turn.committed.set()
        one.tts.fail_next(EngineUnavailable("no voice", engine="tts"))
        assert (await one.answer("hi")).status is ResponseStatus.FAILED
        assert await one.said() == ("Hello yourself.", 0)
        assert one.audible == 0


@pytest.mark.parametrize("text", ["", "*** --- 🎉"])
async def test_answer_that_cannot_be_spoken_ends(text: str) -> None:
    async with stage(hi=Line(text)) as one:
        one.turn.committed.set()
        assert (await one.answer("hi")).status is ResponseStatus.COMPLETED
        assert (await one.said())[1] == 0


async def test_voice_is_never_far_ahead_of_the_loudspeaker() -> None:
    async with stage(hi=Line(LONG)) as one:
        one.turn.committed.set()
        with anyio.move_on_after(2):
            await one.answer("hi")
        _, sound_s = await one.said()
        assert SOUND_AHEAD_S < sound_s < SOUND_AHEAD_S + 12


async def test_words_of_the_ledger_end_where_their_sound_ends() -> None:
    async with stage(hi=Line("Four words are here.")) as one:
        one.turn.committed.set()
        await one.answer("hi")
        playback = one.playbacks.of_item("item")
        assert playback is not None
        playback.ledger.complete = True
        heard = [playback.ledger.heard_text(RATE_HZ * ms // 1000) for ms in (0, 239, 245, 600, 10_000)]
        assert heard == ["", "", "Four", "Four words", "Four words are here."]


async def test_flushed_answer_stops_without_an_error() -> None:
    async with stage(hi=Line("Hello yourself.")) as one:
        one.turn.committed.set()
        one.outbox.flush(99)
        assert (await one.answer("hi")).status is ResponseStatus.COMPLETED
        assert (await one.said())[1] == 0


class NotingSynthesizer(Synthesizer):
    """Keeps what it is told of when clients run dry."""

    def __init__(self, engine: ScriptedSynthesizer) -> None:
        super().__init__(engine)
        self.told: list[Callable[[], float] | None] = []

    async def speak(
        self, session_id: str, request: SpeechRequest, *, runs_dry_at: Callable[[], float] | None = None
    ) -> AsyncGenerator[SpeechChunk, None]:
        self.told.append(runs_dry_at)
        async with aclosing(super().speak(session_id, request, runs_dry_at=runs_dry_at)) as chunks:
            async for chunk in chunks:
                yield chunk


async def test_when_the_client_runs_dry_follows_its_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is played before the turn is committed; then the clock runs, and a report corrects it."""
    monkeypatch.setattr(scripted_tts, "CHUNK_MS", 10_000)  # a phrase in one piece, as the real voice gives it
    async with stage(hello=Line("Well, that is nice. And this is the second phrase of it.")) as s:
        s.synthesizer = noting = NotingSynthesizer(s.tts)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(noting.run)
            tasks.start_soon(s.answer, "hello")
            await anyio.sleep(3)
            assert noting.told[0] is None
            continuation = noting.told[1]
            assert continuation is not None
            made_s = continuation() - anyio.current_time()
            assert made_s > 1
            await anyio.sleep(1)
            assert continuation() - anyio.current_time() == pytest.approx(made_s)
            s.turn.committed.set()
            await anyio.sleep(1)
            assert continuation() - anyio.current_time() == pytest.approx(made_s - 1, abs=0.01)
            s.playbacks.report(PlayoutReport(1, RATE_HZ // 2))
            assert continuation() - anyio.current_time() == pytest.approx(made_s - 0.5, abs=0.01)
            tasks.cancel_scope.cancel()
