"""The answer to one turn: the prompt, the response's life, and where the time went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import anyio

from duolog.ports.errors import EngineRejected
from duolog.ports.llm import ChatMessage, GenerationRequest, PromptEnd
from duolog.ports.voice_choice import voice_for
from duolog.serving.batcher import BatcherRequest, RequestClass
from duolog.serving.prompt_cache import AnswerSource, RememberingSource
from duolog.session.answering import MODEL, Answer, VoiceStyle
from duolog.session.context import CallContext, new_id
from duolog.session.events import CallErrorRaised, ResponseStatus, TurnTimings
from duolog.session.listening import Utterance
from duolog.session.prefilling import Prefilling
from duolog.session.prompts import Prompts
from duolog.session.response import Outcome, Response
from duolog.session.turn import Turn
from duolog.telemetry import metrics
from duolog.telemetry.metrics import Stage, record_turn


class Speaking:
    """Answers the turns of one call."""

    def __init__(
        self, context: CallContext, prompts: Prompts, prefilling: Prefilling, on_audible: Callable[[], None]
    ) -> None:
        self._context = context
        self._prompts = prompts
        self._prefilling = prefilling
        self._on_audible = on_audible

    async def answer(self, turn: Turn) -> Outcome:
        """Make the answer; nothing leaves before the turn is committed. `finish` ends it."""
        config, engines = self._context.config, self._context.engines
        modality = turn.options.output_modality or config.output_modality
        max_tokens = turn.options.max_output_tokens or config.sampling.max_tokens
        turn.response = Response(new_id("resp"), new_id("item"), turn.options, modality, max_tokens)
        turn.shorten_after_tokens = engines.limits.answer_tokens
        voice = turn.options.voice or config.voice
        style = VoiceStyle(
            voice=voice,
            languages=self._context.persona.languages,
            speed=config.speed,
            rate_hz=config.output_rate_hz,
            apology=self._context.persona.apology,
            has_word_timings=self._has_word_timings(voice),
        )
        answer = Answer(turn, turn.response, style, self._source(), engines.synthesizer)
        request = None if turn.spoken_text is not None else self._request(turn, turn.response, max_tokens)
        try:
            outcome = await answer.run(
                request,
                self._context.outbox,
                self._context.items.conversation,
                self._context.playbacks,
                self._on_audible,
            )
        finally:
            if request is not None and (turn.marks.first_token is None or turn.answer_source != MODEL):
                self._prefilling.final_failed(request.generation.prompt_ids)
        if turn.transcript is None and turn.utterance is not None:
            return replace(outcome, status=ResponseStatus.FAILED, error="The user's speech could not be transcribed.")
        return outcome

    def _source(self) -> AnswerSource:
        engines, persona = self._context.engines, self._context.persona
        if engines.prompt_cache is None or not persona.allows_cache(self._context.config.sampling):
            return engines.batcher
        return RememberingSource(engines.batcher, engines.prompt_cache, persona.id, persona.version)

    def _has_word_timings(self, voice: str) -> bool:
        """Also of the voices that stand in where this one lacks a language."""
        voices = self._context.engines.synthesizer.voices()
        chosen = [voice_for(voices, voice, language) for language in self._context.persona.languages]
        return all(one is not None and one.has_word_timings for one in chosen)

    def finish(self, turn: Turn, outcome: Outcome) -> None:
        """End the turn's response, whatever happened to it."""
        response = turn.response
        if response is None or not response.begun or response.done:
            return
        response.finish(outcome, self._context.outbox, self._context.items.conversation)
        metrics.TURNS.labels(outcome.status.value).inc()
        if turn.utterance is not None and response.playback is not None:
            self._context.outbox.put(self._timings(turn, turn.utterance, response, outcome))
        if outcome.status is ResponseStatus.FAILED:
            self._context.outbox.put(CallErrorRaised("answer_failed", outcome.error or "The answer failed."))

    def _request(self, turn: Turn, response: Response, max_tokens: int) -> BatcherRequest:
        messages = self._prompts.answering(turn)
        generation = GenerationRequest(
            request_id=response.id,
            messages=messages,
            sampling=replace(self._context.config.sampling, max_tokens=max_tokens),
            session_id=self._context.session_id,
            prompt_ids=self._prompt_ids(messages),
        )
        self._prefilling.final(generation.prompt_ids)
        deadline = anyio.current_time() + self._context.options.first_token_budget_s
        klass = RequestClass.SPECULATIVE if turn.speculative else RequestClass.FINAL
        return BatcherRequest(generation, klass, deadline, turn.committed)

    def _prompt_ids(self, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
        """Empty where the template refuses: the engine then says so, and the answer is the apology."""
        try:
            return self._context.engines.batcher.prompt_ids(messages, PromptEnd.ANSWER)
        except EngineRejected:
            return ()

    def _timings(self, turn: Turn, utterance: Utterance, response: Response, outcome: Outcome) -> TurnTimings:
        marks = {stage: turn.marks.after_speech_ms(stage.value) for stage in Stage}
        record_turn(marks, self._context.persona.id)
        return TurnTimings(
            response_id=response.id,
            item_id=utterance.item_id,
            generation=response.playback.ledger.generation if response.playback else 0,
            speech_end_sample=utterance.end_sample,
            endpoint_ms=marks[Stage.ENDPOINT],
            transcript_ms=marks[Stage.TRANSCRIPT],
            admitted_ms=marks[Stage.ADMITTED],
            first_token_ms=marks[Stage.FIRST_TOKEN],
            first_phrase_ms=marks[Stage.FIRST_PHRASE],
            first_audio_ms=marks[Stage.FIRST_AUDIO],
            first_audio_sent_ms=marks[Stage.FIRST_AUDIO_SENT],
            prompt_tokens=outcome.usage.prompt_tokens,
            cached_tokens=outcome.usage.cached_tokens,
            silence_wait_ms=turn.silence_wait_ms,
            speculation="used" if turn.speculative else None,
            wasted_speculations=turn.wasted_speculations,
            answer_source=turn.answer_source,
        )
