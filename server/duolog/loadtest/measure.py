"""From what the caller saw of a turn to its timeline. Pure.

The server's marks count from the last voiced sample as *its* detector heard it. The caller knows when it sent that
sample, so each mark is moved to the caller's clock and counted from the caller's own last voiced sample. The network's
delay is in the figures, as a user feels it.
"""

from __future__ import annotations

from duolog.loadtest.call_log import Answer, Turn
from duolog.loadtest.pacing import SentFrames
from duolog.loadtest.timeline import TurnTimeline
from duolog.loadtest.wire_text import number_field


def turn_timeline(turn: Turn, sent: SentFrames) -> TurnTimeline | None:
    """The timeline of a finished turn; None where nothing answered."""
    answer, origin_s = turn.answer, turn.last_voiced_s
    if answer is None or origin_s is None:
        return None

    def since(seen_s: float | None) -> float | None:
        return None if seen_s is None else (seen_s - origin_s) * 1000

    offset_ms = _server_clock_offset_ms(turn, answer, sent)

    def mark(name: str) -> float | None:
        value = None if answer.timings is None else number_field(answer.timings, f"{name}_ms")
        return None if value is None or offset_ms is None else value + offset_ms

    def first(seen: float | None, otherwise: float | None) -> float | None:
        return otherwise if seen is None else seen

    return TurnTimeline(
        endpoint_ms=first(mark("endpoint"), since(turn.stopped_s)),
        transcript_ms=first(mark("transcript"), since(turn.transcript_s)),
        admitted_ms=mark("admitted"),
        first_token_ms=first(mark("first_token"), since(answer.first_text_s)),
        first_phrase_ms=mark("first_phrase"),
        first_audio_ms=mark("first_audio"),
        first_audio_sent_ms=first(mark("first_audio_sent"), since(answer.first_frame_s)),
        heard_ms=since(answer.heard_s),
        silence_wait_ms=None if answer.timings is None else number_field(answer.timings, "silence_wait_ms"),
    )


def _server_clock_offset_ms(turn: Turn, answer: Answer, sent: SentFrames) -> float | None:
    """What to add to a mark of the server; None where the caller cannot tell when it sent that sample."""
    if answer.timings is None or turn.last_voiced_s is None:
        return None
    if turn.typed:
        return 0.0
    last_voiced = number_field(answer.timings, "speech_end_sample")
    return None if last_voiced is None else (sent.time_of_sample(int(last_voiced)) - turn.last_voiced_s) * 1000
