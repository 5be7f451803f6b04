"""The statuses that upstream's custom resources show, computed from what is known of a cluster.

Fields, conditions and reasons are those that Karpenter writes, so that `kubectl get`, Argo CD and dashboards read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.instances.readiness.nodeclass_status import (
    FALSE,
    READY,
    TRUE,
    UNKNOWN,
    VALIDATION,
    ClusterStatus,
    Condition,
    NodeClassStatus,
    manifest_digest,
)
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, RawObject
from shiplap.kubernetes.quantity import format_resources, parse_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests
from shiplap.manifests.live.live_manifests import LiveManifests

NODE_CLASS_READY = "NodeClassReady"
REGISTRATION_HEALTHY = "NodeRegistrationHealthy"
NODES_UP_TO_DATE = "NodesUpToDate"
READY_FOR_PROVISIONING = "ReadyForProvisioning"
PROVISIONING = "Provisioning"

NODE_POOL, NODE_CLASS, OVERLAY, BUFFER = "NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer"

_NOT_YET = "AwaitingReconciliation"
_LONGEST_MESSAGE = 32_768
"""What the schema of conditions allows."""


class StatusUpdate(msgspec.Struct, frozen=True):
    """The status that an object should have, in the place of the one that it has."""

    kind: str
    namespace: str
    name: str
    resource_version: str
    status: dict[str, Any]


class BufferCapacity(msgspec.Struct, frozen=True):
    """The result of a plan for a CapacityBuffer: its pods, the number for `new` nodes or `missing`, and the reason.

    Without replicas, `reason` holds why the buffer has none.
    """

    namespace: str
    name: str
    replicas: int = 0
    new: int = 0
    missing: int = 0
    reason: str = ""


class PoolNodes(msgspec.Struct, frozen=True):
    """The nodes of a NodePool by what becomes of them.

    `joining` are not in service yet, `leaving` are replaced, removed or rebooted. `blocked` are drifted ones that
    cannot leave now, by the reason, sorted.
    """

    nodes: int
    drifted: int = 0
    joining: int = 0
    leaving: int = 0
    blocked: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> str:
        """The counts in one line; it changes only when they do."""
        why = ", ".join(f"{number} by {reason}" for reason, number in self.blocked)
        blocked = f"{sum(number for _, number in self.blocked)} blocked" + (f" ({why})" if why else "")
        return (
            f"{self.drifted} of {self.nodes} nodes drifted, {blocked}, {self.joining} joining, {self.leaving} leaving"
        )


def status_updates(
    objects: Iterable[RawObject],
    live: LiveManifests,
    inspected: ClusterStatus | None,
    nodes: Iterable[Node],
    now: float,
    buffers: Iterable[BufferCapacity] = (),
    pool_nodes: Mapping[str, PoolNodes] = MappingProxyType({}),
) -> Iterator[StatusUpdate]:
    """Yield an update for each object whose status is not what it should be, in the order given.

    Args:
        objects: as the API server lists them; kinds without a status are passed over.
        live: what they were read as.
        inspected: what the last inspection of EC2NodeClasses found.
        nodes: of the cluster; their capacity adds up to the resources of NodePools.
        now: epoch seconds.
        buffers: what the last plan found of CapacityBuffers; one that it has not seen keeps the status that it has.
        pool_nodes: by NodePool; one that is not counted keeps the condition that it has.
    """
    objects = tuple(objects)
    known = _Known(
        live,
        inspected,
        nodes,
        buffers,
        _generations(objects, "PodTemplate"),
        _generations(objects, NODE_CLASS),
        now,
    )
    for item in objects:
        compute = _COMPUTED.get(str(item.get("kind")))
        metadata = item.get("metadata")
        if compute is None or not isinstance(metadata, Mapping):
            continue
        before = item.get("status")
        present: Mapping[str, Any] = before if isinstance(before, Mapping) else {}
        if present.get("conditions") and known.is_unplanned_buffer(item):
            continue
        fields, conditions = compute(known, metadata)
        generation = metadata.get("generation", 0)
        written = _written(conditions, present, generation, now)
        if item["kind"] == NODE_POOL:
            written = _with_rollout(written, pool_nodes.get(str(metadata.get("name", ""))), present, generation, now)
        wanted = {**fields, "conditions": written}
        if any(present.get(field) != value for field, value in wanted.items()):
            yield StatusUpdate(
                kind=str(item["kind"]),
                namespace=str(metadata.get("namespace", "")),
                name=str(metadata.get("name", "")),
                resource_version=str(metadata.get("resourceVersion", "")),
                status={field: _in_place_of(present.get(field), value) for field, value in wanted.items()},
            )


def _with_rollout(
    conditions: list[dict[str, Any]],
    counted: PoolNodes | None,
    present: Mapping[str, Any],
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """The conditions of a NodePool with the one that counts its nodes."""
    if counted is None:
        listed = present.get("conditions")
        known = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
        added = [dict(each) for each in known if each.get("type") == NODES_UP_TO_DATE]
    else:
        stuck = sum(number for _, number in counted.blocked) == counted.drifted
        reason = ("RolloutBlocked" if stuck else "RolloutInProgress") if counted.drifted else ""
        shown = Condition(NODES_UP_TO_DATE, FALSE if counted.drifted else TRUE, reason, counted.words)
        added = _written([shown], present, generation, now)
    return sorted([*conditions, *added], key=lambda each: str(each["type"]))


def uninspected(live: LiveManifests, inspected: ClusterStatus | None) -> tuple[str, ...]:
    """Names of EC2NodeClasses that nobody has inspected as they are written now."""
    known = _Known(live, inspected, ())
    names = (item.metadata.name for item in live.manifests.node_classes)
    return tuple(name for name in names if known.node_class(name)[1] is None)


def merge_patch(present: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes a status the wanted one: what is no longer there is taken away."""
    before: Mapping[str, Any] = present if isinstance(present, Mapping) else {}
    gone: dict[str, Any] = dict.fromkeys(field for field in before if field not in wanted)
    return gone | {field: _in_place_of(before.get(field), value) for field, value in wanted.items()}


