"""Whisper below faster-whisper's `transcribe`: the encoder is fed the audio there is, not thirty seconds of padding.

    samples ─▶ pieces of at most 28 s, cut where it is quiet ─▶ log-mel + 4 s of zeros ─▶ encode, generate (one batch)
        a doubtful piece again with 10 s of zeros, one that was left off in the full window ◀┘

Runs in the model's thread; knows nothing of calls or event loops. Why these numbers: docs/decisions/0002.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from duolog.adapters.model_thread import StopFlag
from duolog.adapters.whisper_chinese import normalised
from duolog.audio.levels import quietest_point
from duolog.ports.asr import SAMPLE_RATE_HZ, Transcript, TranscriptionRequest
from duolog.ports.errors import EngineRejected
from duolog.turns.repetition import ends_in_repeat, without_repeated_end
from duolog.turns.wording import is_ideograph

HOP_SAMPLES = 160
FRAMES_PER_S = SAMPLE_RATE_HZ // HOP_SAMPLES
FULL_WINDOW_FRAMES = 30 * FRAMES_PER_S
PADDING_FRAMES = 4 * FRAMES_PER_S
"""Zeros in the log-mel, as Whisper's own padding is; less makes the decoder run on past the end."""
SECOND_PADDING_FRAMES = 10 * FRAMES_PER_S
"""With more of them a short piece stops repeating itself, for a quarter of what the full window costs."""
MIN_SAMPLES = SAMPLE_RATE_HZ // 10
"""Less says nothing, and is shorter than the transform's edge."""
MAX_PIECE_SAMPLES = 28 * SAMPLE_RATE_HZ
SHORTEST_PIECE_SAMPLES = 18 * SAMPLE_RATE_HZ
QUIET_SAMPLES = SAMPLE_RATE_HZ // 5
TOKENS_PER_S = 6
SPARE_TOKENS = 12
MAX_TOKENS = 220
"""Half of Whisper's text context, as in its own decoding."""
MAX_COMPRESSION_RATIO = 2.0
DOUBTFUL_MEAN_LOGPROB = -0.5
CUT_OFF_AFTER_S = 5.0
"""From this length on, a text that does not end a sentence was probably left off early."""
SENTENCE_ENDS = tuple(".?!…。？！")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one request that fits the window."""

    features: NDArray[np.float32]
    """Log-mel, shape (mels, frames), of the audio alone."""
    audio_s: float
    language: str | None
    expected: tuple[str, ...]

    @property
    def token_cap(self) -> int:
        return min(MAX_TOKENS, int(TOKENS_PER_S * self.audio_s) + SPARE_TOKENS)


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    language: str
    tokens: int
    mean_logprob: float
    no_speech_prob: float
    capped: bool
    """It was still going on when it was stopped."""
    looks: int = 1


class WhisperWindow:
    """A loaded model."""

    def __init__(self, model_dir: Path, *, threads: int, compute_type: str, device: str) -> None:
        """Raises what faster-whisper raises where the folder is damaged."""
        loaded = WhisperModel(
            str(model_dir), device=device, compute_type=compute_type, cpu_threads=threads, local_files_only=True
        )
        self._model = loaded.model
        self._extract = loaded.feature_extractor
        self._tokenizer = loaded.hf_tokenizer
        self._languages = frozenset(loaded.supported_languages)
        self._multilingual = bool(loaded.model.is_multilingual)
        self._end_of_text = self._token("<|endoftext|>")
        if self._multilingual:
            normalised("", "zh")  # Loads the dictionaries now instead of in the first utterance.

    def transcribe(self, requests: Sequence[TranscriptionRequest], stop: StopFlag) -> list[Transcript]:
        """Raises EngineRejected; JobStopped between steps."""
        for request in requests:
            self._check(request)
        pieces = [self._pieces(request) for request in requests]
        flat = [piece for of_request in pieces for piece in of_request]
        thorough = [not request.partial for request, its in zip(requests, pieces, strict=True) for _ in its]
        results = iter(self._decode_all(flat, thorough, stop))
        return [
            _join(request, [next(results) for _ in of_request])
            for request, of_request in zip(requests, pieces, strict=True)
        ]

    def _check(self, request: TranscriptionRequest) -> None:
        if request.samples.ndim != 1 or not np.isfinite(request.samples).all():
            raise EngineRejected(
                "The recogniser takes mono audio of finite numbers; check the resampler.", engine="asr"
            )
        if request.language is not None and request.language not in self._languages:
            known = "only English" if not self._multilingual else f"{len(self._languages)} languages"
            raise EngineRejected(
                f"This Whisper model knows {known}, not {request.language!r}; change asr.model or the language.",
                engine="asr",
            )

    def _pieces(self, request: TranscriptionRequest) -> list[Piece]:
        return [
            Piece(self._log_mel(samples), len(samples) / SAMPLE_RATE_HZ, request.language, request.expected)
            for samples in _cut(request.samples)
            if len(samples) >= MIN_SAMPLES
        ]

    def _log_mel(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        features: NDArray[np.float32] = self._extract(samples, padding=HOP_SAMPLES)
        return features[:, : len(samples) // HOP_SAMPLES]

    def _decode_all(self, pieces: list[Piece], thorough: list[bool], stop: StopFlag) -> list[Decoded]:
        if not pieces:
            return []
        results = self._decode(pieces, _window(pieces, PADDING_FRAMES), stop)
        for index, piece in enumerate(pieces):
            if thorough[index]:
                heard = replace(piece, language=results[index].language)
                results[index] = look_again(results[index], heard, self._decoder(heard, stop))
        return results

    def _decoder(self, piece: Piece, stop: StopFlag) -> Callable[[int], Decoded]:
        return lambda frames: self._decode([piece], frames, stop)[0]

    def _decode(self, pieces: Sequence[Piece], frames: int, stop: StopFlag) -> list[Decoded]:
        stop.check()
        encoded = self._model.encode(ctranslate2.StorageView.from_array(_batch(pieces, frames)))
        stop.check()
        languages = self._languages_of(pieces, encoded)
        prompts = [self._prompt(language) for language in languages]
        cap = MAX_TOKENS if frames == FULL_WINDOW_FRAMES else max(piece.token_cap for piece in pieces)
        generated = self._model.generate(
            encoded,
            prompts,
            beam_size=1,
            max_length=len(prompts[0]) + cap,
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [
            self._decoded(result, language, min(cap, piece.token_cap))
            for result, language, piece in zip(generated, languages, pieces, strict=True)
        ]

    def _decoded(self, result: ctranslate2.models.WhisperGenerationResult, language: str, cap: int) -> Decoded:
        tokens = result.sequences_ids[0]
        text = self._tokenizer.decode([token for token in tokens if token < self._end_of_text]).strip()
        return Decoded(
            text=normalised(text, language),
            language=language,
            tokens=len(tokens),
            mean_logprob=result.scores[0] * len(tokens) / (len(tokens) + 1),
            no_speech_prob=result.no_speech_prob,
            capped=len(tokens) >= cap,
        )

    def _languages_of(self, pieces: Sequence[Piece], encoded: ctranslate2.StorageView) -> list[str]:
        if not self._multilingual:
            return ["en"] * len(pieces)
        if all(piece.language is not None for piece in pieces):
            return [piece.language or "en" for piece in pieces]
        rankings = self._model.detect_language(encoded)
        return [piece.language or _likeliest(ranking, piece) for piece, ranking in zip(pieces, rankings, strict=True)]

    def _prompt(self, language: str) -> list[int]:
        task = ["<|startoftranscript|>"]
        if self._multilingual:
            task += [f"<|{language}|>", "<|transcribe|>"]
        return [self._token(text) for text in (*task, "<|notimestamps|>")]

    def _token(self, text: str) -> int:
        token: int = self._tokenizer.token_to_id(text)
        return token


def _likeliest(ranking: Sequence[tuple[str, float]], piece: Piece) -> str:
    """Of the expected languages, or of all where none was named."""
    codes = [token.strip("<|>") for token, _ in ranking]
    return next((code for code in codes if code in piece.expected), codes[0])


def _cut(samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Pieces that fit the window, cut at the quietest place of each last ten seconds."""
    while len(samples) > MAX_PIECE_SAMPLES:
        point = quietest_point(samples, SHORTEST_PIECE_SAMPLES, MAX_PIECE_SAMPLES, QUIET_SAMPLES)
        yield samples[:point]
        samples = samples[point:]
    yield samples


