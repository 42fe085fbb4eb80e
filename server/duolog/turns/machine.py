"""Who has the floor: the turn machine. Pure; fed events, hands back actions.

A state is a pair: what the user does (QUIET, SPEAKING, PAUSED) and what the bot does (IDLE, THINKING, SPEAKING).
"-" is an event that cannot matter there and is ignored. `/x` after a bot state means "and the bot becomes x".

| event \\ (user, bot) | QUIET, any | SPEAKING, IDLE | SPEAKING, busy | PAUSED, IDLE | PAUSED, busy |
|---|---|---|---|---|---|
| VOICE_ONSET     | →SPEAKING begin_utterance | - | - | →SPEAKING drop_turn | →SPEAKING |
| VOICE_CONFIRMED | - | - | interrupt /IDLE if THINKING | - | interrupt, begin_turn /IDLE if THINKING |
| WORDS_HEARD     | - | - | interrupt /IDLE | - | interrupt, begin_turn /IDLE |
| NO_WORDS_HEARD  | - | - | - | - | →QUIET discard |
| VOICE_PAUSE     | - | →PAUSED begin_turn | →PAUSED | - | - |
| VOICE_ENDPOINT  | - | - | - | →QUIET commit_turn /THINKING | →QUIET commit_turn |
| VOICE_FADED     | - | - | - | →QUIET commit_turn /THINKING | →QUIET discard |
| INPUT_CLEARED   | - | →QUIET discard | →QUIET discard | →QUIET drop_turn, discard | →QUIET discard |
| ANSWER_BEGUN    | bot IDLE→THINKING | bot IDLE→THINKING | - | bot IDLE→THINKING | - |
| ANSWER_AUDIBLE  | bot THINKING→SPEAKING | - | bot THINKING→SPEAKING | - | bot THINKING→SPEAKING |
| ANSWER_ENDED    | bot→IDLE | - | bot→IDLE | - | bot→IDLE begin_turn |

"busy" is THINKING or SPEAKING, "discard" is discard_utterance. A bot that is heard is interrupted by words alone: a
sound over it that has none (a cough, "mhm") is discarded at its first pause and the answer goes on. One that only
thinks is interrupted by any voice. An overlap whose answer ends under it becomes an ordinary turn; one that did not
interrupt is committed and answered when the bot is done. Where speech may not interrupt (`interruptible=False`),
VOICE_CONFIRMED, WORDS_HEARD and NO_WORDS_HEARD do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class User(StrEnum):
    QUIET = "quiet"
    SPEAKING = "speaking"
    PAUSED = "paused"


class Bot(StrEnum):
    IDLE = "idle"
    THINKING = "thinking"
    SPEAKING = "speaking"


class TurnEvent(StrEnum):
    VOICE_ONSET = "voice_onset"
    VOICE_CONFIRMED = "voice_confirmed"
    WORDS_HEARD = "words_heard"
    """The sound over the bot is words that take the floor."""
    NO_WORDS_HEARD = "no_words_heard"
    """All of the sound over the bot is a cough, a backchannel or the bot's own echo."""
    VOICE_PAUSE = "voice_pause"
    VOICE_ENDPOINT = "voice_endpoint"
    VOICE_FADED = "voice_faded"
    INPUT_CLEARED = "input_cleared"
    ANSWER_BEGUN = "answer_begun"
    ANSWER_AUDIBLE = "answer_audible"
    ANSWER_ENDED = "answer_ended"


class TurnAction(StrEnum):
    BEGIN_UTTERANCE = "begin_utterance"
    """Start collecting, pre-roll included; tell the client that speech began."""
    BEGIN_TURN = "begin_turn"
    """Transcribe and answer ahead of time, everything held back."""
    DROP_TURN = "drop_turn"
    """The user goes on: throw away what was made ahead of time, keep the audio."""
    COMMIT_TURN = "commit_turn"
    """The turn is over: release what is ready."""
    DISCARD_UTTERANCE = "discard_utterance"
    """It was nothing: forget the audio."""
    INTERRUPT = "interrupt"
    """Silence the bot at once and cut its history to what was heard."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The state: who has the floor."""

    user: User = User.QUIET
    bot: Bot = Bot.IDLE

    @property
    def bot_busy(self) -> bool:
        return self.bot is not Bot.IDLE

    def __str__(self) -> str:
        return f"{self.user}/{self.bot}"


_NOTHING: tuple[TurnAction, ...] = ()
Step = tuple[Floor, tuple[TurnAction, ...]]


