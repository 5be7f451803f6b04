"""Gangs that run: the nodes that must stay, because a gang would be torn without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import msgspec

from shiplap.kubernetes.objects import TERMINAL_PHASES
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gang_membership import Asked, membership
from shiplap.scheduling.model.snapshot import ClusterView


class RunningGang(msgspec.Struct, frozen=True):
    """A gang of which members have a node; `members` counts those of each node, by its name.

    Without a `minimum` its PodGroup cannot be read.
    """

    key: str
    minimum: int | None
    members: Counter[str]


def torn_without(view: ClusterView, known: KnownGangs, leaving: Collection[str]) -> dict[str, str]:
    """Return why nodes must stay, by name: their gangs would have fewer members than they need.

    A gang that is all on one node may move with it. Of members above the minimum some may move, those of the first
    nodes by name; members of nodes that leave already do not count.
    """
    kept: dict[str, str] = {}
    for gang in _running(view, known):
        here = Counter({node: number for node, number in gang.members.items() if node not in leaving})
        if len(here) <= 1 and not leaving & gang.members.keys():
            continue
        spare = here.total() - gang.minimum if gang.minimum is not None else 0
        needs = f"which needs {gang.minimum} together" if gang.minimum is not None else "whose PodGroup cannot be read"
        for node, number in sorted(here.items()):
            if number <= spare and node not in kept:
                spare -= number
            else:
                kept.setdefault(node, f"runs members of gang {gang.key}, {needs}")
    return kept


def runs_gangs(view: ClusterView, known: KnownGangs) -> bool:
    """Return True if members of any gang have nodes."""
    return any(True for _ in _running(view, known))


def _running(view: ClusterView, known: KnownGangs) -> Iterator[RunningGang]:
    minima = {(item.api, item.namespace, item.name): item.minimum for item in known.pod_groups}
    unread = {(item.api, item.namespace, item.name) for item in known.pod_groups if item.unread}
    found: dict[Asked, Counter[str]] = {}
    for node, pods in view.by_node.items():
        for pod in pods:
            item = membership(pod)
            if item is None or pod.status.phase in TERMINAL_PHASES:
                continue
            asked = (item.api, pod.metadata.namespace or "default", item.name)
            if item.minimum:
                minima[asked] = max(item.minimum, minima.get(asked, 0))
            found.setdefault(asked, Counter())[node] += 1
    for asked, members in sorted(found.items()):
        if asked in unread or minima.get(asked, 1) > 1:
            yield RunningGang(f"{asked[1]}/{asked[2]}", None if asked in unread else minima[asked], members)
