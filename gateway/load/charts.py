"""A line chart as SVG text, drawn in the page's own colors."""

from __future__ import annotations

import math
from html import escape

from msgspec import Struct

WIDTH, HEIGHT = 520, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 26, 40
_COLORS = ("var(--one)", "var(--two)", "var(--three)", "var(--soft)")
_DOTS = 24  # with more points than these the line alone is drawn


class Line(Struct, frozen=True):
    """A named series of points."""

    name: str
    points: list[tuple[float, float]]


def chart(title: str, x_unit: str, y_unit: str, lines: list[Line]) -> str:
    """A figure with axes from zero and a legend; without any point it says so."""
    drawn = [line for line in lines if line.points]
    caption = f"<figcaption>{escape(title)}</figcaption>"
    if not drawn:
        return f'<figure>{caption}<p class="soft">not measured</p></figure>'
    x_ticks = ticks(max(x for line in drawn for x, _ in line.points))
    y_ticks = ticks(max(y for line in drawn for _, y in line.points))
    parts = [_axes(x_ticks, y_ticks, x_unit, y_unit)]
    for number, line in enumerate(drawn):
        parts.append(_drawn(line, _COLORS[number % len(_COLORS)], x_ticks[-1], y_ticks[-1], dashed=number % 2 == 1))
    parts.append(_legend([line.name for line in drawn]))
    label = escape(f"{title}, {y_unit} over {x_unit}")
    return f'<figure>{caption}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg></figure>'


def ticks(most: float) -> list[float]:
    """Round values from zero up to at least `most`: four to six of them."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def _x(value: float, most: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * value / most


def _y(value: float, most: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / most


def _axes(x_ticks: list[float], y_ticks: list[float], x_unit: str, y_unit: str) -> str:
    parts = []
    for value in y_ticks:
        y = _y(value, y_ticks[-1])
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--rule)"/>')
        parts.append(_word(f"{value:g}", _LEFT - 6, y + 4, "end"))
    for value in x_ticks:
        parts.append(_word(f"{value:g}", _x(value, x_ticks[-1]), HEIGHT - _BOTTOM + 16, "middle"))
    parts.append(_word(x_unit, (WIDTH + _LEFT) / 2, HEIGHT - 6, "middle"))
    parts.append(_word(y_unit, 4, 14, "start"))
    return "".join(parts)


def _drawn(line: Line, color: str, most_x: float, most_y: float, *, dashed: bool) -> str:
    points = [(_x(x, most_x), _y(y, most_y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points) if len(points) <= _DOTS else ""
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>{dots}'


def _legend(names: list[str]) -> str:
    parts, at = [], float(_LEFT + 40)
    for number, name in enumerate(names):
        color = _COLORS[number % len(_COLORS)]
        parts.append(f'<rect x="{at:.0f}" y="7" width="10" height="4" fill="{color}"/>')
        parts.append(_word(name, at + 14, 14, "start"))
        at += 26 + 6.4 * len(name)
    return "".join(parts)


def _word(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" fill="var(--soft)">{escape(text)}</text>'
