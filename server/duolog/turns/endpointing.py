"""How long a pause is waited before it is the end of the turn. Pure: evidence and habits in, milliseconds out.

| what is known | delay |
|---|---|
| the models say it is over, and the text ends a sentence and wants nothing more | the shortest wait |
| the models say it is over, the text cannot confirm it: a word or two, or no full stops (Chinese) | `likely_ms` |
| neither says anything clear, or the text has not come | `unsure_ms` |
| the end-of-turn model and the chat model disagree | `doubtful_ms` |
| the models say it goes on, or the text does: it trails off, or stops without a sentence end | `unfinished_ms` |
| both do, or something is being dictated (numbers, addresses, letters) | `dictation_ms` |
| no model has anything to say, and the text ends a sentence | `likely_ms` |

The models are the end-of-turn model, which hears, and the chat model, which reads: what both say is one score;
where the chat model is not asked, the other's probability alone counts. All are scaled by the persona's or the client's
patience, stretched to this speaker's own pauses, and held in bounds.
The evidence arrives during the pause: a delay that has passed when it is decided ends the turn at once.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from duolog.turns.completeness import Unfinished, ends_sentence, unfinished
from duolog.turns.wording import words_of

PUNCTUATED = frozenset({"en", "de", "fr", "es", "it", "pt", "nl"})
"""Languages in which Whisper ends a finished sentence with a full stop; it seldom does in Chinese."""
READ_LANGUAGES = frozenset({"en"})
"""Languages in which the chat model's opinion was found to be worth asking for."""
DICTATION = frozenset({Unfinished.NUMBER, Unfinished.ADDRESS, Unfinished.SPELLING})


LEAST_HEARD, LEAST_READ = 0.001, 0.001
"""Probabilities nearer to 0 (or 1) say no more than these."""
UNHEARD = 0.9
"""Taken for what the end-of-turn model would say where it is not there."""


@dataclass(frozen=True, slots=True)
class PauseEvidence:
    """What is known of a running pause."""

    probability: float | None = None
    """That the turn is over, by the end-of-turn model; None: not yet, or it has nothing to say."""
    text: str | None = None
    """Transcript of the utterance up to the pause; None: not yet. Empty: nothing that could be understood."""
    language: str | None = None
    """ISO 639-1 code of `text`; None: unknown."""
    sentence_end: float | None = None
    """That a sentence that began as `text` ends there, by the chat model; None: it was not asked, or did not answer."""
    awaits_sentence_end: bool = False
    """The chat model has been asked and may still answer; for a time that whoever asks it bounds."""


@dataclass(frozen=True, slots=True)
class EndpointingRule:
    """The numbers of the table. Measured: docs/decisions/0009."""

    likely_ms: int = 700
    unsure_ms: int = 900
    unfinished_ms: int = 1_500
    dictation_ms: int = 2_000
    sure_probability: float = 0.8
    unfinished_probability: float = 0.5
    short_words: int = 1
    """The model is erratic on utterances of no more words than this."""
    read_words: int = 4
    """The chat model is, too: it expects "Can you help me?" to go on."""
    read_weight: float = 0.72
    """Of the logarithm of the chat model's probability in the score."""
    heard_weight: float = 0.36
    """Of the log-odds of the end-of-turn model's."""
    score_offset: float = 1.46
    sure_score: float = 1.1
    unfinished_score: float = 0.2
    doubtful_ms: int = 1_300
    """Where the score lies between the two."""
    awaited_ms: int = 150
    """Beyond the shortest wait while the chat model may still answer."""


@dataclass(frozen=True, slots=True)
class Patience:
    """A persona's bounds, and the factor on everything between them."""

    shortest_ms: int = 300
    longest_ms: int = 2_500
    factor: float = 1.0


