"""A small language for disruption cases: given nodes with their claims and pods, expect commands and what blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shiplap.disruption.commands import Decision, DisruptionProposal
from shiplap.disruption.decide import decide
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionInput, DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.disruption.standstill import unchanged_until
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.related_objects import PersistentVolume, PersistentVolumeClaim
from shiplap.manifests.custom_resources import CapacityBuffer, EC2NodeClass, Manifests, NodePool, PodTemplate
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, PolicyInput, SchedulingSettings, Snapshot
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, fake_type
from tests.conformance.given import NOW

BORN = "2027-01-14T00:00:00Z"
"""About eight hours before NOW."""
SMALL = fake_type("small", cpu="4", memory="8Gi", pods="20", price=1.0)
LARGE = fake_type("large", cpu="16", memory="32Gi", pods="50", price=4.0)
BOTH = (SMALL, LARGE)
ON_DEMAND = rule("karpenter.sh/capacity-type", "In", "on-demand")


@dataclass
class Standing:
    """A node with its claim."""

    node: Node
    claim: NodeClaim | None


def standing(
    name: str,
    kind: str = "default-instance-type",
    *,
    pool: str = "default",
    zone: str = Z1,
    capacity_type: str = "on-demand",
    born: str = BORN,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    claim_annotations: Mapping[str, str] | None = None,
    claimed: bool = True,
    state: ClaimState = ClaimState.INITIALIZED,
    created_at: float = NOW - 8 * 3600,
    ami: str = "",
    tier: int = 0,
    made: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Standing:
    """A running node of a NodePool, of the type and offering given; `made` holds further fields of its claim."""
    marks = {
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": zone,
        "karpenter.sh/capacity-type": capacity_type,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        **(labels or {}),
    }
    marks = {key: value for key, value in marks.items() if value}
    body = node(name, pool=pool, labels=marks, born=born, **fields)
    if annotations:
        body = msgspec.structs.replace(
            body, metadata=msgspec.structs.replace(body.metadata, annotations=dict(annotations))
        )
    claim = node_claim(
        cluster="test",
        name=f"claim-{name}",
        node_pool=pool,
        node_class="default",
        state=state,
        node_name=name,
        created_at=created_at,
        ami=ami,
        tier=tier,
        annotations=dict(claim_annotations or {}),
        **(made or {}),
    )
    return Standing(body, claim if claimed else None)


def small(name: str, **fields: Any) -> Standing:
    return standing(name, "small", cpu="3900m", memory="8000Mi", pods="20", **fields)


def large(name: str, **fields: Any) -> Standing:
    return standing(name, "large", cpu="15900m", memory="32000Mi", pods="50", **fields)


def pdb(name: str, allowed: int | None = None, **labels: str) -> PodDisruptionBudget:
    """A budget over the pods with these labels; without `allowed` it tolerates none to be missing."""
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "maxUnavailable": 0},
    }
    if allowed is not None:
        body["status"] = {"disruptionsAllowed": allowed}
    return msgspec.convert(body, PodDisruptionBudget)


@dataclass
class Verdict:
    """A decision with the questions cases ask of it."""

    decision: Decision
    snapshot: DisruptionSnapshot

    @property
    def commands(self) -> tuple[DisruptionProposal, ...]:
        return self.decision.commands

    @property
    def command(self) -> DisruptionProposal:
        """The only command."""
        assert len(self.commands) == 1, self.decision
        return self.commands[0]

    @property
    def removed(self) -> set[str]:
        return {name for command in self.commands for name in command.nodes}

    def blocked(self, name: str) -> str:
        """Return the reason why a node is not disrupted; empty when the decision has no entry for it."""
        return next((entry.reason for entry in self.decision.blocked if entry.node == name), "")


def disrupted(
    *nodes: Standing,
    pods: Sequence[Pod] = (),
    pools: Sequence[NodePool] | None = None,
    types: Sequence[InstanceType] = (),
    budgets: Sequence[PodDisruptionBudget] = (),
    daemon_sets: Sequence[DaemonSet] = (),
    histories: Sequence[NodeHistory] = (),
    busy: Sequence[str] = (),
    now: float = NOW,
    settings: DisruptionSettings | None = None,
    scheduling_settings: SchedulingSettings | None = None,
    class_says: Mapping[str, Any] | None = None,
    node_classes: Sequence[EC2NodeClass] = (),
    volume_claims: Sequence[PersistentVolumeClaim] = (),
    volumes: Sequence[PersistentVolume] = (),
    coming: Sequence[NodeClaim] = (),
    buffers: Sequence[CapacityBuffer] = (),
    templates: Sequence[PodTemplate] = (),
    policies: Sequence[PolicyInput] = (),
    in_use: Sequence[DisruptionInput] = (),
    unsettled: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on which of these nodes to disrupt; `class_says` holds known facts of the EC2NodeClass.

    `coming` are claims that have no node yet, `unsettled` NodePools whose spec may still be taken back. `policies` are
    inputs of plans, `in_use` those that decisions on disruption need beside them.
    """
    snapshot = Snapshot(
        cluster="test",
        now=now,
        view=ClusterView(
            tuple(pods),
            tuple(item.node for item in nodes),
            tuple(daemon_sets),
            persistent_volume_claims=tuple(volume_claims),
            persistent_volumes=tuple(volumes),
            pod_disruption_budgets=tuple(budgets),
        ),
        claims=(*(item.claim for item in nodes if item.claim is not None), *coming),
        manifests=Manifests(
            node_pools=tuple(pools) if pools is not None else (pool(),),
            node_classes=tuple(node_classes),
            capacity_buffers=tuple(buffers),
            pod_templates=tuple(templates),
        ),
        catalogs=(NodeClassCatalog("default", tuple(types), **(class_says or {})),),
        settings=scheduling_settings or SchedulingSettings(),
        policies=tuple(policies),
    )
    of_nodes = DisruptionSnapshot(
        scheduling=snapshot,
        pod_disruption_budgets=tuple(budgets),
        histories=tuple(histories),
        busy=frozenset(busy),
        settings=settings or DisruptionSettings(),
        policies=tuple(in_use),
        unsettled_pools=tuple(unsettled),
    )
    return Verdict(decide(of_nodes), of_nodes)


def holds_until(snapshot: DisruptionSnapshot) -> float:
    """Epoch seconds before which time alone does not change the decision about a snapshot."""
    clock = DecisionClock(snapshot.scheduling.now)
    decide(snapshot, clock)
    return unchanged_until(snapshot, clock)
