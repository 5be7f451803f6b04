"""A small language for scheduling cases: given pools, pods, nodes and types, expect a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shiplap.flows.planning.planned_launches import plan_of
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Event, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.quantity import parse_amount
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
from shiplap.manifests.custom_resources import (
    CapacityBuffer,
    Manifests,
    NodeOverlay,
    NodePool,
    PodTemplate,
    RequirementSpec,
)
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.claims import with_fields
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import default_types

NOW = 1_800_000_000.0

Storage = PersistentVolumeClaim | PersistentVolume | StorageClass | CSINode | CSIDriver
Around = Namespace | Service | ReplicaSet | StatefulSet | ReplicationController


def daemon_set(name: str = "daemon", *, cpu: str = "", memory: str = "", **fields: Any) -> DaemonSet:
    """A DaemonSet whose template is a pod of these fields."""
    template = pod(name, cpu=cpu, memory=memory, **fields)
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"template": {"spec": msgspec.to_builtins(template.spec)}},
        },
        DaemonSet,
    )


def claim_volumes(*claims: str) -> dict[str, Any]:
    """The part of a pod's spec that uses these PersistentVolumeClaims."""
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


def ephemeral(name: str = "data", **spec: Any) -> dict[str, Any]:
    """The part of a pod's spec that has a volume made for it."""
    return {"volumes": [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]}


def pvc(
    name: str = "data",
    *,
    volume: str = "",
    storage_class: str | None = None,
    phase: str = "",
    bound: bool = True,
    deleting: bool = False,
    **more: Any,
) -> PersistentVolumeClaim:
    """A claim; one that names its `volume` is bound to it unless binding is not done; `more` fields of its spec."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if volume and bound:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, Any] = {"volumeName": volume, "storageClassName": storage_class, **more}
    state = phase or ("Bound" if volume else "Pending")
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": state}}, PersistentVolumeClaim)


def pv(
    name: str = "volume",
    *terms: Sequence[Mapping[str, Any]],
    driver: str = "ebs.csi.aws.com",
    source: Mapping[str, Any] | None = None,
    deleting: bool = False,
    phase: str = "",
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> PersistentVolume:
    """A volume of a CSI driver, or of another `source`, with `more` fields; `terms` are its node affinity, OR'd."""
    spec: dict[str, Any] = dict(source) if source is not None else {"csi": {"driver": driver}}
    spec |= more
    if terms:
        written = [{"matchExpressions": list(term)} for term in terms]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": written}}
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels or {})}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PersistentVolume)


def storage_class(
    name: str = "fast",
    *topologies: Mapping[str, Sequence[str]],
    provisioner: str = "ebs.csi.aws.com",
    waits: bool = True,
    default: bool = False,
    born: str = "2026-01-01T00:00:00Z",
) -> StorageClass:
    """A class that binds once there is a node, unless it does not wait; `topologies` are OR'd."""
    metadata: dict[str, Any] = {"name": name, "creationTimestamp": born}
    if default:
        metadata["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    terms = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]}
        for term in topologies
    ]
    return msgspec.convert(
        {
            "metadata": metadata,
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
            "allowedTopologies": terms,
        },
        StorageClass,
    )


def csi_node(name: str = "node", **limits: int) -> CSINode:
    """Return the attach limits of a node's drivers; underscores in a driver's name stand for dots."""
    drivers = [{"name": key.replace("_", "."), "allocatable": {"count": count}} for key, count in limits.items()]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode)


def csi_driver(name: str = "ebs.csi.aws.com", *, demanded: bool = True) -> CSIDriver:
    """A driver without which kube-scheduler puts no pods with its volumes on a node, if it is `demanded`."""
    spec = {"preventPodSchedulingIfMissing": True} if demanded else {}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, CSIDriver)


def namespace(name: str, **labels: str) -> Namespace:
    """A namespace with these labels."""
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, Namespace)


def service(name: str = "service", **selector: str) -> Service:
    """A Service that selects pods by these labels."""
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}, Service
    )


def controller(kind: type[Around], name: str = "owner", **selector: str) -> Around:
    """A ReplicaSet, StatefulSet or ReplicationController that selects pods by these labels."""
    written = selector if kind is ReplicationController else {"matchLabels": selector}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": written}}, kind)


def in_flight(claim: PlannedClaim, **changes: Any) -> NodeClaim:
    """A planned claim as the record that a flow writes for it."""
    record = NodeClaim(cluster="test", name=claim.name, plan=plan_of(claim))
    return with_fields(record, **changes)


