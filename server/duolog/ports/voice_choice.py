"""Which voice speaks where the one that was asked for cannot. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from duolog.ports.tts import Voice


def voice_for(voices: Sequence[Voice], voice_id: str, language: str) -> Voice | None:
    """The voice `voice_id` where it speaks `language`; else the first that does, one of last resort only then.

    Where none does, `voice_id` itself, for better or worse. None where there is no such voice.
    """
    wanted = next((voice for voice in voices if voice.id == voice_id), None)
    if wanted is None or _speaks(wanted, language):
        return wanted
    able = sorted((voice for voice in voices if _speaks(voice, language)), key=lambda voice: voice.last_resort)
    return able[0] if able else wanted


def _speaks(voice: Voice, language: str) -> bool:
    code = language.split("-", maxsplit=1)[0].lower()
    return any(code == spoken.split("-", maxsplit=1)[0].lower() for spoken in voice.languages)