def _in_place_of(present: Any, value: Any) -> Any:
    """A value for a merge patch: keys that are no longer there are taken away."""
    if not (isinstance(present, Mapping) and isinstance(value, dict)):
        return value
    return {**dict.fromkeys(key for key in present if key not in value), **value}


def _generations(objects: Iterable[RawObject], kind: str) -> dict[tuple[str, str], int]:
    """Generations of objects of a kind by namespace and name; manifests that have been checked are without them."""
    found = (item["metadata"] for item in objects if item.get("kind") == kind)
    return {
        (str(metadata.get("namespace", "")), str(metadata.get("name", ""))): int(metadata.get("generation", 0))
        for metadata in found
    }


class _Known:
    """Holds the facts that statuses are computed from, by name."""

    def __init__(
        self,
        live: LiveManifests,
        inspected: ClusterStatus | None,
        nodes: Iterable[Node],
        buffers: Iterable[BufferCapacity] = (),
        template_generations: Mapping[tuple[str, str], int] = MappingProxyType({}),
        class_generations: Mapping[tuple[str, str], int] = MappingProxyType({}),
        now: float = 0.0,
    ) -> None:
        self.manifests: Manifests = live.manifests
        self.refused = {(item.kind, item.namespace, item.name): item for item in live.refused}
        self.classes = {item.name: item for item in (inspected.node_classes if inspected else ())}
        self.resources, self.registered = _resources_by_pool(nodes)
        written = {(item.metadata.namespace, item.metadata.name): item for item in live.manifests.capacity_buffers}
        self.written_buffers = written
        # The plan may have seen one that is refused or being deleted since.
        self.buffers = {key: item for item in buffers if (key := (item.namespace, item.name)) in written}
        self.template_generations = template_generations
        self.class_generations = class_generations
        self.now = now

    def validation(self, kind: str, metadata: Mapping[str, Any]) -> Condition:
        """Return the condition that shows whether an object validates."""
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        refused = self.refused.get((kind, namespace, name))
        if refused is None:
            return Condition(VALIDATION, TRUE)
        reason = refused.condition_reason or f"{kind}ValidationFailed"
        return Condition(VALIDATION, FALSE, reason, "; ".join(refused.reasons)[:_LONGEST_MESSAGE])

    def is_unplanned_buffer(self, item: RawObject) -> bool:
        """True if the object is a valid CapacityBuffer that no plan has seen, or that is being deleted."""
        key = (str(item["metadata"].get("namespace", "")), str(item["metadata"].get("name", "")))
        return item.get("kind") == BUFFER and (BUFFER, *key) not in self.refused and key not in self.buffers

    def node_class(self, name: str) -> tuple[EC2NodeClass | None, NodeClassStatus | None]:
        """An EC2NodeClass, and what was found of it as it is written now."""
        written = next((item for item in self.manifests.node_classes if item.metadata.name == name), None)
        status = self.classes.get(name)
        is_current = written is not None and status is not None and status.manifest == manifest_digest(written)
        return written, status if is_current else None


