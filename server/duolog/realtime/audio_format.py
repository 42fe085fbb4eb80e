"""The sample formats of the wire, and the way between their bytes and PCM16 samples. Pure."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from duolog.audio.formats import alaw_decode, alaw_encode, pcm16_from_bytes, ulaw_decode, ulaw_encode
from duolog.ports.errors import RequestRefused

G711_RATE_HZ = 8_000


class Encoding(StrEnum):
    PCM = "audio/pcm"
    """16 bit, little-endian, mono."""
    MU_LAW = "audio/pcmu"
    A_LAW = "audio/pcma"


@dataclass(frozen=True, slots=True)
class AudioFormat:
    encoding: Encoding
    rate_hz: int

    @classmethod
    def pcm(cls, rate_hz: int) -> AudioFormat:
        return cls(Encoding.PCM, rate_hz)

    def decode(self, payload: bytes, param: str) -> NDArray[np.int16]:
        """Samples of the bytes. Raises RequestRefused naming `param` for half a sample."""
        if self.encoding is Encoding.MU_LAW:
            return ulaw_decode(payload)
        if self.encoding is Encoding.A_LAW:
            return alaw_decode(payload)
        try:
            return pcm16_from_bytes(payload)
        except ValueError as error:
            message = f"Invalid audio: {len(payload)} bytes are no whole number of 16-bit samples; send an even count."
            raise RequestRefused(message, code="invalid_value", param=param) from error

    def encode(self, samples: NDArray[np.int16]) -> bytes:
        if self.encoding is Encoding.MU_LAW:
            return ulaw_encode(samples)
        if self.encoding is Encoding.A_LAW:
            return alaw_encode(samples)
        return pcm16_bytes(samples)


def pcm16_bytes(samples: NDArray[np.int16]) -> bytes:
    """16-bit little-endian, whatever the machine's own order is."""
    return samples.astype("<i2", copy=False).tobytes()


def bytes_from_base64(text: str, param: str) -> bytes:
    """Raises RequestRefused naming `param` where the text is not Base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"Invalid value for '{param}': it is not Base64 ({error})."
        raise RequestRefused(message, code="invalid_value", param=param) from error
