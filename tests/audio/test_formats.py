"""Sample formats: PCM16, floats, G.711."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from duolog.audio.formats import (
    OddByteCount,
    alaw_decode,
    alaw_encode,
    float_to_int16,
    pcm16_from_bytes,
    ulaw_decode,
    ulaw_encode,
)

pytestmark = pytest.mark.pure

SAMPLES = st.lists(st.integers(-32_768, 32_767), max_size=64).map(lambda values: np.array(values, np.int16))


def test_pcm16_is_little_endian() -> None:
    assert pcm16_from_bytes(b"\x01\x00\xff\x7f\x00\x80").tolist() == [1, 32_767, -32_768]


@pytest.mark.parametrize("size", [1, 3, 639])
def test_half_a_sample_is_refused_with_the_count(size: int) -> None:
    with pytest.raises(OddByteCount, match=str(size)):
        pcm16_from_bytes(bytes(size))


def test_floats_are_rounded_and_clipped() -> None:
    floats = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5], np.float32)
    assert float_to_int16(floats).tolist() == [0, 32_767, -32_767, 32_767, -32_767, 16_384]


@pytest.mark.parametrize(
    ("decode", "code", "sample"),
    [
        (ulaw_decode, 0xFF, 0),
        (ulaw_decode, 0x7F, 0),
        (ulaw_decode, 0x80, 32_124),
        (ulaw_decode, 0x00, -32_124),
        (alaw_decode, 0xD5, 8),
        (alaw_decode, 0x55, -8),
        (alaw_decode, 0xAA, 32_256),
        (alaw_decode, 0x2A, -32_256),
    ],
)
def test_g711_reference_values(decode: Callable[[bytes], NDArray[np.int16]], code: int, sample: int) -> None:
    assert decode(bytes([code])).tolist() == [sample]


@pytest.mark.parametrize(("decode", "encode"), [(ulaw_decode, ulaw_encode), (alaw_decode, alaw_encode)])
def test_every_g711_code_comes_back_to_its_sample(
    decode: Callable[[bytes], NDArray[np.int16]], encode: Callable[[NDArray[np.int16]], bytes]
) -> None:
    samples = decode(bytes(range(256)))
    assert decode(encode(samples)).tolist() == samples.tolist()


@settings(deadline=None)
@given(SAMPLES)
def test_g711_is_off_by_at_most_a_step(samples: NDArray[np.int16]) -> None:
    wide = samples.astype(np.int32)
    for decode, encode in ((ulaw_decode, ulaw_encode), (alaw_decode, alaw_encode)):
        error = np.abs(decode(encode(samples)).astype(np.int32) - wide)
        assert (error <= np.maximum(16, np.abs(wide) // 16)).all()
