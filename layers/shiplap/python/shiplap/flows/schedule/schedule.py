"""The schedule flow: hints that pods are pending in, instances out, in one invocation per cluster.

A round looks at everything afresh, plans, commits and launches. What could not be launched is planned again in the
next round, on what is still available, until nothing is left to launch or the invocation runs out of rounds or time.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec

from shiplap.errors import ClusterGone, EpochMoved, ShiplapError
from shiplap.flows import cluster_metrics
from shiplap.flows.assign_instances import Attempt, name_instances
from shiplap.flows.context import FlowContext
from shiplap.flows.live_settings import AS_DEPLOYED, NO_NODE_POOL, ManifestState
from shiplap.flows.messages import MOST_PODS, RESERVATION_STARTED, UNSCHEDULABLE, PodsPending, Sweep
from shiplap.flows.optional.optional_calls import RECORDS
from shiplap.flows.planning import unproven
from shiplap.flows.planning.decision_inputs import (
    BoundPods,
    DecisionInputs,
    LaunchSupply,
    read_inputs,
    read_state,
    read_supply,
)
from shiplap.flows.planning.decision_snapshots import PricedSnapshot, priced_snapshot, with_policies
from shiplap.flows.planning.futile_launches import held_back_pods
from shiplap.flows.planning.moves_under_way import plan_without_moves_under_way
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.planning.planned_launches import ClaimOrigin, in_turns, launches, records_of, with_token
from shiplap.flows.pod_events import publish_unschedulable
from shiplap.flows.policies.active import ActivePolicies
from shiplap.flows.policies.policy import Launches
from shiplap.flows.schedule.foreign_nodes import learn_from_foreign_nodes
from shiplap.flows.schedule.launch import LEASE_S, LaunchOutcome, launch
from shiplap.flows.schedule.launch_trials import dry_run_launches
from shiplap.flows.schedule.reservation_starts import remind_of_starts
from shiplap.flows.schedule.resume import FROZEN, orphans, resume
from shiplap.flows.schedule.standalone_launches import delete_ended, delete_unplanned, not_begun, with_objects
from shiplap.flows.sweep.sweep import sweep
from shiplap.garbage_collection import garbage_collection_paused
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.instances.readiness.joins import JoinHistory, timeouts
from shiplap.kubernetes.names import has_no_object
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.ports import CLAIM_BYTES, DecisionState, Refusals, can_be_stored
from shiplap.scheduling.model.scheduling_plan import BufferState, Plan, Unschedulable, is_asleep
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.scheduling.planner import unreadable_pods
from shiplap.scheduling.supply.templates import may_launch_without_pods
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

MAX_ROUNDS = 12
"""Rounds of one invocation. Each one either launches, learns of unavailable offerings, or lost a race somebody won."""

LAUNCH_ALLOWANCE_S = 10.0
"""No launch begins with less time than this left, in seconds: it should end before the invocation does."""


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one invocation. `unfinished` names what is left for another try; empty when nothing is.

    `buffers` are the CapacityBuffers after its last plan, None if it made none.
    """

    launched: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unschedulable: int = 0
    rounds: int = 0
    unfinished: str = ""
    buffers: tuple[BufferState, ...] | None = None


