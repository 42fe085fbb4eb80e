"""What the user really heard: maps samples played to words of the answer.

Pure. One ledger for each generation of audio. Sample counts are at the output rate; positions in the answer are
character offsets in its original text (not the spoken form).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeardWord:
    """One word on the timeline of a generation."""

    end_sample: int
    """The word has been heard when this many samples were played."""
    text_end: int
    """Offset in the answer's text just after the word."""


class PlayoutLedger:
    """Audio sent and played of one answer, and the words in it."""

    def __init__(self, generation: int, item_id: str, rate_hz: int) -> None:
        self.generation = generation
        self.item_id = item_id
        self.rate_hz = rate_hz
        self.sent_samples = 0
        self.played_samples = 0
        self.complete = False
        """True once everything has been sent."""
        self.approximate = False
        """True where a voice gave no word timings, or the client reports nothing."""
        self._text = ""
        self._words: list[HeardWord] = []

    @property
    def played_ms(self) -> int:
        return self.played_samples * 1000 // self.rate_hz

    @property
    def sent_ms(self) -> int:
        return self.sent_samples * 1000 // self.rate_hz

    @property
    def text(self) -> str:
        """Everything that was given to the voice."""
        return self._text

    def add_text(self, text: str) -> int:
        """Append a phrase's original text; returns the offset at which it begins."""
        start = len(self._text)
        self._text += text
        return start

    def add_words(self, words: list[HeardWord]) -> None:
        """Words in order, on the generation's own timeline."""
        self._words.extend(words)

    def add_sent(self, samples: int) -> int:
        """Count samples handed to the client; returns the position of the first of them."""
        start = self.sent_samples
        self.sent_samples += samples
        return start

    def report(self, played_samples: int) -> bool:
        """Take a played position; it never goes back, nor beyond what was sent. True where it moved."""
        clipped = min(max(played_samples, self.played_samples), self.sent_samples)
        moved = clipped > self.played_samples
        self.played_samples = clipped
        return moved

    @property
    def finished(self) -> bool:
        """Everything was sent and heard."""
        return self.complete and self.played_samples >= self.sent_samples

    def said_between(self, start_sample: int, end_sample: int) -> str:
        """The words sounding in a stretch of it; all the text where the voice gave no timings."""
        if not self._words:
            return self._text
        begin = end = 0
        for word in self._words:
            if word.end_sample <= start_sample:
                begin = word.text_end
            end = word.text_end
            if word.end_sample > end_sample:
                break
        return self._text[begin:end]

    def heard_text(self, played_samples: int | None = None) -> str:
        """The answer's text up to the last word that was heard to its end."""
        played = self.played_samples if played_samples is None else played_samples
        if self.complete and played >= self.sent_samples:
            return self._text
        end = 0
        for word in self._words:
            if word.end_sample > played:
                break
            end = word.text_end
        return self._text[:end]