_Computed = tuple[dict[str, Any], list[Condition]]


def _of_node_pool(known: _Known, metadata: Mapping[str, Any]) -> _Computed:
    name = str(metadata.get("name", ""))
    valid = known.validation(NODE_POOL, metadata)
    pool = next((item for item in known.manifests.node_pools if item.metadata.name == name), None)
    why = "does not validate" if valid.status == FALSE else "is being deleted"
    usable = Condition(NODE_CLASS_READY, UNKNOWN, _NOT_YET, f"the NodePool {why}")
    if pool is not None:
        usable = _class_condition(known, pool.spec.template.spec.node_class_ref.name)
    registered = known.registered[name] > 0
    healthy = Condition(REGISTRATION_HEALTHY, TRUE if registered else UNKNOWN, "" if registered else _NOT_YET)
    resources = format_resources(known.resources.get(name, {}))
    number = known.registered[name]
    fields: dict[str, Any] = {"resources": {**resources, "nodes": str(number)}, "nodes": number}
    if pool is not None:
        seen = known.class_generations.get(("", pool.spec.template.spec.node_class_ref.name))
        fields |= {"nodeClassObservedGeneration": seen} if seen else {}
    return fields, [valid, usable, healthy, _ready(valid, usable)]


def _class_condition(known: _Known, name: str) -> Condition:
    """The condition NodeClassReady of NodePools that use an EC2NodeClass."""
    written, status = known.node_class(name)
    if written is None:
        refused = known.refused.get((NODE_CLASS, "", name))
        if refused:
            return Condition(NODE_CLASS_READY, FALSE, "NodeClassNotReady", f"EC2NodeClass {name}: {refused.reasons[0]}")
        return Condition(NODE_CLASS_READY, FALSE, "NodeClassNotFound", f"there is no EC2NodeClass {name}")
    if status is None:
        return Condition(
            NODE_CLASS_READY, UNKNOWN, "NodeClassReadinessUnknown", f"EC2NodeClass {name} is to be inspected"
        )
    if status.ready.status == TRUE:
        return Condition(NODE_CLASS_READY, TRUE)
    reason = "NodeClassNotReady" if status.ready.status == FALSE else "NodeClassReadinessUnknown"
    return Condition(NODE_CLASS_READY, status.ready.status, reason, status.ready.message)


def _of_node_class(known: _Known, metadata: Mapping[str, Any]) -> _Computed:
    valid = known.validation(NODE_CLASS, metadata)
    if valid.status == FALSE:
        return {}, [valid, _ready(valid)]
    written, status = known.node_class(str(metadata.get("name", "")))
    if status is None:
        why = "the next inspection looks at it" if written is not None else "the EC2NodeClass is being deleted"
        soon = Condition(READY, UNKNOWN, _NOT_YET, why)
        return {}, [soon]
    fields: dict[str, Any] = {
        "subnets": [{"id": each.id, "zone": each.zone, "zoneID": each.zone_id} for each in status.subnets],
        "securityGroups": [_without_empty({"id": each.id, "name": each.name}) for each in status.security_groups],
        "amis": [
            _without_empty({"id": ami.id, "name": ami.name, "deprecated": ami.deprecated})
            | {"requirements": [_requirement(*line) for line in ami.requirements]}
            for ami in status.amis
        ],
        "capacityReservations": [
            _reservation(each, known.now, status.drain_s) for each in status.capacity_reservations
        ],
    }
    if status.instance_profile:
        fields["instanceProfile"] = status.instance_profile
    return fields, list(status.conditions)