class SpeakerHabit:
    """How one speaker pauses within their turns, as far as the call has shown it."""

    REMEMBERED = 8
    MARGIN_MS = 150
    KNOWN = 3
    """Pauses after which the habit counts."""
    CUTS = 2
    """Cuts that make for more patience; one is chance."""
    CUT_TURNS = 4
    """Turns after a cut during which it counts."""

    def __init__(self) -> None:
        self._pauses: deque[int] = deque(maxlen=self.REMEMBERED)
        self._cut_ms = 0
        self._cuts = 0
        self._cut_turns_left = 0

    def went_on(self, pause_ms: int) -> None:
        """They paused for so long within a turn."""
        self._pauses.append(pause_ms)

    def was_cut(self, pause_ms: int) -> None:
        """The turn was called over, and they went on after `pause_ms` as if it had not been."""
        self._pauses.append(pause_ms)
        self._cut_ms, self._cuts, self._cut_turns_left = max(pause_ms, self._cut_ms), self._cuts + 1, self.CUT_TURNS

    def turn_ended(self) -> None:
        """A turn ended."""
        self._cut_turns_left = max(0, self._cut_turns_left - 1)
        if not self._cut_turns_left:
            self._cut_ms = self._cuts = 0

    @property
    def least_ms(self) -> int:
        """Even where all seems over: more than the pauses they were cut in; 0 where that does not happen to them."""
        return self._cut_ms + self.MARGIN_MS if self._cuts >= self.CUTS else 0

    @property
    def usual_ms(self) -> int:
        """Long enough for three of four of their pauses; 0 where too few are known."""
        if len(self._pauses) < self.KNOWN:
            return 0
        return sorted(self._pauses)[len(self._pauses) * 3 // 4] + self.MARGIN_MS


DEFAULT_RULE = EndpointingRule()


class _Opinion(StrEnum):
    """What the models say together."""

    NONE = "none"
    OVER = "over"
    UNSURE = "unsure"
    GOES_ON = "goes_on"


def endpoint_delay_ms(
    evidence: PauseEvidence, patience: Patience, habit: SpeakerHabit, rule: EndpointingRule = DEFAULT_RULE
) -> int:
    """Silence after which the turn is over, as things stand in this pause."""
    base = _base_ms(evidence, rule)
    if base is None and evidence.awaits_sentence_end:
        wanted = patience.shortest_ms + rule.awaited_ms * patience.factor
    elif base is None:
        wanted = min(habit.least_ms, rule.unsure_ms * patience.factor)
    else:
        wanted = max(base * patience.factor, min(habit.usual_ms, rule.unfinished_ms * patience.factor))
    return round(min(max(wanted, patience.shortest_ms), patience.longest_ms))


def is_worth_reading(evidence: PauseEvidence, rule: EndpointingRule = DEFAULT_RULE) -> bool:
    """The chat model's opinion would make a difference, and is worth something."""
    if not evidence.text or evidence.language not in READ_LANGUAGES or _is_left_open(evidence, rule):
        return False
    long_enough = len(words_of(evidence.text)) > rule.read_words
    return long_enough and unfinished(evidence.text, evidence.language) is None


def _base_ms(evidence: PauseEvidence, rule: EndpointingRule) -> int | None:
    """By the table; None: the shortest wait."""
    reason = unfinished(evidence.text, evidence.language) if evidence.text else None
    opinion = _opinion(evidence, rule)
    goes_on = opinion is _Opinion.GOES_ON
    if reason in DICTATION or (reason is not None and goes_on):
        return rule.dictation_ms
    if reason is not None or goes_on or _is_left_open(evidence, rule):
        return rule.unfinished_ms
    return _hopeful_ms(evidence, opinion, rule)


def _opinion(evidence: PauseEvidence, rule: EndpointingRule) -> _Opinion:
    if evidence.sentence_end is not None:
        score = _score(evidence.probability, evidence.sentence_end, rule)
        if score < rule.unfinished_score:
            return _Opinion.GOES_ON
        return _Opinion.OVER if score >= rule.sure_score else _Opinion.UNSURE
    if evidence.probability is None:
        return _Opinion.NONE
    if evidence.probability < rule.unfinished_probability:
        return _Opinion.GOES_ON
    return _Opinion.OVER if evidence.probability >= rule.sure_probability else _Opinion.UNSURE


def _score(heard: float | None, read: float, rule: EndpointingRule) -> float:
    """About the log-odds that the turn is over. `heard` None: there is no end-of-turn model."""
    heard = UNHEARD if heard is None else min(max(heard, LEAST_HEARD), 1 - LEAST_HEARD)
    log_odds = math.log(heard / (1 - heard))
    return rule.score_offset + rule.heard_weight * log_odds + rule.read_weight * math.log(max(read, LEAST_READ))


def _hopeful_ms(evidence: PauseEvidence, opinion: _Opinion, rule: EndpointingRule) -> int | None:
    if opinion is _Opinion.UNSURE and evidence.sentence_end is not None:
        return rule.doubtful_ms
    if not evidence.text or opinion is _Opinion.UNSURE:
        return rule.unsure_ms
    if opinion is _Opinion.NONE:
        return rule.likely_ms
    confirmed = ends_sentence(evidence.text) and len(words_of(evidence.text)) > rule.short_words
    return None if confirmed else rule.likely_ms


def _is_left_open(evidence: PauseEvidence, rule: EndpointingRule) -> bool:
    """More than a word or two, in a language that the recogniser punctuates, and no sentence end."""
    if not evidence.text or evidence.language not in PUNCTUATED:
        return False
    return len(words_of(evidence.text)) > rule.short_words and not ends_sentence(evidence.text)
