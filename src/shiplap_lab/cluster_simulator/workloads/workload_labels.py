"""Labels and annotations that controllers add to the pods they make, and the indexes of Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
JOB_INDEX = "batch.kubernetes.io/job-completion-index"

JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""A finalizer of a Job's pods that are not counted yet: however one ends, it counts once."""

IndexRange = tuple[int, int]
"""The first and the last of consecutive indexes."""


def without_tracking(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The patch of a pod's metadata after which no Job counts it any more."""
    left = [name for name in metadata.get("finalizers") or [] if name != JOB_TRACKING]
    return {"finalizers": left or None}


def index_ranges(text: str) -> Iterator[IndexRange]:
    """The ranges of a text such as `0,2-4`. Raises ValueError."""
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        yield int(first), int(last if dash else first)


def index_text(indexes: Iterable[int]) -> str:
    """Indexes as the status of a Job writes them: `0,2-4`."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index <= ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def free_indexes(ended: Iterable[IndexRange], running: set[str]) -> Iterator[int]:
    """Yield, without end, the indexes that have neither ended nor run; the ranges in order."""
    place = 0
    for first, last in ended:
        yield from (index for index in range(place, first) if str(index) not in running)
        place = max(place, last + 1)
    while True:
        if str(place) not in running:
            yield place
        place += 1
