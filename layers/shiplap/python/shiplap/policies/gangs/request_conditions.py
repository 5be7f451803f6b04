"""Decides what the status of a ProvisioningRequest says next: its conditions, and where its capacity is booked.

Each answer follows from the object, the plan and the time alone, and to write it twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Node, Pod, RawObject
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.gangs.memory.gang_tries import without_tries
from shiplap.policies.gangs.provisioning_requests import (
    ACCEPTED,
    BOOKED_S,
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    PROVISIONED,
    CapacityRequest,
    RequestCondition,
)
from shiplap.policies.gangs.requested_pods import (
    Place,
    booking_details,
    lost_nodes,
    request_of_reference,
    set_of_reference,
    taken_places,
    unconsumed,
)
from shiplap.scheduling.model.planned_pods import is_initialized, reports_ready
from shiplap.scheduling.model.scheduling_plan import Plan

_LONGEST = 2_000
_MOST_NAMED = 3


class RequestOutcome(msgspec.Struct, frozen=True):
    """What a plan has for a request.

    `ready` counts pods with room on nodes in service, `coming` those on nodes on their way or about to be launched.
    `why` says why the others have none.
    """

    ready: dict[Place, int] = {}
    coming: int = 0
    why: str = ""

    @property
    def number_ready(self) -> int:
        """The number of pods with room on nodes in service."""
        return sum(self.ready.values())


def outcomes(plan: Plan, nodes: Iterable[Node]) -> dict[str, RequestOutcome]:
    """Return what a plan has for each request, by uid."""
    in_service = {node.metadata.name for node in nodes if _is_in_service(node)}
    ready: dict[str, Counter[Place]] = {}
    coming: Counter[str] = Counter()
    why: dict[str, str] = {}
    for place in plan.existing_nodes:
        for pod in place.pods:
            if not has_no_object(pod.name):
                continue
            uid = request_of_reference(pod)
            if place.name in in_service:
                ready.setdefault(uid, Counter())[set_of_reference(pod), place.name] += 1
            else:
                coming[uid] += 1
    for claim in plan.node_claims:
        coming.update(request_of_reference(pod) for pod in claim.pods if has_no_object(pod.name))
    for entry in (*plan.unschedulable, *plan.ignored):
        if has_no_object(entry.pod.name):
            why.setdefault(request_of_reference(entry.pod), without_tries(entry.message))
    return {
        uid: RequestOutcome(dict(ready.get(uid, {})), coming[uid], why.get(uid, ""))
        for uid in ready.keys() | coming.keys() | why.keys()
    }


def _is_in_service(node: Node) -> bool:
    """True if pods can run on a node; nodes of others have no label that says so."""
    ours = labels.NODE_POOL in node.metadata.labels
    return reports_ready(node) and not node.metadata.deletion_timestamp and (is_initialized(node) or not ours)


def next_status(
    request: CapacityRequest,
    outcome: RequestOutcome | None,
    consumers: Sequence[Pod],
    nodes: Sequence[Node],
    now: float,
) -> RawObject | None:
    """Return the fields of the status that change, or None.

    Args:
        request: as it was read.
        outcome: what the plan has for it; None if it was not planned.
        consumers: the pods that have taken capacity of it.
        nodes: all of the cluster.
        now: epoch seconds.
    """
    item = request.item
    if item.is_over:
        return None
    if item.is_provisioned:
        changed = _of_booking(request, consumers, nodes, now)
        return _written(request, changed, now) if changed else None
    taken = taken_places(request, consumers)
    if outcome is None and taken.total() == request.total > 0:
        outcome = RequestOutcome()
    if outcome is not None:
        outcome = replace(outcome, ready=dict(Counter(outcome.ready) + taken))
    found = _of_waiting(request, outcome, now)
    status = _written(request, found, now)
    if any(each.type == PROVISIONED and each.status == "True" for each in found) and outcome is not None:
        return {**(status or {}), "provisioningClassDetails": booking_details(outcome.ready)}
    return status


def _of_booking(
    request: CapacityRequest, consumers: Sequence[Pod], nodes: Sequence[Node], now: float
) -> list[RequestCondition]:
    item = request.item
    if now >= item.booked_until:
        why = f"the capacity was kept for {BOOKED_S / 60:.0f} minutes, until {rfc3339(item.booked_until)}"
        return [RequestCondition(BOOKING_EXPIRED, "True", "CapacityReservationTimeExpired", why)]
    left = unconsumed(request, consumers)
    lost = lost_nodes(left, nodes)
    if not lost:
        return []
    number = sum(count for (_, node), count in left.items() if node in lost)
    why = f"{number} of {request.total} pods have lost their room: {_listed(lost)} no longer in the cluster"
    return [RequestCondition(CAPACITY_REVOKED, "True", "NodesLost", why)]


def _of_waiting(request: CapacityRequest, outcome: RequestOutcome | None, now: float) -> list[RequestCondition]:
    item = request.item
    if request.problem is not None:
        return [RequestCondition(FAILED, "True", request.problem.reason, request.problem.message)]
    if now >= request.valid_until:
        last = item.condition(PROVISIONED)
        told = f"; the last answer: {last.message}" if last is not None and last.message else ""
        why = f"it was not provisioned until {rfc3339(request.valid_until)}{told}"
        return [RequestCondition(FAILED, "True", "Expired", why)]
    if request.waits:
        return []
    accepted = RequestCondition(ACCEPTED, "True", "Accepted", f"capacity for {_pods(request.total)} is looked for")
    if outcome is None:
        return [accepted]
    return [accepted, _of_outcome(request, outcome, now)]


def _of_outcome(request: CapacityRequest, outcome: RequestOutcome, now: float) -> RequestCondition:
    total, ready = request.total, outcome.number_ready
    if ready >= total:
        on = len({node for _, node in outcome.ready})
        verb = "has" if total == 1 else "have"
        why = f"{_pods(total)} {verb} room on {_nodes(on)}, kept until {rfc3339(now + BOOKED_S)}"
        reason = "CapacityIsFound" if request.item.is_check else "CapacityIsProvisioned"
        return RequestCondition(PROVISIONED, "True", reason, why)
    if ready + outcome.coming >= total:
        why = f"{ready} of {_pods(total)} have room on nodes that are ready, {outcome.coming} on nodes on their way"
        return RequestCondition(PROVISIONED, "False", "NodesAreLaunched", why)
    why = outcome.why.removeprefix(f"nothing is launched for gang {request.item.key}: ")
    reason, why = "CapacityIsNotFound", why or f"{ready} of {_pods(total)} have room"
    if not request.is_retried:
        return RequestCondition(FAILED, "True", reason, why)
    return RequestCondition(PROVISIONED, "False", reason, f"{why}; it is tried again within five minutes")


def _written(request: CapacityRequest, changed: Sequence[RequestCondition], now: float) -> RawObject | None:
    """Return the list of conditions with these in it; None if it says the same already."""
    before = {item.type: item for item in request.item.status.conditions}
    after = dict(before)
    for each in changed:
        old = before.get(each.type)
        if old is not None and old.status == each.status and old.reason == each.reason and old.status == "True":
            continue  # its message names the time at which it came true
        since = old.last_transition_time if old is not None and old.status == each.status else rfc3339(now)
        after[each.type] = replace(
            each,
            message=each.message[:_LONGEST],
            last_transition_time=since,
            observed_generation=request.item.metadata.generation,
        )
    if after == before:
        return None
    return {"conditions": [_raw(item) for item in after.values()]}


def _raw(item: RequestCondition) -> RawObject:
    return {
        "type": item.type,
        "status": item.status,
        "reason": item.reason,
        "message": item.message,
        "lastTransitionTime": item.last_transition_time,
        "observedGeneration": item.observed_generation,
    }


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _listed(names: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more are" if len(names) > _MOST_NAMED else ""
    return f"nodes {first}{more or ' are'}" if len(names) > 1 else f"node {first} is"
