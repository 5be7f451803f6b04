"""Finds the gangs that wait for nodes in a cluster, in the order in which they are planned for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.gangs.gang import Gang, GangMembers, KnownGangs, PodGroupFacts
from shiplap.policies.gangs.gang_membership import Asked, Membership, membership
from shiplap.scheduling.model.snapshot import ClusterView

_SEVERAL = 2
"""The least number of pods that a gang needs together: one pod alone is none."""


class _Found(msgspec.Struct, frozen=True):
    """The pods of one gang in a view, and what they say of it. `created_at` is that of the first of them."""

    asked: Asked
    waiting: tuple[Pod, ...]
    placed: int
    gated: int
    nodes: frozenset[str]
    minima: frozenset[int]
    problems: tuple[str, ...]
    topology: str
    priority: int
    created_at: str
    deadline_s: float


def waiting_gangs(view: ClusterView, known: KnownGangs, now: float) -> tuple[GangMembers, ...]:
    """Return the gangs of more than one pod that need nodes: those that run, then by priority, age and name.

    A gang is left out while scheduling gates hold all of it back, and once the members that it needs have a node.
    """
    found = view.once(_found)
    if not found:
        return ()
    facts = {(item.api, item.namespace, item.name): item for item in known.pod_groups}
    gangs = ((item, _gang(item, facts.get(item.asked))) for item in found)
    waiting = [
        _judged(GangMembers(gang, item.waiting, item.placed, item.gated, item.nodes), known.wait_s, now)
        for item, gang in gangs
        if gang.minimum >= _SEVERAL
    ]
    return tuple(sorted((item for item in waiting if item.needed or item.gang.problem), key=_turn))


def _found(view: ClusterView) -> tuple[_Found, ...]:
    """The gangs with pods that need a node. What a view has is looked for once: plans and launches ask the same."""
    found: dict[Asked, list[tuple[Membership, Pod]]] = {}
    for pod in view.unbound:
        if (item := membership(pod)) is not None:
            found.setdefault((item.api, pod.metadata.namespace or "default", item.name), []).append((item, pod))
    if not found:
        return ()
    _add_bound(found, view)
    nodes = {node.metadata.name for node in view.nodes}
    gangs = (_of_pods(asked, items, nodes) for asked, items in found.items())
    return tuple(item for item in gangs if item.waiting)


def _add_bound(found: dict[Asked, list[tuple[Membership, Pod]]], view: ClusterView) -> None:
    namespaces = {namespace for _, namespace, _ in found}
    for pods in view.by_node.values():
        for pod in pods:
            namespace = pod.metadata.namespace or "default"
            if namespace in namespaces and (item := membership(pod)) is not None:
                known = found.get((item.api, namespace, item.name))
                if known is not None:
                    known.append((item, pod))


def _of_pods(asked: Asked, items: Sequence[tuple[Membership, Pod]], nodes: set[str]) -> _Found:
    waiting, placed, gated, on = [], 0, 0, set()
    for _, pod in items:
        node = pod.spec.node_name or pod.status.nominated_node_name
        if pod.status.phase == "Succeeded":
            placed += 1
        elif pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp:
            continue
        elif node in nodes:
            placed += 1
            on.add(node)
        elif pod.spec.scheduling_gates:
            gated += 1
        elif not pod.spec.node_name:
            waiting.append(pod)
    said = [item for item, _ in items]
    return _Found(
        asked,
        tuple(sorted(waiting, key=lambda pod: pod.key)),
        placed,
        gated,
        frozenset(on),
        frozenset(item.minimum for item in said if item.minimum),
        tuple(item.problem for item in said if item.problem),
        next((item.topology for item in said if item.topology), ""),
        max(pod.spec.priority for _, pod in items),
        min((pod.metadata.creation_timestamp or "" for _, pod in items), default=""),
        min((item.deadline_s for item in said if item.deadline_s), default=0.0),
    )


def _gang(found: _Found, facts: PodGroupFacts | None) -> Gang:
    """Return the gang as its pods and its PodGroup say it; what contradicts itself is a problem."""
    api, namespace, name = found.asked
    minima, problems = found.minima, [*found.problems]
    if len(minima) > 1:
        problems.append(
            f"its pods say different numbers that are needed together: {', '.join(map(str, sorted(minima)))}"
        )
    if facts is not None:
        minima |= {facts.minimum}
        problems += filter(None, [facts.problem])
    group = facts or PodGroupFacts(api, namespace, name)
    return Gang(
        namespace=namespace,
        name=name,
        minimum=max(minima, default=1) if not problems else max(_SEVERAL, *minima, 0),
        topology=found.topology or group.topology,
        priority=found.priority if group.priority is None else group.priority,
        created_at=group.created_at or found.created_at,
        deadline_s=found.deadline_s,
        problem=problems[0] if problems else "",
    )


def _judged(members: GangMembers, wait_s: float, now: float) -> GangMembers:
    """Return the members of a gang, with a problem if it has one at this moment."""
    gang = members.gang
    problem = gang.problem or _late(gang, now) or _incomplete(members, wait_s, now) or _unknown_topology(gang)
    return replace(members, gang=replace(gang, problem=problem)) if problem != gang.problem else members


def _late(gang: Gang, now: float) -> str:
    began = gang.began
    if not gang.deadline_s or began is None or now < began + gang.deadline_s:
        return ""
    return f"its deadline was {rfc3339(began + gang.deadline_s)}"


def _incomplete(members: GangMembers, wait_s: float, now: float) -> str:
    """Return which members do not exist or are held back; a gang that runs does not wait for what it has lost."""
    gang, exist = members.gang, members.placed + len(members.waiting) + members.gated
    if members.placed:
        return ""
    if exist < gang.minimum:
        began = gang.began
        until = began + wait_s if began is not None else now
        when = f"the others are waited for until {rfc3339(until)}" if now < until else "nobody makes the others"
        return f"{exist} of {gang.minimum} members exist, {when}"
    if exist - members.gated < gang.minimum:
        return f"scheduling gates hold {members.gated} of its members back"
    return ""


def _unknown_topology(gang: Gang) -> str:
    if gang.topology != labels.HOSTNAME:
        return ""
    return f"all members on one node ({gang.topology}) is not supported: require pod affinity instead"


def _turn(members: GangMembers) -> tuple[bool, int, str, str]:
    """What a gang that runs has lost comes first."""
    gang = members.gang
    return not members.placed, -gang.priority, gang.created_at, gang.key