def schedule(
    settings: ClusterSettings,
    hints: Sequence[PodsPending | Sweep],
    context: FlowContext,
    *,
    owner: str,
    deadline: float,
    manifest_state: ManifestState = AS_DEPLOYED,
    bound_pods: BoundPods | None = None,
) -> ScheduleReport:
    """Give every pending pod of a cluster a node.

    Args:
        settings: the cluster.
        hints: what called for this; only their times and whether a sweep is among them matter.
        context: the ports.
        owner: names this invocation; written into the claims it works on.
        deadline: epoch seconds at which this invocation ends at the latest.
        manifest_state: what was found out about the cluster's manifests.
        bound_pods: what the process knows of the cluster's pods.

    Raises:
        ClusterError: the cluster cannot be read; nothing was launched.
        StoreError, AwsError: the state or EC2 cannot be used; what was begun is resumed by a later invocation.
    """
    if settings.paused:
        context.meter.count("InvocationsPaused")
        _LOG.info("paused", extra={"cluster": settings.name})
        return ScheduleReport()
    attempt = Attempt(
        owner=owner,
        deadline=deadline,
        join_timeout_s=settings.join_timeout_s,
        strategies=_strategies(settings.manifests.node_pools),
    )
    first = min((hint for hint in hints if hint.time), key=lambda hint: hint.time, default=None)
    event_id = first.id if isinstance(first, PodsPending) else ""
    origin = ClaimOrigin(
        cluster=settings.name,
        owner=owner,
        at=0.0,
        lease_s=LEASE_S,
        first_event_at=first.time if first else 0.0,
        event_id=event_id or f"invocation/{owner}",
    )
    sweeping = any(isinstance(hint, Sweep) for hint in hints)
    bound_pods = bound_pods or BoundPods(settings.name, context)
    started = any(isinstance(hint, PodsPending) and hint.reason == RESERVATION_STARTED for hint in hints)
    run = _Run(settings, manifest_state, attempt, origin, context, bound_pods, sweeping=sweeping, fresh=started)
    # The pods are looked at from reading to launching; until they are gone again there is nothing to collect.
    with garbage_collection_paused():
        report = run.until_done(named=_named_pods(hints))
    if sweeping and not report.unfinished and not manifest_state.suspended:
        dry_run_launches(settings, context, deadline=deadline)
    return report


def _named_pods(hints: Sequence[PodsPending | Sweep]) -> frozenset[str]:
    """Uids of all pods that the hints are about; empty where any of them may be about more."""
    uids: set[str] = set()
    for hint in hints:
        if not isinstance(hint, PodsPending) or hint.reason != UNSCHEDULABLE or len(hint.pods) >= MOST_PODS:
            return frozenset()
        uids |= {pod.uid for pod in hint.pods} or {""}
    return frozenset() if "" in uids else frozenset(uids)


def _joining_pods(claims: Sequence[NodeClaim]) -> frozenset[str]:
    """Uids of pods whose instance runs and has not joined yet.

    kube-scheduler goes through thousands of pods for a minute and tells of each when its turn comes, long after all of
    them were planned for. To list them all again for every such hint would burden the API server with what it is short
    of. Nobody else's pods are on an instance that has not joined, so nothing that such a hint could tell would change
    its pods' place: whoever ends the claim says so with a hint of another reason. A Registered node is open: others may
    have its room, or taint it, and then kube-scheduler's hint is the first to say so.
    """
    joining = [claim for claim in claims if claim.state is ClaimState.LAUNCHED and not claim.missed]
    return frozenset(pod.uid for claim in joining for pod in claim.plan.pods)


class _InvocationSupply:
    """Looks up what can be bought when it is first needed, and keeps it for the invocation."""

    def __init__(
        self, settings: ClusterSettings, context: FlowContext, policies: ActivePolicies, *, fresh: bool
    ) -> None:
        self._settings = settings
        self._context = context
        self._policies = policies
        self._known: LaunchSupply | None = None
        self._others: set[str] = set()
        self._is_fresh = fresh
        self.join_timeouts: Mapping[str, float] = {}

    def add(self, node_classes: Collection[str]) -> None:
        """Look up these EC2NodeClasses as well, which no NodePool may use."""
        if not self._others.issuperset(node_classes):
            self._others |= set(node_classes)
            self._known = None

    def known(self) -> LaunchSupply:
        """The supply; answers that the process remembers will do. Raises StoreError, AwsThrottled."""
        if self._known is None:
            self._known = read_supply(
                self._settings,
                self._context,
                fresh=self._is_fresh,
                others=self._others,
                policies=self._policies,
            )
            self.join_timeouts = timeouts(self._known.joins, self._settings.join_timeout_s)
        return self._known

    def fresh(self) -> LaunchSupply:
        """The supply, with no answer from before this invocation. Raises as `known`."""
        if not self._is_fresh:
            self._known, self._is_fresh = None, True
        return self.known()

    def upcoming(self) -> list[CapacityReservation]:
        """The reservations that have not started, as far as anything was looked up: else nothing waits for them."""
        supplies = self._known.node_classes.values() if self._known is not None else ()
        return [held for item in supplies if item.resolved for held in item.resolved.upcoming_reservations]

    def exclude(self, node_class: str, reason: str) -> None:
        """Launch nothing more from an EC2NodeClass."""
        self._known = self.known().without(node_class, reason)


