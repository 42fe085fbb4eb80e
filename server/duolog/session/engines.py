"""What a call needs from the outside, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from duolog.ports.clock import WallClock
from duolog.ports.vad import VoiceActivityDetectorFactory
from duolog.serving.batcher import Batcher
from duolog.serving.load_limits import LoadLimits
from duolog.serving.prompt_cache import PromptCache
from duolog.serving.recognizer import Recognizer
from duolog.serving.sentence_judge import SentenceJudge
from duolog.serving.session_writer import SessionWriter
from duolog.serving.synthesizer import Synthesizer
from duolog.serving.turn_judge import TurnJudge


@dataclass(frozen=True, slots=True)
class Engines:
    """The shared engines of a process."""

    recognizer: Recognizer
    batcher: Batcher
    synthesizer: Synthesizer
    vad: VoiceActivityDetectorFactory
    writer: SessionWriter
    clock: WallClock
    context_tokens: int
    """Of the chat model, prompt and answer together."""
    turn_judge: TurnJudge | None = None
    """None: no end-of-turn model; turns end by the text and the silence."""
    sentence_judge: SentenceJudge | None = None
    """None: the chat model is never asked whether a sentence is over."""
    prompt_cache: PromptCache | None = None
    """None: every answer is made."""
    limits: LoadLimits = field(default_factory=LoadLimits)
    """What may begin under load."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How calls behave, whatever their persona."""

    prefix_padding_ms: int = 300
    vad_threshold: float = 0.5
    """Voice probability from which a window counts as speech, where the client asks for none of its own."""
    language: str | None = None
    """ISO 639-1 code all callers speak; None: the persona's."""
    confirm_ms: int = 200
    """Voice over the bot for this long interrupts it."""
    speculate_after_ms: int = 64
    """Silence after which the turn is transcribed and answered ahead of its end."""
    judge_after_ms: int = 192
    """Silence after which the end-of-turn model is asked: it needs to hear some. Six windows of the voice detector."""
    max_speculations: int = 6
    """Per turn; then the turn waits for its end."""
    first_token_budget_s: float = 0.5
    """A final request's deadline after it was made."""
