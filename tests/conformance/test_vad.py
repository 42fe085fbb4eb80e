"""What every VoiceActivityDetector keeps to: the same tests for the scripted one and for Silero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from faster_whisper.vad import get_vad_model
from numpy.typing import NDArray

from duolog.adapters.scripted_vad import ScriptedVad
from duolog.adapters.silero_vad import SileroVad
from duolog.loadtest.audio_files import read_speech
from duolog.ports.errors import EngineRejected
from duolog.ports.vad import WINDOW_SAMPLES, VoiceActivityDetector, VoiceActivityDetectorFactory

DETECTORS = [
    pytest.param(ScriptedVad, marks=pytest.mark.pure, id="scripted"),
    pytest.param(SileroVad, marks=pytest.mark.real, id="silero"),
]


def windows(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    whole = len(samples) // WINDOW_SAMPLES * WINDOW_SAMPLES
    return samples[:whole].reshape(-1, WINDOW_SAMPLES)


def listen(detector: VoiceActivityDetector, samples: NDArray[np.float32]) -> list[float]:
    return [detector.probability(window) for window in windows(samples)]


def speech(corpus: Path) -> NDArray[np.float32]:
    return read_speech(corpus / "en" / "sb_spk2_snt5.wav").astype(np.float32) / np.float32(32_768)


@pytest.mark.parametrize("new", DETECTORS)
def test_silence_is_no_voice(new: VoiceActivityDetectorFactory) -> None:
    probabilities = listen(new(), np.zeros(16_000, np.float32))
    assert all(0 <= probability < 0.2 for probability in probabilities)


@pytest.mark.parametrize("new", DETECTORS)
def test_a_reset_forgets_the_past(new: VoiceActivityDetectorFactory) -> None:
    detector = new()
    noise = np.random.default_rng(1).normal(0, 0.1, 16_000).astype(np.float32)
    first = listen(detector, noise)
    listen(detector, np.ones(WINDOW_SAMPLES * 4, np.float32))
    detector.reset()
    assert listen(detector, noise) == first


@pytest.mark.parametrize("new", DETECTORS)
def test_calls_do_not_disturb_each_other(new: VoiceActivityDetectorFactory) -> None:
    noise = np.random.default_rng(2).normal(0, 0.1, 16_000).astype(np.float32)
    alone = listen(new(), noise)
    one, other = new(), new()
    together = []
    for window in windows(noise):
        together.append(one.probability(window))
        other.probability(np.flip(window).copy())
    assert together == alone


@pytest.mark.corpus
@pytest.mark.parametrize("new", DETECTORS)
def test_a_person_who_speaks_is_heard(new: VoiceActivityDetectorFactory, corpus: Path) -> None:
    probabilities = listen(new(), speech(corpus))
    assert sum(probability > 0.5 for probability in probabilities) > len(probabilities) / 2


@pytest.mark.real
@pytest.mark.corpus
def test_silero_answers_as_its_packages_own_code_does(corpus: Path) -> None:
    samples = speech(corpus)
    expected = get_vad_model()(windows(samples).reshape(-1).copy()).reshape(-1)
    # The package zeroes the end of its last window.
    np.testing.assert_allclose(listen(SileroVad(), samples)[:-1], expected[:-1], atol=1e-5)


@pytest.mark.real
def test_silero_refuses_a_window_of_another_length() -> None:
    with pytest.raises(EngineRejected, match="512"):
        SileroVad().probability(np.zeros(480, np.float32))


@pytest.mark.pure
def test_the_scripted_one_goes_by_loudness() -> None:
    assert listen(ScriptedVad(), np.full(512, 0.1, np.float32)) == [0.99]
    assert listen(ScriptedVad(), np.full(512, 0.001, np.float32)) == [0.01]
