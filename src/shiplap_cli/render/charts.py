"""Charts over time as SVG that fits any width: lines keep their strength, labels are text beside the drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import floor, log10

import msgspec

from shiplap.drawing import markup
from shiplap.drawing.markup import dollars, duration, text
from shiplap.drawing.style import colour_numbers
from shiplap_lab.simulation.timeline import Sample, Timeline, TimelineEvent, thinned

_WIDTH, _HEIGHT = 1000.0, 100.0
_POINTS = 400
_COLUMNS = 100
_ROWS = 14
_TICKS = 7


class ChartLine(msgspec.Struct, frozen=True):
    """A curve that keeps each value until the next: (seconds, value). `style` is its class; a bound is `dashed`."""

    label: str
    points: Sequence[tuple[float, float]]
    style: str
    dashed: bool = False


def charts(timeline: Timeline, pools: Iterable[str] = ()) -> str:
    """Pods that wait, nodes by pool, dollars per hour, and what happened, one below the other.

    Args:
        timeline: what is drawn.
        pools: names that get colours too, as in the packing map of the same page.
    """
    samples = thinned(timeline.samples, _POINTS)
    if not samples:
        return "<p class=empty>Nothing was sampled.</p>"
    names = sorted({pool for sample in samples for pool in sample.nodes}, key=lambda pool: (not pool, pool))
    colours = colour_numbers({*pools, *names})
    pending = ChartLine("pods that wait", [(sample.at_s, sample.pending) for sample in samples], "waits")
    nodes = [
        ChartLine(
            name or "of others", [(sample.at_s, sample.nodes.get(name, 0)) for sample in samples], f"p{colours[name]}"
        )
        for name in names
    ]
    ends = max(timeline.ends_s, samples[-1].at_s, 1.0)
    parts = [
        chart("Pods that wait", ends, filled=[pending], show=_whole),
        chart("Nodes by pool", ends, filled=nodes, show=_whole),
        chart("Dollars per hour", ends, lines=_money(samples), show=dollars),
        event_rows(timeline.happenings, ends),
        _time_axis(ends),
    ]
    return f'<div class="charts">{"".join(parts)}</div>'


def _money(samples: Sequence[Sample]) -> list[ChartLine]:
    lines = [ChartLine("paid", [(sample.at_s, sample.hourly) for sample in samples], "paid")]
    if any(sample.list_hourly > sample.hourly + 1e-9 for sample in samples):
        lines.append(
            ChartLine("at on-demand list price", [(sample.at_s, sample.list_hourly) for sample in samples], "listed")
        )
    bound = [(sample.at_s, sample.bound_hourly) for sample in samples if sample.bound_hourly is not None]
    if bound:
        lines.append(ChartLine("lower bound", bound, "bound", dashed=True))
    return lines


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def chart(
    title: str,
    ends_s: float,
    *,
    filled: Sequence[ChartLine] = (),
    lines: Sequence[ChartLine] = (),
    show: Callable[[float], str] = markup.number,
) -> str:
    """One chart: areas stacked on each other, or lines.

    Args:
        title: above it.
        ends_s: what the right edge is, seconds.
        filled: series to stack; all have the same moments.
        lines: series to draw as lines.
        show: a value as text.
    """
    stacked = _stacked(filled)
    peak = max((value for line in (*stacked, *lines) for _, value in line.points), default=0.0)
    top = _ceiling(peak)
    drawn = [f'<path class="area {line.style}" d="{_area(line.points, ends_s, top)}"/>' for line in reversed(stacked)]
    drawn += [
        f'<path class="line {line.style}{" dashed" if line.dashed else ""}" d="{_steps(line.points, ends_s, top)}"/>'
        for line in lines
    ]
    drawn += _columns((*filled, *lines), ends_s, show)
    key = "".join(f'<li><i class="swatch {line.style}"></i>{text(line.label)}</li>' for line in (*filled, *lines))
    legend = f"<ul class=key>{key}</ul>" if len(filled) + len(lines) > 1 else ""
    scale = "".join(f"<span>{text(show(value))}</span>" for value in (top, top / 2, 0))
    label = f"{title}: at most {show(peak)}"
    return (
        f"<figure><figcaption>{text(title)}{legend}</figcaption><div class=plot>"
        f"<div class=scale aria-hidden=true>{scale}</div><div class=field>"
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio=none role=img aria-label="{text(label)}">'
        f'<path class=grid d="M0 .5H1000M0 50H1000M0 99.5H1000"/>{"".join(drawn)}</svg>'
        f"<i class=cursor></i></div></div></figure>"
    )


def event_rows(events: Sequence[TimelineEvent], ends_s: float) -> str:
    """The events, a row for each kind; a mark stands for all events of its kind within a hundredth of the time."""
    kinds: dict[str, list[TimelineEvent]] = {}
    for event in events:
        kinds.setdefault(event.kind, []).append(event)
    rows = []
    for kind, happened in list(kinds.items())[:_ROWS]:
        marks: dict[int, list[TimelineEvent]] = {}
        for event in happened:
            marks.setdefault(min(int(_COLUMNS * event.at_s / ends_s), _COLUMNS - 1), []).append(event)
        width = _WIDTH / _COLUMNS
        size = f'y="2" width="{width - 2:g}" height="12" rx="1"'
        drawn = "".join(
            f'<rect x="{column * width:g}" {size}><title>{_tooltip(marked)}</title></rect>'
            for column, marked in marks.items()
        )
        style = "row bad" if happened[0].bad else "row"
        rows.append(
            f"<div class='{style}'><span>{text(kind)} <b>{len(happened):,}</b></span>"
            f"<div class=field>"
            f'<svg viewBox="0 0 1000 16" preserveAspectRatio=none role=img aria-label="{text(kind)}: {len(happened)}">'
            f"{drawn}</svg><i class=cursor></i></div></div>"
        )
    if not rows:
        return ""
    return f"<figure class=events><figcaption>What happened</figcaption>{''.join(rows)}</figure>"


def _tooltip(events: Sequence[TimelineEvent]) -> str:
    first = [f"{duration(event.at_s)}: {markup.short(event.text, 120)}" for event in events[:4]]
    more = [f"and {len(events) - 4:,} more"] if len(events) > 4 else []
    return text("\n".join(first + more))


def _stacked(filled: Sequence[ChartLine]) -> list[ChartLine]:
    """Each series on top of those before it."""
    below: list[float] = []
    stacked = []
    for line in filled:
        below = [value + (below[index] if below else 0.0) for index, (_, value) in enumerate(line.points)]
        moments = [moment for moment, _ in line.points]
        stacked.append(msgspec.structs.replace(line, points=list(zip(moments, below, strict=True))))
    return stacked


def _ceiling(peak: float) -> float:
    """The least of 1, 2, 4, 6, 8 times a power of ten that is not below the peak."""
    if peak <= 0:
        return 1.0
    power = 10.0 ** floor(log10(peak))
    return next(power * step for step in (1, 2, 4, 6, 8, 10) if power * step >= peak * (1 - 1e-9))


def _steps(points: Sequence[tuple[float, float]], ends_s: float, top: float) -> str:
    parts: list[str] = []
    before = ""
    for moment, value in points:
        across, down = f"{_WIDTH * moment / ends_s:.1f}", f"{_HEIGHT * (1 - value / top):.1f}"
        if not parts:
            parts.append(f"M{across} {down}")
        elif down != before:
            parts.append(f"H{across}V{down}")
        before = down
    return "".join([*parts, f"H{_WIDTH:g}"])


def _area(points: Sequence[tuple[float, float]], ends_s: float, top: float) -> str:
    first = _WIDTH * points[0][0] / ends_s if points else 0.0
    return f"{_steps(points, ends_s, top)}V{_HEIGHT:g}H{first:.1f}z"


def _columns(lines: Sequence[ChartLine], ends_s: float, show: Callable[[float], str]) -> list[str]:
    """Invisible columns whose tooltips show the values at their left edge."""
    columns = []
    positions = [0] * len(lines)
    for column in range(_COLUMNS):
        moment = ends_s * column / _COLUMNS
        shown = [duration(moment)]
        for number, line in enumerate(lines):
            while positions[number] + 1 < len(line.points) and line.points[positions[number] + 1][0] <= moment:
                positions[number] += 1
            if line.points and line.points[positions[number]][0] <= moment:
                shown.append(f"{line.label}: {show(line.points[positions[number]][1])}")
        width = _WIDTH / _COLUMNS
        columns.append(
            f'<rect class=hit x="{column * width:g}" width="{width:g}" height="100"><title>{text(chr(10).join(shown))}'
            "</title></rect>"
        )
    return columns


def _time_axis(ends_s: float) -> str:
    """Labels in equal distances, at round moments."""
    step = next(seconds for seconds in _STEPS if ends_s / seconds <= _TICKS)
    labels = "".join(
        f'<span style="left:{100 * tick * step / ends_s:.2f}%">{text(duration(tick * step))}</span>'
        for tick in range(int(ends_s / step * 0.97) + 1)
    )
    return f"<div class=axis aria-hidden=true>{labels}</div>"


_STEPS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000, 10**12)
"""Distances of labels on the axis of time, seconds."""
