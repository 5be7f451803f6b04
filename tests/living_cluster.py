"""A cluster on which plans and disruption commands are carried out at once, exactly as decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.disruption.commands import DisruptionProposal
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.claims import node_claim

replace = msgspec.structs.replace


class LivingCluster:
    """Nodes with their claims, and pods by `(namespace, name)`. Every node is what its launch choice says."""

    def __init__(
        self,
        pools: Sequence[NodePool],
        types: Sequence[InstanceType],
        *,
        now: float = 1_800_000_000.0,
        settings: SchedulingSettings | None = None,
        disruption: DisruptionSettings | None = None,
        daemon_sets: Sequence[DaemonSet] = (),
    ) -> None:
        self.pools = tuple(pools)
        self.types = {item.name: item for item in types}
        self.now = now
        self.settings = settings or SchedulingSettings()
        self.disruption = disruption or DisruptionSettings()
        self.daemon_sets = tuple(daemon_sets)
        self.nodes: dict[str, Node] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        self.budgets: tuple[PodDisruptionBudget, ...] = ()
        self.moves: dict[tuple[str, str], int] = {}
        self.moved_in_at: dict[str, float] = {}
        self._epoch = 0

    @property
    def hourly(self) -> float:
        """USD per hour of all nodes."""
        return sum(claim.hourly for claim in self.claims.values())

    def snapshot(self) -> Snapshot:
        return Snapshot(
            cluster="living",
            now=self.now,
            view=ClusterView(tuple(self.pods.values()), tuple(self.nodes.values()), self.daemon_sets),
            claims=tuple(self.claims.values()),
            manifests=Manifests(node_pools=self.pools),
            catalogs=(NodeClassCatalog("default", tuple(self.types.values())),),
            settings=self.settings,
            epoch=self._epoch,
        )

    def disruption_snapshot(self) -> DisruptionSnapshot:
        return DisruptionSnapshot(
            scheduling=self.snapshot(),
            pod_disruption_budgets=self.budgets,
            histories=tuple(
                NodeHistory(name, moved_in_at=at) for name, at in sorted(self.moved_in_at.items()) if name in self.nodes
            ),
            settings=self.disruption,
        )

    def create(self, pods: Iterable[Pod]) -> None:
        self.pods |= {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}

    def delete(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            del self.pods[key]

    def schedule(self) -> int:
        """Plan once and carry it out; returns how many nodes were launched."""
        decided = plan(self.snapshot())
        self._epoch += 1
        for claim in decided.node_claims:
            self._launch(claim)
        for place in decided.existing_nodes:
            self.bind(place.pods, place.name)
        return len(decided.node_claims)

    def carry_out(self, command: DisruptionProposal) -> None:
        """Launch the replacements, move the pods, end the nodes; pods that nobody planned for wait."""
        self._epoch += 1
        for claim in command.replacements:
            for pod in claim.pods:
                self.moves[pod.namespace, pod.name] = self.moves.get((pod.namespace, pod.name), 0) + 1
            self._launch(claim)
            self.moved_in_at[claim.name] = self.now
        for place in command.placements:
            self.moved_in_at[place.name] = self.now
            for pod in place.pods:
                self.moves[pod.namespace, pod.name] = self.moves.get((pod.namespace, pod.name), 0) + 1
            self.bind(place.pods, place.name)
        for key, pod in self.pods.items():
            if pod.spec.node_name in command.nodes:
                waiting = replace(pod.status, phase="Pending")
                self.pods[key] = replace(pod, spec=replace(pod.spec, node_name=""), status=waiting)
        for name in command.nodes:
            del self.nodes[name]
            del self.claims[name]

    def _launch(self, claim: PlannedClaim) -> None:
        self.start(claim)
        self.bind(claim.pods, claim.name)

    def start(self, claim: PlannedClaim) -> None:
        """Let the node of a claim join without its pods."""
        item = self.types[claim.launch.instance_type]
        marks: Mapping[str, str] = {
            **{
                entry.key: next(iter(entry.values))
                for entry in item.requirements
                if not entry.complement and len(entry.values) == 1
            },
            **claim.labels,
            labels.HOSTNAME: claim.name,
            labels.NODE_POOL: claim.node_pool,
            labels.INSTANCE_TYPE: item.name,
            labels.ZONE: claim.launch.zone,
            labels.CAPACITY_TYPE: claim.launch.capacity_type,
            labels.REGISTERED: "true",
            labels.INITIALIZED: "true",
        }
        self.nodes[claim.name] = msgspec.convert(
            {
                "metadata": {"name": claim.name, "labels": marks, "creationTimestamp": rfc3339(self.now)},
                "spec": {"taints": msgspec.to_builtins(claim.taints)},
                "status": {
                    "capacity": format_resources(item.capacity),
                    "allocatable": format_resources(item.allocatable),
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
            Node,
        )
        self.claims[claim.name] = node_claim(
            cluster="living",
            name=claim.name,
            node_pool=claim.node_pool,
            node_class=claim.node_class,
            state=ClaimState.INITIALIZED,
            created_at=self.now,
            node_name=claim.name,
            hourly=claim.launch.price,
            annotations=claim.annotations,
            tier=claim.tier,
        )

    def bind(self, pods: Iterable[PodReference], node: str) -> None:
        """Let pods run on a node."""
        for reference in pods:
            key = (reference.namespace, reference.name)
            pod = self.pods[key]
            status = replace(pod.status, phase="Running", conditions=())
            self.pods[key] = replace(pod, spec=replace(pod.spec, node_name=node), status=status)
