"""Which words of a growing transcript will not change: LocalAgreement-2 (two hypotheses in a row agree). Pure.

hypothesis 1   I would like a
hypothesis 2   I would like to go      agreed: I would like      said: "I would like"
hypothesis 3   I would like to go home agreed: … to go           said: " to go"
"""

from __future__ import annotations

from duolog.turns.wording import Word, is_ideograph, words_of

MAX_SHIFT = 2
"""By how many words a hypothesis may have grown or shrunk before the words that are already out."""


class StableWords:
    """The stable words of one utterance. What was said once is never taken back; the final transcript is the truth."""

    def __init__(self) -> None:
        self._said: list[Word] = []
        self._previous: list[Word] = []
        self._settled = 0

    @property
    def text(self) -> str:
        """Everything said so far: all results of `push` and `settle` joined."""
        return "".join(word.surface for word in self._said)

    def push(self, hypothesis: str) -> str:
        """Take the newest hypothesis of the whole utterance; returns the text to append, often empty.

        The newest word is held back: it may be cut off in the middle.
        """
        tail = self._unsaid(words_of(hypothesis))
        agreed = _common_prefix(tail[:-1], self._previous)
        self._previous = tail[agreed:]
        return self._say(tail[:agreed])

    def settle(self, hypothesis: str) -> str:
        """The audio so far is cut off: say all of its last hypothesis, and begin afresh with what comes after it.

        Later hypotheses are of the rest alone. Keeps partial decodes short in a long utterance.
        """
        delta = self._say(self._unsaid(words_of(hypothesis)))
        self._settled = len(self._said)
        self._previous = []
        return delta

    def _unsaid(self, words: list[Word]) -> list[Word]:
        """What follows the words that are out, found by the last of them; by position where it is not there."""
        open_words = self._said[self._settled :]  # hypotheses no longer hold the settled ones
        if not open_words:
            return words
        for shift in (0, *(sign * step for step in range(1, MAX_SHIFT + 1) for sign in (-1, 1))):
            position = len(open_words) + shift
            if 0 < position <= len(words) and words[position - 1].key == open_words[-1].key:
                return words[position:]
        return words[len(open_words) :]

    def _say(self, words: list[Word]) -> str:
        delta = "".join(word.surface for word in words)
        if not delta:
            return ""
        if not self._said:
            words = [Word(words[0].surface.lstrip(), words[0].key), *words[1:]]
        elif _needs_space(self.text[-1], delta[0]):
            words = [Word(" " + words[0].surface, words[0].key), *words[1:]]
        self._said += words
        return "".join(word.surface for word in words)


def _common_prefix(one: list[Word], other: list[Word]) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left.key != right.key:
            break
        length += 1
    return length


def _needs_space(before: str, after: str) -> bool:
    return not (before.isspace() or after.isspace() or is_ideograph(before) or is_ideograph(after))
