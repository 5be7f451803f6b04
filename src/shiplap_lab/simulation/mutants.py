"""Planted defects that a campaign must find. Each is a mistake that a developer could make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.disruption import decide
from shiplap.disruption.budgets import UNLIMITED, Allowance
from shiplap.errors import InvalidInput
from shiplap.flows import assign_instances, batch, claim_events, cluster_metrics, live_settings
from shiplap.flows.claim_updates import InstanceOwners
from shiplap.flows.context import FlowContext
from shiplap.flows.disrupt import disruption_round
from shiplap.flows.lifecycle import drain, lifecycle, registration
from shiplap.flows.planning import decision_inputs
from shiplap.flows.schedule import launch, resume, schedule
from shiplap.flows.sweep import sweep
from shiplap.instances.capacity.learned_capacity import with_observation
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import BusEvent, FleetRequest
from shiplap.scheduling.supply.limits import PoolLimits
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.stores import FakeCapacity
from shiplap_lab.policies.policy_plays import planted_in_policies
from shiplap_lab.virtual_time.checked_fakes import CheckedCompute, CheckedState

Patch = tuple[Any, str, Any]


def _acknowledges_first() -> list[Patch]:
    """Messages are deleted although their flow did not finish, and there is no sweep."""
    return [(batch, "_error_of", _serves_whatever(batch._error_of)), (schedule, "sweep", lambda *_, **__: {})]


def _serves_whatever(serve: Callable[..., Exception | None]) -> Callable[..., None]:
    def act(*arguments: Any) -> None:
        serve(*arguments)

    return act


def _drops_the_token() -> list[Patch]:
    """Each CreateFleet has a token of its own: a repeated request launches again."""
    launched = CheckedCompute.launch
    number = iter(range(10**9))

    def act(self: CheckedCompute, request: FleetRequest) -> Any:
        token = hashlib.sha256(f"{request.token}{next(number)}".encode()).hexdigest()[:32]
        return launched(self, replace(request, token=token))

    return [(CheckedCompute, "launch", act)]


def _skips_the_epoch() -> list[Patch]:
    """A decision is committed even if another was committed meanwhile."""
    commit = CheckedState._commit_group

    def act(self: CheckedState, cluster: str, epoch: int, items: Sequence[Any], counted: Any) -> None:  # noqa: ARG001 - that is it
        commit(self, cluster, self._epochs.get(cluster, 0), items, counted)

    return [(CheckedState, "_commit_group", act)]


def _forgets_conditions() -> list[Patch]:
    """Claims are written without regard to the version that was read."""
    advance, advance_all = CheckedState.advance, CheckedState.advance_all

    def unread(self: CheckedState, claim: NodeClaim) -> NodeClaim:
        known = self.written.get((claim.cluster, claim.name))
        return replace(claim, version=known.version if known else 0)

    def one(self: CheckedState, claim: NodeClaim, to: ClaimState, **changes: Any) -> NodeClaim:
        return advance(self, unread(self, claim), to, **changes)

    def several(self: CheckedState, moves: Any) -> Any:
        return advance_all(self, [replace(move, claim=unread(self, move.claim)) for move in moves])

    return [(CheckedState, "advance", one), (CheckedState, "advance_all", several)]


def _never_resumes() -> list[Patch]:
    """Launches of an invocation that died are not resumed."""
    return [(schedule, "orphans", lambda *_: [])]


def _resumes_at_once() -> list[Patch]:
    """Claims are taken over while their owner still works on them, and without looking for their instances."""

    def act(claims: Sequence[NodeClaim], supply: Any, types: Any, attempt: Any, market: Any, context: Any) -> Any:
        others = [replace(claim, launch=replace(claim.launch, token=f"{claim.launch.token[:-1]}x")) for claim in claims]
        return launch.launch(others, supply, types, attempt, market, context)

    return [(schedule, "resume", act)]


def _forgets_garbage() -> list[Patch]:
    """Instances without a claim are never terminated."""
    return [(InstanceOwners, "is_garbage", lambda *_: False)]


def _garbage_too_soon() -> list[Patch]:
    """An instance without a claim is ended although a claim waits for it."""

    def act(self: InstanceOwners, instance: Any, now: float) -> bool:  # noqa: ARG001 - that is it
        return self.of(instance) is None

    return [(InstanceOwners, "is_garbage", act)]


def _never_gives_up() -> list[Patch]:
    """A node that does not join is waited for without end."""
    return [(lifecycle._Visits, "_wait_for_node", lambda *_, **__: None)]


def _forgets_the_vanished() -> list[Patch]:
    """The end of an instance is not noticed unless an event reports it."""
    never = lambda *_: False  # noqa: E731
    return [
        (lifecycle, "has_vanished", never),
        (drain, "has_vanished", never),
        (sweep, "_overdue", lambda *_: ""),
        (lifecycle._Visits, "_without_node", lambda *_: None),
    ]


def _terminates_before_writing() -> list[Patch]:
    """The instance is ended first, and the claim is written afterwards."""

    def act(claim: NodeClaim, reason: str, context: Any) -> NodeClaim:
        context.compute.terminate(claim.cluster, claim.instance_id)
        ending: NodeClaim = context.state.advance(
            claim, ClaimState.TERMINATING, failure=reason, changed_at=context.clock.now()
        )
        return ending

    return [(lifecycle, "give_up", act), (drain, "give_up", act)]


def _does_not_learn() -> list[Patch]:
    """Observed capacity of nodes is not stored."""
    return [(FakeCapacity, "observe", lambda _, observation: with_observation(None, observation))]


def _forgets_pilots() -> list[Patch]:
    """Any number of claims may explore the same estimate."""
    nobody: Callable[..., frozenset[str]] = lambda *_: frozenset()  # noqa: E731
    return [
        (FakeCapacity, "acquire_pilot", lambda *_: True),
        (FakeCapacity, "pilots", nobody),
        (decision_inputs, "exploring", nobody),
    ]


def _forgets_missed_pods() -> list[Patch]:
    """Pods whose node was too small are planned like any others."""
    read = decision_inputs.read_inputs

    def act(*arguments: Any, **named: Any) -> Any:
        return replace(read(*arguments, **named), missed_pods=frozenset())

    unmarked: Callable[..., None] = lambda *_: None  # noqa: E731
    return [
        (schedule, "read_inputs", act),
        (disruption_round, "read_inputs", act),
        (CheckedState, "mark_missed", unmarked),
    ]


def _ends_before_empty() -> list[Patch]:
    """The instance is ended although pods are left on it."""
    return [(drain, "must_leave", lambda *_: False)]


def _ignores_do_not_disrupt() -> list[Patch]:
    """Pods that must not be disrupted are evicted like any others."""
    return [(drain, "do_not_disrupt", lambda *_: False)]


def _deletes_instead() -> list[Patch]:
    """Pods are deleted where they should be asked to leave."""

    def act(pod: Any, claim: NodeClaim, now: float, context: Any) -> None:  # noqa: ARG001 - that is it
        context.cluster.delete_pod(pod, 30)

    return [(drain, "evict_pod", act)]


def _forgets_what_is_sold_out() -> list[Patch]:
    """Offerings that EC2 refused are requested again at once."""
    return [(CheckedState, "mark_unavailable", lambda *_: ())]


def _wrong_price() -> list[Patch]:
    """Claims are booked with the price of another offering."""
    return [(assign_instances, "price_of_instance", lambda *_: 0.01)]


def _stale_state() -> list[Patch]:
    """Decisions are made on the claims as they were a decision ago, with the epoch of now."""
    read = CheckedState.read
    kept: dict[str, Any] = {}

    def act(self: CheckedState, cluster: str, now: float) -> Any:
        fresh = read(self, cluster, now)
        old, kept[cluster] = kept.get(cluster, fresh), fresh
        return replace(fresh, claims=old.claims)

    return [(CheckedState, "read", act)]


def _leaves_taints() -> list[Patch]:
    """Nodes are initialized but keep the taint that cordons them."""
    return [(registration, "open_to_pods", lambda _, node, __: node)]


def _adopts_nothing() -> list[Patch]:
    """A resumed launch does not adopt the instances that exist."""
    return [(resume, "_resume", lambda claims, *_: launch.LaunchOutcome(pending=tuple(claims)))]


def _charges_nothing() -> list[Patch]:
    """Running and launched nodes do not count towards the limits of their NodePool."""
    return [(PoolLimits, "charge", lambda *_: None)]


def _ignores_budgets() -> list[Patch]:
    """Any number of nodes may be disrupted at once."""
    return [(decide, "allowance", lambda *_: Allowance(UNLIMITED))]


def _knows_no_install() -> list[Patch]:
    """Instances with the cluster's tags are taken for our own, even if another install launched them."""
    return [(FakeCompute, "_is_foreign", lambda _, __: False)]