class _Results:
    """Collects the results of all rounds' launches. Pending claims are resumed later, and need no further round."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.unnamed: list[NodeClaim] = []
        self.failed: list[str] = []
        self.pending: set[str] = set()
        self.throttled = False

    def add(self, outcome: LaunchOutcome) -> None:
        """Add what became of one launch."""
        self.launched += (claim.name for claim in outcome.launched)
        self.unnamed += (claim for claim in outcome.launched if claim.launch.together > 1)
        self.failed += (claim.name for claim in outcome.failed)
        self.pending.update(claim.name for claim in outcome.pending)
        self.throttled |= outcome.throttled


class _LaunchLimits:
    """The limits that keep claims of one round's plan from being launched.

    `unschedulable` holds pods of claims that are left out, with the reason; `awaiting_join` counts claims that wait for
    a first node of their AMI to join; `unproven` names all that wait for a first node.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        context: FlowContext,
        priced: PricedSnapshot,
        inputs: DecisionInputs,
        joins: JoinHistory,
    ) -> None:
        self.unschedulable: tuple[Unschedulable, ...] = ()
        self.awaiting_join = 0
        self.unproven: set[str] = set()
        self._settings = settings
        self._context = context
        self._priced = priced
        self._sold = [instance_type for catalog in priced.snapshot.catalogs for instance_type in catalog.instance_types]
        self._amis = unproven.limits_of_amis(joins, self._sold, settings.unproven_nodes)
        self._unproven_pods: unproven.UnprovenPodLimit | None = None
        view, most = priced.snapshot.view, settings.unproven_pod_nodes
        if most and unproven.is_any_unproven(view, inputs.state):
            claims, now = context.state.claims(settings.name), context.clock.now()
            self._unproven_pods = unproven.unproven_pod_limit(most, view, claims, inputs.state, now)

    def rule_out_a_plan(self, *, sweeping: bool) -> bool:
        """True if nothing could be launched whatever the plan.

        The next sweep asks again: a burst is not planned once a second for nothing. A sweep plans in spite of the limit
        on unproven pods, and tells why each pod waits.
        """
        return self._must_wait_for_join() or (not sweeping and self._must_wait_for_a_pod_to_run())

    def _must_wait_for_join(self) -> bool:
        if not unproven.are_amis_full(self._sold, self._priced.snapshot.claims, self._amis):
            return False
        self._context.meter.count("PlansWithoutProof")
        about = {"cluster": self._settings.name, "amis": sorted(self._amis)}
        _LOG.info("nothing is planned until a first node has joined", extra=about)
        return True

    def _must_wait_for_a_pod_to_run(self) -> bool:
        limit = self._unproven_pods
        if limit is None or may_launch_without_pods(self._settings.manifests):
            return False
        snapshot, now = self._priced.snapshot, self._context.clock.now()
        if unproven.has_room_for(snapshot.view, snapshot.claims, limit, now):
            return False
        self._context.meter.count("PlansOfUnprovenPods")
        about = {"cluster": self._settings.name, "reason": limit.reason(now)}
        _LOG.info("nothing is planned until a node runs such a pod", extra=about)
        return True

    def committable(self, planned: Sequence[NodeClaim]) -> list[NodeClaim]:
        """The claims that can be stored and need not wait for a node to run a pod like theirs."""
        return self._of_proven_pods(self._storable(planned))

    def _storable(self, planned: Sequence[NodeClaim]) -> list[NodeClaim]:
        """The claims that can be stored. One that cannot, for its many pods, must not keep the others from it."""
        kept = [claim for claim in planned if can_be_stored(claim)]
        if len(kept) == len(planned):
            return kept
        large = [claim for claim in planned if claim not in kept]
        self._context.meter.count("ClaimsTooLarge", len(large))
        about = {"cluster": self._settings.name, "claims": [claim.name for claim in large]}
        _LOG.warning("%d claims are too large to be stored", len(large), extra=about)
        why = (
            f"its NodeClaim would be larger than the {CLAIM_BYTES} bytes that can be stored: limit maxPods of its pool"
        )
        self.unschedulable += tuple(Unschedulable(pod, why) for claim in large for pod in claim.plan.pods)
        return kept

    def _of_proven_pods(self, planned: list[NodeClaim]) -> list[NodeClaim]:
        limit = self._unproven_pods
        if limit is None:
            return planned
        marked = unproven.mark_unproven(planned, self._priced.snapshot.view, limit.proven)
        view, now = self._priced.snapshot.view, self._context.clock.now()
        kept, unschedulable = unproven.within_limit(marked, limit, view, now)
        if len(kept) < len(planned):
            self._context.meter.count("ClaimsOfUnprovenPods", len(planned) - len(kept))
            about = {"cluster": self._settings.name, "reason": unschedulable[0].message}
            _LOG.info("%d claims wait for a node to run a pod of theirs", len(planned) - len(kept), extra=about)
            self.unschedulable += unschedulable
            self.unproven |= {claim.name for claim in planned}.difference(claim.name for claim in kept)
        return kept

    def launchable(self, claims: Sequence[NodeClaim], market: OfferingMarket) -> list[Sequence[NodeClaim]]:
        """The claims that may be launched now, by launch. The others are planned again in the next round."""
        proven = self._of_proven_amis(launches(claims))
        kept = market.within_budget(proven, [self._priced.types_for(group[0]) for group in proven])
        held_back = sum(map(len, proven)) - sum(map(len, kept))
        if held_back:
            self._context.meter.count("ClaimsHeldBack", held_back)
            _LOG.info("%d claims held back by launch budgets", held_back, extra={"cluster": self._settings.name})
        return [group for group in kept if group]

    def _of_proven_amis(self, groups: Sequence[Sequence[NodeClaim]]) -> list[Sequence[NodeClaim]]:
        """Of each launch the claims that need not wait for a first node of their AMI to join."""
        in_flight = self._priced.snapshot.claims
        kept = unproven.within_ami_limits(groups, in_flight, self._amis, self._priced.types_for)
        self.awaiting_join = sum(map(len, groups)) - sum(map(len, kept))
        if self.awaiting_join:
            before, after = ({claim.name for group in some for claim in group} for some in (groups, kept))
            self.unproven |= before - after
            self._context.meter.count("ClaimsWithoutProof", self.awaiting_join)
            about = {"cluster": self._settings.name, "amis": sorted(self._amis)}
            _LOG.info("%d claims wait for a first node to join", self.awaiting_join, extra=about)
        return kept


