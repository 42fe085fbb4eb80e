"""Which word of a text each phoneme belongs to.

espeak-ng joins words (`of the` → `ʌvðə`) and splits them (`3.5` → three), so that counting spaces is not enough: where
the counts differ, the clause is aligned with its words spoken one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_CJK = "\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]+")

NO_WORD = -1
"""Owner of a space or a mark."""


def word_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Offsets of the words in `text[start:end]`, marks attached; a Chinese or Japanese character is a word."""
    for match in _WORD.finditer(text, start, end):
        if any(char.isalnum() for char in match.group()):
            yield match.span()


def owners(phonemes: str, spoken_words: Sequence[str]) -> list[int]:
    """For each character of a clause's phonemes the index of its word; NO_WORD for spaces. Never decreasing.

    `spoken_words`: the phonemes of each word on its own.
    """
    if not spoken_words:
        return [NO_WORD] * len(phonemes)
    groups = phonemes.split(" ")
    if len(groups) == len(spoken_words) and not any(" " in word for word in spoken_words):
        of_sounds = [index for index, group in enumerate(groups) for _ in group]
    else:
        of_sounds = _align(phonemes.replace(" ", ""), spoken_words)
    following = iter(of_sounds)
    return [NO_WORD if char == " " else next(following) for char in phonemes]


def _align(sounds: str, spoken_words: Sequence[str]) -> list[int]:
    """Least edit distance between the clause and its words in a row; an extra sound goes to the word before it."""
    expected = [(char, index) for index, word in enumerate(spoken_words) for char in word if char != " "]
    cost = _edit_costs(sounds, [char for char, _ in expected])
    result = [0] * len(sounds)
    row, column = len(sounds), len(expected)
    while row > 0:
        here = cost[row][column]
        if column > 0 and here == cost[row - 1][column - 1] + (sounds[row - 1] != expected[column - 1][0]):
            row, column = row - 1, column - 1
            result[row] = expected[column][1]
        elif column > 0 and here == cost[row][column - 1] + 1:
            column -= 1
        else:
            row -= 1
            result[row] = expected[max(0, column - 1)][1] if expected else 0
    return result


def _edit_costs(left: Sequence[str], right: Sequence[str]) -> list[list[int]]:
    cost = [list(range(len(right) + 1))]
    for row, char in enumerate(left, start=1):
        above, line = cost[-1], [row]
        for column, other in enumerate(right):
            line.append(min(above[column] + (char != other), above[column + 1] + 1, line[column] + 1))
        cost.append(line)
    return cost
