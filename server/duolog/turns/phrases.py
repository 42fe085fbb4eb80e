"""Cuts a streamed answer into phrases for the synthesizer: the first as short as sounds natural, later ones longer.

Pure. Where it cuts depends on the text alone, never on how the text was split into deltas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Phrase:
    """A piece of the answer, spaces included: the phrases of an answer concatenated are the answer."""

    text: str
    index: int
    """0 for the first phrase of the answer."""
    start: int
    end: int
    """Character offsets in the whole answer, end exclusive."""


class _Strength(IntEnum):
    """How natural a pause is at a place."""

    NONE = 0
    """Inside a number, a name, an abbreviation: only where nothing else helps."""
    WORD = 1
    """Between two words."""
    LINK = 2
    """Before a preposition."""
    JOIN = 3
    """Before a conjunction."""
    CLAUSE = 4
    """After a comma, colon, semicolon, dash or ellipsis."""
    SENTENCE = 5


@dataclass(frozen=True, slots=True)
class _Pace:
    """From how many words on a phrase may end at a place of each strength."""

    sentence: float
    clause: float
    join: float
    link: float
    limit: float
    """Here the phrase ends at the best place there was."""

    def allows(self, strength: _Strength, words: float) -> bool:
        wanted = {
            _Strength.SENTENCE: self.sentence,
            _Strength.CLAUSE: self.clause,
            _Strength.JOIN: self.join,
            _Strength.LINK: self.link,
        }.get(strength)
        return wanted is not None and words >= wanted


_PACES = (
    _Pace(sentence=3, clause=3, join=4, link=5, limit=8),
    _Pace(sentence=2, clause=7, join=10, link=12, limit=14),
    _Pace(sentence=2, clause=14, join=18, link=20, limit=22),
)
"""By phrase index, the last for all that follow. A phrase of four to six words lasts about 1.5 s: the second must be
ready by then, so it stays short as well."""

_CJK_WORD = 0.6
"""A Chinese character weighs this many English words: 6 to 10 characters are 4 to 6 words."""
_LIMIT_SLACK_WORDS = 4
"""So far beyond the limit a better place than NONE is looked for."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_STOPS = "。！？；，、：…｡"
_OPENERS = "“「『（《【〈"
_CLOSERS = "”」』）》】〉"
_PIECE = re.compile(
    rf"\s*(?:[{_OPENERS}]*(?:[{_CJK}]|[^\s{_CJK}{_STOPS}{_OPENERS}{_CLOSERS}]+)[{_STOPS}{_CLOSERS}]*"
    rf"|[{_OPENERS}]+|[{_STOPS}{_CLOSERS}]+)\s*|\s+"
)
"""A word, or one Chinese character, with the punctuation and space after it. Every character belongs to a piece."""
_TAIL = re.compile(rf"([.!?,;:—–{_STOPS}]+|-)[\"'*_~)\]’{_CLOSERS}]*\s*$")
_SENTENCE_TAIL = re.compile(rf"[.!?。！？｡][\"'*_~)\]’{_CLOSERS}]*\s*$|\n\s*$")
_HEAD_WORD = re.compile(r"[\W_]*([^\W_]+)(?=[\W_]|$)")
_GAP = re.compile(r"[^\s.]\s+$")
_HAS_WORD = re.compile(r"[^\W_]")
_IS_CJK = re.compile(rf"[{_CJK}]")
_INITIALS = re.compile(r"(?:^|[\W_])(?:[^\W\d_]\.)*[^\W\d_]\.$")
_LIST_NUMBER = re.compile(r"^\s*\d{1,3}[.)]\s*$")
_NUMBER_SO_FAR = re.compile(r"\d\s?[,:–-]\s*$")
_LAST_TOKEN = re.compile(r"([^\W\d_]+)\.$")


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_ABBREVIATIONS = {
    "en": _words(
        "mr mrs ms dr prof st jr sr sgt capt lt col gen rev hon messrs mt ave blvd rd vs etc approx dept est inc ltd"
        " corp co univ assn bros jan feb mar apr jun jul aug sep sept oct nov dec gov sen rep pres maj adm cmdr lieut"
        " fr br ft cf al"
    ),
    "de": _words(
        "dr prof hr fr frl nr str st bzw ca vgl evtl ggf usw inkl max min tel abs jan feb apr aug sept okt nov dez"
    ),
    "fr": _words("m mm mme mlle dr pr st ste av bd env janv févr avr juil sept oct nov déc"),
    "es": _words("sr sra srta dr dra d dña ud uds av avda pág núm tel ene feb abr ago sept oct nov dic"),
}
"""Other languages have none: there a full stop before a capital ends a sentence."""
_UNITS_OF_NUMBERS = _words("hundred thousand million billion trillion")
_NUMBER_WORDS = _UNITS_OF_NUMBERS | _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety oh"
)
_BEFORE_NUMBERS = {"en": _words("no nos fig figs vol p pp art sec ch eq ver")}
"""Abbreviations only where a number follows."""
_CONJUNCTIONS = {"en": _words("and but or so because although though while when if unless until whereas yet")}
_PREPOSITIONS = {
    "en": _words(
        "that which who where to with without for from in into on about after before between by during like as at"
        " of over through under than"
    )
}
_LEANING = {
    "en": _words(
        "a an the this that these those my your his her its our their some any no every each very more most of to in on"
        " at by for from with is are was were be am been i you he she it we they who which and or but if so as than not"
        " can could will would shall should may might must do does did has have had let's it's i'm you're"
    )
}
"""Words after which nobody pauses."""
_TABLES_OF = {"zh": "en"}
"""Chinese answers hold English words."""
_CHINESE_CONJUNCTIONS = _words(
    "但是 因为 所以 如果 然后 而且 或者 并且 不过 虽然 还有 以及 同时 于是 可是 因此 要是 即使 比如 例如 其中"
)
_CHINESE_LINKS = frozenset("在从对把被跟给和与或是就也都还")
"""Before these a pause harms least; most begin a word of their own."""
_CHINESE_NUMERALS = frozenset("零〇一二两三四五六七八九十百千万亿点幺")
"""Between two of these no number is cut."""
_CHINESE_ENDINGS = frozenset("了着过")
"""After these."""