@dataclass
class Outcome:
    """A plan with the questions cases ask of it."""

    plan: Plan
    snapshot: Snapshot

    @property
    def claims(self) -> tuple[PlannedClaim, ...]:
        return self.plan.node_claims

    @property
    def claim(self) -> PlannedClaim:
        """The only claim."""
        assert len(self.claims) == 1, [claim.pods for claim in self.claims]
        return self.claims[0]

    def home(self, name: str) -> str:
        """The claim or node a pod was put on; empty when it was put nowhere."""
        homes = [
            *((claim.name, claim.pods) for claim in self.plan.node_claims),
            *((place.name, place.pods) for place in self.plan.existing_nodes),
        ]
        return next((home for home, held in homes if any(entry.name == name for entry in held)), "")

    def claim_of(self, name: str) -> PlannedClaim:
        return next(claim for claim in self.claims if claim.name == self.home(name))

    def left(self, name: str) -> Unschedulable:
        """The record of a pod that was left out."""
        return next(entry for entry in self.plan.unschedulable if entry.pod.name == name)

    def ignored(self, name: str) -> Unschedulable:
        return next(entry for entry in self.plan.ignored if entry.pod.name == name)

    @property
    def scheduled(self) -> bool:
        """True if every pod was placed and there was at least one."""
        placed = any(self.plan.node_claims) or any(self.plan.existing_nodes)
        return placed and not self.plan.unschedulable and not self.plan.ignored


def snapshot_of(
    pods: Sequence[Pod],
    nodes: Sequence[Node] = (),
    *,
    pools: Sequence[NodePool] | None = None,
    types: Sequence[InstanceType],
    daemon_sets: Sequence[DaemonSet] = (),
    **fields: Any,
) -> Snapshot:
    """These objects under pools of the EC2NodeClass `default`; `fields` are the snapshot's own."""
    return Snapshot(
        **{
            "cluster": "test",
            "now": NOW,
            "view": ClusterView(tuple(pods), tuple(nodes), tuple(daemon_sets)),
            "manifests": Manifests(node_pools=tuple(pools) if pools is not None else (pool(),)),
            "catalogs": (NodeClassCatalog("default", tuple(types)),),
            **fields,
        }
    )


def given(
    *waiting: Pod,
    pools: Sequence[NodePool] | None = None,
    types: Sequence[InstanceType] | Mapping[str, Sequence[InstanceType]] | None = None,
    nodes: Sequence[Node] = (),
    daemon_sets: Sequence[DaemonSet] = (),
    claims: Sequence[NodeClaim] = (),
    events: Sequence[Event] = (),
    storage: Sequence[Storage] = (),
    around: Sequence[Around] = (),
    missed: Sequence[str] = (),
    piloted: Sequence[str] = (),
    now: float = NOW,
    epoch: int = 7,
    buffers: Sequence[CapacityBuffer] = (),
    templates: Sequence[PodTemplate] = (),
    scalables: Sequence[Scalable] = (),
    budgets: Sequence[PodDisruptionBudget] = (),
    overlays: Sequence[NodeOverlay] = (),
    not_ready: Mapping[str, str] | None = None,
    **settings: Any,
) -> Outcome:
    """Plan these pods. Without more words: one pool named default over Karpenter's default fake catalogue."""
    catalogs = types if isinstance(types, Mapping) else {"default": default_types() if types is None else types}
    snapshot = Snapshot(
        cluster="test",
        now=now,
        view=ClusterView(
            tuple(waiting),
            tuple(nodes),
            tuple(daemon_sets),
            tuple(events),
            persistent_volume_claims=tuple(item for item in storage if isinstance(item, PersistentVolumeClaim)),
            persistent_volumes=tuple(item for item in storage if isinstance(item, PersistentVolume)),
            storage_classes=tuple(item for item in storage if isinstance(item, StorageClass)),
            csi_nodes=tuple(item for item in storage if isinstance(item, CSINode)),
            csi_drivers=tuple(item for item in storage if isinstance(item, CSIDriver)),
            namespaces=tuple(item for item in around if isinstance(item, Namespace)),
            services=tuple(item for item in around if isinstance(item, Service)),
            replica_sets=tuple(item for item in around if isinstance(item, ReplicaSet)),
            stateful_sets=tuple(item for item in around if isinstance(item, StatefulSet)),
            replication_controllers=tuple(item for item in around if isinstance(item, ReplicationController)),
            scalables=tuple(scalables),
            pod_disruption_budgets=tuple(budgets),
        ),
        claims=tuple(claims),
        manifests=Manifests(
            node_pools=tuple(pools) if pools is not None else (pool(),),
            capacity_buffers=tuple(buffers),
            pod_templates=tuple(templates),
            node_overlays=tuple(overlays),
        ),
        catalogs=(
            *(NodeClassCatalog(name, tuple(items)) for name, items in catalogs.items()),
            *(NodeClassCatalog(name, not_ready=why) for name, why in (not_ready or {}).items()),
        ),
        missed_pods=frozenset(missed),
        piloted=frozenset(piloted),
        settings=SchedulingSettings(**settings),
        epoch=epoch,
    )
    return Outcome(plan(snapshot), snapshot)


def amount(claim: PlannedClaim, resource: str) -> str | int:
    return claim.requests.get(resource, 0)


def wanted(claim: PlannedClaim, key: str) -> RequirementSpec | None:
    """The requirement a claim carries for a label."""
    return next((entry for entry in claim.requirements if entry.key == key), None)


def quantity(resource: str, text: str) -> int:
    return parse_amount(resource, text)
