"""The snapshot: everything one scheduling decision looks at, so that the decision can be recorded and replayed.

A snapshot is plain data and encodes with msgspec. `scheduling.planner.plan(snapshot)` reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from operator import is_
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from shiplap.instances.catalog.resolved_nodeclass import SelectedResources
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Event, Node, Pod, TopologySpreadConstraint
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.reading import Unreadable
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
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim

Answer = TypeVar("Answer")
Input = TypeVar("Input", bound="PolicyInput")

Pricing = Callable[[InstanceType, str, float], float]
"""From an instance type, a zone and the list price of its on-demand offering there to the price it is compared by; both
in USD per hour."""


class NodeClassCatalog(msgspec.Struct, frozen=True):
    """The instance types one EC2NodeClass can launch, sorted by name; empty with `not_ready` when it cannot launch.

    `spec_hash` and `selection` are what its nodes are made with, empty and None where that is not known; `first_hashes`
    are the digests that claims of an older version may carry instead (`manifests.template_hash`).
    """

    node_class: str
    instance_types: tuple[InstanceType, ...] = ()
    not_ready: str = ""
    spec_hash: str = ""
    first_hashes: tuple[str, ...] = ()
    selection: SelectedResources | None = None


class SchedulingSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a cluster that a scheduling decision depends on."""

    preference_policy: str = "Respect"
    """Respect|Ignore: whether preferences of pods are constraints as long as they can be met."""

    min_values_policy: str = "Strict"
    """Strict|BestEffort: whether a NodePool's `minValues` must be met."""

    max_instance_types: int = 60
    """Caps the launch list of a claim."""

    improve_s: float = 0.0
    """The effort of the cost search, in seconds of a server core; 0 for the first plan only."""

    explore: bool = True
    """True to allow claims that rely on estimates nobody has verified yet."""

    autoscaler_hold_s: float = 600.0
    """How long a pod is left alone after Cluster Autoscaler launched a node for it, in seconds."""

    default_spread: tuple[TopologySpreadConstraint, ...] = ()
    """The spread constraints of pods that have none, their selectors still open."""

    reserved_policy: str = "Strict"
    """Strict|Fallback: whether pods wait for the next decision when this one gives away the last instances of a
    reservation they could use."""

    claim_rules: tuple[ClaimRule, ...] = ()
    """The pods that are ours; without any rule, all are."""


