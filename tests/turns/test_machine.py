"""The turn machine: every cell of the table in its docstring, and what must hold over any sequence of events."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns import machine
from duolog.turns.machine import Bot, Floor, TurnAction, TurnEvent, User, advance

pytestmark = pytest.mark.pure

COLUMNS = {
    "QUIET, any": [(User.QUIET, bot) for bot in Bot],
    "SPEAKING, IDLE": [(User.SPEAKING, Bot.IDLE)],
    "SPEAKING, busy": [(User.SPEAKING, Bot.THINKING), (User.SPEAKING, Bot.SPEAKING)],
    "PAUSED, IDLE": [(User.PAUSED, Bot.IDLE)],
    "PAUSED, busy": [(User.PAUSED, Bot.THINKING), (User.PAUSED, Bot.SPEAKING)],
}


def documented_cells() -> dict[tuple[TurnEvent, User, Bot], str]:
    """The docstring's table as (event, user, bot) → cell."""
    rows = [line for line in (machine.__doc__ or "").splitlines() if line.startswith("|")]
    heads = [cell.strip() for cell in rows[0].strip("|").split("|")][1:]
    cells = {}
    for row in rows[2:]:
        name, *texts = [cell.strip() for cell in row.strip("|").split("|")]
        for head, text in zip(heads, texts, strict=True):
            for user, bot in COLUMNS[head]:
                cells[TurnEvent[name], user, bot] = text
    return cells


CELLS = documented_cells()


def expected_step(cell: str, floor: Floor) -> tuple[Floor, tuple[TurnAction, ...]]:
    """Read one cell: `→USER action, action /BOT if BOT`, `bot FROM→TO action` or `-`."""
    condition = re.search(r" if ([A-Z]+)$", cell)
    if condition and floor.bot is not Bot[condition[1]]:
        return floor, ()
    words = {action.value: action for action in TurnAction} | {"discard": TurnAction.DISCARD_UTTERANCE}
    actions = tuple(words[word] for word in re.findall(r"[a-z_]+", cell) if word in words)
    user = re.search(r"^→([A-Z]+)", cell)
    bot_after = re.search(r"/([A-Z]+)", cell)
    bot_step = re.search(r"bot ?([A-Z]*)→([A-Z]+)", cell)
    if bot_step:
        applies = floor.bot is Bot[bot_step[1]] if bot_step[1] else floor.bot_busy
        return (Floor(floor.user, Bot[bot_step[2]]), actions) if applies else (floor, ())
    return (
        Floor(User[user[1]] if user else floor.user, Bot[bot_after[1]] if bot_after else floor.bot),
        actions,
    )


def test_table_covers_every_cell() -> None:
    assert set(CELLS) == set(itertools.product(TurnEvent, User, Bot))


@pytest.mark.parametrize(("event", "user", "bot"), sorted(CELLS, key=str))
def test_cell(event: TurnEvent, user: User, bot: Bot) -> None:
    floor = Floor(user, bot)
    assert advance(floor, event) == expected_step(CELLS[event, user, bot], floor)


@pytest.mark.parametrize(("user", "bot"), list(itertools.product(User, Bot)))
def test_uninterruptible_bot_is_never_interrupted(user: User, bot: Bot) -> None:
    floor = Floor(user, bot)
    for event in (TurnEvent.VOICE_CONFIRMED, TurnEvent.WORDS_HEARD, TurnEvent.NO_WORDS_HEARD):
        assert advance(floor, event, interruptible=False) == (floor, ())


@given(st.lists(st.sampled_from(TurnEvent)), st.booleans())
def test_any_sequence_keeps_the_books(events: list[TurnEvent], interruptible: bool) -> None:
    """Utterances begin before they end, turns are begun before they are dropped, each utterance ends once."""
    floor = Floor()
    open_utterance = begun = False
    for event in events:
        floor, actions = advance(floor, event, interruptible=interruptible)
        for action in actions:
            if action is TurnAction.BEGIN_UTTERANCE:
                assert not open_utterance
                open_utterance, begun = True, False
            elif action is TurnAction.BEGIN_TURN:
                assert open_utterance
                begun = True
            elif action is TurnAction.DROP_TURN:
                assert begun
                begun = False
            elif action in {TurnAction.COMMIT_TURN, TurnAction.DISCARD_UTTERANCE}:
                assert open_utterance
                open_utterance = False
    assert open_utterance == (floor.user is not User.QUIET)


def test_cough_over_the_bot_leaves_it_speaking() -> None:
    floor = Floor(User.QUIET, Bot.SPEAKING)
    happened: list[TurnAction] = []
    for event in (
        TurnEvent.VOICE_ONSET,
        TurnEvent.VOICE_CONFIRMED,
        TurnEvent.NO_WORDS_HEARD,
        TurnEvent.VOICE_PAUSE,
        TurnEvent.NO_WORDS_HEARD,
        TurnEvent.VOICE_FADED,
    ):
        floor, actions = advance(floor, event)
        happened += actions
    assert floor == Floor(User.QUIET, Bot.SPEAKING)
    assert happened == [TurnAction.BEGIN_UTTERANCE, TurnAction.DISCARD_UTTERANCE]


def test_words_over_the_bot_interrupt_it_and_become_a_turn() -> None:
    floor = Floor(User.QUIET, Bot.SPEAKING)
    happened: list[TurnAction] = []
    for event in (
        TurnEvent.VOICE_ONSET,
        TurnEvent.VOICE_CONFIRMED,
        TurnEvent.WORDS_HEARD,
        TurnEvent.VOICE_PAUSE,
        TurnEvent.VOICE_ENDPOINT,
    ):
        floor, actions = advance(floor, event)
        happened += actions
    assert floor == Floor(User.QUIET, Bot.THINKING)
    assert happened == [
        TurnAction.BEGIN_UTTERANCE,
        TurnAction.INTERRUPT,
        TurnAction.BEGIN_TURN,
        TurnAction.COMMIT_TURN,
    ]
