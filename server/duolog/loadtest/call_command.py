"""`duolog call`: places a real call with recordings as the microphone and prints what was said and when."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TextIO

import anyio
import numpy as np
import typer
from numpy.typing import NDArray

from duolog.loadtest.audio_files import read_speech, write_wav
from duolog.loadtest.call_log import Turn
from duolog.loadtest.failures import AudioUnreadable, CallFailed
from duolog.loadtest.timeline import TurnTimeline
from duolog.loadtest.waterfall import waterfall
from duolog.loadtest.wire_client import Call, CallOptions, place_call
from duolog.loadtest.wire_text import Message, text_field

LEAD_S = 0.3
PAUSE_S = 0.6
"""Silence between an answer's end and the next recording."""
EXIT_FAILED = 1

HeardTurn = tuple[Turn, TurnTimeline | None]
Step = Callable[[Call], Awaitable[Turn]]


def call(  # noqa: PLR0913, PLR0917 - the command's own arguments, one each
    recordings: Annotated[
        list[Path] | None, typer.Argument(help="Recordings to say, one turn each: WAV, FLAC, OGG, MP3, raw, µ-law.")
    ] = None,
    persona: Annotated[str, typer.Option(help="Whom to call.")] = "ava",
    url: Annotated[str, typer.Option(help="Address of the server.")] = "ws://127.0.0.1:8000",
    out: Annotated[Path | None, typer.Option(help="Write the answers to this WAV file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    typed: Annotated[list[str] | None, typer.Option(help="A typed message, after the recordings.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=1)] = 30.0,
    greeting: Annotated[bool, typer.Option(help="Hear the persona's greeting first.")] = False,
    api_key: Annotated[str | None, typer.Option(envvar="DUOLOG_API_KEY", help="Key, where the server asks.")] = None,
    session: Annotated[str | None, typer.Option(help="Id of an earlier call's session, to go on with it.")] = None,
) -> None:
    """Place a real call at speaking pace; exit 1 with one sentence where no answer came."""
    options = CallOptions(url, persona, greeting=greeting, answer_timeout_s=timeout, api_key=api_key, resume=session)
    try:
        steps = _steps(recordings or [], typed or [], greeting=greeting)
        report = anyio.run(partial(_converse, options, steps, None if as_json else sys.stdout))
        if out is not None:
            write_wav(out, report.answers(), report.rate_hz)
    except (AudioUnreadable, CallFailed) as failure:
        print(failure, file=sys.stderr)
        raise typer.Exit(EXIT_FAILED) from failure
    if as_json:
        print(json.dumps(report.as_fields(), ensure_ascii=False, indent=2))


@dataclass(frozen=True, slots=True)
class CallReport:
    persona: str
    session_id: str
    rate_hz: int
    turns: tuple[HeardTurn, ...]

    def answers(self) -> NDArray[np.int16]:
        """Everything that was heard, a short silence between the turns."""
        gap = np.zeros(self.rate_hz // 3, dtype=np.int16)
        pieces = [chunk for turn, _ in self.turns for answer in turn.answers for chunk in [*answer.chunks, gap]]
        return np.concatenate(pieces) if pieces else gap

    def as_fields(self) -> dict[str, object]:
        turns = [_turn_fields(turn, timeline) for turn, timeline in self.turns]
        return {"persona": self.persona, "session": self.session_id, "turns": turns}


def _steps(recordings: Sequence[Path], typed: Sequence[str], *, greeting: bool) -> list[Step]:
    """What to do in the call, in order; every file is read before the call is placed. Raises AudioUnreadable."""
    steps: list[Step] = [Call.listen] if greeting else []
    for path in recordings:
        samples = read_speech(path)
        steps.append(partial(_say, samples=samples, label=path.name))
    steps += [partial(_type, text=text) for text in typed]
    if not steps:
        raise AudioUnreadable("There is nothing to say; name a recording, or give --typed or --greeting.")
    return steps


async def _say(call: Call, *, samples: NDArray[np.int16], label: str) -> Turn:
    return await call.say(samples, label)


async def _type(call: Call, *, text: str) -> Turn:
    return await call.type_text(text)


async def _converse(options: CallOptions, steps: Sequence[Step], screen: TextIO | None) -> CallReport:
    captions = Captions(screen)
    turns: list[HeardTurn] = []
    async with place_call(options, captions.show) as call:
        await call.pause(LEAD_S)
        for step in steps:
            turn = await step(call)
            turns.append((turn, call.timeline(turn)))
            captions.end_turn(*turns[-1])
            await call.pause(PAUSE_S)
        return CallReport(call.log.persona, call.log.session_id, call.log.output_rate_hz, tuple(turns))


class Captions:
    """Live captions on a terminal: what the caller says as it is understood, what is answered as it is written."""

    def __init__(self, screen: TextIO | None) -> None:
        self._screen = screen
        self._speaker = ""

    def show(self, event: Message) -> None:
        match text_field(event, "type"):
            case "conversation.item.input_audio_transcription.delta":
                self._write("you", text_field(event, "delta"))
            case "conversation.item.input_audio_transcription.completed":
                self._write("heard", text_field(event, "transcript"))
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                self._write("answer", text_field(event, "delta"))

    def end_turn(self, turn: Turn, timeline: TurnTimeline | None) -> None:
        if self._screen is None:
            return
        answer = turn.answer
        if self._speaker != "answer" and answer is not None:
            self._write("answer", answer.text)
        print(f"\n{waterfall(timeline) if timeline else ''}\n", file=self._screen, flush=True)
        self._speaker = ""

    def _write(self, speaker: str, text: str) -> None:
        if self._screen is None or not text:
            return
        start = "" if speaker == self._speaker else f"{chr(10) if self._speaker else ''}{speaker:>7}: "
        self._speaker = speaker
        print(start + text, end="", file=self._screen, flush=True)


def _turn_fields(turn: Turn, timeline: TurnTimeline | None) -> dict[str, object]:
    answer = turn.answer
    return {
        "said": turn.label,
        "transcript": turn.transcript,
        "answer": "" if answer is None else answer.text.strip(),
        "answer_ms": 0 if answer is None else round(answer.player.received_samples * 1000 / answer.player.rate_hz),
        "premature_answers": turn.premature_answers,
        "timeline": None if timeline is None else _rounded(timeline),
    }


def _rounded(timeline: TurnTimeline) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 1) for name, value in asdict(timeline).items()}
