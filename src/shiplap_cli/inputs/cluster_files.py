"""Files that stand for a cluster: its objects as kubectl prints them.

What a decision does not read is passed over; what it reads must be sound, or the file, object and field are named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import DaemonSet, Event, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.storage_objects import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from shiplap.kubernetes.workloads import Namespace, ReplicaSet, ReplicationController, Scalable, Service, StatefulSet
from shiplap.manifests.decoding import field_name
from shiplap.manifests.files.documents import Document, read_documents
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.scheduler_config import SchedulerConfig
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_cli.inputs import object_validation
from shiplap_cli.inputs.admission import Admission, PriorityClass, RuntimeClass
from shiplap_cli.inputs.claim_objects import ClaimObject, claim_object, claim_of, histories_of
from shiplap_cli.inputs.object_validation import converted, must_be, object_of, refused

MANIFEST_KINDS = frozenset({"NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer", "PodTemplate"})
"""What `shiplap.manifests.files.loading` reads, where it stands among a cluster's objects."""


class ClusterState(msgspec.Struct, frozen=True):
    """The part of a cluster that a decision reads; `histories` say since when, as far as NodeClaims tell.

    `manifests` are the NodePools and what belongs to them, as far as they were among the objects, not yet checked.
    """

    view: ClusterView
    claims: tuple[NodeClaim, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    histories: tuple[NodeHistory, ...] = ()
    manifests: tuple[Document, ...] = ()


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
            raise refused(document, "", "kind is missing")
        if kind not in found:
            if kind in MANIFEST_KINDS:
                manifests.append(document)
            continue
        item = _READERS[kind](document)
        key = (kind, item.metadata.namespace or "default", item.metadata.name)
        if key in seen and kind != "Event":
            first = seen[key]
            raise refused(document, "", f"is there twice, first in {first.source} line {first.line_of(())}")
        seen[key] = document
        found[kind].append(item)
        if kind in ("ReplicaSet", "StatefulSet"):
            found["Deployment"].append(object_of(document, Scalable))
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
    return _state_of(view, [claim_object(document) for document in node_claims], manifests)


def _state_of(view: ClusterView, items: Sequence[ClaimObject], manifests: Sequence[Document]) -> ClusterState:
    claims = tuple(claim_of(item, view.pods) for item in items)
    histories = histories_of(items, claims, view.nodes)
    return ClusterState(view, claims, view.pod_disruption_budgets, histories, tuple(manifests))


def read_scheduler_config(path: Path) -> SchedulerConfig:
    """The default spread constraints of a file.

    Raises:
        InvalidInput: the file cannot be read, a field is unknown or malformed, or kube-scheduler would refuse it.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document with podTopologySpread, found {len(documents)}")
    config = converted(documents[0], documents[0].data, SchedulerConfig)
    for where, reason in config.pod_topology_spread.problems():
        raise refused(documents[0], field_name(("podTopologySpread", *where)), reason)
    return config


def _pod(document: Document) -> Pod:
    pod = object_of(document, Pod)
    must_be(document, object_validation.pod_spec(pod.spec, "spec"))
    must_be(document, object_validation.pod_status(pod.status))
    try:
        pod_requests(pod)
    except ValueError as error:
        raise refused(document, "spec.containers", str(error)) from error
    return pod


def _node(document: Document) -> Node:
    node = object_of(document, Node)
    for field, quantities in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        must_be(document, object_validation.amounts(quantities, f"status.{field}"))
    return node


def _runtime_class(document: Document) -> RuntimeClass:
    item = object_of(document, RuntimeClass)
    must_be(document, object_validation.amounts(item.overhead.pod_fixed, "overhead.podFixed"))
    return item


def _daemon_set(document: Document) -> DaemonSet:
    daemon_set = object_of(document, DaemonSet)
    must_be(document, object_validation.pod_spec(daemon_set.spec.template.spec, "spec.template.spec"))
    return daemon_set


def _event(document: Document) -> Event:
    event = object_of(document, Event)
    must_be(document, object_validation.event(event))
    return event


_READERS: dict[str, Callable[[Document], Any]] = {
    "Pod": _pod,
    "Node": _node,
    "DaemonSet": _daemon_set,
    "Event": _event,
    "NodeClaim": claim_object,
    "PersistentVolumeClaim": lambda document: object_of(document, PersistentVolumeClaim),
    "PersistentVolume": lambda document: object_of(document, PersistentVolume),
    "StorageClass": lambda document: object_of(document, StorageClass),
    "CSINode": lambda document: object_of(document, CSINode),
    "Namespace": lambda document: object_of(document, Namespace),
    "Service": lambda document: object_of(document, Service),
    "Deployment": lambda document: object_of(document, Scalable),
    "ReplicaSet": lambda document: object_of(document, ReplicaSet),
    "StatefulSet": lambda document: object_of(document, StatefulSet),
    "ReplicationController": lambda document: object_of(document, ReplicationController),
    "PodDisruptionBudget": lambda document: object_of(document, PodDisruptionBudget),
    "RuntimeClass": _runtime_class,
    "PriorityClass": lambda document: object_of(document, PriorityClass),
}
