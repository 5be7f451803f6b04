"""Pods that require each other and move together: is there a domain in which some of them have room and others not?

kube-scheduler may bind any of them first, wherever that one has room. From then on the others have to follow it. A plan
for all of them is of no use if the first one can start where the rest has no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod, PodAffinityTerm
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.selectors import matches
from shiplap.scheduling.model.resources import Ints
from shiplap.scheduling.supply.existing_nodes import ExistingNodes


def false_start(moving: Sequence[Pod], staying: Iterable[Pod], nodes: ExistingNodes) -> str:
    """Return why kube-scheduler may start a series of the moving pods where not all of them have room, or "".

    Args:
        moving: pods that lose their nodes and are made anew.
        staying: pods on nodes that stay: a series that one of these pods is of has its domain.
        nodes: the nodes that stay, filled with the pods that move to them.
    """
    running: list[Pod] | None = None
    for pod, term in _series_of(moving):
        group = [other for other in moving if _belongs(other, pod, term)]
        if len(group) < 2:
            continue
        running = list(staying) if running is None else running
        if any(_belongs(other, pod, term) for other in running):
            continue
        if domain := _too_small_domain(group, term.topology_key, nodes):
            return (
                f"pod {pod.key} and {len(group) - 1} more require each other, and kube-scheduler could start them in "
                f"{term.topology_key} {domain}, which has room for a part of them only"
            )
    return ""


def _series_of(pods: Iterable[Pod]) -> Iterator[tuple[Pod, PodAffinityTerm]]:
    """The first pod of each series, with the required term by which it follows pods like itself."""
    seen: set[bytes] = set()
    for pod in pods:
        affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity is not None else None
        for term in affinity.required if affinity is not None else ():
            if not _belongs(pod, pod, term):
                continue
            key = msgspec.msgpack.encode((pod.metadata.namespace or "default", term))
            if key not in seen:
                seen.add(key)
                yield pod, term


def _belongs(other: Pod, pod: Pod, term: PodAffinityTerm) -> bool:
    """True if a pod counts for a term of another pod. A namespace selector is taken to add no namespaces."""
    own = pod.metadata.namespace or "default"
    return (other.metadata.namespace or "default") in (*term.namespaces, own) and matches(
        term.label_selector, other.metadata.labels
    )


def _too_small_domain(group: Sequence[Pod], key: str, nodes: ExistingNodes) -> str:
    """A domain in which one of the pods has room, and not all of them; the first by name, or nothing."""
    wanted = np.array([nodes.axis.vector(pod_requests(pod)) for pod in group])
    in_plan = {pod.metadata.uid or pod.key for pod in group}
    free: dict[str, list[Ints]] = {}
    planned: set[str] = set()
    for place, existing in enumerate(nodes.all):
        domain = existing.labels.get(key, "")
        if domain and existing.initialized:
            free.setdefault(domain, []).append(nodes.free[place])
            if any((pod.metadata.uid or pod.key) in in_plan for pod in nodes.placed[place]):
                planned.add(domain)
    for domain in sorted(free.keys() - planned):
        room = np.array(free[domain])
        starts = any((room >= amounts).all(axis=1).any() for amounts in wanted)
        if starts and _places(room, wanted.max(axis=0)) < len(group):
            return domain
    return ""


def _places(room: Ints, each: Ints) -> int:
    """Return how many pods have room on these nodes if each is as large as the largest amounts of all."""
    asked = each > 0
    return int((np.maximum(room[:, asked], 0) // each[asked]).min(axis=1).sum())
