"""Plans for ProvisioningRequests: checks of existing capacity launch nothing, and pods that consume wait for theirs.

Every other request is planned as a gang of its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import PodReference
from shiplap.policies.gangs.gang import KnownGangs, RequestState
from shiplap.policies.gangs.gang_membership import REQUEST
from shiplap.policies.gangs.provisioning_requests import CHECK_CAPACITY, CLASS, consumed_by
from shiplap.scheduling.explain.unschedulable import NO_NODE_POOL
from shiplap.scheduling.model.planned_pods import pair
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, Unschedulable, shortened
from shiplap.scheduling.model.snapshot import Snapshot

MOST_CHECKS = 10
"""Checks of capacity in one decision: each is a plan. Further ones have their turn once these are answered."""

_NOTHING_LAUNCHED = f"{NO_NODE_POOL}; "

Decide = Callable[[Snapshot], Plan]


class _Sorted(msgspec.Struct, frozen=True):
    """The pods of a snapshot: those that are planned as ever, the pods of each check, and consumers that wait.

    `hopeless` are consumers of a request that will never have room for them.
    """

    planned: tuple[Pod, ...]
    checks: Sequence[tuple[Pod, ...]]
    held: Sequence[Unschedulable]
    hopeless: Sequence[Unschedulable]


def with_requests(snapshot: Snapshot, known: KnownGangs, decide: Decide) -> Plan:
    """Return the plan of a snapshot with ProvisioningRequests. Raises as `decide`.

    Args:
        snapshot: the pods of requests are among its pods.
        known: also of requests.
        decide: plans all pods that may have nodes launched.
    """
    found = _sorted(snapshot, known)
    if len(found.planned) == len(snapshot.view.pods):
        return decide(snapshot)
    plan = decide(replace(snapshot, view=replace(snapshot.view, pods=found.planned)))
    if found.checks:
        plan = _checked(snapshot, plan, found)
    return replace(
        plan,
        ignored=tuple(sorted((*plan.ignored, *found.held), key=lambda entry: entry.pod)),
        unschedulable=tuple(sorted((*plan.unschedulable, *found.hopeless), key=lambda entry: entry.pod)),
    )


def _sorted(snapshot: Snapshot, known: KnownGangs) -> _Sorted:
    states = {(item.namespace, item.name): item for item in known.requests or ()}
    planned: list[Pod] = []
    checks: dict[tuple[str, str, str], list[Pod]] = {}
    held: list[Unschedulable] = []
    hopeless: list[Unschedulable] = []
    for pod in snapshot.view.pods:
        annotations = pod.metadata.annotations
        if pod.spec.node_name or not annotations:
            planned.append(pod)
        elif has_no_object(pod.metadata.name):
            if annotations.get(CLASS) == CHECK_CAPACITY:
                key = (pod.metadata.creation_timestamp or "", pod.metadata.namespace, annotations[REQUEST])
                checks.setdefault(key, []).append(pod)
            else:
                planned.append(pod)
        elif (state := _consumed(pod, states, known.requests_unread)) is None or not state.holds:
            planned.append(pod)
        else:
            why = f"it consumes ProvisioningRequest {state.namespace}/{state.name}, {state.holds}"
            (hopeless if state.is_over else held).append(Unschedulable(PodReference.of(pod), shortened(why)))
    in_turn = [tuple(pods) for _, pods in sorted(checks.items(), key=lambda item: item[0])]
    return _Sorted(tuple(planned), in_turn, held, hopeless)


def _consumed(pod: Pod, states: Mapping[tuple[str, str], RequestState], unread: str) -> RequestState | None:
    name = consumed_by(pod)
    if not name:
        return None
    key = (pod.metadata.namespace or "default", name)
    if unread:
        return RequestState(*key, f"which cannot be read: {unread}")
    return states.get(key) or RequestState(*key, "which does not exist", is_over=True)


def _checked(snapshot: Snapshot, plan: Plan, found: _Sorted) -> Plan:
    """Answer the checks one after the other, each in the room that those before it leave."""
    names = {node.metadata.name for node in snapshot.view.nodes}
    places = {
        (pod.namespace or "default", pod.name): place.name
        for place in plan.existing_nodes
        for pod in place.pods
        if place.name in names
    }
    _, unjoined = pair(snapshot.view.nodes, snapshot.claims)
    gone = {claim.name for claim in unjoined}
    existing = replace(
        snapshot,
        claims=tuple(claim for claim in snapshot.claims if claim.name not in gone),
        manifests=replace(snapshot.manifests, node_pools=(), capacity_buffers=()),
        standalone_claims=(),
        settings=replace(snapshot.settings, improve_s=0.0),
    )
    bound = list(_bound(found.planned, places))
    placements, refused = dict[str, list[PodReference]](), list[Unschedulable]()
    for pods in found.checks[:MOST_CHECKS]:
        answer = _plan_of(existing, bound, pods)
        mine = {pod.key for pod in pods}
        homes = {pod.key: place.name for place in answer.existing_nodes for pod in place.pods if pod.key in mine}
        if len(homes) == len(pods):
            for pod in pods:
                placements.setdefault(homes[pod.key], []).append(PodReference.of(pod))
                bound.append(replace(pod, spec=replace(pod.spec, node_name=homes[pod.key])))
            continue
        cause = next((entry for entry in (*answer.unschedulable, *answer.ignored) if entry.pod.key in mine), None)
        told = f": {cause.message.removeprefix(_NOTHING_LAUNCHED)}" if cause is not None else ""
        why = shortened(f"{len(homes)} of {len(pods)} pods have room on nodes that exist{told}")
        refused += (Unschedulable(PodReference.of(pod), why) for pod in pods)
    return replace(
        plan,
        existing_nodes=_merged(plan.existing_nodes, placements),
        unschedulable=tuple(sorted((*plan.unschedulable, *refused), key=lambda entry: entry.pod)),
    )


def _plan_of(existing: Snapshot, bound: Sequence[Pod], pods: Sequence[Pod]) -> Plan:
    from shiplap.scheduling.planner import plan  # noqa: PLC0415 - inputs are read without the planner

    return plan(replace(existing, view=replace(existing.view, pods=(*bound, *pods)), policies=()))


def _bound(pods: Iterable[Pod], places: Mapping[tuple[str, str], str]) -> Iterable[Pod]:
    for pod in pods:
        if pod.spec.node_name:
            yield pod
        elif home := places.get((pod.metadata.namespace or "default", pod.metadata.name)):
            yield replace(pod, spec=replace(pod.spec, node_name=home))


def _merged(before: Sequence[Placement], more: Mapping[str, Sequence[PodReference]]) -> tuple[Placement, ...]:
    known = {place.name: place.pods for place in before}
    names = sorted({*known, *more})
    return tuple(Placement(name, tuple(sorted((*known.get(name, ()), *more.get(name, ()))))) for name in names)
