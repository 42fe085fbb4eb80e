"""Voice probabilities to voice events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duolog.turns.activity import ActivityOptions, VoiceActivity, VoiceEventKind

pytestmark = pytest.mark.pure

WINDOW = 512
ONSET, CONFIRMED, PAUSE = VoiceEventKind.ONSET, VoiceEventKind.CONFIRMED, VoiceEventKind.PAUSE
ENDPOINT, FADED = VoiceEventKind.ENDPOINT, VoiceEventKind.FADED


def play(activity: VoiceActivity, script: str) -> list[tuple[VoiceEventKind, int]]:
    """`#` is a voiced window, `.` a silent one, `~` one between the thresholds. Returns (event, window number)."""
    probability = {"#": 0.9, ".": 0.05, "~": 0.4}
    return [
        (event.kind, number) for number, char in enumerate(script) for event in activity.feed(probability[char], WINDOW)
    ]


def test_utterance_runs_from_onset_to_endpoint() -> None:
    activity = VoiceActivity(ActivityOptions(endpoint_ms=320))
    events = play(activity, "...##########...........")
    assert events == [(ONSET, 4), (CONFIRMED, 9), (PAUSE, 14), (ENDPOINT, 22)]


def test_single_window_is_no_onset() -> None:
    assert play(VoiceActivity(ActivityOptions()), "..#..#...#........") == []


def test_short_word_fades_instead_of_ending() -> None:
    events = play(VoiceActivity(ActivityOptions(endpoint_ms=320)), ".####...........")
    assert [kind for kind, _ in events] == [ONSET, PAUSE, FADED]


def test_hysteresis_keeps_a_weak_window_within_voice() -> None:
    events = play(VoiceActivity(ActivityOptions(endpoint_ms=320)), "####~~~~####")
    assert [kind for kind, _ in events] == [ONSET, CONFIRMED]


def test_weak_windows_do_not_begin_voice() -> None:
    assert play(VoiceActivity(ActivityOptions()), "~~~~~~~~") == []


def test_speech_that_goes_on_is_a_second_onset_of_the_same_utterance() -> None:
    activity = VoiceActivity(ActivityOptions(endpoint_ms=320))
    events = play(activity, "########....####")
    assert [kind for kind, _ in events] == [ONSET, CONFIRMED, PAUSE, ONSET]
    assert activity.voiced_ms == 12 * 32


def test_endpoint_delay_may_change_during_the_pause() -> None:
    activity = VoiceActivity(ActivityOptions(endpoint_ms=3_000))
    play(activity, "########.....")
    activity.endpoint_ms = 200
    assert [kind for kind, _ in play(activity, ".....")] == [ENDPOINT]


def test_longest_utterance_ends_without_a_pause() -> None:
    activity = VoiceActivity(ActivityOptions(max_utterance_ms=640))
    events = play(activity, "#" * 24)
    assert [kind for kind, _ in events][:4] == [ONSET, CONFIRMED, PAUSE, ENDPOINT]


def test_forced_endpoint_needs_an_utterance() -> None:
    activity = VoiceActivity(ActivityOptions())
    assert activity.force_endpoint() == []
    play(activity, "########")
    assert [event.kind for event in activity.force_endpoint()] == [PAUSE, ENDPOINT]
    assert not activity.in_utterance


@given(st.text(alphabet="#.~", max_size=300))
def test_events_alternate_as_promised(script: str) -> None:
    allowed = {
        None: {ONSET},
        ONSET: {CONFIRMED, PAUSE, ENDPOINT, FADED},
        CONFIRMED: {PAUSE, ENDPOINT},
        PAUSE: {ONSET, ENDPOINT, FADED},
        ENDPOINT: {ONSET},
        FADED: {ONSET},
    }
    last = None
    for kind, _ in play(VoiceActivity(ActivityOptions(endpoint_ms=200)), script):
        assert kind in allowed[last]
        last = kind
