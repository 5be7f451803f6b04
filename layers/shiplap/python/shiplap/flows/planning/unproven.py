"""Bounds how many nodes may be launched before the first of them proves that they are of use.

**AMIs.** That an AMI is broken shows only when its nodes fail to join, and until then a burst would launch as many as
it needs. So an AMI that no node has joined with gets a bounded first batch. One node that joins opens it for good; the
bound is wide enough that few first scale-ups ever meet it, and those wait a minute for their second batch.

**Kinds of pods.** `futile_launches` learns only from nodes in vain. So the first launch for a new kind of pods is as
large as they need, and each further kind starts again. Each cluster therefore bounds how many nodes are launched within
five minutes for pods of which no node is known to have run any; within an hour it is more, in proportion. All kinds
count together, and so do nodes launched for pods that have gone meanwhile. `futile_launches.pod_kind` says which pods
are of one kind. A pod on any node, whoever launched the node, proves its kind, and what is proven is not bounded. Proof
is remembered, so that a cluster may scale to zero in between.

Part of the hour's bound is reserved for the first node of each kind. So pods that no node takes do not keep other kinds
from their proof.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from shiplap.flows.context import FlowContext, TypesFor
from shiplap.flows.planning.futile_launches import MOST_IN_WINDOW, MOST_MARKS, PodKind, allowance, pod_kind
from shiplap.flows.planning.planned_launches import in_turns
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.readiness.joins import JoinHistory, JoinRecord
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.ports import FUTILE_FOR_S, DecisionState
from shiplap.scheduling.model.planned_pods import is_recreated
from shiplap.scheduling.model.scheduling_plan import Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView

SHRINKS = 10
"""The first batch is this many times smaller for each failure in a row."""

_UNJOINED = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED})


def limits_of_amis(joins: JoinHistory, sold: Iterable[InstanceType], most: int) -> dict[str, int]:
    """Nodes that may be on their way at once, for each AMI without proof.

    Args:
        joins: how nodes of this cluster joined.
        sold: all that can be launched; a type that is verified on its AMI has been seen as a node of some cluster.
        most: the first batch.
    """
    items = tuple(sold)
    proven = {item.ami for item in items if item.verified} | {item.ami for item in joins.amis if item.all.joined_at}
    records = {item.ami: item.all for item in joins.amis}
    return {
        ami: max(1, most // SHRINKS ** min(records.get(ami, JoinRecord()).failures, 9))
        for ami in sorted({instance_type.ami for instance_type in items} - proven - {""})
    }


def are_amis_full(sold: Iterable[InstanceType], claims: Iterable[NodeClaim], limits: Mapping[str, int]) -> bool:
    """True if nothing that is sold could be launched before a first node joins.

    Args:
        sold: all that can be launched.
        claims: all in flight; those that have no AMI yet may take any.
        limits: of AMIs, see `limits_of_amis`.
    """
    under_way = Counter(
        claim.known_instance.ami for claim in claims if claim.state in _UNJOINED and claim.known_instance.ami
    )
    amis = {instance_type.ami for instance_type in sold}
    return bool(amis) and all(ami in limits and under_way[ami] >= limits[ami] for ami in amis)


def within_ami_limits(
    groups: Sequence[Sequence[NodeClaim]], claims: Iterable[NodeClaim], limits: Mapping[str, int], types_for: TypesFor
) -> list[Sequence[NodeClaim]]:
    """Of each group of claims as many as may be launched now, domain by domain; groups without any are left out.

    Args:
        groups: those that would be launched, by launch; none is empty.
        claims: all in flight.
        limits: of AMIs, see `limits_of_amis`.
        types_for: what is sold to a claim, by name.
    """
    if not limits:
        return list(groups)
    under_way = Counter(_ami(claim, types_for) for claim in claims if claim.state in _UNJOINED)
    amis = {claim.name: ami for group in groups for ami in (_ami(group[0], types_for),) for claim in group}
    kept = set()
    for claim in in_turns([claim for group in groups for claim in group]):
        ami = amis[claim.name]
        if ami not in limits or under_way[ami] < limits[ami]:
            kept.add(claim.name)
            under_way[ami] += 1
    return [some for group in groups if (some := [claim for claim in group if claim.name in kept])]


def _ami(claim: NodeClaim, types_for: TypesFor) -> str:
    """The AMI it was launched with, or of the first type that it may be launched as."""
    if claim.known_instance.ami or not claim.plan.instance_types:
        return claim.known_instance.ami
    instance_type = types_for(claim).get(claim.plan.instance_types[0])
    return instance_type.ami if instance_type is not None else ""


FIVE_MINUTES_S = 300.0

RENEW_S = 24 * 3600.0
"""How old a note of a kind is before it is written anew, in seconds."""

MOST_KINDS = 1000
"""Kinds remembered of a cluster: each decision reads them."""


RESERVE = 6
"""One of so many nodes of the hour's bound, rounded up, is only launched as the first node of a kind."""


