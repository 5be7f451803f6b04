"""Files that stand for a cluster: its objects as kubectl prints them, and a catalogue of instance types.

What a decision does not read is passed over; what it reads must be sound, or the file, object and field are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shiplap.api.decoding import field_name
from shiplap.api.documents import Document, read_documents
from shiplap.api.durations import seconds, seconds_or_never
from shiplap.api.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.api.scheduler_config import SchedulerConfig
from shiplap.api.types import NodeClassReference, RequirementSpec
from shiplap.cli import soundness
from shiplap.cli.admission import Admission, PriorityClass, RuntimeClass
from shiplap.disruption.snapshot import NodeHistory
from shiplap.errors import InvalidInput
from shiplap.instances.types import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.objects import DaemonSet, Event, Node, ObjectMeta, Pod, ResourceRequirements, Taint
from shiplap.kubernetes.quantity import PODS, parse_resources
from shiplap.kubernetes.requests import pod_requests
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement
from shiplap.kubernetes.timestamps import epoch
from shiplap.kubernetes.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from shiplap.kubernetes.workloads import Namespace, ReplicaSet, ReplicationController, Scalable, Service, StatefulSet
from shiplap.scheduling.pairing import pair
from shiplap.scheduling.snapshot import ClusterView

T = TypeVar("T")
_CAPACITY_TYPES = (labels.SPOT, labels.ON_DEMAND, labels.RESERVED)
DEFAULT_PODS = 110
"""Pods per node where a catalogue file says nothing, kubelet's own default."""


MANIFEST_KINDS = frozenset({"NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer", "PodTemplate"})
"""What `shiplap.api.manifests` reads, where it stands among a cluster's objects."""