class ClusterView(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """The cluster's objects as listed. Kinds that few decisions need are empty for the rest."""

    pods: tuple[Pod, ...] = ()
    """Bound and pending pods."""

    nodes: tuple[Node, ...] = ()

    daemon_sets: tuple[DaemonSet, ...] = ()

    events: tuple[Event, ...] = ()
    """Events of Cluster Autoscaler only."""

    version: str = ""
    """The resourceVersion of the list of pending pods."""

    # Storage objects: empty when no pod that needs a node has claims.
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_nodes: tuple[CSINode, ...] = ()
    csi_drivers: tuple[CSIDriver, ...] = ()

    namespaces: tuple[Namespace, ...] = ()
    """Empty unless a pod selects namespaces by their labels."""

    # Services and controllers: empty unless there are default spread constraints.
    services: tuple[Service, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()

    scalables: tuple[Scalable, ...] = ()
    """Workloads that CapacityBuffers are made of."""

    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    """Empty unless a node is on its way out."""

    unreadable: tuple[Unreadable, ...] = ()
    """Objects that were set aside."""

    def once(self, question: Callable[[ClusterView], Answer]) -> Answer:
        """The answer to a pure question about this view, looked for once: many ask the same of every object.

        What is asked must be a function that exists once, such as one of a module; its answer must not be changed.
        """
        return _answered(self.__dict__.setdefault("answers", {}), question, self)

    def of_pods(self, question: Callable[[ClusterView], Answer]) -> Answer:
        """As `once`, where the answer depends on nothing but the pods."""
        return _answered(self.__dict__.setdefault("answers_of_pods", {}), question, self)

    def beside(self, **others: Any) -> ClusterView:
        """The same pods beside other objects: what has been found out about them stays known."""
        made = replace(self, **others)
        made.__dict__["answers_of_pods"] = self.__dict__.setdefault("answers_of_pods", {})
        return made

    def after(self, earlier: ClusterView) -> ClusterView:
        """This view. Where its pods are the objects of an earlier one, what has been found out about them is known."""
        if len(self.pods) == len(earlier.pods) and all(map(is_, self.pods, earlier.pods)):
            self.__dict__["answers_of_pods"] = earlier.__dict__.setdefault("answers_of_pods", {})
        return self

    @property
    def unbound(self) -> tuple[Pod, ...]:
        """The pods without a node."""
        return self.of_pods(_unbound)

    @property
    def by_node(self) -> Mapping[str, list[Pod]]:
        """The pods of each node that has any, in their order in `pods`."""
        return self.of_pods(_by_node)


class PlanStage(IntEnum):
    """The order in which policies take part in a plan: each stage plans within the stages before it."""

    PODS = 1
    """Decides which pods are planned for at all."""
    ADMISSION = 2
    """Decides which planned claims may be launched."""
    PRICES = 3
    """Decides at which prices offerings are compared."""
    LAUNCHES = 4
    """Decides what is asked of EC2 for the claims of a plan."""


class PolicyInput(msgspec.Struct, frozen=True):
    """The data of one optional feature for a decision, and the methods by which the decision asks the feature.

    A subclass holds plain data in one field, and overrides the methods of its `stage`. Each method that is not
    overridden changes nothing. Records hold the data under the name `recorded_as`.
    """

    stage: ClassVar[PlanStage]
    recorded_as: ClassVar[str]

    @property
    def recorded(self) -> Any:
        """The data of the input, as records hold it."""
        return getattr(self, self.__struct_fields__[0])

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        """Plan a snapshot by means of `decide`, which plans as all later stages do. Raises as `planner.plan`."""
        return decide(snapshot)

    def pricing(self) -> Pricing | None:
        """Return how on-demand offerings are priced when they are compared; None if their list prices count."""
        return None

    def marked(self, claims: Sequence[PlannedClaim], snapshot: Snapshot) -> Sequence[PlannedClaim]:
        """Return the claims of a plan with what the policy asks of their launches."""
        return claims

    def admit(self: Input, claims: Sequence[PlannedClaim], snapshot: Snapshot) -> tuple[str, Input]:
        """Return why claims may not be launched in the place of nodes, or nothing, and the input behind them."""
        return "", self

    def behind(self: Input, claims: Sequence[PlannedClaim]) -> Input:
        """Return the input of a later decision, which finds these claims in flight."""
        return self


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All inputs of one scheduling decision."""

    cluster: str

    now: float
    """The time of the decision, epoch seconds."""

    view: ClusterView = ClusterView()
    """The objects of the cluster."""

    claims: tuple[NodeClaim, ...] = ()
    """Claims in flight or leaving; in a decision on disruption, those in service as well."""

    closed_claims: frozenset[str] = frozenset()
    """Names of claims that take no more pods: their allocatable is what those request that they have."""

    manifests: Manifests = Manifests()
    """NodePools and the objects beside them, without user data."""

    catalogs: tuple[NodeClassCatalog, ...] = ()
    """The instance types of each EC2NodeClass; offerings that are unavailable now are marked."""

    missed_pods: frozenset[str] = frozenset()
    """Uids of pods whose node turned out too small: they are planned with learned or careful capacity only."""

    piloted: frozenset[str] = frozenset()
    """Keys `ami/instance type#kubelet hash` of estimates that another claim in flight is exploring."""

    settings: SchedulingSettings = SchedulingSettings()

    epoch: int = 0
    """The epoch of the state that was read; a commit holds only while it stands."""

    install: str = ""
    """The install that decides: two installs of one cluster must not give their claims the same names."""

    standalone_claims: tuple[StandaloneClaim, ...] = ()
    """NodeClaims that users wrote and that nothing was launched for yet, sorted by name."""

    policies: tuple[PolicyInput, ...] = ()
    """The inputs of the optional features that are on, at most one of each kind, by their stage."""

    placed: tuple[Placement, ...] = ()
    """Pods that keep their places on nodes and on claims in flight from an earlier plan of this decision."""

    domain_pools: tuple[NodePool, ...] = ()
    """The NodePools whose domains count for topology constraints, where `manifests` has them with less room, such as
    what ceilings leave; without any, those of `manifests` count."""

    most_node_price: Mapping[str, float] = {}
    """The most that one new node may cost, USD per hour by NodePool, where that is less than the NodePool's own
    annotation allows. It bounds no node of `domain_pools`."""

    def policy(self, kind: type[Input]) -> Input | None:
        """Return the input of one kind, None where that feature is off."""
        return next((item for item in self.policies if isinstance(item, kind)), None)

    def with_policy(self, changed: PolicyInput) -> Snapshot:
        """Return the snapshot with this input in the place of the one of its kind."""
        return self.with_policies((*(item for item in self.policies if type(item) is not type(changed)), changed))

    def with_policies(self, inputs: Iterable[PolicyInput]) -> Snapshot:
        """Return the snapshot with exactly these inputs, in the order of their stages."""
        return replace(self, policies=tuple(sorted(inputs, key=lambda item: item.stage)))

    def without_policy(self, kind: type[PolicyInput]) -> Snapshot:
        """Return the snapshot as if a feature were off."""
        return replace(self, policies=tuple(item for item in self.policies if not isinstance(item, kind)))

    def without_stage(self, stage: PlanStage) -> Snapshot:
        """Return the snapshot as if all features of one stage were off."""
        return replace(self, policies=tuple(item for item in self.policies if item.stage is not stage))


def _answered(known: dict[object, Any], question: Callable[[ClusterView], Answer], view: ClusterView) -> Answer:
    if question not in known:
        known[question] = question(view)
    answer: Answer = known[question]
    return answer


def _unbound(view: ClusterView) -> tuple[Pod, ...]:
    return tuple([pod for pod in view.pods if not pod.spec.node_name])


def _by_node(view: ClusterView) -> Mapping[str, list[Pod]]:
    by_node: dict[str, list[Pod]] = {}
    for pod in view.pods:
        if node := pod.spec.node_name:
            if (on_node := by_node.get(node)) is None:
                by_node[node] = [pod]
            else:
                on_node.append(pod)
    return by_node