class UnprovenPodLimit(msgspec.Struct, frozen=True):
    """At most so many nodes for kinds without proof: by window, in seconds, as `MOST_IN_WINDOW`.

    `launched_at`: when nodes of the last hour were launched that count, sorted. `tried`: how many nodes each kind is
    known to have had. `proven`: kinds that are not bounded.
    """

    most: Mapping[float, int]
    launched_at: tuple[float, ...] = ()
    tried: Mapping[PodKind, int] = {}
    proven: Set[PodKind] = frozenset()

    def allowed(self, now: float, *, is_first: bool = True) -> int:
        """Return how many more nodes may be launched now, as the first of their kinds or else as further nodes."""
        return allowance(self.launched_at, now, self._most(is_first=is_first))

    def reason(self, now: float, *, is_first: bool = True) -> str:
        """Return why no more nodes may be launched now, and until when."""
        full = [
            (times[len(times) - most] + window, len(times), window)
            for window, most in sorted(self._most(is_first=is_first).items())
            if len(times := self._within(window, now)) >= most
        ]
        until, number, window = max(full)
        return (
            f"{number} nodes were launched within {window / 60:.0f} minutes for pods of which no node has run any yet, "
            f"as many as the cluster allows (unprovenPodNodes: {self.most[FIVE_MINUTES_S]}); the next one is launched "
            f"when a node runs a pod like this one, or after {rfc3339(until)}"
        )

    def _most(self, *, is_first: bool) -> Mapping[float, int]:
        hour = self.most[FUTILE_FOR_S]
        return self.most if is_first else {**self.most, FUTILE_FOR_S: hour - -(-hour // RESERVE)}

    def _within(self, window: float, now: float) -> list[float]:
        return [at for at in self.launched_at if at > now - window]


def windows(most: int) -> dict[float, int]:
    """Return the most launches in each window, in seconds, if `most` is the bound of five minutes; rounded up."""
    widest = MOST_IN_WINDOW[FIVE_MINUTES_S]
    return {window: -(-most * number // widest) for window, number in MOST_IN_WINDOW.items()}


def is_any_unproven(view: ClusterView, state: DecisionState) -> bool:
    """True if a pod waits whose kind is bounded; otherwise there is no need to know all claims."""
    unknown = {pod_kind(pod) for pod in _with_objects(view.unbound)} - state.proven.keys()
    return bool(unknown) and not unknown <= view.of_pods(running_kinds)


def unproven_pod_limit(
    most: int, view: ClusterView, claims: Sequence[NodeClaim], state: DecisionState, now: float
) -> UnprovenPodLimit:
    """Return the limit with the part of a cluster's bound that is left.

    Args:
        most: nodes within five minutes.
        view: the cluster.
        claims: all that are not Gone.
        state: what was written down of nodes in vain that are, and of kinds that were run.
        now: epoch seconds.
    """
    proven = view.of_pods(running_kinds) | state.proven.keys()
    names = {claim.name for claim in claims}
    launched_at = [at for name, at in state.futile.items() if name not in names]
    tried = Counter(refusals.like for refusals in state.refused.values() if refusals.like)
    for claim in claims:
        if claim.created_at + FUTILE_FOR_S > now and counts_as_unproven(claim, view, proven):
            launched_at.append(claim.created_at)
            tried.update(claim.plan.unproven)
    return UnprovenPodLimit(windows(most), tuple(sorted(launched_at)), tried, proven)


def running_kinds(view: ClusterView) -> frozenset[PodKind]:
    """The kinds of all pods on nodes, but for those that belong to their node. For `ClusterView.of_pods`."""
    return frozenset(pod_kind(pod) for pods in view.by_node.values() for pod in pods if _has_run(pod))


def mark_unproven(planned: Iterable[NodeClaim], view: ClusterView, proven: Set[PodKind]) -> list[NodeClaim]:
    """Planned claims; those all of whose pods are of kinds without proof say so."""
    kinds = {(pod.metadata.namespace or "default", pod.metadata.name): pod for pod in _with_objects(view.pods)}
    marked = []
    for claim in planned:
        pods = (kinds.get((pod.namespace, pod.name)) for pod in claim.plan.pods)
        own = {pod_kind(pod) for pod in pods if pod is not None}
        unproven = tuple(sorted(own)) if own.isdisjoint(proven) else claim.plan.unproven
        marked.append(replace(claim, plan=replace(claim.plan, unproven=unproven)))
    return marked


def within_limit(
    planned: Sequence[NodeClaim], bound: UnprovenPodLimit, view: ClusterView, now: float
) -> tuple[list[NodeClaim], tuple[Unschedulable, ...]]:
    """The claims that may be launched now, in their order, and what users of the other claims' pods are told.

    The kinds take turns, those with the fewest nodes first: one node of a kind is enough to prove it. Of those with
    equally many, the one whose pods have waited longest is first, so that new kinds cannot keep an old one waiting. The
    claims of one kind are launched domain by domain.
    """
    created = {pod.metadata.uid: pod.metadata.creation_timestamp or "" for pod in view.unbound}
    tried = Counter(bound.tried)
    turns: list[tuple[int, str, int]] = []
    place_of = {claim.name: place for place, claim in enumerate(planned)}
    for claim in in_turns(planned):
        if claim.plan.unproven:
            oldest = min((created.get(pod.uid, "") for pod in claim.plan.pods), default="")
            turns.append((min(tried[kind] for kind in claim.plan.unproven), oldest, place_of[claim.name]))
            tried.update(claim.plan.unproven)
    late: dict[int, bool] = {}
    for number, _, place in sorted(turns):
        if bound.allowed(now, is_first=number == 0):
            bound = replace(bound, launched_at=(*bound.launched_at, now))
        else:
            late[place] = number == 0
    kept = [claim for place, claim in enumerate(planned) if place not in late]
    why = {is_first: bound.reason(now, is_first=is_first) for is_first in set(late.values())}
    return kept, tuple(
        Unschedulable(pod, why[late[place]]) for place in sorted(late) for pod in planned[place].plan.pods
    )


def has_room_for(view: ClusterView, claims: Iterable[NodeClaim], bound: UnprovenPodLimit, now: float) -> bool:
    """True if a plan could lead to a launch: the bound has room, a pod of a proven kind waits, or a node leaves.

    Args:
        view: the cluster.
        claims: those in flight or leaving.
        bound: see `unproven_pod_limit`.
        now: epoch seconds.
    """
    if bound.allowed(now, is_first=False) or any(claim.state in LEAVING for claim in claims):
        return True
    if any(node.metadata.deletion_timestamp for node in view.nodes):
        return True
    if any(has_no_object(pod.metadata.name) for pod in view.unbound):
        return True
    waiting = {pod_kind(pod) for pod in view.unbound}
    return not bound.proven.isdisjoint(waiting) or (bound.allowed(now) > 0 and not waiting <= bound.tried.keys())


def record_kinds(
    cluster: str, claims: Sequence[NodeClaim], view: ClusterView, state: DecisionState, context: FlowContext
) -> None:
    """Write down which kinds of pods run, and which nodes leave that never ran any: claims are forgotten when Gone.

    Raises:
        StoreError: tried again with the next sweep.
    """
    now = context.clock.now()
    running = view.of_pods(running_kinds)
    due = [kind for kind in sorted(running) if kind in state.proven and state.proven[kind] + RENEW_S <= now]
    due += sorted(running - state.proven.keys())[: max(MOST_KINDS - len(state.proven), 0)]
    if due:
        context.state.mark_proven(cluster, due[:MOST_MARKS], now)
    proven = running | state.proven.keys()
    leaving = {
        claim.name: claim.created_at
        for claim in claims
        if claim.state in LEAVING and claim.name not in state.futile and counts_as_unproven(claim, view, proven)
        if claim.created_at + FUTILE_FOR_S > now
    }
    if leaving:
        context.state.mark_futile(cluster, leaving)


def counts_as_unproven(claim: NodeClaim, view: ClusterView, proven: Set[PodKind]) -> bool:
    """True if the claim is a node for pods without proof that nothing runs on, or may become one."""
    if not claim.plan.unproven or not proven.isdisjoint(claim.plan.unproven):
        return False
    if claim.state is ClaimState.FAILED and not claim.instance_id:
        return False
    return not any(_has_run(pod) for pod in view.by_node.get(claim.node_name, ()))


def _with_objects(pods: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods that can run: others prove nothing, and somebody has asked for their nodes."""
    return (pod for pod in pods if not has_no_object(pod.metadata.name))


def _has_run(pod: Pod) -> bool:
    """True if its node has taken a pod that other nodes might have taken; a kubelet's refusal is a failed pod."""
    return is_recreated(pod) and pod.status.phase != "Failed"
