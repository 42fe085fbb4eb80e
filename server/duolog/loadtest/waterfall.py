"""A turn's timeline as text: one line per mark, a bar per step. Pure."""

from __future__ import annotations

from duolog.loadtest.timeline import TurnTimeline

BAR_COLUMNS = 40
LABELS = {
    "endpoint": "turn over",
    "transcript": "transcript",
    "admitted": "to the model",
    "first_token": "first token",
    "first_phrase": "first phrase",
    "first_audio": "synthesised",
    "first_audio_sent": "sent",
    "heard": "heard",
}


def waterfall(timeline: TurnTimeline) -> str:
    """Marks in order of time, each with the step that led to it; milliseconds after the last voiced sample."""
    marks = timeline.marks()
    if not marks:
        return "  (the server sent no timings)"
    scale = max(marks[-1][1], 1.0) / BAR_COLUMNS
    lines, before = [], 0.0
    for name, mark in marks:
        lines.append(f"  {LABELS[name]:<13}{_bar(before, mark, scale)} {mark:7.0f} ms  {mark - before:+6.0f}")
        before = mark
    return "\n".join([*lines, *_note(timeline)])


def _bar(begin: float, end: float, scale: float) -> str:
    blank = round(max(0.0, begin) / scale)
    filled = max(1, round(max(0.0, end) / scale) - blank)
    return (" " * blank + "█" * filled)[:BAR_COLUMNS].ljust(BAR_COLUMNS)


def _note(timeline: TurnTimeline) -> list[str]:
    after = timeline.after_endpoint_ms()
    if after is None:
        return []
    waited = "" if timeline.silence_wait_ms is None else f"{timeline.silence_wait_ms:.0f} ms of silence by design; "
    return [f"  {waited}{after:.0f} ms from the end of the turn to sound"]
