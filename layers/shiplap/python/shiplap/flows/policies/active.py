"""The policies that are on, asked together: each in the order of the registry, for each place of `Policy`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from shiplap.disruption.commands import OF_POLICIES, Decision, DisruptionProposal, Reason
from shiplap.disruption.disruption_snapshot import DisruptionInput, DisruptionSnapshot
from shiplap.flows.context import FlowContext
from shiplap.flows.function_install import FunctionInstall
from shiplap.flows.policies.policy import DecisionFacts, Launches, Policy, SweptFacts
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.policies.registry import flow_of
from shiplap.ports import DecisionState, OfferingFailure
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, PolicyInput, Snapshot
from shiplap.settings import ClusterSettings
from shiplap.spending.account_counters import CountChange


class ActivePolicies:
    """The policies of one cluster in one invocation."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._policies = tuple(policies)

    @classmethod
    def of(cls, settings: ClusterSettings, context: FlowContext) -> ActivePolicies:
        """Return the policies that the settings of a cluster switch on."""
        return cls(flow_of(name)(settings, context) for name in settings.policies_on)

    def look_up(self) -> None:
        """Read what changes slowly, once per invocation."""
        for policy in self._policies:
            policy.look_up()

    def read(self, state: DecisionState, now: float) -> None:
        """Read what belongs to a state that has just been read. Raises StoreError."""
        for policy in self._policies:
            policy.read(state, now)

    def with_pods_without_objects(self, view: ClusterView, now: float) -> ClusterView:
        """Return the view with the pods that stand for room somebody has asked for. Raises ClusterError."""
        more = [pod for policy in self._policies for pod in policy.pods_without_objects(view, now)]
        return replace(view, pods=(*view.pods, *more)) if more else view

    def answer(self, view: ClusterView, plan: Plan | None, now: float) -> None:
        """Answer whoever asked for room; without a plan nothing was planned."""
        for policy in self._policies:
            policy.answer(view, plan, now)

    def planning_inputs(self, facts: DecisionFacts) -> tuple[PolicyInput, ...]:
        """Return the inputs of a plan."""
        found = (policy.planning_input(facts) for policy in self._policies)
        return tuple(item for item in found if item is not None)

    def replacement_inputs(self, facts: DecisionFacts) -> tuple[PolicyInput, ...]:
        """Return the inputs of a plan of replacements."""
        found = (policy.replacement_input(facts) for policy in self._policies)
        return tuple(item for item in found if item is not None)

    def disruption_policies(self, snapshot: Snapshot) -> tuple[PolicyInput, ...]:
        """Return those inputs of a snapshot that a decision on disruption needs, too."""
        inputs = snapshot.policies
        for policy in self._policies:
            inputs = policy.disruption_policies(inputs)
        return inputs

    def disruption_inputs(self, facts: DecisionFacts) -> tuple[DisruptionInput, ...]:
        """Return the further inputs of a decision on disruption."""
        found = (policy.disruption_input(facts) for policy in self._policies)
        return tuple(item for item in found if item is not None)

    def marked(self, launches: Launches) -> Launches:
        """Return the launches, their records with what policies have to be remembered of each claim."""
        for policy in self._policies:
            launches = replace(launches, records=policy.marked(launches))
        return launches

    def counted(self, launches: Launches) -> CountChange | None:
        """Return what is written with the claims, if anything is."""
        found = (policy.counted(launches) for policy in self._policies)
        return next((item for item in found if item is not None), None)

    def incomplete(
        self, plan: Plan, snapshot: Snapshot, left_out: Collection[str], unproven: Collection[str]
    ) -> dict[str, str]:
        """Return the claims of a plan that are of no use without those that are left out, each with the reason.

        Of what is left out, `unproven` waits for a first node of its kind.
        """
        found: dict[str, str] = {}
        for policy in self._policies:
            found |= policy.incomplete(plan, snapshot, {*left_out, *found}, unproven)
        return found

    def may_commit(self, launches: Launches) -> bool:
        """Write what has to be known before the claims are; False if somebody else was first. Raises StoreError."""
        return all(policy.may_commit(launches) for policy in self._policies)

    def noted(self, proposals: Sequence[DisruptionProposal], snapshot: Snapshot) -> Sequence[DisruptionProposal]:
        """Write what has to be known before nodes leave; return the proposals that may begin."""
        for policy in self._policies:
            proposals = policy.noted(proposals, snapshot)
        return proposals

    def tell(self, decision: Decision, snapshot: Snapshot, told: Sequence[str]) -> tuple[str, ...]:
        """Tell what a decision would do; return the names of the nodes that have been told of."""
        return tuple(name for policy in self._policies for name in policy.tell(decision, snapshot, told))

    def decided(self, decision: Decision, snapshot: DisruptionSnapshot) -> None:
        """Act on what was decided, once the commands that are ready have begun."""
        for policy in self._policies:
            policy.decided(decision, snapshot)

    def objection(self, reason: Reason, claim: NodeClaim, pods: Sequence[Pod], *, has_begun: bool = False) -> str:
        """Return why a node that is removed by a reason of a policy stays after all, or nothing.

        Of a policy that has been switched off, no node leaves any more.
        """
        if reason not in OF_POLICIES:
            return ""
        owner = next((policy for policy in self._policies if policy.reason is reason), None)
        if owner is None:
            return f"nothing may leave any more for reason {reason}: it is switched off"
        return owner.objection(claim, pods, has_begun=has_begun)

    def moved_otherwise(
        self, claim: NodeClaim, node: Node, leaving: Sequence[Pod], pods: Sequence[Pod]
    ) -> frozenset[str]:
        """Return the uids of those among `leaving` that are not evicted now: a policy moves them in its own way."""
        found = (policy.moved_otherwise(claim, node, leaving, pods) for policy in self._policies)
        return frozenset(uid for uids in found for uid in uids)

    def sweep(self, facts: SweptFacts) -> None:
        """Do the chores of a sweep. Raises StoreError."""
        for policy in self._policies:
            policy.sweep(facts)


