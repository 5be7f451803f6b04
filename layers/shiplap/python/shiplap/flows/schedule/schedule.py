"""The schedule flow: hints that pods are pending in, instances out, in one invocation per cluster.

A round looks at everything afresh, plans, commits and launches. What could not be launched is planned again in the
next round, on what is still available, until nothing is left to launch or the invocation runs out of rounds or time.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from shiplap.errors import ClusterGone, EpochMoved, ShiplapError
from shiplap.flows import cluster_metrics
from shiplap.flows.assign_instances import Attempt, name_instances
from shiplap.flows.context import FlowContext
from shiplap.flows.messages import MOST_PODS, UNSCHEDULABLE, PodsPending, Sweep
from shiplap.flows.planning import unproven_pods
from shiplap.flows.planning.commitment import ClaimOrigin, records_of, spec_hashes, with_token
from shiplap.flows.planning.decision_inputs import (
    BoundPods,
    DecisionInputs,
    LaunchSupply,
    PricedSnapshot,
    priced_snapshot,
    read_inputs,
    read_state,
    read_supply,
)
from shiplap.flows.planning.fleet_offerings import launches
from shiplap.flows.planning.futile_launches import hold_back, may_be_held
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.pod_events import publish_unschedulable
from shiplap.flows.schedule import unproven_amis
from shiplap.flows.schedule.foreign_nodes import learn_from_foreign_nodes
from shiplap.flows.schedule.launch import LEASE_S, LaunchOutcome, launch
from shiplap.flows.schedule.launch_trials import dry_run_launches
from shiplap.flows.schedule.resume import orphans, resume
from shiplap.flows.sweep.sweep import sweep
from shiplap.instances.readiness.joins import timeouts
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import CLAIM_BYTES, DecisionState, Refusals, can_be_stored
from shiplap.scheduling.model.scheduling_plan import Plan, Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.scheduling.planner import plan, unreadable_pods
from shiplap.scheduling.supply.templates import wants_nodes_anyway
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

MAX_ROUNDS = 12
"""Rounds of one invocation. Each one either launches, learns of unavailable offerings, or lost a race somebody won."""

LAUNCH_ALLOWANCE_S = 10.0
"""No launch begins with less time than this left, in seconds: it should end before the invocation does."""


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one invocation did. `unfinished` says what is left for another try; empty when nothing is."""

    launched: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unschedulable: int = 0
    rounds: int = 0
    unfinished: str = ""