class _Run:
    """The rounds of one invocation."""

    def __init__(
        self,
        settings: ClusterSettings,
        manifest_state: ManifestState,
        attempt: Attempt,
        origin: ClaimOrigin,
        context: FlowContext,
        bound_pods: BoundPods,
        *,
        sweeping: bool,
        fresh: bool,
    ) -> None:
        self._settings = settings
        self._manifest_state = manifest_state
        self._attempt = attempt
        self._origin = origin
        self._context = context
        self._is_sweep = sweeping
        self._policies = ActivePolicies.of(settings, context)
        self._supply = _InvocationSupply(settings, context, self._policies, fresh=fresh)
        self._bound_pods = bound_pods
        self._results = _Results()
        self._market = OfferingMarket(DecisionState(0))
        self._has_learned = False
        self._most_claims = sys.maxsize
        self._refused: Mapping[str, Refusals] = {}
        self._held_back: tuple[Unschedulable, ...] = ()
        self._unschedulable: tuple[Unschedulable, ...] = ()
        self._buffers: tuple[BufferState, ...] | None = None
        self._seen: ClusterView | None = None
        self._decision: Plan | None = None
        self._standalone: tuple[StandaloneClaim, ...] = ()

    def until_done(self, *, named: frozenset[str] = frozenset()) -> ScheduleReport:
        """Rounds; none at all when the instance of every pod that was `named`, by uid, is about to join."""
        for number in range(MAX_ROUNDS):
            if self._out_of_time():
                return self._report(number, "out of time")
            before = read_state(self._settings, self._context)
            if number == 0 and named and named <= _joining_pods(before[1].claims):
                return self._report(number, "")
            try:
                inputs = read_inputs(self._settings, self._context, self._bound_pods, before, policies=self._policies)
            except ClusterGone as error:
                self._context.meter.count("ClustersGone")
                _LOG.warning("cluster is gone: %s", error, extra={"cluster": self._settings.name})
                if self._is_sweep:  # what was launched for it must not outlive it
                    self._sweep(None)
                return self._report(number, "")
            self._seen, self._decision = inputs.view, None
            if self._is_sweep and number == 0:
                cluster_metrics.measure_pods(
                    self._settings.name, inputs.view, inputs.at, self._context.meter, self._settings.claim_rules
                )
                self._sweep(inputs)
            done = self._round(inputs)
            if self._results.throttled:
                return self._report(number + 1, "EC2 asked to slow down")
            if done:
                return self._report(number + 1, "launches are pending" if self._results.pending else "")
        return self._report(MAX_ROUNDS, f"not done after {MAX_ROUNDS} rounds")

    def _sweep(self, inputs: DecisionInputs | None) -> None:
        """Remind the lifecycle of what it may have missed; pods are planned for whether or not that works."""
        try:
            if inputs is None:
                sweep(self._settings, (), self._context, manifest_state=self._manifest_state)
                return
            look = cache(lambda: self._priced_snapshot(inputs, self._supply.known()))
            self._refused = sweep(
                self._settings,
                inputs.view.nodes,
                self._context,
                types_for=lambda claim: look().types_for(claim),
                inputs=inputs,
                policies=self._policies,
                manifest_state=self._manifest_state,
            )
        except ShiplapError as error:
            self._context.meter.count("SweepsIncomplete")
            _LOG.warning("sweep is incomplete: %s", error, extra={"cluster": self._settings.name})

    def _round(self, inputs: DecisionInputs) -> bool:
        """Resume what was begun, else plan and launch; whether nothing is left for another round."""
        if inputs.state.frozen_at:
            return self._end_what_was_begun(inputs)
        if self._manifest_state.suspended:
            reason = f"nothing is launched now: {self._manifest_state.suspended}"
            self._unschedulable = tuple(Unschedulable(PodReference.of(pod), reason) for pod in inputs.view.unbound)
            if self._manifest_state.suspended != NO_NODE_POOL:
                return True
            self._held_back = self._unschedulable
            inputs = msgspec.structs.replace(inputs, view=msgspec.structs.replace(inputs.view, pods=()))
        else:
            inputs = self._without_held_pods(inputs)
        orphaned = self._orphaned(inputs)
        self._supply.add({claim.plan.node_class for claim in inputs.state.claims if claim.is_standalone})
        if self._manifest_state.standalone_claims:
            self._find_standalone()
        if not orphaned and not self._standalone and not self._may_plan_pods(inputs):
            return True
        # Another invocation may have planned its claims on newer answers than those remembered here.
        supply = self._supply.fresh() if orphaned else self._supply.known()
        priced = self._priced(inputs, supply)
        self._market = OfferingMarket(inputs.state)
        if orphaned:  # their pods are accounted for only once it is known what became of them
            for claims in orphaned:
                self._resume(claims, priced)
            return False
        priced = PricedSnapshot(with_policies(priced.snapshot, inputs, supply, self._policies))
        limits = _LaunchLimits(self._settings, self._context, priced, inputs, supply.joins)
        return self._plan_and_launch(priced, limits, inputs)

    def _end_what_was_begun(self, inputs: DecisionInputs) -> bool:
        """Launches are frozen: adopt instances that were launched before, and launch nothing."""
        self._context.meter.count("InvocationsPaused")
        reason = f"nothing is launched now: {FROZEN}"
        self._unschedulable = tuple(Unschedulable(PodReference.of(pod), reason) for pod in inputs.view.unbound)
        orphaned = self._orphaned(inputs)
        if orphaned:
            self._supply.add({claims[0].plan.node_class for claims in orphaned})
            priced = self._priced(inputs, self._supply.fresh())
            self._attempt = msgspec.structs.replace(self._attempt, frozen=True)
            self._market = OfferingMarket(inputs.state)
            for claims in orphaned:
                self._resume(claims, priced)
        return not orphaned

    def _may_plan_pods(self, inputs: DecisionInputs) -> bool:
        return inputs.has_pending_pods or may_launch_without_pods(self._settings.manifests)

    def _find_standalone(self) -> None:
        """Look for NodeClaims of users that have no claim, and have their EC2NodeClasses looked up."""
        cluster, context = self._settings.name, self._context
        self._standalone, ended = not_begun(cluster, self._manifest_state.standalone_claims, context)
        delete_ended(cluster, ended, context)
        self._supply.add({item.node_class for item in self._standalone})

    def _without_held_pods(self, inputs: DecisionInputs) -> DecisionInputs:
        """The inputs without pods that nodes were launched for in vain."""
        store, now = self._context.state, self._context.clock.now()
        held = held_back_pods(inputs.view, inputs.state, partial(store.claims, self._settings.name), now, self._refused)
        self._held_back = held.unschedulable
        self._unschedulable = (*self._held_back, *unreadable_pods(held.view))
        return msgspec.structs.replace(inputs, view=held.view)

    def _orphaned(self, inputs: DecisionInputs) -> list[tuple[NodeClaim, ...]]:
        """Launches that this invocation may resume, without those that it has left pending itself."""
        orphaned = orphans(inputs.state.claims, self._attempt.owner, self._context.clock.now())
        pending = self._results.pending
        return [claims for claims in orphaned if not pending.issuperset(claim.name for claim in claims)]

    def _priced(self, inputs: DecisionInputs, supply: LaunchSupply) -> PricedSnapshot:
        """The snapshot to decide on; in the first round, foreign nodes teach their capacity first."""
        priced = self._priced_snapshot(inputs, supply)
        if self._has_learned:
            return priced
        self._has_learned = True
        catalogs = priced.snapshot.catalogs
        if not learn_from_foreign_nodes(self._settings.name, inputs.view.nodes, catalogs, self._context):
            return priced
        return self._priced_snapshot(inputs, supply)

    def _priced_snapshot(self, inputs: DecisionInputs, supply: LaunchSupply) -> PricedSnapshot:
        """Return the snapshot without policies: only plans need them, and launches that are resumed were planned."""
        inputs = msgspec.structs.replace(inputs, standalone_claims=self._standalone)
        return priced_snapshot(self._settings, inputs, supply, self._context)

    def _plan_and_launch(self, priced: PricedSnapshot, limits: _LaunchLimits, inputs: DecisionInputs) -> bool:
        """Plan, commit, launch and record; whether nothing is left to plan again."""
        if limits.rule_out_a_plan(sweeping=self._is_sweep):
            return True
        priced, decision = plan_without_moves_under_way(priced)
        self._buffers, self._decision = decision.buffers, decision
        self._unschedulable = (*decision.unschedulable, *self._held_back)
        if self._standalone:
            delete_unplanned(priced.snapshot, (claim.name for claim in decision.node_claims), self._context)
        if not decision.node_claims:
            return True
        now = self._context.clock.now()
        origin = msgspec.structs.replace(self._origin, at=now)
        made = records_of(decision.node_claims, origin, priced.snapshot)
        launches_now = Launches(decision.node_claims, made, priced.snapshot, inputs.state)
        records = self._policies.marked(launches_now).records
        planned = limits.committable(with_objects(records, self._standalone) if self._standalone else records)
        self._unschedulable += limits.unschedulable
        launchable = limits.launchable(self._first(planned), self._market)
        if sum(map(len, launchable)) < len(decision.node_claims):
            launchable = self._of_use(launchable, decision, priced, limits)
        groups = [with_token(claims, priced.snapshot.epoch, self._settings.install) for claims in launchable]
        committed = [claim for claims in groups for claim in claims]
        if not committed:
            return True  # the next sweep asks again: another round now would find the same
        if not self._commit(msgspec.structs.replace(launches_now, records=committed)):
            return False
        cluster_metrics.measure_waits(committed, priced.snapshot.view.pods, now, self._context.meter)
        try:
            finished = self._launch_all(groups, priced)
        except ShiplapError:
            self._record(priced, decision)
            raise
        self._record(priced, decision)  # no launch waits for it
        self._note_launched_room(decision)
        return finished and len(committed) + limits.awaiting_join == len(planned) and not decision.unsettled

    def _of_use(
        self,
        launchable: Sequence[Sequence[NodeClaim]],
        decision: Plan,
        priced: PricedSnapshot,
        limits: _LaunchLimits,
    ) -> list[Sequence[NodeClaim]]:
        """The launches without claims that are of no use, because others of the plan are not launched now."""
        left_out = {claim.name for claim in decision.node_claims}.difference(
            claim.name for claims in launchable for claim in claims
        )
        useless = self._policies.incomplete(decision, priced.snapshot, left_out, limits.unproven)
        if not useless:
            return list(launchable)
        self._context.meter.count("ClaimsHeldBack", len(useless))
        waiting = (claim for claim in decision.node_claims if claim.name in useless)
        self._unschedulable += tuple(Unschedulable(pod, useless[claim.name]) for claim in waiting for pod in claim.pods)
        kept = ([claim for claim in claims if claim.name not in useless] for claims in launchable)
        return [claims for claims in kept if claims]

    def _first(self, planned: Sequence[NodeClaim]) -> Sequence[NodeClaim]:
        """As many claims as are launched at once, domain by domain."""
        return planned if len(planned) <= self._most_claims else in_turns(planned)[: self._most_claims]

    def _note_launched_room(self, decision: Plan) -> None:
        """Once all that was planned is launched, buffers have their room, as the next plan would find."""
        if {claim.name for claim in decision.node_claims}.issubset(self._results.launched):
            self._buffers = tuple(
                msgspec.structs.replace(state, existing=state.existing + state.new, new=0) for state in decision.buffers
            )

    def _commit(self, launches_now: Launches) -> bool:
        """Write the claims through the epoch; False if another function decided meanwhile."""
        if not self._policies.may_commit(launches_now):
            return False
        epoch, counted = launches_now.snapshot.epoch, self._policies.counted(launches_now)
        try:
            self._context.state.commit(self._settings.name, epoch, launches_now.records, counted=counted)
        except EpochMoved as moved:
            self._context.meter.count("EpochsMoved")
            _LOG.info("somebody decided first: %s", moved, extra={"cluster": self._settings.name})
            return False
        return True

    def _launch_all(self, groups: Sequence[Sequence[NodeClaim]], priced: PricedSnapshot) -> bool:
        """Launch each group, whatever becomes of the others; whether there is nothing of them to plan again.

        A round that got nothing shows how little there is to get: the next one asks for half as much.
        """
        before = len(self._results.launched)
        finished_each = [self._launch(claims, priced) for claims in groups]
        finished = all(finished_each)
        fruitless = len(self._results.launched) == before and not finished
        self._most_claims = max(sum(map(len, groups)) // 2, 1) if fruitless else sys.maxsize
        return finished

    def _launch(self, claims: Sequence[NodeClaim], priced: PricedSnapshot) -> bool:
        """Launch claims of one token; whether there is nothing of them to plan again."""
        if self._results.throttled or self._out_of_time():
            self._results.pending.update(claim.name for claim in claims)  # resumed once their lease is over
            return True
        # The supply is looked up anew each time: an earlier launch may have shown that a NodeClass is broken.
        node_class = self._supply.known().node_classes[claims[0].plan.node_class]
        types, attempt = priced.types_for(claims[0]), self._timed_attempt()
        outcome = launch(claims, node_class, types, attempt, self._market, self._context)
        self._add(claims, outcome)
        return len(outcome.launched) + len(outcome.pending) == len(claims)

    def _resume(self, claims: Sequence[NodeClaim], priced: PricedSnapshot) -> None:
        if self._results.throttled or self._out_of_time():
            return
        supply = self._supply.known()
        node_class = supply.node_classes.get(claims[0].plan.node_class)
        types, attempt = priced.types_in_all_zones(claims[0], supply.catalog), self._timed_attempt()
        self._add(claims, resume(claims, node_class, types, attempt, self._market, self._context))

    def _add(self, claims: Sequence[NodeClaim], outcome: LaunchOutcome) -> None:
        self._results.add(outcome)
        if outcome.broken:
            self._supply.exclude(claims[0].plan.node_class, outcome.broken)

    def _timed_attempt(self) -> Attempt:
        return msgspec.structs.replace(self._attempt, join_timeouts=self._supply.join_timeouts)

    def _out_of_time(self) -> bool:
        return self._context.clock.now() + LAUNCH_ALLOWANCE_S > self._attempt.deadline

    def _record(self, priced: PricedSnapshot, decision: Plan) -> None:
        """Keep the decision for replay; it holds whether or not it can be kept."""
        facts = {
            "cluster": self._settings.name,
            "claims": [claim.name for claim in decision.node_claims],
            "event_id": self._origin.event_id,
        }
        try:
            record_id = self._context.within(RECORDS, self._context.recorder).record(priced.snapshot, decision)
        except ShiplapError as error:
            self._context.meter.count("DecisionsNotRecorded")
            _LOG.warning("decision not recorded: %s", error, extra=facts)
            return
        _LOG.info("decided", extra={**facts, "record_id": record_id})

    def _report(self, rounds: int, unfinished: str) -> ScheduleReport:
        self._unschedulable = tuple(entry for entry in self._unschedulable if not has_no_object(entry.pod.name))
        asleep = sum(map(is_asleep, self._unschedulable))
        report = ScheduleReport(
            launched=tuple(self._results.launched),
            failed=tuple(self._results.failed),
            unschedulable=len(self._unschedulable) - asleep,
            rounds=rounds,
            unfinished=unfinished,
            buffers=self._buffers,
        )
        if self._results.failed and not self._results.launched:
            self._context.meter.count("LaunchesFruitless")
        if report.unschedulable:
            self._context.meter.count("PodsUnschedulable", report.unschedulable)
        if asleep:
            of = cluster_metrics.of_cluster(self._settings.name)
            self._context.meter.count("PodsAsleep", asleep, dimensions=of)
        busy = self._results.launched or self._results.failed or self._unschedulable or unfinished
        _LOG.log(
            logging.INFO if busy else logging.DEBUG,
            "scheduled",
            extra={"cluster": self._settings.name, "report": _logged(report)},
        )
        # Here and below, so that no launch waits for it.
        name_instances(self._results.unnamed, self._settings, self._context)
        if self._unschedulable:
            publish_unschedulable(self._settings.name, self._unschedulable, self._context)
        if self._seen is not None:
            self._policies.answer(self._seen, self._decision, self._context.clock.now())
        if self._is_sweep:
            remind_of_starts(self._settings.name, self._supply.upcoming(), self._context)
        return report


def _logged(report: ScheduleReport) -> dict[str, Any]:
    """The report for the log, without the buffers: their statuses show them."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    del fields["buffers"]
    return fields


def _strategies(pools: Sequence[NodePool]) -> dict[str, str]:
    """The allocation strategies that NodePools have of their own."""
    key = shiplap_annotations.ALLOCATION_STRATEGY
    return {pool.metadata.name: pool.metadata.annotations[key] for pool in pools if key in pool.metadata.annotations}
