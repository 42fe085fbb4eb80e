"""What a sound over the bot's speech was: words that take the floor, or something the answer goes on under. Pure."""

from __future__ import annotations

from difflib import SequenceMatcher
from enum import StrEnum

from duolog.turns.backchannels import only_backchannels, spoken_words
from duolog.turns.wording import words_of

ECHO_SHARE = 0.75
"""Of the words heard, in the order in which the bot says them: recognisers mishear an echo."""
MIN_ECHO_WORDS = 4
"""Once the echo canceller has settled. A user may say a word the bot just said ("tea"); seldom four in its order."""


class Overlap(StrEnum):
    WORDS = "words"
    """The user speaks: an interruption."""
    BACKCHANNEL = "backchannel"
    ECHO = "echo"
    """The bot's own words, back through the microphone."""
    NOISE = "noise"
    """No words: a cough, a door, music."""


def judge_overlap(text: str, bot_says: str, *, warming_up: bool) -> Overlap:
    """`text` is what was recognised, `bot_says` the words around the point where the bot's playback is.

    `warming_up`: the bot has just begun to be heard, and the client's echo canceller may still let it through.
    """
    heard = [word.key for word in words_of(spoken_words(text))]
    if not heard:
        return Overlap.NOISE
    if (warming_up or len(heard) >= MIN_ECHO_WORDS) and _is_echo(heard, [word.key for word in words_of(bot_says)]):
        return Overlap.ECHO
    return Overlap.BACKCHANNEL if only_backchannels(spoken_words(text)) else Overlap.WORDS


def _is_echo(heard: list[str], said: list[str]) -> bool:
    blocks = SequenceMatcher(None, heard, said, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) >= ECHO_SHARE * len(heard)
