"""Files that stand for a cluster: its objects as kubectl prints them.

What a decision does not read is passed over; what it reads must be sound, or the file, object and field are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.kubernetes.objects import CustomObject, DaemonSet, Event, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.related_objects import (
    CSIDriver,
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicaSet,
    ReplicationController,
    Scalable,
    Service,
    StatefulSet,
    StorageClass,
)
from shiplap.manifests.decoding import Problem, decode, field_name
from shiplap.manifests.files.documents import Document, read_documents
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.scheduler_config import SchedulerConfig
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_cli.inputs import object_validation
from shiplap_cli.inputs.claim_objects import ClaimObject, claim_of, histories_of, read_claim_object
from shiplap_cli.inputs.object_validation import invalid_field, raise_first, typed_object
from shiplap_cli.inputs.pod_templates.admission import Admission, LimitRange, PriorityClass, RuntimeClass
from shiplap_cli.inputs.pod_templates.pod_sets import (
    has_pod_template,
    makes_sets,
    suspended_workload,
    workloads_of_sets,
)
from shiplap_cli.inputs.pod_templates.workload_objects import KINDS as WORKLOADS
from shiplap_cli.inputs.pod_templates.workload_objects import Workload, read_workload
from shiplap_cli.inputs.workloads import Scale, missing_pods
from shiplap_cli.policy_views import FeatureObjects, doubted_by_features, kinds_of_features

T = TypeVar("T")

MANIFEST_KINDS = frozenset({"NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer", "PodTemplate"})
"""The kinds that `shiplap.manifests.files.loading` reads, among a cluster's objects."""


_WITHOUT_TEMPLATES = frozenset({"Pod", "Node", "Event", "NodeClaim"})
"""Kinds of which there are most; none of their objects has the template of pods."""


