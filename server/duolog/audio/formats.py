"""Sample formats: PCM16 bytes, floats, and G.711 (µ-law and A-law, ITU-T G.711) by table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

INT16_SCALE = 32_767.0


class OddByteCount(ValueError):
    """PCM16 bytes that end in half a sample."""


def pcm16_from_bytes(payload: bytes) -> NDArray[np.int16]:
    """Samples of 16-bit little-endian mono audio. Raises OddByteCount."""
    if len(payload) % 2:
        raise OddByteCount(f"{len(payload)} bytes are no whole number of 16-bit samples")
    return np.frombuffer(payload, dtype="<i2").astype(np.int16, copy=False)


def float_to_int16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Samples from -1…1 as int16; louder ones are clipped."""
    scaled = np.clip(samples, -1.0, 1.0) * INT16_SCALE
    return np.round(scaled).astype(np.int16)


def ulaw_decode(payload: bytes) -> NDArray[np.int16]:
    return _ULAW_TO_PCM[np.frombuffer(payload, np.uint8)]


def alaw_decode(payload: bytes) -> NDArray[np.int16]:
    return _ALAW_TO_PCM[np.frombuffer(payload, np.uint8)]


def ulaw_encode(samples: NDArray[np.int16]) -> bytes:
    return _PCM_TO_ULAW[samples.view(np.uint16)].tobytes()


def alaw_encode(samples: NDArray[np.int16]) -> bytes:
    return _PCM_TO_ALAW[samples.view(np.uint16)].tobytes()


def _ulaw_table() -> NDArray[np.int16]:
    """Code → sample: inverted bits, 3 exponent bits, 4 mantissa bits, bias 132."""
    code = ~np.arange(256, dtype=np.uint8)
    magnitude = ((((code & 0x0F).astype(np.int32) << 3) + 132) << ((code >> 4) & 7)) - 132
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _alaw_table() -> NDArray[np.int16]:
    """Code → sample: even bits inverted, 3 exponent bits, 4 mantissa bits."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent = (code >> 4).astype(np.int32) & 7
    mantissa = ((code & 0x0F).astype(np.int32) << 4) + 8
    magnitude = np.where(exponent == 0, mantissa, (mantissa + 256) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


def _nearest(table: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Sample (as uint16) → the code whose sample is nearest."""
    order = np.argsort(table, kind="stable")
    values = table[order].astype(np.int32)
    samples = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)
    above = np.clip(np.searchsorted(values, samples), 1, len(values) - 1)
    closer_below = samples - values[above - 1] <= values[above] - samples
    return np.asarray(order[np.where(closer_below, above - 1, above)], dtype=np.uint8)


_ULAW_TO_PCM = _ulaw_table()
_ALAW_TO_PCM = _alaw_table()
_PCM_TO_ULAW = _nearest(_ULAW_TO_PCM)
_PCM_TO_ALAW = _nearest(_ALAW_TO_PCM)