def advance(floor: Floor, event: TurnEvent, *, interruptible: bool = True) -> Step:
    """The next floor and what to do, in order. Ignored events return the floor unchanged and no action."""
    if event in _BOT_EVENTS:
        return _on_bot(floor, event)
    if event in _OVERLAP_EVENTS:
        return _on_overlap(floor, event) if interruptible else (floor, _NOTHING)
    step = _USER_STEPS.get((event, floor.user, floor.bot_busy))
    if step is None:
        return floor, _NOTHING
    user, bot, actions = step
    return Floor(user, bot or floor.bot), actions


_IDLE, _BUSY = False, True
_USER_STEPS: dict[tuple[TurnEvent, User, bool], tuple[User, Bot | None, tuple[TurnAction, ...]]] = {
    (TurnEvent.VOICE_ONSET, User.QUIET, _IDLE): (User.SPEAKING, None, (TurnAction.BEGIN_UTTERANCE,)),
    (TurnEvent.VOICE_ONSET, User.QUIET, _BUSY): (User.SPEAKING, None, (TurnAction.BEGIN_UTTERANCE,)),
    (TurnEvent.VOICE_ONSET, User.PAUSED, _IDLE): (User.SPEAKING, None, (TurnAction.DROP_TURN,)),
    (TurnEvent.VOICE_ONSET, User.PAUSED, _BUSY): (User.SPEAKING, None, _NOTHING),
    (TurnEvent.VOICE_PAUSE, User.SPEAKING, _IDLE): (User.PAUSED, None, (TurnAction.BEGIN_TURN,)),
    (TurnEvent.VOICE_PAUSE, User.SPEAKING, _BUSY): (User.PAUSED, None, _NOTHING),
    (TurnEvent.VOICE_ENDPOINT, User.PAUSED, _IDLE): (User.QUIET, Bot.THINKING, (TurnAction.COMMIT_TURN,)),
    (TurnEvent.VOICE_ENDPOINT, User.PAUSED, _BUSY): (User.QUIET, None, (TurnAction.COMMIT_TURN,)),
    (TurnEvent.VOICE_FADED, User.PAUSED, _IDLE): (User.QUIET, Bot.THINKING, (TurnAction.COMMIT_TURN,)),
    (TurnEvent.VOICE_FADED, User.PAUSED, _BUSY): (User.QUIET, None, (TurnAction.DISCARD_UTTERANCE,)),
    (TurnEvent.INPUT_CLEARED, User.SPEAKING, _IDLE): (User.QUIET, None, (TurnAction.DISCARD_UTTERANCE,)),
    (TurnEvent.INPUT_CLEARED, User.SPEAKING, _BUSY): (User.QUIET, None, (TurnAction.DISCARD_UTTERANCE,)),
    (TurnEvent.INPUT_CLEARED, User.PAUSED, _IDLE): (
        User.QUIET,
        None,
        (TurnAction.DROP_TURN, TurnAction.DISCARD_UTTERANCE),
    ),
    (TurnEvent.INPUT_CLEARED, User.PAUSED, _BUSY): (User.QUIET, None, (TurnAction.DISCARD_UTTERANCE,)),
}

_BOT_EVENTS = {TurnEvent.ANSWER_BEGUN, TurnEvent.ANSWER_AUDIBLE, TurnEvent.ANSWER_ENDED}


_OVERLAP_EVENTS = {TurnEvent.VOICE_CONFIRMED, TurnEvent.WORDS_HEARD, TurnEvent.NO_WORDS_HEARD}


def _on_overlap(floor: Floor, event: TurnEvent) -> Step:
    if floor.user is User.QUIET or not floor.bot_busy:
        return floor, _NOTHING
    if event is TurnEvent.NO_WORDS_HEARD:
        paused = floor.user is User.PAUSED
        return (Floor(User.QUIET, floor.bot), (TurnAction.DISCARD_UTTERANCE,)) if paused else (floor, _NOTHING)
    if event is TurnEvent.VOICE_CONFIRMED and floor.bot is Bot.SPEAKING:
        return floor, _NOTHING
    if floor.user is User.PAUSED:
        return Floor(floor.user, Bot.IDLE), (TurnAction.INTERRUPT, TurnAction.BEGIN_TURN)
    return Floor(floor.user, Bot.IDLE), (TurnAction.INTERRUPT,)


def _on_bot(floor: Floor, event: TurnEvent) -> Step:
    if event is TurnEvent.ANSWER_BEGUN and floor.bot is Bot.IDLE:
        return Floor(floor.user, Bot.THINKING), _NOTHING
    if event is TurnEvent.ANSWER_AUDIBLE and floor.bot is Bot.THINKING:
        return Floor(floor.user, Bot.SPEAKING), _NOTHING
    if event is TurnEvent.ANSWER_ENDED and floor.bot_busy:
        begin = (TurnAction.BEGIN_TURN,) if floor.user is User.PAUSED else _NOTHING
        return Floor(floor.user, Bot.IDLE), begin
    return floor, _NOTHING
