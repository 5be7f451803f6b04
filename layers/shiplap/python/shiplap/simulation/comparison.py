"""Two sets of manifests in the same play: what a change of a NodePool would have cost, and who would have waited."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple, replace

from shiplap.api.types import Manifests
from shiplap.drawing.timeline import Sample, Timeline
from shiplap.simulation.chaos import draw
from shiplap.simulation.recording import recorded
from shiplap.simulation.run import Outcome
from shiplap.simulation.scenario import Play


class Figures(msgspec.Struct, frozen=True, rename="camel"):
    """One run until `hours` of virtual time; USD. `pod_hours_pending` adds up what all pods waited.

    `bound_dollars` is what the pods that had nodes cost at least, None when nothing can be bought.
    """

    trace: str
    kept: bool
    hours: float
    dollars: float
    bound_dollars: float | None
    mean_nodes: float
    most_nodes: int
    launched: int
    pod_hours_pending: float
    longest_pending_seconds: float


class Side(NamedTuple):
    """One of the two: in figures, and over time until the moment at which the sooner of both ended."""

    figures: Figures
    outcome: Outcome
    timeline: Timeline


def compared(play: Play, other: Manifests, seed: int, hours: float | None = None) -> tuple[Side, Side]:
    """The play with its own manifests and with others, same seed and faults, both until the sooner of their ends."""
    faults = draw(play.scenario, seed)
    runs = [recorded(item, seed, faults, hours) for item in (play, replace(play, manifests=other))]
    until = min(outcome.ended_at for outcome, _ in runs)
    mine, others = (Side(figures(*run, until), run[0], _until(run[1], until)) for run in runs)
    return mine, others


def _until(timeline: Timeline, end: float) -> Timeline:
    return replace(
        timeline,
        ends_s=end,
        samples=tuple(item for item in timeline.samples if item.at_s <= end),
        happenings=tuple(item for item in timeline.happenings if item.at_s <= end),
        frames=tuple(item for item in timeline.frames if item.at_s <= end),
    )


def figures(outcome: Outcome, timeline: Timeline, until: float) -> Figures:
    """A run in figures until a moment, seconds since its start."""
    samples = [item for item in timeline.samples if item.at_s <= until]
    priced = all(item.bound_hourly is not None for item in samples)
    return Figures(
        trace=outcome.trace,
        kept=not outcome.violations,
        hours=round(until / 3600, 3),
        dollars=round(_area(samples, until, lambda item: item.hourly), 4),
        bound_dollars=round(_area(samples, until, lambda item: item.bound_hourly or 0.0), 4) if priced else None,
        mean_nodes=round(_area(samples, until, lambda item: sum(item.nodes.values())) * 3600 / until, 2)
        if until
        else 0.0,
        most_nodes=max((sum(item.nodes.values()) for item in samples), default=0),
        launched=outcome.launched,
        pod_hours_pending=round(_area(samples, until, lambda item: item.pending), 4),
        longest_pending_seconds=outcome.longest_pending,
    )


def differences(mine: Figures, others: Figures) -> list[tuple[str, str, str, str]]:
    """A row for each figure: its name, both values, and by how much the other is more."""
    rows = []
    for name, left, right in zip(Figures.__struct_fields__, astuple(mine), astuple(others), strict=True):
        if name == "trace":
            continue
        counted = isinstance(left, int | float) and isinstance(right, int | float) and name not in ("kept", "hours")
        rows.append((name.replace("_", " "), str(left), str(right), f"{right - left:+.4g}" if counted else ""))
    return rows


def _area(samples: list[Sample], until: float, value: Callable[[Sample], float]) -> float:
    """Value hours under a step function that ends at `until` seconds."""
    moments = [*((item.at_s, value(item)) for item in samples), (until, 0.0)]
    return sum(height * (later - at) / 3600 for (at, height), (later, _) in pairwise(moments))