class Mutant(msgspec.Struct, frozen=True):
    """A defect: what makes its patches, and the scenarios that are played to find it."""

    patches: Callable[[], list[Patch]]
    scenarios: tuple[str, ...] = ("mixed", "races")


def _tells_of_no_instance() -> list[Patch]:
    """Events of a claim leave out its instance."""
    told = claim_events.of_claim

    def act(kind: str, claim: NodeClaim, now: float, **facts: Any) -> BusEvent:
        return told(kind, claim, now, **{**facts, "instanceId": ""})

    return [(claim_events, "of_claim", act)]


def _sets_no_timers() -> list[Patch]:
    """Whatever is to be looked at again waits for the next sweep."""
    return [(FlowContext, "set_timer", lambda *_: None)]


def _measures_no_memory() -> list[Patch]:
    """No metric says how much memory nodes have beyond their plan."""
    return [(cluster_metrics, "measure_memory", lambda *_: None)]


def _serves_suspended_clusters() -> list[Patch]:
    """Clusters without manifests, or that Karpenter serves, are served with the manifests of before."""
    return [(live_settings, "_suspended", lambda state, _reason, _cluster, _context: state)]


def _takes_specs_at_once() -> list[Patch]:
    """Nodes drift by a spec that may be taken back the next moment."""
    return [(LiveManifests, "unsettled_pools", lambda *_: ())]


