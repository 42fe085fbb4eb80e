"""Which of the waiting phrases the speech engine says next. Pure: it knows no clock, no engine and no call.

1. A first phrase goes before a continuation: until it is said, its caller hears silence.
2. Unless a voice would then fall silent in the middle of its answer, which is worse than a first word that comes one
   phrase later. Continuations are taken by when their clients run dry; if with a first phrase ahead of them one of them
   would come too late, the most urgent of them goes first.
3. A first phrase is overtaken at most MOST_OVERTAKEN times.

Nobody starves: a call has one phrase waiting at a time, and no first phrase before its last answer is over, so that a
continuation waits for at most one first phrase of each other call and for the continuations that are more urgent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_OVERTAKEN = 2
"""The silence before an answer may grow by two phrases, some 0.2 s, for others' not to be torn."""
MARGIN_S = 0.15
"""A phrase is to be there so long before the client runs dry: the way to it, and that work is only estimated."""
FIRST_GUESS_S_PER_CHAR = 0.01
"""Until one phrase has been said: some 30 characters in 0.3 s, which is a slow machine."""
LEARNING_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Waiting:
    """A phrase in the queue, seen now."""

    number: int
    """In the order of arrival."""
    work_s: float
    """What saying it is expected to take."""
    slack_s: float | None
    """Until its client has nothing left to play; negative: it has run dry. None: a first phrase."""
    overtaken: int = 0
    """How many continuations were said before this first phrase while it waited."""


def next_up(waiting: Sequence[Waiting]) -> Waiting:
    """The one to say next. Raises ValueError where none waits."""
    firsts = [one for one in waiting if one.slack_s is None]
    running_on = sorted((one for one in waiting if one.slack_s is not None), key=_urgency)
    if not firsts:
        return min(running_on, key=_urgency)
    first = min(firsts, key=_arrival)
    if first.overtaken < MOST_OVERTAKEN and _comes_too_late(running_on, first.work_s):
        return running_on[0]
    return first


def _arrival(one: Waiting) -> int:
    return one.number


def _urgency(one: Waiting) -> tuple[float, int]:
    return (one.slack_s or 0.0, one.number)


def _comes_too_late(running_on: Sequence[Waiting], ahead_s: float) -> bool:
    """Whether, said one after another behind `ahead_s` of other work, one of them misses its client's end."""
    done_s = ahead_s
    for one in running_on:
        done_s += one.work_s
        if done_s + MARGIN_S > (one.slack_s or 0.0):
            return True
    return False


class SpeechPace:
    """How long a phrase takes, learned from those that were said."""

    def __init__(self) -> None:
        self._s_per_char: float | None = None

    def work_s(self, chars: int) -> float:
        return chars * (FIRST_GUESS_S_PER_CHAR if self._s_per_char is None else self._s_per_char)

    def learn(self, chars: int, seconds: float) -> None:
        """A phrase was said to its end."""
        if chars == 0:
            return
        pace = seconds / chars
        known = pace if self._s_per_char is None else self._s_per_char
        self._s_per_char = known + LEARNING_SHARE * (pace - known)