NO_POLICIES = ActivePolicies()
"""Those of a cluster in which no optional feature is on."""


def refresh(install: FunctionInstall, region: str, limit_s: float) -> None:
    """Let each policy describe anew what AWS says in a Region, for the first cluster there that is a reason to.

    No call of AWS may last longer than `limit_s` seconds. Raises StoreError.
    """
    clusters = [cluster for cluster in install.settings.clusters if cluster.region == region]
    for name in sorted({name for cluster in clusters for name in cluster.policies_on}):
        wanting = (cluster for cluster in clusters if name in cluster.policies_on)
        any(flow_of(name).refreshed(cluster, install, limit_s) for cluster in wanting)


def interrupted(claim: NodeClaim, context: FlowContext) -> None:
    """Let policies know that AWS takes the instance of a claim back."""
    for name in context.policies:
        flow_of(name).interrupted(claim, context)


def rebalanced(claim: NodeClaim, context: FlowContext) -> None:
    """Let policies know that AWS may soon take the instance of a claim back."""
    for name in context.policies:
        flow_of(name).rebalanced(claim, context)


def ended(claim: NodeClaim, context: FlowContext) -> None:
    """Let policies know that the instance of a claim has ended."""
    for name in context.policies:
        flow_of(name).ended(claim, context)


def needs_zone_ids(context: FlowContext) -> bool:
    """True if a policy has to know the zone ids of nodes."""
    return any(flow_of(name).needs_zone_ids for name in context.policies)


def refused(failures: Iterable[OfferingFailure], types: Mapping[str, InstanceType], context: FlowContext) -> None:
    """Let policies know of offerings that EC2 would not give."""
    failures = tuple(failures)
    for name in context.policies:
        flow_of(name).refused(failures, types, context)
