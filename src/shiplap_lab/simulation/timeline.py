"""What a recording of a simulation holds: plain data, read without anything that simulates."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.drawing.picture import ClusterPicture
from shiplap.records.disruption_record import Headline


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cluster in numbers, `at_s` seconds after the start. Money in USD per hour; `nodes` by pool."""

    at_s: float
    pending: int = 0
    nodes: dict[str, int] = {}
    hourly: float = 0.0
    list_hourly: float = 0.0
    bound_hourly: float | None = None


class TimelineEvent(msgspec.Struct, frozen=True):
    """One event: `kind` is its row in the picture, `text` the details; `bad` for faults and their consequences."""

    at_s: float
    kind: str
    text: str
    bad: bool = False


class Frame(msgspec.Struct, frozen=True):
    """The cluster at a moment."""

    at_s: float
    picture: ClusterPicture


class Timeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it in the order of time; `ends_s` seconds after the start, `decisions` in the epoch of the pictures."""

    ends_s: float
    samples: tuple[Sample, ...] = ()
    happenings: tuple[TimelineEvent, ...] = ()
    frames: tuple[Frame, ...] = ()
    decisions: tuple[Headline, ...] = ()


def thinned(samples: Sequence[Sample], most: int) -> tuple[Sample, ...]:
    """At most so many samples, each for a stretch: its last values and its largest number of pending pods."""
    if len(samples) <= most:
        return tuple(samples)
    chosen = []
    for part in range(most):
        stretch = samples[part * len(samples) // most : (part + 1) * len(samples) // most]
        worst = max(sample.pending for sample in stretch)
        chosen.append(msgspec.structs.replace(stretch[-1], at_s=stretch[0].at_s, pending=worst))
    return tuple(chosen)
