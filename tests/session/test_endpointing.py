"""When a turn ends, in whole calls: by the model, the text, the speaker's habits, and what the client asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.session.harness import Caller, persona, world

from duolog.adapters.scripted_asr import in_order
from duolog.adapters.scripted_llm import ScriptedOptions
from duolog.adapters.scripted_turn_detector import ScriptedTurnDetector
from duolog.personas import TurnTaking
from duolog.ports.errors import EngineUnavailable
from duolog.serving.guard import GuardLevel
from duolog.serving.sentence_judge import SentenceEnd
from duolog.session.config import Eagerness, SemanticVad, ServerVad
from duolog.session.events import InputCommitted, ResponseDone, TurnTimings

pytestmark = pytest.mark.session

LISTENS = persona(turn_taking=TurnTaking())
QUESTION = "What is the time?"
LONG_QUESTION = "What is the time in Rome?"


def sure(_: NDArray[np.float32]) -> float:
    return 0.95


def doubtful(_: NDArray[np.float32]) -> float:
    return 0.05


def broken(_: NDArray[np.float32]) -> float:
    raise EngineUnavailable("The model has gone; restart the server.", engine="turn")


async def one_turn(caller: Caller, number: int = 1) -> TurnTimings:
    await caller.say(1.2)
    timings = await caller.wait_for(TurnTimings, number)
    await caller.wait_for_state("listening")
    return timings


async def test_a_complete_sentence_is_answered_after_the_shortest_wait() -> None:
    detector = ScriptedTurnDetector(sure)
    async with world(script=in_order(QUESTION), one=LISTENS, turn_detector=detector) as w, w.call() as caller:
        timings = await one_turn(caller)
    assert timings.silence_wait_ms == 300
    assert timings.endpoint_ms == pytest.approx(300, abs=50)
    assert detector.looks == 1


async def test_a_text_that_wants_more_is_waited_for_whatever_the_model_says() -> None:
    script = in_order("I would like to go to the")
    async with world(script=script, one=LISTENS, turn_detector=ScriptedTurnDetector(sure)) as w, w.call() as caller:
        timings = await one_turn(caller)
    assert timings.silence_wait_ms == 1_500


async def test_a_model_that_hears_more_coming_is_believed() -> None:
    detector = ScriptedTurnDetector(doubtful)
    async with world(script=in_order(QUESTION), one=LISTENS, turn_detector=detector) as w, w.call() as caller:
        timings = await one_turn(caller)
    assert timings.silence_wait_ms == 1_500


@pytest.mark.parametrize(
    "detector",
    [
        pytest.param(None, id="absent"),
        pytest.param(ScriptedTurnDetector(sure, delay_s=5.0), id="late"),
        pytest.param(ScriptedTurnDetector(broken), id="broken"),
    ],
)
async def test_without_the_model_the_text_and_the_silence_decide(detector: ScriptedTurnDetector | None) -> None:
    script = in_order(QUESTION, "My number is 555")
    async with world(script=script, one=LISTENS, turn_detector=detector) as w, w.call() as caller:
        complete = await one_turn(caller)
        dictated = await one_turn(caller, 2)
    assert complete.silence_wait_ms == 700
    assert dictated.silence_wait_ms == 2_000


async def test_a_transcript_that_comes_late_ends_the_turn_when_it_comes() -> None:
    detector = ScriptedTurnDetector(sure)
    async with (
        world(script=in_order(QUESTION), one=LISTENS, turn_detector=detector, asr_delay_s=0.4) as w,
        w.call() as caller,
    ):
        timings = await one_turn(caller)
    assert timings.transcript_ms is not None
    assert timings.endpoint_ms is not None
    assert 0 <= timings.endpoint_ms - timings.transcript_ms < 60
    assert timings.silence_wait_ms == pytest.approx(timings.endpoint_ms, abs=60)


async def test_who_goes_on_within_the_wait_is_not_cut() -> None:
    script = in_order("I would like to go to the", "I would like to go to the station.")
    detector = ScriptedTurnDetector(sure)
    async with world(script=script, one=LISTENS, turn_detector=detector) as w, w.call() as caller:
        await caller.say(1.0)
        await caller.pause(1.2)
        timings = await one_turn(caller)
    assert len(caller.of(InputCommitted)) == 1
    assert detector.looks == 2
    assert timings.silence_wait_ms == 300


async def test_who_is_cut_twice_is_given_more_time() -> None:
    script = in_order("One more thing.", "And another thing.", QUESTION)
    async with world(script=script, one=LISTENS, turn_detector=ScriptedTurnDetector(sure)) as w, w.call() as caller:
        for cuts in (1, 2):
            await caller.say(1.0)
            await caller.pause(0.42)
            assert len(caller.of(InputCommitted)) == cuts
        await caller.say(1.0)
        await caller.wait_for(ResponseDone, 3)
        await caller.wait_for_state("listening")
        timings = caller.of(TurnTimings)[-1]
    assert 450 < timings.silence_wait_ms < 650


@pytest.mark.parametrize(("eagerness", "wait_ms"), [(Eagerness.LOW, 480), (Eagerness.AUTO, 300), (Eagerness.HIGH, 210)])
async def test_eagerness_scales_the_wait(eagerness: Eagerness, wait_ms: int) -> None:
    detector = ScriptedTurnDetector(sure, delay_s=0.001)
    async with world(script=in_order(QUESTION), one=LISTENS, turn_detector=detector) as w, w.call() as caller:
        caller.call.update(replace(caller.call.config, turn_detection=SemanticVad(eagerness)))
        timings = await one_turn(caller)
    assert timings.silence_wait_ms == pytest.approx(wait_ms, abs=40)


async def test_a_client_that_asks_for_a_silence_gets_it_exactly() -> None:
    detector = ScriptedTurnDetector(doubtful)
    async with world(script=in_order("I want the"), one=LISTENS, turn_detector=detector) as w, w.call() as caller:
        caller.call.update(replace(caller.call.config, turn_detection=ServerVad(silence_duration_ms=900)))
        timings = await one_turn(caller)
    assert timings.silence_wait_ms == 900
    assert detector.looks == 0


async def test_a_persona_bounds_the_wait() -> None:
    one = persona(turn_taking=TurnTaking(shortest_wait_ms=600, longest_wait_ms=800))
    script = in_order(QUESTION, "I want the")
    async with world(script=script, one=one, turn_detector=ScriptedTurnDetector(sure)) as w, w.call() as caller:
        shortest = await one_turn(caller)
        longest = await one_turn(caller, 2)
    assert (shortest.silence_wait_ms, longest.silence_wait_ms) == (600, 800)


def reads(said: dict[str, float], first_token_s: float = 0.03) -> ScriptedOptions:
    return ScriptedOptions(ends=said, first_token_s=first_token_s)


async def test_a_sentence_that_reads_unfinished_is_waited_for() -> None:
    options = reads({"Unless there is a system": 0.001})
    async with (
        world(
            script=in_order("Unless there is a system."),
            one=LISTENS,
            turn_detector=ScriptedTurnDetector(sure),
            sentence_end=SentenceEnd.ON,
            llm_options=options,
        ) as w,
        w.call() as caller,
    ):
        timings = await one_turn(caller)
        questions = [request for request in w.llm.prefills if request.likeliest]
    assert timings.silence_wait_ms == 1_500
    assert len(questions) == 1, "one question for one text"


async def test_a_sentence_that_reads_complete_makes_up_for_a_doubt_of_the_ear() -> None:
    async with (
        world(
            script=in_order(LONG_QUESTION),
            one=LISTENS,
            turn_detector=ScriptedTurnDetector(lambda _: 0.7),
            sentence_end=SentenceEnd.ON,
        ) as w,
        w.call() as caller,
    ):
        timings = await one_turn(caller)
    assert timings.silence_wait_ms == pytest.approx(300, abs=60)


async def test_a_chat_model_that_does_not_answer_delays_by_no_more_than_its_time() -> None:
    async with (
        world(
            script=in_order(LONG_QUESTION),
            one=LISTENS,
            turn_detector=ScriptedTurnDetector(sure),
            sentence_end=SentenceEnd.ON,
            llm_options=reads({"*": 0.001}, first_token_s=1.0),
        ) as w,
        w.call() as caller,
    ):
        timings = await one_turn(caller)
    assert 300 <= timings.silence_wait_ms <= 450


@pytest.mark.parametrize("why", ["off", "load", "veto", "another language"])
async def test_the_chat_model_is_not_asked_in_vain(why: str) -> None:
    mode = SentenceEnd.OFF if why == "off" else SentenceEnd.ON
    said = (
        "I would like to go to the"
        if why == "veto"
        else "今天天气怎么样？"
        if why == "another language"
        else LONG_QUESTION
    )
    async with (
        world(script=in_order(said), one=LISTENS, turn_detector=ScriptedTurnDetector(sure), sentence_end=mode) as w,
        w.call() as caller,
    ):
        if why == "another language":
            caller.call.update(replace(caller.call.config, language="zh"))
        if why == "load":
            w.limits.level = GuardLevel.NO_EXTRAS
        await one_turn(caller)
        questions = [request for request in w.llm.prefills if request.likeliest]
    assert not questions


async def test_who_goes_on_has_the_whole_text_read_in_the_next_pause() -> None:
    script = in_order("Unless there is a system.", "Unless there is a system there we are lost.")
    async with (
        world(
            script=script,
            one=LISTENS,
            turn_detector=ScriptedTurnDetector(sure),
            sentence_end=SentenceEnd.ON,
            llm_options=reads({"Unless there is a system": 0.001}),
        ) as w,
        w.call() as caller,
    ):
        await caller.say(1.0)
        await caller.pause(1.2)
        timings = await one_turn(caller)
    assert len(caller.of(InputCommitted)) == 1
    assert timings.silence_wait_ms == pytest.approx(300, abs=60)
