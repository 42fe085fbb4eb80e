"""The ear: windows in, voice events and utterances out; time is samples received."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from duolog.adapters.scripted_vad import ScriptedVad
from duolog.ports.vad import WINDOW_SAMPLES
from duolog.session.listening import Ear
from duolog.turns.activity import SAMPLES_PER_MS, ActivityOptions, VoiceEvent, VoiceEventKind

pytestmark = pytest.mark.pure

RATE_HZ = 16_000
PREROLL_MS = 300
ONSET, CONFIRMED, PAUSE, ENDPOINT = (
    VoiceEventKind.ONSET,
    VoiceEventKind.CONFIRMED,
    VoiceEventKind.PAUSE,
    VoiceEventKind.ENDPOINT,
)


def ear(rate_hz: int = RATE_HZ, **changes: int) -> Ear:
    return Ear(ScriptedVad(), ActivityOptions(**changes), rate_hz, PREROLL_MS)


def voice(ms: int, rate_hz: int = RATE_HZ) -> NDArray[np.int16]:
    return np.where(np.arange(rate_hz * ms // 1000) % 2, 5_000, -5_000).astype(np.int16)


def silence(ms: int, rate_hz: int = RATE_HZ) -> NDArray[np.int16]:
    return np.zeros(rate_hz * ms // 1000, np.int16)


def heard(one: Ear, *sounds: NDArray[np.int16], now: float = 0.0) -> list[VoiceEvent]:
    """The events of sounds in 20 ms frames, without acting on them."""
    joined = np.concatenate(sounds)
    frame = RATE_HZ // 50
    return [event for start in range(0, len(joined), frame) for event in one.hear(joined[start : start + frame], now)]


def test_voice_and_silence_become_events_in_order() -> None:
    events = heard(ear(), silence(320), voice(640), silence(640))
    assert [event.kind for event in events] == [ONSET, CONFIRMED, PAUSE, ENDPOINT]
    assert events[0].at_sample == 320 * SAMPLES_PER_MS
    assert events[3].at_sample == 960 * SAMPLES_PER_MS


def test_utterance_begins_with_its_preroll_and_ends_with_its_voice() -> None:
    one = ear()
    (onset,) = heard(one, silence(1_600), voice(128))
    assert one.begin_utterance(onset.at_sample) == pytest.approx((1_600 - PREROLL_MS) * SAMPLES_PER_MS, abs=512)
    heard(one, voice(512), silence(160), now=7.0)
    utterance = one.utterance("item")
    assert utterance.end_sample == (1_600 + 640) * SAMPLES_PER_MS
    assert utterance.voiced_ms == 640
    assert utterance.start_sample + len(utterance.samples) == one.heard_ms * SAMPLES_PER_MS
    assert utterance.heard_at == 7.0
    assert utterance.item_id == "item"


def test_nothing_before_the_preroll_is_kept_while_nobody_speaks() -> None:
    one = ear()
    heard(one, silence(10_000))
    assert one.kept_samples < 500 * SAMPLES_PER_MS
    assert one.heard_ms == pytest.approx(10_000, abs=32)


def test_running_utterance_is_kept_whole_up_to_its_longest() -> None:
    one = ear(max_utterance_ms=2_000)
    (onset,) = heard(one, voice(96))
    one.begin_utterance(onset.at_sample)
    heard(one, voice(1_500))
    assert one.kept_samples == pytest.approx(1_596 * SAMPLES_PER_MS, abs=512)
    heard(one, voice(4_000))
    assert one.kept_samples <= (2_000 + PREROLL_MS) * SAMPLES_PER_MS + 2 * WINDOW_SAMPLES


def test_ended_utterance_leaves_the_preroll_of_the_next() -> None:
    one = ear()
    (onset,) = heard(one, voice(96))
    one.begin_utterance(onset.at_sample)
    heard(one, voice(960))
    one.end_utterance()
    assert one.kept_samples == pytest.approx(PREROLL_MS * SAMPLES_PER_MS, abs=WINDOW_SAMPLES)
    assert not one.activity.in_utterance


def test_endpoint_and_the_next_onset_in_one_append_are_two_utterances() -> None:
    """Each event is acted on before the next window is heard, as a call does."""
    one, seen = ear(), []
    for event in one.hear(np.concatenate([voice(640), silence(640), voice(640), silence(640)]), 0.0):
        seen.append(event.kind)
        if event.kind is ONSET:
            one.begin_utterance(event.at_sample)
        elif event.kind is ENDPOINT:
            assert one.utterance("item").voiced_ms == 640
            one.end_utterance()
    assert seen == [ONSET, CONFIRMED, PAUSE, ENDPOINT] * 2


def test_muted_ear_hears_silence_and_time_goes_on() -> None:
    one = ear()
    one.muted = True
    assert heard(one, voice(1_600)) == []
    assert one.heard_ms == 1_600


def test_manual_ear_keeps_everything_since_the_last_commit() -> None:
    one = ear()
    one.keep_all = True
    heard(one, silence(1_600), voice(320))
    assert one.kept_samples == 1_920 * SAMPLES_PER_MS
    one.end_utterance()
    assert one.kept_samples == 0
    assert one.utterance("item").samples.size == 0
    assert one.utterance("item").heard_at == 0.0


def test_other_rates_are_resampled_and_may_change_in_the_middle() -> None:
    one = ear(48_000)
    assert [event.kind for event in one.hear(voice(640, 48_000) // 2, 0.0)] in ([], [ONSET], [ONSET, CONFIRMED])
    assert one.heard_ms == pytest.approx(640, abs=64)
    one.configure(ActivityOptions(endpoint_ms=200), RATE_HZ, 100)
    heard(one, silence(320))
    assert one.activity.endpoint_ms == 200
    assert one.heard_ms == pytest.approx(960, abs=64)
