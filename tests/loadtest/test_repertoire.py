"""What callers say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from duolog.loadtest.failures import AudioUnreadable
from duolog.loadtest.repertoire import recorded_sounds, sound_of, spoken_sounds

pytestmark = pytest.mark.real


def write(path: Path, seconds: float, level: float = 0.5) -> None:
    times = np.arange(round(seconds * 8_000)) / 8_000
    soundfile.write(path, level * np.sin(2 * np.pi * 300 * times), 8_000)


def test_recordings_of_a_folder_by_name(tmp_path: Path) -> None:
    write(tmp_path / "b.wav", 1.0)
    write(tmp_path / "a.FLAC", 0.5)
    (tmp_path / "notes.txt").write_text("no sound")
    sounds = recorded_sounds(tmp_path)
    assert [sound.label for sound in sounds] == ["a.FLAC", "b.wav"]
    assert sounds[1].length_s == pytest.approx(1.0, abs=0.01)


def test_what_is_silent_or_endless_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "silent.wav", 1.0, level=0.0)
    write(tmp_path / "endless.wav", 31.0)
    with pytest.raises(AudioUnreadable, match="silent or longer than 30 s"):
        recorded_sounds(tmp_path)
    write(tmp_path / "good.wav", 1.0)
    assert [sound.label for sound in recorded_sounds(tmp_path)] == ["good.wav"]


def test_espeak_speaks_sentences() -> None:
    [sound] = spoken_sounds(["What is the weather like today?"])
    assert 1.0 < sound.length_s < 5.0
    assert 0 <= sound.voiced_from_s < sound.voiced_until_s <= sound.length_s
    assert 10_000 < np.abs(sound.samples).max() <= 0.36 * 32_767
    with pytest.raises(AudioUnreadable, match="says nothing"):
        spoken_sounds([""])


@pytest.mark.parametrize("silent_samples", [0, 3_200])
def test_where_the_voice_is(silent_samples: int) -> None:
    silence = np.zeros(silent_samples, dtype=np.int16)
    voice = np.full(16_000, 5_000, dtype=np.int16)
    sound = sound_of("x", np.concatenate([silence, voice, silence]))
    assert sound.voiced_from_s == silent_samples / 16_000
    assert sound.voiced_until_s == (silent_samples + 16_000) / 16_000