class ClusterState(msgspec.Struct, frozen=True):
    """The part of a cluster that a decision reads; `histories` say since when, as far as NodeClaims tell.

    `manifests` are the NodePools and what belongs to them, as far as they were among the objects, not yet checked.
    """

    view: ClusterView
    claims: tuple[NodeClaim, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    histories: tuple[NodeHistory, ...] = ()
    manifests: tuple[Document, ...] = ()


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _ClaimSpec(_Fields, frozen=True):
    node_class_ref: NodeClassReference = NodeClassReference("")
    requirements: tuple[RequirementSpec, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    expire_after: str = ""
    termination_grace_period: str = ""


class _Condition(_Fields, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str = ""


class _ClaimStatus(_Fields, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    last_pod_event_time: str = ""
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[_Condition, ...] = ()


class _ClaimObject(_Fields, frozen=True):
    """A karpenter.sh/v1 NodeClaim as the API has it."""

    metadata: ObjectMeta
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


class _OfferingEntry(_Fields, frozen=True, forbid_unknown_fields=True):
    zone: str
    capacity_type: str
    price: float
    available: bool = True
    zone_id: str = ""
    reservation_id: str = ""
    reservation_capacity: int = 0
    reservation_type: str = ""
    reservation_interruptible: bool = False


class _TypeEntry(_Fields, frozen=True, forbid_unknown_fields=True):
    name: str
    capacity: dict[str, str | int | float]
    overhead: dict[str, str | int | float] = {}
    requirements: tuple[RequirementSpec, ...] = ()
    offerings: tuple[_OfferingEntry, ...] = ()


class _CatalogFile(_Fields, frozen=True, forbid_unknown_fields=True):
    instance_types: tuple[_TypeEntry, ...]


def read_cluster_state(paths: Sequence[Path]) -> ClusterState:
    """Read what a decision reads: Pods, Nodes, DaemonSets, NodeClaims, storage …; other kinds are passed over.

    Args:
        paths: files, folders or `-`.

    Raises:
        InvalidInput: something cannot be read, has a malformed field, or is there twice.
    """
    found: dict[str, list[Any]] = {kind: [] for kind in _READERS}
    seen: dict[tuple[str, str, str], Document] = {}
    manifests: list[Document] = []
    for document in (document for path in paths for document in read_documents(path)):
        kind = document.data.get("kind")
        if not isinstance(kind, str):
            raise _refused(document, "", "kind is missing")
        if kind not in found:
            if kind in MANIFEST_KINDS:
                manifests.append(document)
            continue
        item = _READERS[kind](document)
        key = (kind, item.metadata.namespace or "default", item.metadata.name)
        if key in seen and kind != "Event":
            first = seen[key]
            raise _refused(document, "", f"is there twice, first in {first.source} line {first.line_of(())}")
        seen[key] = document
        found[kind].append(item)
        if kind in ("ReplicaSet", "StatefulSet"):
            found["Deployment"].append(_object(document, Scalable))
    admission = Admission(found["RuntimeClass"], found["PriorityClass"])
    view = ClusterView(
        pods=tuple(map(admission.pod, found["Pod"])),
        nodes=tuple(found["Node"]),
        daemon_sets=tuple(map(admission.daemon_set, found["DaemonSet"])),
        events=tuple(found["Event"]),
        persistent_volume_claims=tuple(found["PersistentVolumeClaim"]),
        persistent_volumes=tuple(found["PersistentVolume"]),
        storage_classes=tuple(found["StorageClass"]),
        csi_nodes=tuple(found["CSINode"]),
        namespaces=tuple(found["Namespace"]),
        services=tuple(found["Service"]),
        replica_sets=tuple(found["ReplicaSet"]),
        stateful_sets=tuple(found["StatefulSet"]),
        scalables=tuple(found["Deployment"]),
        replication_controllers=tuple(found["ReplicationController"]),
        pod_disruption_budgets=tuple(found["PodDisruptionBudget"]),
    )
    return _state_of(view, found["NodeClaim"], manifests)


def state_of(view: ClusterView, node_claims: Sequence[Document], manifests: Sequence[Document]) -> ClusterState:
    """The state of a cluster whose objects were listed, with its NodeClaims and manifests as the API has them.

    Raises:
        InvalidInput: a NodeClaim has a malformed field.
    """
    return _state_of(view, [_claim_object(document) for document in node_claims], manifests)


def _state_of(view: ClusterView, items: Sequence[_ClaimObject], manifests: Sequence[Document]) -> ClusterState:
    claims = tuple(_claim(item, view.pods) for item in items)
    histories = _histories(items, claims, view.nodes)
    return ClusterState(view, claims, view.pod_disruption_budgets, histories, tuple(manifests))


def read_catalog(path: Path) -> tuple[InstanceType, ...]:
    """The instance types of a catalogue file, JSON or YAML, its figures taken as given; sorted by name.

    Raises:
        InvalidInput: the file cannot be read, a field is unknown, missing or malformed, or a type is there twice.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document with instanceTypes, found {len(documents)}")
    document = documents[0]
    entries = _convert(document, document.data, _CatalogFile).instance_types
    types: dict[str, InstanceType] = {}
    for place, entry in enumerate(entries):
        where = f"instanceTypes[{place}]"
        if not entry.name:
            raise _refused(document, f"{where}.name", "is empty")
        if entry.name in types:
            raise _refused(document, f"{where}.name", f"{entry.name} is there twice")
        types[entry.name] = _instance_type(document, where, entry)
    return tuple(types[name] for name in sorted(types))


def read_scheduler_config(path: Path) -> SchedulerConfig:
    """The default spread constraints of a file.

    Raises:
        InvalidInput: the file cannot be read, a field is unknown or malformed, or kube-scheduler would refuse it.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document with podTopologySpread, found {len(documents)}")
    config = _convert(documents[0], documents[0].data, SchedulerConfig)
    for where, reason in config.pod_topology_spread.problems():
        raise _refused(documents[0], field_name(("podTopologySpread", *where)), reason)
    return config


def _instance_type(document: Document, where: str, entry: _TypeEntry) -> InstanceType:
    for place, offering in enumerate(entry.offerings):
        _check_offering(document, f"{where}.offerings[{place}]", offering)
    capacity = {PODS: DEFAULT_PODS} | _amounts(document, f"{where}.capacity", entry.capacity)
    return InstanceType(
        name=entry.name,
        requirements=_requirements(document, where, entry),
        capacity=capacity,
        overhead=_amounts(document, f"{where}.overhead", entry.overhead),
        offerings=tuple(
            Offering(
                offering.zone,
                offering.capacity_type,
                offering.price,
                offering.available,
                offering.zone_id,
                offering.reservation_id,
                offering.reservation_capacity,
                reservation_type=offering.reservation_type,
                reservation_interruptible=offering.reservation_interruptible,
            )
            for offering in entry.offerings
        ),
        sources=dict.fromkeys(capacity, "catalog"),
    )


def _check_offering(document: Document, where: str, offering: _OfferingEntry) -> None:
    """Raises InvalidInput for what no offering can be."""
    if not offering.zone:
        raise _refused(document, f"{where}.zone", "is empty")
    if offering.capacity_type not in _CAPACITY_TYPES:
        reason = f"{offering.capacity_type!r} is none of {', '.join(_CAPACITY_TYPES)}"
        raise _refused(document, f"{where}.capacityType", reason)
    if not (isfinite(offering.price) and offering.price >= 0):
        raise _refused(document, f"{where}.price", f"must be 0 or more, is {offering.price}")
    if offering.reservation_capacity < 0:
        reason = f"must be 0 or more, is {offering.reservation_capacity}"
        raise _refused(document, f"{where}.reservationCapacity", reason)


def _requirements(document: Document, where: str, entry: _TypeEntry) -> tuple[Requirement, ...]:
    parsed = []
    for place, item in enumerate(entry.requirements):
        try:
            parsed.append(requirement(item.key, item.operator, item.values, item.min_values))
        except ValueError as error:
            raise _refused(document, f"{where}.requirements[{place}]", str(error)) from error
    return tuple(Requirements(parsed).values())


def _amounts(document: Document, field: str, quantities: dict[str, str | int | float]) -> dict[str, int]:
    _sound(document, soundness.amounts(quantities, field))
    return parse_resources(quantities)


def _pod(document: Document) -> Pod:
    pod = _object(document, Pod)
    _sound(document, soundness.pod_spec(pod.spec, "spec"))
    _sound(document, soundness.pod_status(pod.status))
    try:
        pod_requests(pod)
    except ValueError as error:
        raise _refused(document, "spec.containers", str(error)) from error
    return pod


def _node(document: Document) -> Node:
    node = _object(document, Node)
    for field, quantities in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        _sound(document, soundness.amounts(quantities, f"status.{field}"))
    return node


def _runtime_class(document: Document) -> RuntimeClass:
    item = _object(document, RuntimeClass)
    _sound(document, soundness.amounts(item.overhead.pod_fixed, "overhead.podFixed"))
    return item


def _daemon_set(document: Document) -> DaemonSet:
    daemon_set = _object(document, DaemonSet)
    _sound(document, soundness.pod_spec(daemon_set.spec.template.spec, "spec.template.spec"))
    return daemon_set


def _event(document: Document) -> Event:
    event = _object(document, Event)
    _sound(document, soundness.event(event))
    return event


def _claim_object(document: Document) -> _ClaimObject:
    item = _object(document, _ClaimObject)
    for field, text in (
        ("status.lastPodEventTime", item.status.last_pod_event_time),
        *(("status.conditions", condition.last_transition_time) for condition in item.status.conditions),
    ):
        try:
            _moment(text)
        except ValueError as error:
            raise _refused(document, field, f"is not a timestamp: {error}") from error
    for field, text, read in (
        ("spec.expireAfter", item.spec.expire_after, seconds_or_never),
        ("spec.terminationGracePeriod", item.spec.termination_grace_period, seconds),
    ):
        try:
            read(text or "0s")
        except ValueError as error:
            raise _refused(document, field, str(error)) from error
    _sound(document, soundness.amounts(item.status.allocatable, "status.allocatable"))
    _sound(document, soundness.amounts(item.spec.resources.requests, "spec.resources.requests"))
    try:
        Requirements.of(item.spec.requirements)
    except ValueError as error:
        raise _refused(document, "spec.requirements", str(error)) from error
    return item


_READERS: dict[str, Callable[[Document], Any]] = {
    "Pod": _pod,
    "Node": _node,
    "DaemonSet": _daemon_set,
    "Event": _event,
    "NodeClaim": _claim_object,
    "PersistentVolumeClaim": lambda document: _object(document, PersistentVolumeClaim),
    "PersistentVolume": lambda document: _object(document, PersistentVolume),
    "StorageClass": lambda document: _object(document, StorageClass),
    "CSINode": lambda document: _object(document, CSINode),
    "Namespace": lambda document: _object(document, Namespace),
    "Service": lambda document: _object(document, Service),
    "Deployment": lambda document: _object(document, Scalable),
    "ReplicaSet": lambda document: _object(document, ReplicaSet),
    "StatefulSet": lambda document: _object(document, StatefulSet),
    "ReplicationController": lambda document: _object(document, ReplicationController),
    "PodDisruptionBudget": lambda document: _object(document, PodDisruptionBudget),
    "RuntimeClass": _runtime_class,
    "PriorityClass": lambda document: _object(document, PriorityClass),
}


def _claim(item: _ClaimObject, pods: Iterable[Pod]) -> NodeClaim:
    """The record of a claim. Pods that kube-scheduler nominated to its node are those it was launched for."""
    known, status = item.metadata.labels, item.status
    listed = next(
        (r.values for r in item.spec.requirements if r.key == labels.INSTANCE_TYPE and r.operator == "In"), ()
    )
    promised = [pod for pod in pods if pod.status.nominated_node_name == item.metadata.name]
    return NodeClaim(
        cluster="",
        name=item.metadata.name,
        node_pool=known.get(labels.NODE_POOL, ""),
        node_class=item.spec.node_class_ref.name,
        state=_state(item),
        created_at=_moment(item.metadata.creation_timestamp),
        requirements=item.spec.requirements,
        labels=known,
        annotations=item.metadata.annotations,
        taints=item.spec.taints,
        startup_taints=item.spec.startup_taints,
        instance_types=listed,
        requests=parse_resources(item.spec.resources.requests),
        pods=tuple(PodReference(pod.metadata.namespace or "default", pod.metadata.name) for pod in promised),
        instance_id=status.provider_id.rpartition("/")[2],
        instance_type=known.get(labels.INSTANCE_TYPE, ""),
        zone=known.get(labels.ZONE, ""),
        capacity_type=known.get(labels.CAPACITY_TYPE, ""),
        ami=status.image_id,
        allocatable=parse_resources(status.allocatable),
        node_name=status.node_name,
        expire_after=item.spec.expire_after,
        termination_grace_period=item.spec.termination_grace_period,
    )


def _histories(
    items: Sequence[_ClaimObject], claims: Sequence[NodeClaim], nodes: Sequence[Node]
) -> tuple[NodeHistory, ...]:
    """What the claims of nodes say about when they changed; nothing of nodes without a claim."""
    paired, _ = pair(nodes, claims)
    by_name = {item.metadata.name: item for item in items}
    histories = []
    for name, claim in sorted(paired.items()):
        status = by_name[claim.name].status
        true = [item for item in status.conditions if item.status == "True"]
        since = {item.type: _moment(item.last_transition_time) for item in true}
        said = {item.type: item.reason for item in true}
        denied = {item.type for item in status.conditions if item.status == "False"}
        histories.append(
            NodeHistory(
                name,
                initialized_at=since.get("Initialized", 0.0),
                last_pod_event_at=_moment(status.last_pod_event_time),
                drifted_at=since.get("Drifted", 0.0),
                said_to_drift=(said["Drifted"] or "Drifted") if "Drifted" in said else "",
                said_to_stay="Consolidatable" in denied,
            )
        )
    return tuple(histories)


def _moment(text: str | None) -> float:
    """Epoch seconds of a timestamp that `soundness` has found sound, or that is not there."""
    return epoch(text) if text else 0.0


def _state(item: _ClaimObject) -> ClaimState:
    true = {condition.type for condition in item.status.conditions if condition.status == "True"}
    if item.metadata.deletion_timestamp and "InstanceTerminating" not in true:
        return ClaimState.DRAINING
    for condition, state in (
        ("InstanceTerminating", ClaimState.TERMINATING),
        ("DisruptionReason", ClaimState.DISRUPTING),
        ("Initialized", ClaimState.INITIALIZED),
        ("Registered", ClaimState.REGISTERED),
        ("Launched", ClaimState.LAUNCHED),
    ):
        if condition in true:
            return state
    return ClaimState.LAUNCHED if item.status.provider_id else ClaimState.PLANNED


def _object(document: Document, kind: type[T]) -> T:
    item = _convert(document, _without_nulls(document.data), kind)
    name = getattr(item, "metadata").name  # noqa: B009 - every kind read here has metadata
    if not name:
        raise _refused(document, "metadata.name", "is missing; objects need a name of their own (not generateName)")
    _sound(document, soundness.metadata(getattr(item, "metadata")))  # noqa: B009
    return item


def _sound(document: Document, problems: soundness.Problems) -> None:
    """Refuse an object at the first problem found."""
    for field, reason in problems:
        raise _refused(document, field, reason)


def _without_nulls(value: Any) -> Any:
    """A null field counts as absent, as on an API server."""
    if isinstance(value, dict):
        return {key: _without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in value]
    return value


def _convert(document: Document, data: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        reason, field = _reason_and_field(str(error))
        raise _refused(document, field, reason) from error


def _reason_and_field(text: str) -> tuple[str, str]:
    """Take msgspec's "Expected `int`, got `str` - at `$.spec.x[0]`" apart."""
    found = re.fullmatch(r"(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?", text, re.DOTALL)
    return (found[1].replace("`", ""), (found[2] or "").replace("[...]", "")) if found else (text, "")


def _refused(document: Document, field: str, reason: str) -> InvalidInput:
    path = tuple(int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", field))
    return InvalidInput(document.source, reason, document=document.name, field=field, line=document.line_of(path))