def _batch(pieces: Sequence[Piece], frames: int) -> NDArray[np.float32]:
    """Shape (pieces, mels, frames), zeros after each piece."""
    batch = np.zeros((len(pieces), pieces[0].features.shape[0], frames), np.float32)
    for row, piece in zip(batch, pieces, strict=True):
        row[:, : piece.features.shape[1]] = piece.features
    return batch


def look_again(first: Decoded, piece: Piece, decode: Callable[[int], Decoded]) -> Decoded:
    """`first`, or what stands in its place; `decode` takes the number of frames of the window."""
    looked, looks = first, 1
    if _runs_on(looked) or looked.mean_logprob < DOUBTFUL_MEAN_LOGPROB:
        looked, looks = decode(_window([piece], SECOND_PADDING_FRAMES)), looks + 1
    if _runs_on(looked) or _is_left_off(looked, piece.audio_s):
        looked, looks = decode(FULL_WINDOW_FRAMES), looks + 1
    return replace(looked, looks=looks)


def _window(pieces: Sequence[Piece], padding_frames: int) -> int:
    """Frames of the encoder's input, an even number."""
    frames = int(max(piece.features.shape[1] for piece in pieces)) + padding_frames
    return min(frames + frames % 2, FULL_WINDOW_FRAMES)


def _runs_on(decoded: Decoded) -> bool:
    """True where the decoder seems to have gone on past the end of speech."""
    return decoded.capped or compression_ratio(decoded.text) > MAX_COMPRESSION_RATIO or ends_in_repeat(decoded.text)


def _is_left_off(decoded: Decoded, audio_s: float) -> bool:
    """True where it seems to have stopped before the end of speech: only the full window mends that."""
    return audio_s >= CUT_OFF_AFTER_S and not decoded.text.endswith(SENTENCE_ENDS)


def _join(request: TranscriptionRequest, parts: list[Decoded]) -> Transcript:
    """One transcript of a request's pieces; evidence is weighted by tokens."""
    text = ""
    for part in parts:
        glue = "" if not text or not part.text or is_ideograph(text[-1]) else " "
        text += glue + (without_repeated_end(part.text) if request.partial else part.text)
    tokens = sum(part.tokens + 1 for part in parts)
    return Transcript(
        text=text,
        language=parts[0].language if parts else request.language or "en",
        mean_logprob=sum(part.mean_logprob * (part.tokens + 1) for part in parts) / tokens if parts else 0.0,
        no_speech_prob=min((part.no_speech_prob for part in parts), default=1.0),
        compression_ratio=compression_ratio(text),
        audio_s=request.audio_s,
        looks=max((part.looks for part in parts), default=0),
    )


def compression_ratio(text: str) -> float:
    """UTF-8 bytes over zlib bytes; 0 for no text."""
    encoded = text.encode()
    return len(encoded) / len(zlib.compress(encoded)) if encoded else 0.0
