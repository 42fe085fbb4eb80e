"""Bytes of the wire: binary frames and sample formats."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duolog.ports.errors import RequestRefused
from duolog.realtime.audio_format import AudioFormat, Encoding, bytes_from_base64
from duolog.realtime.frames import Frame, pack_speech, unpack_microphone

pytestmark = pytest.mark.pure


def test_speech_frames_are_laid_out_as_documented() -> None:
    assert pack_speech(1, 2, b"ab") == b"\x02\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00ab"
    assert struct.unpack_from("<II", pack_speech(2**32 + 5, 2**32 + 6, b""), 4) == (5, 6)


@pytest.mark.slow
@settings(deadline=None)
@given(st.binary(), st.integers(0, 65_535))
def test_a_microphone_frame_gives_its_samples_back(samples: bytes, sequence: int) -> None:
    assert unpack_microphone(struct.pack("<BBH", 1, 0, sequence) + samples) == samples


@pytest.mark.parametrize("frame", [b"", b"\x01\x00\x00", b"\x02\x00\x00\x00ab", b"\x01\x01\x00\x00ab"])
def test_other_binary_frames_are_refused(frame: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        unpack_microphone(frame)
    assert caught.value.code == "invalid_binary_frame"


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(-32_768, 32_767)))
def test_pcm_comes_back_as_it_went(values: list[int]) -> None:
    pcm = AudioFormat.pcm(24_000)
    samples = np.array(values, dtype=np.int16)
    assert np.array_equal(pcm.decode(pcm.encode(samples), "audio"), samples)


@pytest.mark.parametrize("encoding", [Encoding.MU_LAW, Encoding.A_LAW])
def test_telephone_audio_comes_back_nearly(encoding: Encoding) -> None:
    law = AudioFormat(encoding, 8_000)
    samples = (np.sin(np.arange(800) / 10) * 20_000).astype(np.int16)
    encoded = law.encode(samples)
    assert len(encoded) == 800
    error = law.decode(encoded, "audio").astype(int) - samples
    assert np.abs(error).max() < 1_000


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(RequestRefused, match="3 bytes") as caught:
        AudioFormat.pcm(24_000).decode(b"abc", "audio")
    assert (caught.value.code, caught.value.param) == ("invalid_value", "audio")


@pytest.mark.parametrize("text", ["a", "!!!!", "AAA", "AAAA\n AAAA", "ä"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        bytes_from_base64(text, "audio")
    assert (caught.value.code, caught.value.param) == ("invalid_value", "audio")


def test_json_frames_keep_their_letters() -> None:
    encoded = Frame({"text": "你好"}).encoded()
    assert encoded == '{"text":"你好"}'
    assert json.loads(encoded) == {"text": "你好"}
