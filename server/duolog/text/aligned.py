"""Text that remembers, for each of its characters, where in the source it came from. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Part = str | tuple[int, int]
"""Of a replacement: new text, or a range of the matched text (absolute offsets) that is kept with its own origin."""
Replacement = Callable[[re.Match[str]], Part | list[Part] | None]
"""None leaves the match as it is."""
Rule = tuple[re.Pattern[str], Replacement | str]


@dataclass(frozen=True, slots=True)
class AlignedText:
    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    """For each character, the range of the source it stands for; the characters of one replacement share theirs."""

    @classmethod
    def of(cls, source: str) -> AlignedText:
        return cls(source, tuple(range(len(source))), tuple(range(1, len(source) + 1)))

    def sub(self, pattern: re.Pattern[str], replacement: Replacement | str) -> AlignedText:
        """Replace every match; new text stands for what it replaces: the match without the ranges that are kept."""
        builder: _Builder | None = None
        done = 0
        for match in pattern.finditer(self.text):
            parts = replacement if isinstance(replacement, str) else replacement(match)
            if parts is None:
                continue
            builder = builder or _Builder(self)
            builder.keep(done, match.start())
            builder.replace(parts if isinstance(parts, list) else [parts], *match.span())
            done = match.end()
        if builder is None:
            return self
        builder.keep(done, len(self.text))
        return builder.result()

    def apply(self, rules: Iterable[Rule]) -> AlignedText:
        """One rule after another, each on what those before it made."""
        text = self
        for pattern, replacement in rules:
            text = text.sub(pattern, replacement)
        return text

    def stripped(self) -> AlignedText:
        lead = len(self.text) - len(self.text.lstrip())
        end = len(self.text.rstrip())
        return AlignedText(self.text[lead:end], self.starts[lead:end], self.ends[lead:end])


class _Builder:
    def __init__(self, source: AlignedText) -> None:
        self._source = source
        self.pieces: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def keep(self, start: int, end: int) -> None:
        self.pieces.append(self._source.text[start:end])
        self._starts.extend(self._source.starts[start:end])
        self._ends.extend(self._source.ends[start:end])

    def replace(self, parts: list[Part], start: int, end: int) -> None:
        for index, part in enumerate(parts):
            if isinstance(part, str):
                kept_after = [later[0] for later in parts[index + 1 :] if not isinstance(later, str)]
                self.put(part, start, kept_after[0] if kept_after else end)
            else:
                self.keep(*part)
                start = part[1]

    def put(self, text: str, start: int, end: int) -> None:
        if start == end or not text:
            return
        first, last = self._source.starts[start], self._source.ends[end - 1]
        self.pieces.append(text)
        self._starts.extend([first] * len(text))
        self._ends.extend([last] * len(text))

    def result(self) -> AlignedText:
        return AlignedText("".join(self.pieces), tuple(self._starts), tuple(self._ends))
