"""The places at which flows ask an optional feature, in one cluster and one invocation.

A policy reads what it needs, gives decisions its inputs, adds to what is committed, and observes what becomes of nodes.
What it cannot read or write never keeps pods waiting: the flows count that, log it and go on without it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from shiplap.disruption.commands import Decision, DisruptionProposal, Reason
from shiplap.disruption.disruption_snapshot import DisruptionInput, DisruptionSnapshot
from shiplap.flows.context import FlowContext, TypesFor
from shiplap.flows.function_install import FunctionInstall
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.flows.optional.policy_port import PolicyPort
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import DecisionState, OfferingFailure
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import ClusterView, PolicyInput, Snapshot
from shiplap.settings import ClusterSettings
from shiplap.spending.account_counters import CountChange


class DecisionFacts(msgspec.Struct, frozen=True):
    """The facts that a policy uses for its input: the snapshot without policies, the stored state, the catalogue."""

    snapshot: Snapshot
    state: DecisionState
    catalog: Catalog
    joins: JoinHistory = JoinHistory()


class Launches(msgspec.Struct, frozen=True):
    """Claims that are about to be committed, in the order of their plan.

    `records` are the claims as they are stored, `planned` the claims of the plan. With `replaces` they take the place
    of nodes in service.
    """

    planned: Sequence[PlannedClaim]
    records: Sequence[NodeClaim]
    snapshot: Snapshot
    state: DecisionState
    replaces: bool = False


class SweptFacts(msgspec.Struct, frozen=True):
    """A cluster as one sweep finds it. `types_for` is asked only where types matter."""

    state: DecisionState
    view: ClusterView
    claims: Sequence[NodeClaim]
    types_for: TypesFor | None = None


class Policy:
    """One optional feature. Each method that a feature does not override does nothing."""

    reason: ClassVar[Reason | None] = None
    """The reason by which the feature removes nodes, if it removes any."""
    ports: ClassVar[tuple[PolicyPort[Any], ...]] = ()
    """The ports that the feature uses alone."""
    parts: ClassVar[tuple[OptionalPart, ...]] = ()
    """The optional calls that the feature makes of ports that all have."""
    needs_zone_ids: ClassVar[bool] = False
    """True if the feature has to know in which zone of AWS a node runs."""

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        self.settings, self.context = settings, context

    def look_up(self) -> None:
        """Read what changes slowly, once per invocation."""

    def read(self, state: DecisionState, now: float) -> None:
        """Read what belongs to a state that has just been read. Raises StoreError."""

    def pods_without_objects(self, view: ClusterView, now: float) -> Sequence[Pod]:
        """Return pods that stand for room somebody has asked for, named by `kubernetes.names.without_object`.

        Decisions plan those without a node and leave the room to those that have one. None is ever written, bound,
        nominated or told about. Raises ClusterError.
        """
        return ()

    def answer(self, view: ClusterView, plan: Plan | None, now: float) -> None:
        """Answer whoever asked for room, once launches are begun; without a plan nothing was planned."""

    def planning_input(self, facts: DecisionFacts) -> PolicyInput | None:
        """Return the input of a plan; None if there is nothing that a plan need know."""
        return None

    def replacement_input(self, facts: DecisionFacts) -> PolicyInput | None:
        """Return the input of a plan of replacements; the same as of other plans, unless a feature overrides it."""
        return self.planning_input(facts)

    def disruption_policies(self, policies: tuple[PolicyInput, ...]) -> tuple[PolicyInput, ...]:
        """Return the inputs of plans that a decision on disruption needs, too."""
        return policies

    def disruption_input(self, facts: DecisionFacts) -> DisruptionInput | None:
        """Return the further input of a decision on disruption, if there is one."""
        return None

    def marked(self, launches: Launches) -> Sequence[NodeClaim]:
        """Return the records with what the policy has to be remembered of each claim."""
        return launches.records

    def counted(self, launches: Launches) -> CountChange | None:
        """Return what is written with the claims, if anything is."""
        return None

    def incomplete(
        self, plan: Plan, snapshot: Snapshot, left_out: Collection[str], unproven: Collection[str]
    ) -> Mapping[str, str]:
        """Return the claims of a plan that are of no use without those that are left out, each with the reason.

        Of what is left out, `unproven` waits for a first node of its kind.
        """
        return {}

    def may_commit(self, launches: Launches) -> bool:
        """Write what has to be known before the claims are; False if somebody else was first. Raises StoreError."""
        return True

    def noted(self, proposals: Sequence[DisruptionProposal], snapshot: Snapshot) -> Sequence[DisruptionProposal]:
        """Write what has to be known before nodes leave; return the proposals that may begin."""
        return proposals

    def tell(self, decision: Decision, snapshot: Snapshot, told: Sequence[str]) -> tuple[str, ...]:
        """Tell what a decision would do; return the names of the nodes that have been told of, `told` before."""
        return ()

    def decided(self, decision: Decision, snapshot: DisruptionSnapshot) -> None:
        """Act on what was decided, once the commands that are ready have begun."""

    def objection(self, claim: NodeClaim, pods: Sequence[Pod], *, has_begun: bool = False) -> str:
        """Return why a node that the policy removes stays, or nothing; with `has_begun` its pods leave already."""
        return ""

    def moved_otherwise(
        self,
        claim: NodeClaim,
        node: Node,
        leaving: Sequence[Pod],
        pods: Sequence[Pod],
    ) -> Collection[str]:
        """Return the uids of those among `leaving` that are not evicted now: the policy moves them in its own way.

        `pods` are all pods of the node. Asked only while neither AWS nor a deadline presses.
        """
        return ()

    def sweep(self, facts: SweptFacts) -> None:
        """Do the chores of a sweep. Raises StoreError."""

    @classmethod
    def refreshed(cls, cluster: ClusterSettings, install: FunctionInstall, limit_s: float) -> bool:
        """Describe anew what AWS says for the Region of a cluster; False if this cluster is no reason to.

        No call of AWS may last longer than `limit_s` seconds. Raises StoreError.
        """
        return False

    @classmethod
    def interrupted(cls, claim: NodeClaim, context: FlowContext) -> None:
        """Note that AWS takes the instance of a claim back."""

    @classmethod
    def rebalanced(cls, claim: NodeClaim, context: FlowContext) -> None:
        """Note that AWS may soon take the instance of a claim back."""

    @classmethod
    def ended(cls, claim: NodeClaim, context: FlowContext) -> None:
        """Note that the instance of a claim has ended."""

    @classmethod
    def refused(
        cls, failures: Iterable[OfferingFailure], types: Mapping[str, InstanceType], context: FlowContext
    ) -> None:
        """Note offerings that EC2 would not give."""