def _reservation(reservation: CapacityReservation, now: float, drain_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": reservation.id,
        "instanceType": reservation.instance_type,
        "availabilityZone": reservation.zone,
        "ownerID": reservation.owner,
        "instanceMatchCriteria": reservation.match_criteria,
        "reservationType": reservation.type,
        "interruptible": reservation.interruptible,
        "state": "expiring" if reservation.is_expiring(now, drain_s) else "active",
    }
    if reservation.ends_at:
        found["endTime"] = rfc3339(reservation.ends_at)
    return found


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _of_overlay(known: _Known, metadata: Mapping[str, Any]) -> _Computed:
    valid = known.validation(OVERLAY, metadata)
    return {}, [valid, _ready(valid)]


def _of_buffer(known: _Known, metadata: Mapping[str, Any]) -> _Computed:
    key = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
    found = known.buffers.get(key)
    if found is None:
        valid = known.validation(BUFFER, metadata)
        return {}, [Condition(READY_FOR_PROVISIONING, valid.status, valid.reason, valid.message)]
    written = known.written_buffers[key]
    reference = written.spec.pod_template_ref
    if not found.replicas and found.reason:
        missing = "PodTemplateNotFound" if reference is not None else "ScalableRefNotFound"
        reason = missing if found.reason.endswith(" not found") else "ResolutionFailed"
        waits = Condition(PROVISIONING, FALSE, "NotReadyForProvisioning", found.reason)
        return {}, [Condition(READY_FOR_PROVISIONING, FALSE, reason, found.reason), waits]
    fields: dict[str, Any] = {
        "replicas": found.replicas,
        "provisioningStrategy": written.spec.provisioning_strategy,
    }
    if reference is not None:
        fields["podTemplateRef"] = {"name": reference.name}
        fields["podTemplateGeneration"] = known.template_generations.get((key[0], reference.name), 0)
    return fields, [Condition(READY_FOR_PROVISIONING, TRUE, "Resolved"), _provisioning(found)]


def _provisioning(found: BufferCapacity) -> Condition:
    """Return the condition that shows whether all of a buffer has room on nodes that exist or have been launched."""
    if not found.replicas:
        return Condition(PROVISIONING, FALSE, "BufferEmpty")
    if found.new or found.missing:
        return Condition(PROVISIONING, FALSE, "RequiresNewCapacity", found.reason)
    return Condition(PROVISIONING, TRUE, "FitsExistingCapacity")


_COMPUTED = {NODE_POOL: _of_node_pool, NODE_CLASS: _of_node_class, OVERLAY: _of_overlay, BUFFER: _of_buffer}


def _ready(*needed: Condition) -> Condition:
    """The condition Ready: that of the first that does not hold."""
    wrong = [each for each in needed if each.status == FALSE] + [each for each in needed if each.status == UNKNOWN]
    if not wrong:
        return Condition(READY, TRUE)
    return Condition(READY, wrong[0].status, wrong[0].reason, wrong[0].message)


def _written(
    conditions: Iterable[Condition], present: Mapping[str, Any], generation: int, now: float
) -> list[dict[str, Any]]:
    """In the form of the API; one whose status has not changed keeps its time. Sorted by type."""
    listed = present.get("conditions")
    before = (
        {each.get("type"): each for each in listed if isinstance(each, Mapping)} if isinstance(listed, list) else {}
    )
    found = []
    for each in sorted(conditions, key=lambda condition: condition.type):
        old = before.get(each.type, {})
        same = old.get("status") == each.status and isinstance(old.get("lastTransitionTime"), str)
        found.append(
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason or each.type,
                "message": each.message,
                "lastTransitionTime": old["lastTransitionTime"] if same else rfc3339(now),
                "observedGeneration": generation,
            }
        )
    return found


def _resources_by_pool(nodes: Iterable[Node]) -> tuple[dict[str, dict[str, int]], Counter[str]]:
    """The capacity of each NodePool's Nodes, canonical units, and their number."""
    totals: dict[str, Counter[str]] = {}
    numbers: Counter[str] = Counter()
    for node in nodes:
        pool = node.metadata.labels.get(labels.NODE_POOL)
        if pool:
            numbers[pool] += 1
            totals.setdefault(pool, Counter()).update(parse_resources(node.status.capacity))
    return {pool: dict(sorted(total.items())) for pool, total in sorted(totals.items())}, numbers


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
