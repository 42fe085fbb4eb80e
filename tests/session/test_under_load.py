"""What calls do at each level of the load guard, and that nothing that runs is touched."""

from __future__ import annotations

import anyio
import pytest
from tests.session.harness import Caller, persona, world

from duolog.adapters.scripted_llm import Line
from duolog.personas import Priority
from duolog.ports.errors import Overloaded
from duolog.serving.guard import GuardLevel
from duolog.session.events import ResponseCreated, ResponseDone, ResponseStatus, TranscriptDelta, TurnTimings
from duolog.telemetry import metrics

pytestmark = pytest.mark.session

SENTENCE = "The sea is wide and old, and Mr. Smith has sailed on it for more than forty years now. "
STORY = {"*": Line((SENTENCE * 8).strip())}
EVERY_LEVEL = pytest.mark.parametrize("level", list(GuardLevel)[1:], ids=lambda level: level.name.lower())


def skipped() -> float:
    return float(metrics.SPECULATIONS.labels("skipped")._value.get())


async def turn(caller: Caller, count: int = 1) -> ResponseDone:
    await caller.say(1.0)
    return await caller.wait_for(ResponseDone, count)


async def test_turns_begin_when_they_have_ended() -> None:
    before = skipped()
    async with world() as house, house.call() as caller:
        house.limits.level = GuardLevel.NO_EXTRAS
        await caller.say(1.0)
        await caller.pause(0.3)
        assert house.llm.requests == []
        await caller.say(0.5)
        await caller.wait_for(ResponseDone)
        timings = await caller.wait_for(TurnTimings)
    assert len(house.llm.requests) == 1
    assert caller.answers()[0].startswith("You said: one two")
    assert timings.speculation is None
    assert skipped() - before == 2


@EVERY_LEVEL
async def test_a_turn_that_was_begun_ahead_is_kept(level: GuardLevel) -> None:
    async with world() as house, house.call() as caller:
        await caller.say(1.0)
        await caller.pause(0.4)
        assert len(house.llm.requests) == 1
        house.limits.level = level
        await caller.wait_for(ResponseDone)
        timings = await caller.wait_for(TurnTimings)
    assert len(house.llm.requests) == 1
    assert timings.speculation == "used"


async def test_captions_come_less_often() -> None:
    counts = []
    for factor in (1.0, 4.0):
        async with world() as house, house.call() as caller:
            house.recognizer.stretch_partials(factor)
            await caller.say(8.0)
            counts.append(len(caller.of(TranscriptDelta)))
            await caller.wait_for(ResponseDone)
    assert counts[0] >= 3 * counts[1] > 0


async def test_an_answer_that_begins_ends_with_a_sentence() -> None:
    async with world(lines=STORY) as house, house.call() as caller:
        house.limits.level = GuardLevel.SHORT_ANSWERS
        done = await turn(caller)
        await caller.pause(0.5)
        assert house.llm.running == 0, "the engine still makes what nobody will hear"
        house.limits.level = GuardLevel.NORMAL
        await caller.pause(15)
        whole = await turn(caller, 2)
    short = done.response.items[0].text
    assert done.response.status is ResponseStatus.COMPLETED
    assert short.strip() == (SENTENCE * 2).strip() or short.strip() == (SENTENCE * 3).strip()
    assert whole.response.items[0].text.strip() == STORY["*"].text


async def test_where_a_sentence_does_not_end_a_pause_in_it_will_do() -> None:
    endless = {"*": Line(", and then it went on".join(["It began"] * 60))}
    async with world(lines=endless) as house, house.call() as caller:
        house.limits.level = GuardLevel.SHORT_ANSWERS
        done = await turn(caller)
    said = done.response.items[0].text
    assert 0 < len(said) < len(endless["*"].text) / 2
    assert endless["*"].text.startswith(said)
    assert said.rstrip().endswith(",") or endless["*"].text[len(said.rstrip())] == " "


async def test_a_short_answer_is_left_alone() -> None:
    async with world(lines={"*": Line("It is ten past nine. Good night.")}) as house, house.call() as caller:
        house.limits.level = GuardLevel.REFUSE_NORMAL
        await turn(caller)
    assert caller.answers() == ["It is ten past nine. Good night."]


@EVERY_LEVEL
async def test_an_answer_in_progress_is_untouched(level: GuardLevel) -> None:
    async with world(lines=STORY) as house, house.call() as caller:
        await caller.say(1.0)
        await caller.wait_for(ResponseCreated)
        house.limits.level = level
        await caller.wait_for(ResponseDone)
    assert [answer.strip() for answer in caller.answers()] == [STORY["*"].text]


@pytest.mark.parametrize(
    ("level", "priority", "taken"),
    [
        (GuardLevel.SHORT_ANSWERS, Priority.LOW, True),
        (GuardLevel.REFUSE_LOW, Priority.LOW, False),
        (GuardLevel.REFUSE_LOW, Priority.NORMAL, True),
        (GuardLevel.REFUSE_NORMAL, Priority.NORMAL, False),
        (GuardLevel.REFUSE_NORMAL, Priority.HIGH, True),
    ],
)
async def test_a_new_call_is_refused_by_the_priority_of_its_persona(
    level: GuardLevel, priority: Priority, taken: bool
) -> None:
    async with world(one=persona(priority=priority)) as house:
        house.limits.level = level
        if taken:
            async with house.call() as caller:
                await turn(caller)
            return
        before = metrics.CALLS_REFUSED.labels("overload")._value.get()
        with pytest.raises(Overloaded, match="too busy for a new call of Ava") as refused:
            async with house.call():
                pass
        assert refused.value.retry_after_s == 10
        assert metrics.CALLS_REFUSED.labels("overload")._value.get() - before == 1
        assert house.switchboard.active == 0


async def test_open_calls_go_on_and_may_be_resumed() -> None:
    async with world(one=persona(priority=Priority.LOW)) as house:
        async with house.call() as caller:
            await turn(caller)
            await caller.pause(8)
            house.limits.level = GuardLevel.REFUSE_NORMAL
            await turn(caller, 2)
        await anyio.sleep(1)
        async with house.call(resume=caller.call.session_id) as back:
            await turn(back)
        with pytest.raises(Overloaded):
            async with house.call(resume="sess_unknown"):
                pass
