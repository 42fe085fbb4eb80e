"""Answers cut off at many places in real Chromium: the history ends at the last word that the loudspeaker was given.

The voice is scripted, so that the place of each word is known by arithmetic; a recorder behind the page's playback
worklet says what was rendered, apart from the worklet's own count.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest
from tests.app.running import ROOT, running, scripted

from duolog.adapters.coqui_words import word_spans
from duolog.adapters.scripted_tts import GAP_MS, MS_PER_CHAR
from duolog.personas import PersonaLibrary

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DRIVER = ROOT / "web" / "test" / "drive-cuts.js"
SAID = "we sailed past the old harbour wall and then out over the bar to where the wide green water begins to roll"
ANSWER = f"You said: {SAID} And I heard every word of it."
RATE_HZ = 24_000
LOUD = 0.02
"""Also of a voice that is lowered."""
LOWERED_MS = (0, 0, 250, 0, 700)
"""By turns: the page lowers the voice for so long before the cut, and holds it after 400 ms."""
HOLD_RAMP_MS = 60
"""A voice that is about to be held fades; the words in it count as played."""
UNSURE_MS = 6
"""So near to a word's end the recording alone does not tell: the cut fades for 10 ms."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    start_sample: int
    end_sample: int
    text_end: int


def timeline() -> list[SpokenWord]:
    """Where the voice puts each word of the answer."""
    speed = PersonaLibrary(ROOT / "configs" / "personas", "ava").get("ava").speed
    words, position = [], 0
    for start, end in word_spans(ANSWER, 0, len(ANSWER)):
        length = round((end - start) * MS_PER_CHAR * RATE_HZ / 1000 / speed)
        words.append(SpokenWord(position, position + length, end))
        position += length + round(GAP_MS * RATE_HZ / 1000 / speed)
    return words


def places(words: list[SpokenWord]) -> list[str]:
    """Seconds, and for how long the voice is lowered before the cut.

    Early, in the middle and late in words, in the gap after one, and about the ends of words.
    """
    wanted = []
    for number, word in enumerate(words[1:15]):
        length = word.end_sample - word.start_sample
        offsets = (length // 10, length // 2, length - 240, length + 480, length)
        place_s = (word.start_sample + offsets[number % len(offsets)]) / RATE_HZ
        wanted.append(f"{place_s:.4f}+{LOWERED_MS[number // 2 % len(LOWERED_MS)]}")
    return wanted


@pytest.fixture(scope="module")
def cuts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    out = tmp_path_factory.mktemp("cuts") / "cuts.json"
    at = ",".join(places(timeline()))
    with running(scripted()) as server:
        command = ["node", str(DRIVER), "--url", server.url, "--text", SAID, "--at", at, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    if "no Chromium" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    made: list[dict[str, Any]] = json.loads(out.read_text())["cuts"]
    return made


def is_held(cut: dict[str, Any]) -> bool:
    return bool(cut["lowerMs"] > 400)


def heard_until(sample: int) -> str:
    ends = [word.text_end for word in timeline() if word.end_sample <= sample]
    return ANSWER[: ends[-1]] if ends else ""


def test_the_history_ends_at_the_last_word_that_was_rendered(cuts: list[dict[str, Any]]) -> None:
    assert len(cuts) >= 10
    wrong = [
        (cut["playedSamples"], cut["history"], cut["told"])
        for cut in cuts
        if not cut["history"] == cut["told"] == heard_until(cut["playedSamples"])
    ]
    assert wrong == []
    assert not any(cut["isApproximate"] for cut in cuts)
    assert len({cut["history"] for cut in cuts}) >= 6, "the cuts fell into different words"


def test_the_worklets_count_is_what_its_frames_say(cuts: list[dict[str, Any]]) -> None:
    for cut in cuts:
        assert cut["recordedFrames"] == cut["frames"], "nothing is missing in the recording"
        if cut["underruns"] == 0 and not is_held(cut):
            assert cut["playedSamples"] == pytest.approx(cut["renderedS"] * RATE_HZ, abs=2)


def test_the_recording_holds_the_words_of_the_history_and_no_other(cuts: list[dict[str, Any]]) -> None:
    """A word is heard where its last milliseconds sound; nothing sounds after the cut."""
    for cut in (cut for cut in cuts if cut["underruns"] == 0):
        levels, end_ms = cut["levels"], cut["playedSamples"] * 1000 / RATE_HZ
        assert max(levels[round(end_ms) + 3 :]) < 1e-3
        for word in timeline():
            word_end_ms = word.end_sample * 1000 / RATE_HZ
            if abs(word_end_ms - end_ms) < (HOLD_RAMP_MS if is_held(cut) else UNSURE_MS):
                continue
            last_ms = levels[int(word_end_ms) - 3 : int(word_end_ms) - 1]
            sounds = bool(last_ms) and min(last_ms) > LOUD
            assert sounds == (word.text_end <= len(cut["history"])), (cut["history"], ANSWER[: word.text_end])
