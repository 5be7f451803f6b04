"""The law that deletion costs that Shiplap has written change no plan: they follow from decisions."""

from __future__ import annotations

from zlib import crc32

from msgspec.structs import replace

from shiplap.kubernetes.labels import DELETION_COST, WRITTEN_COST
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.snapshot import Snapshot

NAME = "deletion costs that Shiplap has written change nothing"


def idle(snapshot: Snapshot) -> Snapshot:
    """Every pod has a cost, by its node."""
    return replace(snapshot, view=replace(snapshot.view, pods=tuple(map(with_written_cost, snapshot.view.pods))))


def with_written_cost(pod: Pod) -> Pod:
    """The pod with the deletion cost of its node."""
    cost = f"-{1_500_000 + crc32(pod.spec.node_name.encode()) % 10_000}"
    annotations = pod.metadata.annotations | {DELETION_COST: cost, WRITTEN_COST: cost}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))
