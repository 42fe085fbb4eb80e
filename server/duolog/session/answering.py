"""Makes one answer: model (or its memory) → phrases → voice → client, three stages that run at once.

    compose ──phrases──▶ voice ──pieces──▶ deliver
                                             └── waits until the turn is committed

Everything before `deliver` may run ahead of the turn's end; nothing leaves before it is committed. Engine failures end
in the persona's apology, said in its own voice, never in silence.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import numpy as np
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from numpy.typing import NDArray

from duolog.audio.formats import float_to_int16
from duolog.audio.resample import Resampler
from duolog.ports.errors import EngineError, Overloaded
from duolog.ports.llm import FinishReason, GenerationEnd, TextDelta, TokenUsage
from duolog.ports.tts import SpeechChunk, SpeechRequest, WordTiming
from duolog.serving.batcher import Admitted, BatcherRequest
from duolog.serving.prompt_cache import AnswerSource, Recalled
from duolog.serving.synthesizer import Synthesizer
from duolog.session.config import Modality
from duolog.session.events import ResponseStatus
from duolog.session.outbox import Outbox
from duolog.session.playing import Playback, Playbacks
from duolog.session.response import Outcome, Response
from duolog.session.turn import Turn
from duolog.telemetry import metrics
from duolog.text.speakable import Spoken, speakable
from duolog.turns.conversation import Conversation
from duolog.turns.languages import answer_language
from duolog.turns.phrases import Phrase, PhraseCutter, ends_sentence
from duolog.turns.playout import HeardWord

PHRASES_AHEAD = 16
"""Phrases the model may be ahead of the voice."""
PIECES_AHEAD = 4
"""Synthesised phrases that may wait for the turn to be committed or the client to read."""
SOUND_AHEAD_S = 8.0
"""Sound a client may hold unplayed before the next phrase is synthesised: an interruption wastes no more."""

PAUSE_SHARE = 1.5
"""Of the tokens after which an answer is to end under load: from here on it need not be at a sentence's end."""

MODEL = "model"
"""`Turn.answer_source` of an answer that was made for this turn."""


@dataclass(frozen=True, slots=True)
class VoiceStyle:
    """How an answer sounds."""

    voice: str
    languages: tuple[str, ...]
    """ISO 639-1 codes it may be in, the usual one first; the words of each phrase decide."""
    speed: float
    rate_hz: int
    apology: str
    has_word_timings: bool
    """False: what was heard is only known approximately."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A phrase's text, or a chunk of its sound, ready to leave."""

    text: str = ""
    chunk: SpeechChunk | None = None
    words: tuple[WordTiming, ...] = ()
    """Timings with offsets in the phrase's original text instead of its spoken form."""