class ClusterState(msgspec.Struct, frozen=True):
    """The part of a cluster that a decision reads; `histories` say since when, as far as NodeClaims tell.

    `manifests` are the NodePools and what belongs to them, as far as they were among the objects, not yet checked.
    `added` says how many pods of which workload are in the view although they do not exist, `passed_over` how many
    objects of which kind make pods that are not, `suspended` which would
    if they were resumed. `doubts` are what features say of objects that are legal and surely not meant. `of_features`
    is None where what optional features read may not be listed.
    """

    view: ClusterView
    claims: tuple[NodeClaim, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    histories: tuple[NodeHistory, ...] = ()
    manifests: tuple[Document, ...] = ()
    added: tuple[tuple[str, int], ...] = ()
    passed_over: tuple[tuple[str, int], ...] = ()
    suspended: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    of_features: FeatureObjects | None = None


def read_cluster_state(paths: Sequence[Path], scales: Sequence[Scale] | None = None) -> ClusterState:
    """Read what a decision reads: Pods, Nodes, DaemonSets, NodeClaims, storage …; other kinds are passed over.

    Args:
        paths: files, folders or `-`.
        scales: workloads that want another number of pods than they say; None adds no pods of workloads at all.

    Raises:
        InvalidInput: something cannot be read, has a malformed field, or is there twice; or a scale cannot be met.
    """
    found: dict[str, list[Any]] = {kind: [] for kind in _READERS}
    workloads: list[Workload] = []
    of_sets: list[Workload] = []
    passed_over: Counter[str] = Counter()
    seen: dict[tuple[str, str, str], Document] = {}
    manifests: list[Document] = []
    of_features: list[Document] = []
    templates: list[Document] = []
    suspended: list[str] = []
    kinds_read = kinds_of_features()
    for document in (document for path in paths for document in read_documents(path)):
        kind = document.data.get("kind")
        if not isinstance(kind, str):
            raise invalid_field(document, "", "kind is missing")
        if kind in kinds_read:
            of_features.append(document)
        if kind not in _WITHOUT_TEMPLATES:
            templates.append(document)
        if scales is not None:
            of_sets += workloads_of_sets(document) if makes_sets(document) else []
            suspended += filter(None, [suspended_workload(document)])
        if kind not in found:
            if kind in MANIFEST_KINDS:
                manifests.append(document)
            elif not makes_sets(document) and has_pod_template(document.data):
                passed_over[kind] += 1
            continue
        item = _READERS[kind](document)
        key = (kind, item.metadata.namespace or "default", item.metadata.name)
        if key in seen and kind != "Event":
            first = seen[key]
            raise invalid_field(document, "", f"is there twice, first in {first.source} line {first.line_of(())}")
        seen[key] = document
        found[kind].append(item)
        if kind in ("ReplicaSet", "StatefulSet"):
            found["Deployment"].append(typed_object(document, Scalable))
        if kind in WORKLOADS and scales is not None:
            workloads.append(read_workload(document))
    storage_is_known = bool(found["StorageClass"])
    missing = missing_pods([*of_sets, *workloads], found["Pod"], scales or (), with_claims=storage_is_known)
    admission = Admission(found["RuntimeClass"], found["PriorityClass"], found["LimitRange"])
    found["Pod"] = [*map(admission.pod, found["Pod"]), *map(admission.new_pod, missing.pods)]
    there = {(item.metadata.namespace, item.metadata.name) for item in found["PersistentVolumeClaim"]}
    found["PersistentVolumeClaim"] += [
        claim for claim in missing.claims if (claim.metadata.namespace, claim.metadata.name) not in there
    ]
    found["DaemonSet"] = list(map(admission.daemon_set, found["DaemonSet"]))
    view = replace(ClusterView(), **{field: tuple(found[kind]) for kind, field in _VIEW_FIELDS.items()})
    state = _state_of(view, found["NodeClaim"], manifests)
    return replace(
        state,
        added=missing.counts,
        passed_over=tuple(sorted(passed_over.items())),
        suspended=tuple(sorted(set(suspended) - {name for name, _ in missing.counts})),
        doubts=tuple(map(str, doubted_by_features(templates))),
        of_features=FeatureObjects(tuple(of_features)),
    )


def state_of(
    view: ClusterView,
    node_claims: Sequence[Document],
    manifests: Sequence[Document],
    of_features: FeatureObjects | None = None,
) -> ClusterState:
    """The state of a cluster whose objects were listed, with its NodeClaims and manifests as the API has them.

    Raises:
        InvalidInput: a NodeClaim has a malformed field.
    """
    state = _state_of(view, [read_claim_object(document) for document in node_claims], manifests)
    return replace(state, of_features=of_features)


def _state_of(view: ClusterView, items: Sequence[ClaimObject], manifests: Sequence[Document]) -> ClusterState:
    claims = tuple(claim_of(claim, view.pods) for claim in items)
    histories = histories_of(items, claims, view.nodes)
    return ClusterState(view, claims, view.pod_disruption_budgets, histories, tuple(manifests))


def read_scheduler_config(path: Path) -> SchedulerConfig:
    """The default spread constraints of a file.

    Raises:
        InvalidInput: the file cannot be read, or is not one document.
        InvalidManifests: a field is unknown or malformed, or kube-scheduler would refuse it; with every problem.
    """
    return read_settings(path, SchedulerConfig, "podTopologySpread", lambda read: read.pod_topology_spread.problems())


def read_settings(path: Path, kind: type[T], key: str, rules: Callable[[T], Iterable[Problem]]) -> T:
    """The one document of a file, which has one key; `rules` are those of its value.

    Raises:
        InvalidInput: the file cannot be read, or is not one document.
        InvalidManifests: with every problem of it.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document with {key}, found {len(documents)}")
    (document,) = documents
    found, problems = decode(document.data, kind)
    if found is not None:
        problems += [((key, *where), reason) for where, reason in rules(found)]
    if found is None or problems:
        raise InvalidManifests(
            [
                InvalidInput(document.source, reason, field=field_name(where), line=document.line_of(where))
                for where, reason in problems
            ]
        )
    return found


def _pod(document: Document) -> Pod:
    pod = typed_object(document, Pod)
    raise_first(document, object_validation.pod_spec_problems(pod.spec, "spec"))
    raise_first(document, object_validation.pod_status_problems(pod.status))
    try:
        pod_requests(pod)
    except ValueError as error:
        raise invalid_field(document, "spec.containers", str(error)) from error
    return pod


def _node(document: Document) -> Node:
    node = typed_object(document, Node)
    for field, quantities in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        raise_first(document, object_validation.quantity_problems(quantities, f"status.{field}"))
    return node


def _runtime_class(document: Document) -> RuntimeClass:
    runtime_class = typed_object(document, RuntimeClass)
    raise_first(document, object_validation.quantity_problems(runtime_class.overhead.pod_fixed, "overhead.podFixed"))
    return runtime_class


def _limit_range(document: Document) -> LimitRange:
    limit_range = typed_object(document, LimitRange)
    for place, item in enumerate(limit_range.spec.limits):
        amounts = {"default": item.default, "defaultRequest": item.default_request, "max": item.max, "min": item.min}
        for field, quantities in amounts.items():
            raise_first(document, object_validation.quantity_problems(quantities, f"spec.limits[{place}].{field}"))
    return limit_range


def _daemon_set(document: Document) -> DaemonSet:
    daemon_set = typed_object(document, DaemonSet)
    raise_first(document, object_validation.pod_spec_problems(daemon_set.spec.template.spec, "spec.template.spec"))
    return daemon_set


def _event(document: Document) -> Event:
    event = typed_object(document, Event)
    raise_first(document, object_validation.event_problems(event))
    return event


_VIEW_FIELDS = {
    "Pod": "pods",
    "Node": "nodes",
    "DaemonSet": "daemon_sets",
    "Event": "events",
    "PersistentVolumeClaim": "persistent_volume_claims",
    "PersistentVolume": "persistent_volumes",
    "StorageClass": "storage_classes",
    "CSINode": "csi_nodes",
    "CSIDriver": "csi_drivers",
    "Namespace": "namespaces",
    "Service": "services",
    "ReplicaSet": "replica_sets",
    "StatefulSet": "stateful_sets",
    "Deployment": "scalables",
    "ReplicationController": "replication_controllers",
    "PodDisruptionBudget": "pod_disruption_budgets",
}
"""Fields of a `ClusterView` by the kind of their objects; scalables are Deployments, ReplicaSets and StatefulSets."""

_PLAIN_KINDS = (
    *(PersistentVolumeClaim, PersistentVolume, StorageClass, CSINode, CSIDriver, Namespace, Service),
    *(ReplicaSet, StatefulSet, ReplicationController, PodDisruptionBudget, PriorityClass),
)
"""Kinds in which nothing but the metadata is checked."""

_READERS: dict[str, Callable[[Document], Any]] = {
    "Pod": _pod,
    "Node": _node,
    "DaemonSet": _daemon_set,
    "Event": _event,
    "NodeClaim": read_claim_object,
    "Deployment": partial(typed_object, kind=Scalable),
    "RuntimeClass": _runtime_class,
    "LimitRange": _limit_range,
    **{kind.__name__: partial(typed_object, kind=kind) for kind in _PLAIN_KINDS},
    **{kind: partial(typed_object, kind=CustomObject) for kind in ("Job", "CronJob")},
}