MUTANTS: dict[str, Mutant] = {
    "acknowledges first, no sweep": Mutant(_acknowledges_first),
    "drops the client token": Mutant(_drops_the_token),
    "skips the epoch check": Mutant(_skips_the_epoch),
    "forgets conditions": Mutant(_forgets_conditions, ("races", "strays", "mixed")),
    "never resumes": Mutant(_never_resumes),
    "resumes with another token": Mutant(_resumes_at_once),
    "adopts nothing": Mutant(_adopts_nothing),
    "forgets garbage": Mutant(_forgets_garbage, ("strays",)),
    "garbage too soon": Mutant(_garbage_too_soon, ("strays",)),
    "never gives up": Mutant(_never_gives_up),
    "forgets the vanished": Mutant(_forgets_the_vanished, ("unheard",)),
    "terminates before writing": Mutant(_terminates_before_writing),
    "does not learn": Mutant(_does_not_learn, ("edges",)),
    "forgets pilots": Mutant(_forgets_pilots, ("edges",)),
    "forgets missed pods": Mutant(_forgets_missed_pods, ("edges",)),
    "ends before empty": Mutant(_ends_before_empty),
    "ignores do-not-disrupt": Mutant(_ignores_do_not_disrupt, ("spot-storm", "mixed")),
    "deletes instead of evicting": Mutant(_deletes_instead),
    "forgets what is sold out": Mutant(_forgets_what_is_sold_out, ("flex-drought",)),
    "books a wrong price": Mutant(_wrong_price),
    "reads stale state": Mutant(_stale_state),
    "charges no limits": Mutant(_charges_nothing),
    **{name: Mutant(*defect) for name, defect in planted_in_policies().items()},
    "ignores disruption budgets": Mutant(_ignores_budgets),
    "leaves nodes cordoned": Mutant(_leaves_taints),
    "tells of no instance": Mutant(_tells_of_no_instance),
    "sets no timers": Mutant(_sets_no_timers, ("undisturbed",)),
    "measures no memory": Mutant(_measures_no_memory, ("undisturbed",)),
    "serves suspended clusters": Mutant(_serves_suspended_clusters, ("live-manifests",)),
    "takes specs at once": Mutant(_takes_specs_at_once, ("live-manifests",)),
    "knows no install": Mutant(_knows_no_install, ("two-installs",)),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a defect while the block runs; none for an empty name. Raises InvalidInput for an unknown name."""
    if name and name not in MUTANTS:
        raise InvalidInput("mutant", f"no defect {name!r}; known are {', '.join(MUTANTS)}")
    patches = MUTANTS[name].patches() if name else []
    kept = [(owner, attribute, owner.__dict__.get(attribute)) for owner, attribute, _ in patches]
    for owner, attribute, planted_there in patches:
        setattr(owner, attribute, planted_there)
    try:
        yield
    finally:
        for owner, attribute, before in kept:
            if before is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, before)
