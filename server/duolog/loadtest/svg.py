"""Axes and marks of a plot, as inline SVG that takes its colours from the page around it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot's rectangle, and which values its edges stand for."""

    width: float
    height: float
    x_from: float
    x_to: float
    y_to: float
    """The y axis begins at 0."""
    left: float = 46
    right: float = 12
    top: float = 22
    bottom: float = 26

    def x(self, value: float) -> float:
        span = (self.x_to - self.x_from) or 1.0
        return round(self.left + (value - self.x_from) / span * (self.width - self.left - self.right), 1)

    def y(self, value: float) -> float:
        """Values beyond the axis are drawn at its end."""
        share = min(1.0, value / self.y_to) if self.y_to else 0.0
        return round(self.height - self.bottom - share * (self.height - self.top - self.bottom), 1)

    @property
    def floor(self) -> float:
        return self.height - self.bottom


def nice_ticks(highest: float, most: int = 5) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    return [round(step * number, 10) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.1f}"


def seconds(value: float) -> str:
    """As a clock shows it."""
    return f"{int(value) // 60}:{int(value) % 60:02}"


def plot(frame: Frame, title: str, marks: Iterable[str]) -> str:
    """The whole drawing; `title` is what a screen reader says."""
    box = f"0 0 {frame.width:g} {frame.height:g}"
    return f'<svg viewBox="{box}" role="img" aria-label="{escape(title)}">{"".join(marks)}</svg>'


def y_axis(frame: Frame, ticks: Sequence[float], unit: str) -> str:
    lines = [
        f'<line class="grid" x1="{frame.left:g}" x2="{frame.width - frame.right:g}" y1="{at}" y2="{at}"/>'
        f'<text class="tick" x="{frame.left - 6:g}" y="{at + 4:g}" text-anchor="end">{number(value)}</text>'
        for value in ticks
        for at in (frame.y(value),)
    ]
    return "".join(lines) + f'<text class="unit" x="{frame.left - 6:g}" y="11" text-anchor="end">{escape(unit)}</text>'


def x_axis(frame: Frame, ticks: Iterable[Tick], label: str = "") -> str:
    marks = [
        f'<text class="tick" x="{frame.x(value)}" y="{frame.floor + 17:g}" text-anchor="middle">{escape(text)}</text>'
        for value, text in ticks
    ]
    base = f'<line class="base" x1="{frame.left:g}" x2="{frame.width - frame.right:g}" y1="{frame.floor:g}" '
    named = f'<text class="unit" x="{frame.width - frame.right:g}" y="11" text-anchor="end">{escape(label)}</text>'
    return base + f'y2="{frame.floor:g}"/>' + "".join(marks) + (named if label else "")


def path(points: Sequence[Point], css: str) -> str:
    """A line through points of the drawing."""
    if not points:
        return ""
    return f'<path class="{css}" d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}"/>'


def stairs(frame: Frame, changes: Sequence[Point]) -> list[Point]:
    """Points of a line that stays at each value until the next."""
    points: list[Point] = []
    for index, (at, value) in enumerate(changes):
        if index:
            points.append((frame.x(at), points[-1][1]))
        points.append((frame.x(at), frame.y(value)))
    return points


def dot(x: float, y: float, css: str, hint: str, radius: float = 3) -> str:
    return f'<circle class="{css}" cx="{x:g}" cy="{y:g}" r="{radius:g}"><title>{escape(hint)}</title></circle>'


def cross(x: float, y: float, hint: str, size: float = 3.5) -> str:
    arms = f"M{x - size:g} {y - size:g}l{2 * size:g} {2 * size:g}m0 {-2 * size:g}l{-2 * size:g} {2 * size:g}"
    return f'<path class="miss" d="{arms}"><title>{escape(hint)}</title></path>'
