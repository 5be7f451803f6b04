"""A cluster while options add to it, and the snapshot that it becomes.

Options change the same few lists, so that any two of them meet: on one workload, in one NodePool, on one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.related_objects import (
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    ReplicaSet,
)
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import CapacityBuffer, Manifests, NodeOverlay, NodePool, PodTemplate
from shiplap.scheduling.model.snapshot import (
    ClusterView,
    Input,
    NodeClassCatalog,
    PolicyInput,
    SchedulingSettings,
    Snapshot,
)
from tests.builders.pods import pod
from tests.builders.pools import pool as pool_of
from tests.builders.pools import rule
from tests.conformance import given as case
from tests.conformance.catalogues import GPU_A, Z1, Z2, Z3, fake_type
from tests.conformance.disruptions import Standing
from tests.rules import ZONE

FAMILY = "example.com/family"
TEAM = "example.com/team"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
TOLERATES_TAINT = {"key": "dedicated", "operator": "Exists"}
ZONES = (Z1, Z2, Z3)
APPS = ("web", "db", "job")
STORAGE_CLASS = "ebs"
NODE_CLASS, OTHER_CLASS, BROKEN_CLASS = "default", "other", "broken"

_OFFERINGS = tuple((kind, zone) for kind in ("on-demand", "spot") for zone in ZONES)
_SPOT_SHARE = {Z1: 0.4, Z2: 0.45, Z3: 0.5}
"""The price of spot as a share of on-demand's: it differs from zone to zone, so that zones are no ties."""
_SIZES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16}
_MEMORY_GIB_PER_CPU = {"c": 2, "m": 4}


@dataclass
class Workload:
    """Equal pods that wait. The fields are the arguments of `case.pods`."""

    name: str
    count: int
    labels: dict[str, str]
    namespace: str = "default"
    fields: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    shared_volumes: dict[str, str] = field(default_factory=dict)
    """Volumes that all pods use: by name, the zone of a volume that exists, empty for one to be made."""
    owns_volumes: bool = False
    """Each pod has a volume of its own that is to be made."""

    def pods(self) -> list[Pod]:
        """The pods of this workload."""
        metadata = {**self.metadata, "labels": self.labels, "namespace": self.namespace}
        return [
            pod(
                name,
                **self.fields,
                metadata={**metadata, "uid": f"uid-{self.namespace}-{name}"},
                spec={**self.spec, **case.claim_volumes(*self._claim_names(name))},
            )
            for name in self._pod_names()
        ]

    def _pod_names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.count)]

    def _claim_names(self, pod: str) -> list[str]:
        own = [f"own-{pod}"] if self.owns_volumes else []
        return [*(f"{name}-{self.name}" for name in self.shared_volumes), *own]

    def storage(self) -> Iterator[PersistentVolumeClaim | PersistentVolume]:
        """The claims of the pods, and the volumes that exist."""
        zones = {f"{name}-{self.name}": zone for name, zone in self.shared_volumes.items()}
        names = {name for pod in self._pod_names() for name in self._claim_names(pod)}
        for name in sorted(names):
            zone = zones.get(name, "")
            claim = case.pvc(name, volume=f"volume-{name}" if zone else "", storage_class=STORAGE_CLASS)
            yield replace(claim, metadata=replace(claim.metadata, namespace=self.namespace))
            if zone:
                yield case.pv(f"volume-{name}", [rule(ZONE, "In", zone)], storageClassName=STORAGE_CLASS)

    def add_spread(self, constraint: dict[str, Any]) -> None:
        """Add a spread constraint. The API server refuses two of one topology key and one whenUnsatisfiable."""
        known = self.spec.setdefault("topologySpreadConstraints", [])
        identity = (constraint["topologyKey"], constraint["whenUnsatisfiable"])
        if identity not in [(item["topologyKey"], item["whenUnsatisfiable"]) for item in known]:
            known.append(constraint)

    def add_term(self, kind: str, term: dict[str, Any]) -> None:
        """Add a required term of podAffinity or podAntiAffinity."""
        side = self.spec.setdefault("affinity", {}).setdefault(kind, {})
        side.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)

    def add_rule(self, rule: dict[str, Any]) -> None:
        """Add an expression to every term of the required node affinity."""
        terms = self.node_terms()
        for term in terms:
            term.setdefault("matchExpressions", []).append(rule)

    def node_terms(self) -> list[dict[str, Any]]:
        """The terms of the required node affinity, at least one."""
        affinity = self.spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        selector = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
        terms: list[dict[str, Any]] = selector.setdefault("nodeSelectorTerms", [{}])
        return terms

    def request(self, resource: str, amount: str) -> None:
        self.fields.setdefault("requests", {})[resource] = amount


