"""Does a transcript go round in circles? Recognisers do so past the end of speech and on noise. Pure."""

from __future__ import annotations

from duolog.turns.wording import words_of

MIN_TAIL_WORDS = 4
"""Shorter repeated ends are ordinary speech: "… your temporary greeting … your temporary greeting"."""


def ends_in_repeat(text: str) -> bool:
    """True where the text's end says again what stands right before it, or the text is one thing said over.

    A repetition that breaks off counts from half of what it repeats on: "I know that I" begins as it ends, no more.

    "Hello. Hello." counts, too: a person may say it, so this asks for a second look and is no verdict.
    """
    return _words_said_again([word.key for word in words_of(text)]) > 0


def without_repeated_end(text: str) -> str:
    """The text without what its end says again."""
    words = words_of(text)
    kept = len(words) - _words_said_again([word.key for word in words])
    return "".join(word.surface for word in words[:kept]).strip()


def longest_run(text: str) -> int:
    """How often the most repeated phrase stands in a row: 1 for ordinary speech, 3 for "no, no, no"."""
    keys = [word.key for word in words_of(text)]
    longest = 1 if keys else 0
    for period in range(1, len(keys) // 2 + 1):
        same = 0
        for index in range(period, len(keys)):
            same = same + 1 if keys[index] == keys[index - period] else 0
            longest = max(longest, same // period + 1)
    return longest


def _words_said_again(keys: list[str]) -> int:
    for period in range(1, len(keys)):
        repeated = _repeated_tail(keys, period)
        if 2 * repeated >= period and (repeated >= MIN_TAIL_WORDS or repeated == len(keys) - period):
            return repeated
    return 0


def _repeated_tail(keys: list[str], period: int) -> int:
    """Words at the end that equal the word `period` before them."""
    length = 0
    while length < len(keys) - period and keys[-1 - length] == keys[-1 - length - period]:
        length += 1
    return length
