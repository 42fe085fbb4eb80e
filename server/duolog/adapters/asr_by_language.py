"""A recogniser for each language that has one of its own, as one recogniser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duolog.ports.asr import SpeechRecognizer, Transcript, TranscriptionRequest


class RecognizerByLanguage:
    """`SpeechRecognizer` over others. It owns them: closing it closes them.

    Where the language is not known, the default one hears the utterance and says what it is.
    """

    def __init__(self, default: SpeechRecognizer, by_language: Mapping[str, SpeechRecognizer]) -> None:
        """`by_language`: by ISO 639-1 code."""
        self._default = default
        self._by_language = dict(by_language)

    async def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        """One batch a recogniser, one after another. Cancellation and errors are those of the recogniser at work."""
        found: dict[int, Transcript] = {}
        for engine, numbers in self._shares(requests):
            transcripts = await engine.transcribe([requests[number] for number in numbers])
            found.update(zip(numbers, transcripts, strict=True))
        return [found[number] for number in range(len(requests))]

    async def warm_up(self) -> None:
        for engine in self._engines():
            await engine.warm_up()

    async def aclose(self) -> None:
        for engine in self._engines():
            await engine.aclose()

    def _engines(self) -> list[SpeechRecognizer]:
        return [self._default, *self._by_language.values()]

    def _shares(self, requests: Sequence[TranscriptionRequest]) -> list[tuple[SpeechRecognizer, list[int]]]:
        """Every recogniser that has work, with the places of its requests."""
        shares: dict[int, tuple[SpeechRecognizer, list[int]]] = {}
        for number, request in enumerate(requests):
            engine = self._by_language.get(request.language or "", self._default)
            shares.setdefault(id(engine), (engine, []))[1].append(number)
        return list(shares.values())