@dataclass
class PoolDraft:
    """A NodePool. The fields are the arguments of `disruptions.pool`."""

    name: str
    rules: list[dict[str, Any]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=lambda: {"limits": {}})

    def restrict(self, rule: dict[str, Any]) -> None:
        """Add a requirement unless there is one for its label."""
        if rule["key"] not in [known["key"] for known in self.rules]:
            self.rules.append(rule)

    def limit(self, resource: str, amount: str) -> None:
        """Add a limit. A static NodePool has none but `nodes`."""
        if "replicas" not in self.fields:
            self.fields["limits"][resource] = amount

    def node_pool(self) -> NodePool:
        return pool_of(self.name, *self.rules, **self.fields)


@dataclass
class ClusterDraft:
    """A cluster in the making. `amendments` are applied to the finished snapshot, in order."""

    rng: Random
    workloads: list[Workload]
    pools: list[PoolDraft]
    types: dict[str, InstanceType]
    standing: list[Standing] = field(default_factory=list)
    bound: list[Pod] = field(default_factory=list)
    daemon_sets: list[DaemonSet] = field(default_factory=list)
    budgets: list[PodDisruptionBudget] = field(default_factory=list)
    csi_nodes: list[CSINode] = field(default_factory=list)
    replica_sets: list[ReplicaSet] = field(default_factory=list)
    overlays: list[NodeOverlay] = field(default_factory=list)
    buffers: list[CapacityBuffer] = field(default_factory=list)
    templates: list[PodTemplate] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    amendments: list[Callable[[Snapshot], Snapshot]] = field(default_factory=list)
    policies: dict[type[PolicyInput], PolicyInput] = field(default_factory=dict)

    @classmethod
    def begun(cls, rng: Random) -> ClusterDraft:
        """One to three workloads, one NodePool, and types of two families of four sizes each."""
        workloads = [_workload(rng, APPS[place]) for place in range(rng.randint(1, 3))]
        return cls(rng, workloads, [PoolDraft("pool-0")], _types())

    def add_policy(self, made: PolicyInput) -> None:
        """Switch an optional feature on, or change what it knows."""
        self.policies[type(made)] = made

    def policy(self, kind: type[Input]) -> Input | None:
        """Return the input of an optional feature so far; None if it has none."""
        return cast("Input | None", self.policies.get(kind))

    def some_workloads(self) -> list[Workload]:
        """One workload or more: an option often concerns several."""
        return self.rng.sample(self.workloads, self.rng.randint(1, len(self.workloads)))

    def some_pool(self) -> PoolDraft:
        return self.rng.choice(self.pools)

    def selector(self, workload: Workload) -> dict[str, Any]:
        """A selector of this workload's pods, or, less often, of another's."""
        chosen = self.rng.choice([workload, workload, self.rng.choice(self.workloads)])
        return {"matchLabels": {"app": chosen.labels["app"]}}

    def snapshot(self) -> Snapshot:
        """Return the snapshot on which the planner decides."""
        storage = [item for workload in self.workloads for item in workload.storage()]
        view = ClusterView(
            pods=tuple(self._pods()),
            nodes=tuple(item.node for item in self.standing),
            daemon_sets=tuple(self.daemon_sets),
            persistent_volume_claims=tuple(item for item in storage if isinstance(item, PersistentVolumeClaim)),
            persistent_volumes=tuple(item for item in storage if isinstance(item, PersistentVolume)),
            storage_classes=(case.storage_class(STORAGE_CLASS),) if storage else (),
            csi_nodes=tuple(self.csi_nodes),
            namespaces=tuple(self._namespaces()),
            replica_sets=tuple(self.replica_sets),
            pod_disruption_budgets=tuple(self.budgets),
        )
        made = Snapshot(
            cluster="test",
            now=case.NOW,
            view=view,
            claims=tuple(item.claim for item in self.standing if item.claim is not None),
            manifests=Manifests(
                node_pools=tuple(draft.node_pool() for draft in self.pools),
                node_overlays=tuple(self.overlays),
                capacity_buffers=tuple(self.buffers),
                pod_templates=tuple(self.templates),
            ),
            catalogs=self._catalogs(),
            settings=SchedulingSettings(**self.settings),
            epoch=7,
            policies=tuple(sorted(self.policies.values(), key=lambda item: item.stage)),
            **self.fields,
        )
        for amend in self.amendments:
            made = amend(made)
        return made

    def _pods(self) -> Iterator[Pod]:
        for workload in self.workloads:
            yield from workload.pods()
        yield from self.bound

    def _namespaces(self) -> Iterator[Namespace]:
        yield case.namespace("default", team="red")
        for name in sorted({workload.namespace for workload in self.workloads} - {"default"}):
            yield case.namespace(name, team="blue")

    def _catalogs(self) -> tuple[NodeClassCatalog, ...]:
        """The classes that NodePools name. Class `other` cannot launch in the first zone."""
        every = tuple(self.types[name] for name in sorted(self.types))
        elsewhere = tuple(_without_zone(item, Z1) for item in every)
        known = {
            NODE_CLASS: NodeClassCatalog(NODE_CLASS, every),
            OTHER_CLASS: NodeClassCatalog(OTHER_CLASS, elsewhere),
            BROKEN_CLASS: NodeClassCatalog(BROKEN_CLASS, not_ready="no subnet matches"),
        }
        used = {NODE_CLASS} | {draft.fields.get("node_class", NODE_CLASS) for draft in self.pools}
        return tuple(known[name] for name in sorted(used))