def _closed_quotes(text: str) -> bool:
    """False inside quotation marks or brackets. A straight quote opens after a space and closes after anything else."""
    depth = {"quote": 0, "bracket": 0}
    before = " "
    for char in text:
        if char == '"':
            opens = before.isspace() or before in "([—" + _OPENERS
            depth["quote"] = 1 if opens else 0
        elif char in "([" + _OPENERS:
            depth["bracket"] += 1
        elif char in ")]" + _CLOSERS:
            depth["bracket"] = max(0, depth["bracket"] - 1)
        before = char
    return not any(depth.values()) and text.replace("```", "").count("`") % 2 == 0


def ends_sentence(phrase: str) -> bool:
    """A phrase of `PhraseCutter` is the last of its sentence: it was not cut there for want of a better place."""
    return _SENTENCE_TAIL.search(phrase) is not None


class PhraseCutter:
    """Fed the answer as it comes; hands back each phrase as soon as its end is certain.

    `language` is an ISO 639-1 code: it chooses the abbreviations and conjunctions; punctuation and Chinese text are
    understood in every language.
    """

    def __init__(self, language: str) -> None:
        code = language.split("-", maxsplit=1)[0].lower()
        self._language = _TABLES_OF.get(code, code)
        self._pending = ""
        self._start = 0
        self._index = 0

    def feed(self, delta: str) -> list[Phrase]:
        """The phrases that became certain with this piece of the answer."""
        self._pending += delta
        return self._cut_all(final=False)

    def finish(self) -> list[Phrase]:
        """The rest of the answer. The cutter is then ready for another answer."""
        phrases = self._cut_all(final=True)
        if self._pending:
            phrases.append(self._take(len(self._pending)))
        self._start = self._index = 0
        return phrases

    def _cut_all(self, *, final: bool) -> list[Phrase]:
        phrases = []
        while (length := self._next_cut(final=final)) is not None:
            phrases.append(self._take(length))
        return phrases

    def _take(self, length: int) -> Phrase:
        text, self._pending = self._pending[:length], self._pending[length:]
        phrase = Phrase(text=text, index=self._index, start=self._start, end=self._start + length)
        self._start += length
        self._index += 1
        return phrase

    def _next_cut(self, *, final: bool) -> int | None:
        """Length of the next phrase, or None while its end is not certain."""
        pace = _PACES[min(self._index, len(_PACES) - 1)]
        pieces = [match.group() for match in _PIECE.finditer(self._pending)]
        words, end = 0.0, 0
        best, best_end = _Strength.NONE, 0
        for piece, following in pairwise(pieces):
            end += len(piece)
            words += self._weight(piece)
            strength = self._strength(end, piece, following, final=final)
            if strength is None:
                return None
            if self._in_code(end):
                continue
            inside = not _closed_quotes(self._pending[:end])
            if not inside and pace.allows(strength, words):
                return end
            usable = strength > _Strength.NONE or _GAP.search(piece)
            if usable and strength >= best and words >= pace.sentence and not inside:
                best, best_end = strength, end
            if words >= pace.limit and (cut := self._forced(pace, words, (best, best_end), (strength, end))):
                return cut
        return None

    def _forced(
        self, pace: _Pace, words: float, best: tuple[_Strength, int], here: tuple[_Strength, int]
    ) -> int | None:
        """Beyond the limit: the best place so far; where all are bad, a space rather than the inside of a word."""
        if best[0] >= _Strength.WORD:
            return best[1]
        if here[0] >= _Strength.WORD or words >= pace.limit + _LIMIT_SLACK_WORDS:
            return best[1] or here[1]
        return None

    def _in_code(self, end: int) -> bool:
        return self._pending.count("```", 0, end) % 2 == 1

    def _weight(self, piece: str) -> float:
        if _IS_CJK.search(piece):
            return _CJK_WORD
        return 1.0 if _HAS_WORD.search(piece) else 0.0

    def _strength(self, end: int, piece: str, following: str, *, final: bool) -> _Strength | None:
        """How natural a pause is between the two pieces; None while the following word is not complete."""
        spaced = piece[-1].isspace()
        if "\n" in piece[len(piece.rstrip()) :] and _HAS_WORD.search(self._pending[:end]):
            return _Strength.SENTENCE
        tail = _TAIL.search(piece)
        if tail and (spaced or tail.group(1)[-1] in _STOPS):
            return self._after_punctuation(end, tail.group(1), piece, following)
        if not spaced and not (_IS_CJK.search(piece) and _IS_CJK.search(following)):
            return _Strength.NONE
        if _IS_CJK.match(following) and not spaced:
            return self._between_characters(end, final=final)
        return self._between_words(piece, following, final=final)

    def _after_punctuation(self, end: int, mark: str, piece: str, following: str) -> _Strength:
        next_char = following.lstrip("\"'*_([" + _OPENERS)[:1]
        number_goes_on = _NUMBER_SO_FAR.search(self._pending, 0, end) and next_char.isdigit()
        if mark[-1] in "。！？｡" or (mark[-1] in "!?" and not next_char.islower()):
            return _Strength.SENTENCE
        if mark == ".":
            return self._after_full_stop(end, piece, next_char)
        if number_goes_on and mark[-1] in ",:-–":
            return _Strength.NONE
        return _Strength.CLAUSE if mark != "-" or piece.strip() == "-" else _Strength.WORD

    def _after_full_stop(self, end: int, piece: str, next_char: str) -> _Strength:
        """One full stop: the end of a sentence, unless it belongs to an abbreviation, an initial or a list number."""
        token = piece.strip().rstrip("\"'*_)]’" + _CLOSERS)
        line = self._pending[:end].rstrip().rsplit("\n", 1)[-1]
        if (_INITIALS.search(token) and token != "I.") or _LIST_NUMBER.match(line) or next_char.islower():
            return _Strength.NONE
        last = _LAST_TOKEN.search(token)
        word = last.group(1).lower() if last else ""
        if word in _ABBREVIATIONS.get(self._language, frozenset()):
            return _Strength.NONE
        if word in _BEFORE_NUMBERS.get(self._language, frozenset()) and next_char.isdigit():
            return _Strength.NONE
        return _Strength.SENTENCE

    def _between_characters(self, end: int, *, final: bool) -> _Strength | None:
        """Chinese shows no words: looks two characters ahead for a conjunction, and keeps clear of figures."""
        ahead = self._pending[end : end + 2]
        if len(ahead) < 2 and not final:
            return None
        if any(char.isdigit() for char in self._pending[max(0, end - 2) : end] + ahead):
            return _Strength.NONE
        if self._pending[end - 1] in _CHINESE_NUMERALS and ahead[:1] in _CHINESE_NUMERALS:
            return _Strength.NONE
        if ahead in _CHINESE_CONJUNCTIONS:
            return _Strength.JOIN
        before = self._pending[end - 1]
        natural = ahead[0] in _CHINESE_LINKS or before in _CHINESE_ENDINGS
        return _Strength.LINK if natural and before not in _CHINESE_LINKS else _Strength.WORD

    def _between_words(self, piece: str, following: str, *, final: bool) -> _Strength | None:
        word = piece.strip().strip("\"'*_()").lower()
        leans = word in _LEANING.get(self._language, frozenset()) or not word
        if leans or word[-1:].isdigit() or following[:1].isdigit():
            return _Strength.NONE
        if _IS_CJK.match(following):
            return _Strength.WORD
        head = _HEAD_WORD.match(following)
        if head is None or (head.end() == len(following) and not final):
            return None if not final else _Strength.WORD
        next_word = head.group(1).lower()
        if self._language == "en" and _is_one_number(word, next_word):
            return _Strength.NONE
        if next_word in _CONJUNCTIONS.get(self._language, frozenset()):
            return _Strength.JOIN
        return _Strength.LINK if next_word in _PREPOSITIONS.get(self._language, frozenset()) else _Strength.WORD


def _is_one_number(word: str, following: str) -> bool:
    """English: the two belong to a number in words, or to the digits of one."""
    last = word.rsplit("-", 1)[-1]
    if following == "and":
        return last in _UNITS_OF_NUMBERS
    if last == "point":
        return following in _NUMBER_WORDS
    return last in _NUMBER_WORDS and (following in _NUMBER_WORDS or following == "point")