class Answer:
    """The making of one answer. Use once."""

    def __init__(
        self, turn: Turn, response: Response, style: VoiceStyle, source: AnswerSource, synthesizer: Synthesizer
    ) -> None:
        self._turn = turn
        self._response = response
        self._style = style
        self._source = source
        self._synthesizer = synthesizer
        self._usage = TokenUsage()
        self._made_tokens = 0
        self._made_s = 0.0
        self._finish: FinishReason | None = None
        self._failure: EngineError | Overloaded | None = None
        self._on_first_audio: Callable[[], None] = _nothing
        self._playback: Playback | None = None
        self._language = style.languages[0]

    async def run(
        self,
        request: BatcherRequest | None,
        outbox: Outbox,
        conversation: Conversation,
        playbacks: Playbacks,
        on_first_audio: Callable[[], None],
    ) -> Outcome:
        """Answer `request`, or say the turn's fixed text; `on_first_audio` is told when its sound has begun to leave.

        Cancellation stops all stages; the caller ends the response.
        """
        self._on_first_audio = on_first_audio
        phrases_in, phrases_out = anyio.create_memory_object_stream[Phrase](PHRASES_AHEAD)
        pieces_in, pieces_out = anyio.create_memory_object_stream[Piece](PIECES_AHEAD)
        with phrases_in, phrases_out, pieces_in, pieces_out:
            async with anyio.create_task_group() as stages:
                stages.start_soon(self._compose, request, phrases_in)
                stages.start_soon(self._voice, phrases_out, pieces_in)
                await self._deliver(pieces_out, outbox, conversation, playbacks)
                stages.cancel_scope.cancel()  # where its sound was flushed, there is nobody left to make it for
        return self._outcome()

    async def _compose(self, request: BatcherRequest | None, phrases: MemoryObjectSendStream[Phrase]) -> None:
        cutter = PhraseCutter(self._style.languages[0])
        async with phrases:
            try:
                async with aclosing(self._tokens(request)) as deltas:
                    async for delta in deltas:
                        for phrase in cutter.feed(delta):
                            await phrases.send(phrase)
                            if self._is_long_enough(phrase):
                                self._end_here()
                                return
            except (EngineError, Overloaded) as error:
                self._failure = error
                for phrase in [*cutter.finish(), *self._apology()]:
                    await phrases.send(phrase)
            else:
                for phrase in cutter.finish():
                    await phrases.send(phrase)

    def _is_long_enough(self, phrase: Phrase) -> bool:
        """Under load an answer ends at a sentence; where sentences are long, at any pause between two phrases."""
        limit = self._turn.shorten_after_tokens
        if limit is None or self._made_tokens < limit:
            return False
        return ends_sentence(phrase.text) or self._made_tokens >= PAUSE_SHARE * limit

    def _end_here(self) -> None:
        """What the engine has made beyond is dropped, and it stops."""
        metrics.DROPS.labels("answer_tail", "overload").inc()
        self._finish, self._usage = FinishReason.STOP, TokenUsage(completion_tokens=self._made_tokens)

    def _apology(self) -> list[Phrase]:
        cutter = PhraseCutter(self._style.languages[0])
        return [*cutter.feed(self._style.apology), *cutter.finish()]

    async def _tokens(self, request: BatcherRequest | None) -> AsyncGenerator[str, None]:
        marks = self._turn.marks
        if request is None:
            yield self._turn.spoken_text or ""
            return
        async with aclosing(self._source.generate(request)) as stream:
            async for part in stream:
                now = anyio.current_time()
                if isinstance(part, Admitted):
                    marks.admitted = now
                    self._turn.answer_source = MODEL
                elif isinstance(part, Recalled):
                    self._turn.answer_source = part.level.value
                elif isinstance(part, TextDelta):
                    marks.first_token = marks.first_token or now
                    self._made_tokens += 1
                    yield part.text
                elif isinstance(part, GenerationEnd):
                    self._usage, self._finish = part.usage, part.reason

    async def _voice(self, phrases: MemoryObjectReceiveStream[Phrase], pieces: MemoryObjectSendStream[Piece]) -> None:
        async with phrases, pieces:
            async for phrase in phrases:
                await pieces.send(Piece(text=phrase.text))
                if self._response.modality is Modality.AUDIO:
                    await self._speak(phrase, pieces)

    async def _speak(self, phrase: Phrase, pieces: MemoryObjectSendStream[Piece]) -> None:
        self._language = answer_language(phrase.text, self._style.languages, self._language)
        spoken = speakable(phrase.text, self._language)
        if not spoken.text.strip() or (isinstance(self._failure, EngineError) and self._failure.engine == "tts"):
            return
        runs_dry_at = None if self._turn.marks.first_phrase is None else self._runs_dry_at
        self._turn.marks.first_phrase = self._turn.marks.first_phrase or anyio.current_time()
        if self._playback is not None:
            await anyio.sleep(max(0.0, self._playback.remaining_s - SOUND_AHEAD_S))
        request = SpeechRequest(spoken.text, self._style.voice, self._language, self._style.speed)
        try:
            chunks = self._synthesizer.speak(self._turn.session_id, request, runs_dry_at=runs_dry_at)
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._turn.marks.first_audio = self._turn.marks.first_audio or anyio.current_time()
                    self._made_s += len(chunk.samples) / chunk.sample_rate_hz
                    words = _in_phrase(chunk.words, spoken)
                    await pieces.send(Piece(chunk=chunk, words=words))
        except EngineError as error:
            self._failure = error

    def _runs_dry_at(self) -> float:
        """When the client has played all sound made so far. Before the first of it has left, nobody waits for more."""
        if self._playback is None:
            return anyio.current_time() + self._made_s
        ledger = self._playback.ledger
        unsent_s = max(0.0, self._made_s - ledger.sent_samples / ledger.rate_hz)
        return anyio.current_time() + self._playback.remaining_s + unsent_s

    async def _deliver(
        self,
        pieces: MemoryObjectReceiveStream[Piece],
        outbox: Outbox,
        conversation: Conversation,
        playbacks: Playbacks,
    ) -> None:
        await self._turn.committed.wait()
        response = self._response
        response.begin(outbox)
        sound: _Sound | None = None
        text = ""
        async with pieces:
            async for piece in pieces:
                text = piece.text or text
                if piece.text:
                    response.add_text(piece.text, outbox, conversation)
                    if sound is not None:
                        sound.add_text(piece.text)
                if piece.chunk is None:
                    continue
                if sound is None:
                    self._playback = playbacks.begin(response.item_id, self._style.rate_hz)
                    response.announce(self._playback, outbox, conversation)
                    self._playback.ledger.approximate = not self._style.has_word_timings
                    sound = _Sound(self._playback)
                    sound.add_text(response.text, unspoken=len(response.text) - len(text))
                if not await response.add_audio(sound.add_chunk(piece), outbox):
                    return
                if self._turn.marks.first_audio_sent is None:
                    self._turn.marks.first_audio_sent = anyio.current_time()
                    self._on_first_audio()
            if sound is not None:
                await response.add_audio(sound.finish(), outbox)

    def _outcome(self) -> Outcome:
        if self._failure is not None:
            return Outcome(ResponseStatus.FAILED, error=str(self._failure), usage=self._usage)
        if self._finish is FinishReason.LENGTH:
            return Outcome(ResponseStatus.INCOMPLETE, reason="max_output_tokens", usage=self._usage)
        return Outcome(ResponseStatus.COMPLETED, usage=self._usage)


