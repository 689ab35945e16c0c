"""Plots as SVG text: a dot for each median with a line for its spread, or lines over steps and shards; log scales."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from .numbers import short

WIDTH, LEFT, RIGHT, TOP, BOTTOM, ROW = 760, 250, 70, 44, 40, 26
LINES_HEIGHT = 320
OWN, OTHER, GRID, TEXT = "#1d4ed8", "#64748b", "#e2e8f0", "#0f172a"
COLOURS = (OWN, "#b45309", "#15803d", "#7c3aed", "#be123c", "#0e7490", OTHER)
STEPS = (1, 2, 5)
STEPS_MAX = 6


class Dot(NamedTuple):
    """A row of the plot: label, median, lowest and highest value, and whether it is foldlog's."""

    label: str
    middle: float
    low: float
    high: float
    own: bool


class Scale(NamedTuple):
    """A logarithmic scale from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Scale:
        """Return a scale that covers all values, which must be above 0."""
        low, high = min(values) / 1.15, max(values) * 1.15
        if high / low < 4:
            low, high = low / 1.5, high * 1.5
        return cls(low, high, start, end)

    def at(self, value: float) -> float:
        """Return the position of a value in pixels."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values within the scale; only powers of ten if there are many."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        fine = [step * 10.0**power for power in powers for step in STEPS]
        inside = [value for value in fine if self.low <= value <= self.high]
        tens = [10.0**power for power in powers if self.low <= 10.0**power <= self.high]
        return inside if len(inside) <= STEPS_MAX or len(tens) < 2 else tens


def dots(title: str, unit: str, rows: Sequence[Dot]) -> str:
    """Return a dot plot with a row per contestant: a logarithmic scale would cut off the base of bars."""
    height = TOP + ROW * len(rows) + BOTTOM
    scale = Scale.over(
        [v for row in rows for v in (row.low, row.middle, row.high) if v > 0], LEFT, WIDTH - RIGHT
    )
    parts = [_text(WIDTH / 2, 22, title, "middle", size=15)]
    for tick in scale.ticks():
        x = scale.at(tick)
        parts.append(_line(x, TOP - 8, x, height - BOTTOM, GRID))
        parts.append(_text(x, height - BOTTOM + 18, short(tick), "middle", size=11))
    parts.append(_text(WIDTH - RIGHT + 8, height - BOTTOM + 18, unit, "start", size=11))
    for number, row in enumerate(rows):
        y, colour = TOP + ROW * number + ROW / 2, OWN if row.own else OTHER
        parts.append(_text(LEFT - 12, y + 4, row.label, "end", colour=colour if row.own else TEXT))
        parts.append(_line(scale.at(row.low), y, scale.at(row.high), y, colour, 2))
        parts.append(f'<circle cx="{scale.at(row.middle):.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        parts.append(
            _text(scale.at(row.high) + 10, y + 4, short(row.middle), "start", size=12, colour=colour)
        )
    return _svg(height, parts)


def lines(title: str, unit: str, x_unit: str, points: dict[str, list[tuple[float, float]]]) -> str:
    """Return a plot with a line per contestant, on two logarithmic scales."""
    left, bottom = 90, 60
    across = Scale.over([x for line in points.values() for x, _ in line], left, WIDTH - 190)
    up = Scale.over([y for line in points.values() for _, y in line], LINES_HEIGHT - bottom, TOP)
    parts = [_text(WIDTH / 2, 22, title, "middle", size=15)]
    for x in sorted({x for line in points.values() for x, _ in line}):
        parts.append(_line(across.at(x), TOP, across.at(x), LINES_HEIGHT - bottom, GRID))
        parts.append(_text(across.at(x), LINES_HEIGHT - bottom + 18, short(x), "middle", size=11))
    parts.append(_text((left + WIDTH - 190) / 2, LINES_HEIGHT - 16, x_unit, "middle", size=12))
    for tick in up.ticks():
        parts.append(_line(left, up.at(tick), WIDTH - 190, up.at(tick), GRID))
        parts.append(_text(left - 8, up.at(tick) + 4, f"{short(tick)} {unit}", "end", size=11))
    parts += _drawn(points, across, up)
    return _svg(LINES_HEIGHT, parts)


def _drawn(points: dict[str, list[tuple[float, float]]], across: Scale, up: Scale) -> Iterator[str]:
    taken: list[float] = []
    for number, (label, line) in enumerate(points.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in sorted(line))
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for x, y in line:
            yield f'<circle cx="{across.at(x):.1f}" cy="{up.at(y):.1f}" r="4" fill="{colour}"/>'
        x, y = max(line)
        free = up.at(y)
        while any(abs(free - other) < 15 for other in taken):
            free += 15
        taken.append(free)
        yield _text(across.at(x) + 12, free + 4, label, "start", size=12, colour=colour)


def _svg(height: float, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" font-family="system-ui, sans-serif">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: int = 1) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, anchor: str, *, size: int = 13, colour: str = TEXT) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"