def schedule(
    settings: ClusterSettings,
    hints: Sequence[PodsPending | Sweep],
    context: FlowContext,
    *,
    owner: str,
    deadline: float,
) -> ScheduleReport:
    """Give every pending pod of a cluster a node.

    Args:
        settings: the cluster.
        hints: what called for this; only their times and whether a sweep is among them matter.
        context: the ports.
        owner: names this invocation; written into the claims it works on.
        deadline: epoch seconds at which this invocation ends at the latest.

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
    run = _Run(settings, attempt, first.time if first else 0.0, event_id or f"invocation/{owner}", context)
    sweeping = any(isinstance(hint, Sweep) for hint in hints)
    report = run.until_done(sweeping=sweeping, named=_named(hints))
    if sweeping and not report.unfinished:
        dry_run_launches(settings, context, deadline=deadline)
    return report


def _named(hints: Sequence[PodsPending | Sweep]) -> frozenset[str]:
    """Uids of all pods that the hints are about; empty where any of them may be about more."""
    uids: set[str] = set()
    for hint in hints:
        if not isinstance(hint, PodsPending) or hint.reason != UNSCHEDULABLE or len(hint.pods) >= MOST_PODS:
            return frozenset()
        uids |= {pod.uid for pod in hint.pods} or {""}
    return frozenset() if "" in uids else frozenset(uids)


def _served(claims: Sequence[NodeClaim]) -> frozenset[str]:
    """Uids of pods whose instance runs and has not joined yet.

    kube-scheduler goes through thousands of pods for a minute and tells of each when its turn comes, long after all of
    them were planned for. To list them all again for every such hint would burden the API server with what it is short
    of. Nobody else's pods are on an instance that has not joined, so nothing that such a hint could tell would change
    its pods' place: whoever ends the claim says so with a hint of another reason. A Registered node is open: others may
    have its room, or taint it, and then kube-scheduler's hint is the first to say so.
    """
    joining = [claim for claim in claims if claim.state is ClaimState.LAUNCHED and not claim.missed]
    return frozenset(pod.uid for claim in joining for pod in claim.pods)


class _Run:
    """The rounds of one invocation and what they have come to so far."""

    def __init__(
        self, settings: ClusterSettings, attempt: Attempt, first_event_at: float, event_id: str, context: FlowContext
    ) -> None:
        self._settings = settings
        self._supply: LaunchSupply | None = None
        self._is_fresh = False
        self._has_learned = False
        self._attempt = attempt
        self._first_event_at = first_event_at
        self._event_id = event_id
        self._context = context
        self._launched: list[str] = []
        self._unnamed: list[NodeClaim] = []
        self._failed: list[str] = []
        self._pending: set[str] = set()
        self._throttled = False
        self._market = OfferingMarket(DecisionState(0))
        self._most = sys.maxsize
        self._unschedulable: tuple[Unschedulable, ...] = ()
        self._refused: Mapping[str, Refusals] = {}
        self._set_aside: tuple[Unschedulable, ...] = ()
        self._without_proof = 0
        self._is_sweep = False
        self._state = DecisionState(0)
        self._standing = BoundPods(settings.name, context)

    def until_done(self, *, sweeping: bool, named: frozenset[str] = frozenset()) -> ScheduleReport:
        """Rounds; none at all when the instance of every pod that was `named`, by uid, is about to join."""
        self._is_sweep = sweeping
        for number in range(MAX_ROUNDS):
            if self._out_of_time():
                return self._report(number, "out of time")
            before = read_state(self._settings, self._context)
            if number == 0 and named and named <= _served(before[1].claims):
                return self._report(number, "")
            try:
                inputs = read_inputs(self._settings, self._context, self._standing, before)
            except ClusterGone as error:
                self._context.meter.count("ClustersGone")
                _LOG.warning("cluster is gone: %s", error, extra={"cluster": self._settings.name})
                if sweeping:  # what was launched for it must not outlive it
                    self._sweep(None)
                return self._report(number, "")
            if sweeping and number == 0:
                cluster_metrics.measure_pods(
                    self._settings.name, inputs.view, inputs.at, self._context.meter, self._settings.claim_rules
                )
                self._sweep(inputs)
            done = self._round(inputs)
            if self._throttled:
                return self._report(number + 1, "EC2 asked to slow down")
            if done:
                return self._report(number + 1, "launches are pending" if self._pending else "")
        return self._report(MAX_ROUNDS, f"not done after {MAX_ROUNDS} rounds")

    def _sweep(self, inputs: DecisionInputs | None) -> None:
        """Remind the lifecycle of what it may have missed; pods are planned for whether or not that works."""
        try:
            if inputs is None:
                sweep(self._settings, (), self._context)
                return
            look = cache(lambda: priced_snapshot(self._settings, inputs, self._known_supply(), self._context))
            self._refused = sweep(
                self._settings,
                inputs.view.nodes,
                self._context,
                types_for=lambda claim: look().types_for(claim),
                inputs=inputs,
            )
        except ShiplapError as error:
            self._context.meter.count("SweepsIncomplete")
            _LOG.warning("sweep is incomplete: %s", error, extra={"cluster": self._settings.name})

    def _round(self, inputs: DecisionInputs) -> bool:
        """Finish what was begun, else plan; whether nothing is left for another round."""
        view, self._set_aside = self._held_back(inputs)
        inputs = msgspec.structs.replace(inputs, view=view)
        self._unschedulable = (*self._set_aside, *unreadable_pods(view))
        waiting = orphans(inputs.state.claims, self._attempt.owner, self._context.clock.now())
        waiting = [claims for claims in waiting if not self._pending.issuperset(claim.name for claim in claims)]
        if not waiting and not inputs.has_pending_pods and not wants_nodes_anyway(self._settings.manifests):
            return True
        # What others have planned they may have planned because of newer answers than those remembered here.
        supply = self._fresh_supply() if waiting else self._known_supply()
        priced = priced_snapshot(self._settings, inputs, supply, self._context)
        if not self._has_learned:
            self._has_learned = True
            if learn_from_foreign_nodes(
                self._settings.name, inputs.view.nodes, priced.snapshot.catalogs, self._context
            ):
                priced = priced_snapshot(self._settings, inputs, supply, self._context)
        self._market, self._state = OfferingMarket(inputs.state), inputs.state
        if waiting:  # their pods are accounted for only once it is known what became of them
            for claims in waiting:
                self._carry_on(claims, priced, self._known_supply())
            return False
        return self._decide(priced)

    def _held_back(self, inputs: DecisionInputs) -> tuple[ClusterView, tuple[Unschedulable, ...]]:
        """The view without pods that nodes were launched for in vain, and what their users are told."""
        known = {**inputs.state.refused, **self._refused}
        if not may_be_held(inputs.view, known, inputs.state.futile):
            return inputs.view, ()
        claims = self._context.state.claims(self._settings.name)
        held = hold_back(inputs.view, claims, known, inputs.state.futile, self._context.clock.now())
        return held.view, held.told

    def _fresh_supply(self) -> LaunchSupply:
        """What can be bought, with no answer from before this invocation."""
        if not self._is_fresh:
            self._supply, self._is_fresh = None, True
        return self._known_supply()

    def _known_supply(self) -> LaunchSupply:
        """What can be bought, looked up when it is first needed."""
        if self._supply is None:
            self._supply = read_supply(self._settings, self._context, fresh=self._is_fresh)
            learned = timeouts(self._supply.joins, self._settings.join_timeout_s)
            self._attempt = msgspec.structs.replace(self._attempt, join_timeouts=learned)
        return self._supply

    def _out_of_time(self) -> bool:
        return self._context.clock.now() + LAUNCH_ALLOWANCE_S > self._attempt.deadline

    def _carry_on(self, claims: Sequence[NodeClaim], priced: PricedSnapshot, supply: LaunchSupply) -> None:
        if self._throttled or self._out_of_time():
            return
        node_class = supply.node_classes.get(claims[0].node_class)
        types = priced.types_for(claims[0])
        self._note(claims, resume(claims, node_class, types, self._attempt, self._market, self._context))

    def _decide(self, priced: PricedSnapshot) -> bool:
        """Plan, commit and launch; whether nothing is left to plan again."""
        bound = self._bound(priced)
        if self._must_wait_for_proof(priced) or self._must_wait_for_a_pod_to_run(priced, bound):
            return True  # the next sweep asks again: a burst is not planned once a second for nothing
        decision = plan(priced.snapshot)
        self._unschedulable = (*decision.unschedulable, *self._set_aside)
        if not decision.node_claims:
            return True
        now = self._context.clock.now()
        origin = ClaimOrigin(
            cluster=self._settings.name,
            owner=self._attempt.owner,
            at=now,
            lease_s=LEASE_S,
            first_event_at=self._first_event_at,
            event_id=self._event_id,
            spec_hashes=spec_hashes(priced.snapshot),
        )
        planned = self._bounded(self._small_enough(records_of(decision.node_claims, origin)), priced, bound)
        groups = [
            with_token(claims, priced.snapshot.epoch, self._settings.install)
            for claims in self._affordable(planned, priced)
        ]
        try:
            committed = [claim for claims in groups for claim in claims]
            if not committed and len(planned) == self._without_proof:
                return True  # the next sweep asks again: by then a node may have joined
            self._context.state.commit(self._settings.name, priced.snapshot.epoch, committed)
        except EpochMoved as moved:
            self._context.meter.count("EpochsMoved")
            _LOG.info("somebody decided first: %s", moved, extra={"cluster": self._settings.name})
            return False
        self._record(priced, decision)
        cluster_metrics.measure_waits(committed, priced.snapshot.view.pods, now, self._context.meter)
        before = len(self._launched)
        finished = [self._launch(claims, priced) for claims in groups]  # each is tried, whatever becomes of the others
        # A round that got nothing shows how little there is to get: the next one asks for half as much.
        fruitless = len(self._launched) == before and not all(finished)
        self._most = max(len(committed) // 2, 1) if fruitless else sys.maxsize
        return all(finished) and len(committed) + self._without_proof == len(planned) and not decision.unsettled

    def _affordable(self, planned: Sequence[NodeClaim], priced: PricedSnapshot) -> list[Sequence[NodeClaim]]:
        """The claims of a plan that may be launched now, by launch. The others are planned again in the next round."""
        groups = launches(planned[: self._most])
        proven = self._with_proof(groups, priced)
        kept = self._market.within_budget(proven, [priced.types_for(claims[0]) for claims in proven])
        held_back = sum(map(len, proven)) - sum(map(len, kept))
        if held_back:
            self._context.meter.count("ClaimsHeldBack", held_back)
            _LOG.info("%d claims held back by launch budgets", held_back, extra={"cluster": self._settings.name})
        return [claims for claims in kept if claims]

    def _small_enough(self, planned: Sequence[NodeClaim]) -> list[NodeClaim]:
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
        self._unschedulable += tuple(Unschedulable(pod, why) for claim in large for pod in claim.pods)
        return kept

    def _bound(self, priced: PricedSnapshot) -> unproven_pods.UnprovenPodLimit | None:
        """What is left of the bound on nodes for pods of which no node has run any; None where there is none."""
        most = self._settings.unproven_pod_nodes
        if not most:
            return None
        claims = self._context.state.claims(self._settings.name)
        return unproven_pods.unproven_pod_limit(
            most, priced.snapshot.view, claims, self._state, self._context.clock.now()
        )

    def _must_wait_for_a_pod_to_run(self, priced: PricedSnapshot, bound: unproven_pods.UnprovenPodLimit | None) -> bool:
        """Whether a hint is about pods that would wait again; sweeps plan all the same, and tell why each one waits."""
        if bound is None or self._is_sweep or wants_nodes_anyway(self._settings.manifests):
            return False
        view, now = priced.snapshot.view, self._context.clock.now()
        if unproven_pods.has_room_for(view, priced.snapshot.claims, bound, now):
            return False
        self._context.meter.count("PlansOfUnprovenPods")
        about = {"cluster": self._settings.name, "reason": bound.reason(now)}
        _LOG.info("nothing is planned until a node runs such a pod", extra=about)
        return True

    def _bounded(
        self, planned: list[NodeClaim], priced: PricedSnapshot, bound: unproven_pods.UnprovenPodLimit | None
    ) -> list[NodeClaim]:
        """The claims that need not wait for a node to run a pod like theirs."""
        if bound is None:
            return planned
        named = unproven_pods.mark_unproven(planned, priced.snapshot.view, bound.proven)
        kept, told = unproven_pods.within_limit(named, bound, self._context.clock.now())
        if len(kept) < len(planned):
            self._context.meter.count("ClaimsOfUnprovenPods", len(planned) - len(kept))
            about = {"cluster": self._settings.name, "reason": told[0].message}
            _LOG.info("%d claims wait for a node to run a pod of theirs", len(planned) - len(kept), extra=about)
            self._unschedulable += told
        return kept

    def _must_wait_for_proof(self, priced: PricedSnapshot) -> bool:
        """Whether nothing could be launched whatever the plan."""
        sold = [item for catalog in priced.snapshot.catalogs for item in catalog.instance_types]
        limits = unproven_amis.limits_of_amis(self._known_supply().joins, sold, self._settings.unproven_nodes)
        if not unproven_amis.is_full(sold, priced.snapshot.claims, limits):
            return False
        self._context.meter.count("PlansWithoutProof")
        about = {"cluster": self._settings.name, "amis": sorted(limits)}
        _LOG.info("nothing is planned until a first node has joined", extra=about)
        return True

    def _with_proof(self, groups: Sequence[Sequence[NodeClaim]], priced: PricedSnapshot) -> list[Sequence[NodeClaim]]:
        """Of each launch the claims that need not wait for a first node of their AMI to join."""
        sold = (item for catalog in priced.snapshot.catalogs for item in catalog.instance_types)
        limits = unproven_amis.limits_of_amis(self._known_supply().joins, sold, self._settings.unproven_nodes)
        kept = unproven_amis.within_limits(groups, priced.snapshot.claims, limits, priced.types_for)
        self._without_proof = sum(map(len, groups)) - sum(map(len, kept))
        if self._without_proof:
            self._context.meter.count("ClaimsWithoutProof", self._without_proof)
            about = {"cluster": self._settings.name, "amis": sorted(limits)}
            _LOG.info("%d claims wait for a first node to join", self._without_proof, extra=about)
        return kept

    def _launch(self, claims: Sequence[NodeClaim], priced: PricedSnapshot) -> bool:
        """Launch claims of one token; whether there is nothing of them to plan again."""
        # The supply is looked up anew each time: an earlier launch may have shown that a NodeClass is broken.
        if self._supply is None or self._throttled or self._out_of_time():
            self._pending.update(claim.name for claim in claims)  # Planned, they are resumed once their lease is over
            return True
        node_class = self._supply.node_classes[claims[0].node_class]
        types = priced.types_for(claims[0])
        return self._note(claims, launch(claims, node_class, types, self._attempt, self._market, self._context))

    def _note(self, claims: Sequence[NodeClaim], outcome: LaunchOutcome) -> bool:
        self._launched += (claim.name for claim in outcome.launched)
        self._unnamed += (claim for claim in outcome.launched if claim.together > 1)
        self._failed += (claim.name for claim in outcome.failed)
        self._pending.update(claim.name for claim in outcome.pending)
        if outcome.broken and self._supply is not None:
            self._supply = self._supply.without(claims[0].node_class, outcome.broken)
        self._throttled |= outcome.throttled
        return len(outcome.launched) + len(outcome.pending) == len(claims)

    def _record(self, priced: PricedSnapshot, decision: Plan) -> None:
        """Keep the decision for replay; it holds whether or not it can be kept."""
        facts = {
            "cluster": self._settings.name,
            "claims": [claim.name for claim in decision.node_claims],
            "event_id": self._event_id,
        }
        try:
            record_id = self._context.recorder.record(priced.snapshot, decision)
        except ShiplapError as error:
            self._context.meter.count("DecisionsNotRecorded")
            _LOG.warning("decision not recorded: %s", error, extra=facts)
            return
        _LOG.info("decided", extra={**facts, "record_id": record_id})

    def _report(self, rounds: int, unfinished: str) -> ScheduleReport:
        report = ScheduleReport(
            launched=tuple(self._launched),
            failed=tuple(self._failed),
            unschedulable=len(self._unschedulable),
            rounds=rounds,
            unfinished=unfinished,
        )
        if self._failed and not self._launched:
            self._context.meter.count("LaunchesFruitless")
        if self._unschedulable:
            self._context.meter.count("PodsUnschedulable", report.unschedulable)
        busy = self._launched or self._failed or self._unschedulable or unfinished
        _LOG.log(
            logging.INFO if busy else logging.DEBUG,
            "scheduled",
            extra={"cluster": self._settings.name, "report": msgspec.to_builtins(report)},
        )
        name_instances(self._unnamed, self._context)  # here and below, so that no launch waits for it
        if self._unschedulable:
            publish_unschedulable(self._settings.name, self._unschedulable, self._context)
        return report


def _strategies(pools: Sequence[NodePool]) -> dict[str, str]:
    """The allocation strategies that NodePools have of their own."""
    key = shiplap_annotations.ALLOCATION_STRATEGY
    return {pool.metadata.name: pool.metadata.annotations[key] for pool in pools if key in pool.metadata.annotations}