class _Sound:
    """The sound of one answer at the client's rate, and its words on the same timeline.

    Each voice keeps its rate, and an answer may change voice between two phrases.
    """

    def __init__(self, playback: Playback) -> None:
        self._ledger = playback.ledger
        self._voice_rate_hz = self._ledger.rate_hz
        self._resampler = Resampler(self._voice_rate_hz, self._ledger.rate_hz)
        self._made_samples = 0.0
        """At the client's rate, before the resampler's rounding, as the two below."""
        self._phrase_start_sample = 0.0
        self._phrase_start_text = 0

    def add_text(self, text: str, unspoken: int = 0) -> None:
        """A phrase begins; `unspoken` characters of it belong to phrases that had no sound."""
        self._phrase_start_text = self._ledger.add_text(text) + unspoken
        self._phrase_start_sample = self._made_samples

    def add_chunk(self, piece: Piece) -> NDArray[np.int16]:
        if piece.chunk is None:
            raise ValueError("a piece of text has no sound")
        rest = self._change_rate(piece.chunk.sample_rate_hz)
        scale = self._ledger.rate_hz / self._voice_rate_hz
        self._ledger.add_words(
            [
                HeardWord(
                    round(self._phrase_start_sample + word.end_sample * scale),
                    self._phrase_start_text + word.text_end,
                )
                for word in piece.words
            ]
        )
        self._made_samples += len(piece.chunk.samples) * scale
        return float_to_int16(np.concatenate((rest, self._resampler.push(piece.chunk.samples))))

    def finish(self) -> NDArray[np.int16]:
        return float_to_int16(self._resampler.finish())

    def _change_rate(self, rate_hz: int) -> NDArray[np.float32]:
        """The last of the sound at the rate before."""
        if rate_hz == self._voice_rate_hz:
            return np.zeros(0, np.float32)
        rest = self._resampler.finish()
        self._voice_rate_hz = rate_hz
        self._resampler = Resampler(rate_hz, self._ledger.rate_hz)
        return rest


def _in_phrase(words: tuple[WordTiming, ...], spoken: Spoken) -> tuple[WordTiming, ...]:
    return tuple(
        WordTiming(
            spoken.source_end(word.text_start),
            spoken.source_end(word.text_end),
            word.start_sample,
            word.end_sample,
        )
        for word in words
    )


def _nothing() -> None:
    """Nobody waits for the first audio."""
