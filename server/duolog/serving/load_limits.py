"""What the parts of a server may still do under load. The guard sets the level; everybody asks here before they begin.

Only beginnings are limited: a turn that runs, an answer in progress and a call that is open are left as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from duolog.personas import Priority
from duolog.serving.guard import GuardLevel

NOT_TAKEN = {
    GuardLevel.REFUSE_LOW: (Priority.LOW,),
    GuardLevel.REFUSE_NORMAL: (Priority.LOW, Priority.NORMAL),
}
"""Who is not taken at a level."""
CAPTION_STRETCH = {GuardLevel.FEWER_CAPTIONS: 2.0, GuardLevel.SHORT_ANSWERS: 3.0}
LONGEST_STRETCH = 4.0


@dataclass(frozen=True, slots=True)
class LimitOptions:
    short_answer_tokens: int = 40
    """An answer that begins under load ends with the sentence that is running after so many tokens."""
    retry_after_s: float = 10.0
    """What a refused caller is told."""


class LoadLimits:
    """Shared by all calls of a process; at first there is no limit."""

    def __init__(self, options: LimitOptions | None = None) -> None:
        self._options = options or LimitOptions()
        self.level = GuardLevel.NORMAL

    @property
    def may_speculate(self) -> bool:
        """Turns may be transcribed and answered ahead of their end."""
        return self.level < GuardLevel.NO_EXTRAS

    @property
    def may_keep_warm(self) -> bool:
        """The engine may be asked to compute what nobody waits for."""
        return self.level < GuardLevel.NO_EXTRAS

    @property
    def caption_stretch(self) -> float:
        """How many times as long as usual captions are apart."""
        if self.level < GuardLevel.FEWER_CAPTIONS:
            return 1.0
        return CAPTION_STRETCH.get(self.level, LONGEST_STRETCH)

    @property
    def answer_tokens(self) -> int | None:
        """Where an answer that begins now is to come to its end; None: where it will."""
        return self._options.short_answer_tokens if self.level >= GuardLevel.SHORT_ANSWERS else None

    @property
    def retry_after_s(self) -> float:
        return self._options.retry_after_s

    def takes(self, priority: Priority) -> bool:
        """A new call of a persona of this priority may begin."""
        return priority not in NOT_TAKEN.get(self.level, ())
