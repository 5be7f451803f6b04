"""The dashboard's definition as a page that looks like CloudWatch's: its grid, its titles, series of made-up values.

It shows what a person would see: whether graphs stand where they should, titles fit, and lines have names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sin
from random import Random
from typing import Any, NamedTuple

from shiplap.drawing.markup import number, text

_ROW_PX = 50
_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
_POINTS = 60

_STYLE = """
body{margin:0;font:12px/1.3 system-ui,sans-serif;background:#f2f3f3;color:#16191f}
.board{display:grid;grid-template-columns:repeat(24,minmax(0,1fr));grid-auto-rows:50px;gap:4px;padding:8px}
.widget{background:#fff;border:1px solid #d5dbdb;border-radius:3px;display:flex;flex-direction:column;overflow:hidden;
padding:6px 8px;min-width:0;min-height:0}
.widget>h4{margin:0 0 4px;font-size:13px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.plot{flex:1;min-height:0;position:relative}.plot svg{width:100%;height:100%;display:block}
.plot b{position:absolute;top:0;font-weight:400;color:#687078}.plot b.r{right:0}
.names{display:flex;flex-wrap:wrap;gap:0 10px;max-height:34px;overflow:hidden;font-size:11px}
.names i{display:inline-block;width:9px;height:9px;margin-right:4px;border-radius:2px}
.custom{overflow:auto;flex:1}
.big{font-size:34px;line-height:1.2;text-align:center}.big small{display:block;font-size:12px;color:#687078}
@media (max-width:700px){.board{display:block}.widget{margin-bottom:6px}.plot{flex:none;height:160px}}
@media (prefers-color-scheme:dark){body{background:#0f1b2a;color:#d5dbdb}
.widget{background:#192534;border-color:#414d5c}}
"""


class _Series(NamedTuple):
    label: str
    right: bool


def page(widgets: Sequence[dict[str, Any]], drawn: str) -> str:
    """All widgets in their places; `drawn` is what the custom widget's function answers."""
    made = "".join(_widget(place, widget, drawn) for place, widget in enumerate(widgets))
    return (
        f'<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,"><title>Dashboard</title><style>{_STYLE}</style><div class="board">{made}</div>'
    )


def _widget(place: int, widget: dict[str, Any], drawn: str) -> str:
    at = (
        f"grid-column:{widget['x'] + 1}/span {widget['width']};grid-row:{widget['y'] + 1}/span {widget['height']};"
        f"min-height:{widget['height'] * _ROW_PX // 2}px"
    )
    title = text(widget["properties"]["title"])
    if widget["type"] == "custom":
        inner = f'<div class="custom">{drawn}</div>'
    elif widget["properties"]["view"] == "singleValue":
        inner = _big_number(place, widget["properties"])
    else:
        inner = _graph(place, widget["properties"])
    return f'<div class="widget" style="{at}"><h4>{title}</h4>{inner}</div>'


def _big_number(place: int, properties: dict[str, Any]) -> str:
    (series,) = _series(properties["metrics"])
    return f'<div class="big">{number(_values(100 * place, right=False)[-1])}<small>{text(series.label)}</small></div>'


def _graph(place: int, properties: dict[str, Any]) -> str:
    series = list(_series(properties["metrics"]))
    stacked = bool(properties.get("stacked"))
    below = [0.0] * _POINTS
    curves: list[tuple[_Series, list[float]]] = []
    for rank, one in enumerate(series):
        values = _values(100 * place + rank, right=one.right)
        if stacked:
            below = values = [value + under for value, under in zip(values, below, strict=True)]
        curves.append((one, values))
    tops = {
        right: max((max(v) for one, v in curves if one.right is right), default=1.0) * 1.1 for right in (False, True)
    }
    lines = "".join(
        _curve(rank, values, tops[one.right], filled=stacked)
        for rank, (one, values) in reversed(list(enumerate(curves)))
    )
    names = "".join(
        f'<span><i style="background:{_COLOURS[rank % len(_COLOURS)]}"></i>{text(one.label)}</span>'
        for rank, one in enumerate(series)
    )
    axes = f"<b>{number(tops[False])}</b>"
    if any(one.right for one in series):
        axes += f'<b class="r">{number(tops[True])}</b>'
    return (
        f'<div class="plot">{axes}<svg viewBox="0 0 600 100" preserveAspectRatio="none">{lines}</svg></div>'
        f'<div class="names">{names}</div>'
    )


def _series(metrics: Sequence[Sequence[Any]]) -> Iterator[_Series]:
    """Names of what is drawn; what only expressions use is not."""
    for metric in metrics:
        options = metric[-1] if isinstance(metric[-1], dict) else {}
        if options.get("visible", True):
            yield _Series(options.get("label") or str(metric[1]), options.get("yAxis") == "right")


def _values(seed: int, *, right: bool) -> list[float]:
    chance = Random(seed)  # noqa: S311 - repeatable chance
    base, swing = chance.uniform(5, 40), chance.uniform(1, 5)
    return [
        max(0.0, (base + swing * sin(step / 6 + seed) + chance.gauss(0, 1)) * (0.2 if right else 1))
        for step in range(_POINTS)
    ]


def _curve(rank: int, values: Sequence[float], top: float, *, filled: bool) -> str:
    points = " ".join(
        f"{600 * step / (_POINTS - 1):.1f},{100 - 100 * value / top:.1f}" for step, value in enumerate(values)
    )
    colour = _COLOURS[rank % len(_COLOURS)]
    if filled:
        return f'<polygon points="0,100 {points} 600,100" fill="{colour}" fill-opacity=".75"/>'
    strength = 'stroke-width="1.5" vector-effect="non-scaling-stroke"'
    return f'<polyline points="{points}" fill="none" stroke="{colour}" {strength}/>'