def _workload(rng: Random, app: str) -> Workload:
    amounts = {
        "cpu": rng.choice(["100m", "500m", "900m", "1500m", "3"]),
        "memory": rng.choice(["128Mi", "900Mi", "3Gi"]),
    }
    return Workload(app, rng.randint(1, 6), {"app": app}, fields=amounts)


def _types() -> dict[str, InstanceType]:
    made = {}
    for family, per_cpu in _MEMORY_GIB_PER_CPU.items():
        for size, cpus in _SIZES.items():
            made[f"{family}.{size}"] = _type(family, size, cpus, cpus * per_cpu)
    return made


def _type(family: str, size: str, cpus: int, memory_gib: int, **fields: Any) -> InstanceType:
    price = round(0.04 * cpus + 0.005 * memory_gib, 4)
    item = fake_type(
        f"{family}.{size}",
        offerings=_OFFERINGS,
        price=price,
        os=("linux",),
        cpu=str(cpus),
        memory=f"{memory_gib}Gi",
        pods=str(min(8 + 6 * cpus, 58)),
        **fields,
    )
    offerings = [
        replace(offer, price=round(price * _SPOT_SHARE[offer.zone], 4)) if offer.capacity_type == "spot" else offer
        for offer in item.offerings
    ]
    labelled = (*item.requirements, requirement(FAMILY, "In", (family,)))
    return replace(item, offerings=tuple(offerings), requirements=labelled)


def accelerated_type() -> InstanceType:
    """A type with two accelerators."""
    return _type("g", "2xlarge", 8, 32, extra={GPU_A: "2"})


def arm_type() -> InstanceType:
    """The cheapest type of its size, of the other architecture."""
    return _type("a", "xlarge", 4, 8, arch="arm64")


def _without_zone(item: InstanceType, zone: str) -> InstanceType:
    kept = tuple(offer for offer in item.offerings if offer.zone != zone)
    zones = sorted({offer.zone for offer in kept})
    rules = tuple(requirement(rule.key, "In", zones) if rule.key == ZONE else rule for rule in item.requirements)
    return replace(item, offerings=kept, requirements=rules)
