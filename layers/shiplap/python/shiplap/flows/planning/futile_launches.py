"""Pods that no node of theirs ever takes: how many nodes may be launched for them, and when the next one.

A plan knows what the API server shows. What else can keep a pod off its node, it does not: a neighbour that taints each
node as it comes, an admission rule, a scheduler with rules of its own. Without a limit such pods would cost a node
every few minutes for as long as they exist.

A node is in vain when it has been complete for `PATIENCE_S` and none of the pods it was launched for is on it, although
one of them still waits and no others have taken its room. Pods on a node that is being drained wait, too: nodes are
launched for them before they may be evicted. As they would come later, only a node that is closed to them is in vain.
What is true of one pod is true of the pods like it: as long
as no younger node has taken any of them, nodes are tried for a few of them at a time, ever more rarely, but always
again. Pods of which nodes do take some are launched for without this limit.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.flows.context import FlowContext
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod
from shiplap.kubernetes.taints import DISRUPTED, untolerated
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import GOING_FOR_GOOD, IN_FLIGHT, ClaimState, NodeClaim, PodReference
from shiplap.ports import FUTILE_FOR_S, DecisionState, Refusals
from shiplap.scheduling.model.planned_pods import is_recreated, needs_room_elsewhere, with_pods_staying
from shiplap.scheduling.model.scheduling_plan import Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView

_LOG = logging.getLogger(__name__)

PATIENCE_S = 45.0
"""How long a complete node may be without a pod that it was launched for, in seconds: kube-scheduler backs off for ten,
and takes its time over thousands of pods."""

FREE = 3
"""Nodes that may be launched for a pod one right after the other."""

FIRST_PAUSE_S = 900.0
"""The pause before the next node once FREE of them were in vain, in seconds; it doubles with each further one."""

LONGEST_PAUSE_S = 3600.0
"""No pause is longer, in seconds: what kept the pods off may have gone."""

MOST_IN_WINDOW = {300.0: 35, FUTILE_FOR_S: 60}
"""Nodes in vain, and nodes on their way for the same pods, that a cluster may have launched within so many seconds."""

IN_VAIN_S = 3600.0
"""How long a complete node is kept for a pod that does not run on it, in seconds. A kube-scheduler that is down for a
while must not cost nodes; a pod that something unknown keeps off must not keep one for ever."""

MOST_MARKS = 100
"""Pods marked by one sweep: each is a write, and pods that wait are planned for later."""

MOST_NAMES = 8
"""Claims remembered by name for one pod."""

_SEEN = frozenset({ClaimState.INITIALIZED, ClaimState.DISRUPTING, ClaimState.DRAINING, ClaimState.TERMINATING})

PodKind = str
"""A digest of all that pods have in common that one thing may keep off all nodes: their namespace, and what they ask of
a node."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class NodeVerdicts(msgspec.Struct, frozen=True):
    """The evidence that nodes have given.

    `futile` and `unjudged` are complete and have taken none of their pods, of which one waits, the first for at least
    `PATIENCE_S`. `taken_at`: by likeness, when the youngest claim was created whose node has one of its pods.
    """

    futile: tuple[NodeClaim, ...]
    unjudged: tuple[NodeClaim, ...]
    taken_at: Mapping[PodKind, float]


class HeldBackPods(msgspec.Struct, frozen=True):
    """The view without the pods that no node is to be launched for now.

    `unschedulable` says why for some of them; the others wait for a node that is there or on its way. `paused` are
    the uids of those that keep no node either.
    """

    view: ClusterView
    unschedulable: tuple[Unschedulable, ...] = ()
    paused: frozenset[str] = frozenset()


class _Refusal(msgspec.Struct, frozen=True):
    """The refusals of all pods of one likeness together; see `Refusals`."""

    claims: tuple[str, ...]
    at: float
    number: int
    launched_at: float


def judge_nodes(claims: Iterable[NodeClaim], view: ClusterView, now: float) -> NodeVerdicts:
    """Judge the nodes of claims by the pods that are on them; claims sorted by name.

    A node whose room other pods have taken is not in vain, and neither is one that turned out too small.
    """
    claims = sorted(claims, key=lambda item: item.name)
    pending = waiting_pods(view, claims, now)
    if not pending:
        return NodeVerdicts((), (), {})
    futile, unjudged = [], []
    taken_at: dict[PodKind, float] = {}
    nodes = {node.metadata.name: node for node in view.nodes}
    for claim in claims:
        if claim.state not in _SEEN or claim.missed or not claim.node_name:
            continue
        wanted, here = _uids(claim), view.by_node.get(claim.node_name, ())
        own = [pod for pod in here if pod.metadata.uid in wanted]
        for pod in own:
            like = pod_kind(pod)
            taken_at[like] = max(taken_at.get(like, 0.0), claim.created_at)
        node = nodes.get(claim.node_name)
        kept_off = any(_is_kept_off(pending[uid], claim, node) for uid in wanted & pending.keys())
        if own or not kept_off or _is_taken(here, wanted):
            continue
        if claim.state is ClaimState.INITIALIZED and now - claim.changed_at < PATIENCE_S:
            unjudged.append(claim)
        else:
            futile.append(claim)
    return NodeVerdicts(tuple(futile), tuple(unjudged), taken_at)


def record_refusals(
    cluster: str, claims: Iterable[NodeClaim], view: ClusterView, state: DecisionState, context: FlowContext
) -> Mapping[str, Refusals]:
    """Write down which pods still wait although a node of theirs is complete; what is known then, by uid.

    Args:
        cluster: its name.
        claims: all that are not over.
        view: the cluster.
        state: what was written down before.
        context: state is written.

    Raises:
        StoreError: tried again with the next sweep.
    """
    now = context.clock.now()
    claims = tuple(claims)
    new = [claim for claim in judge_nodes(claims, view, now).futile if claim.name not in state.futile]
    young = [claim for claim in new if claim.created_at + FUTILE_FOR_S > now]
    if young:
        context.state.mark_futile(cluster, {claim.name: claim.created_at for claim in young[:MOST_MARKS]})
        context.meter.count("NodesInVain", len(young[:MOST_MARKS]))
    noted = refused(claims, view, state.refused, now)
    for uid in list(noted)[:MOST_MARKS]:
        context.state.mark_refused(cluster, uid, noted[uid])
    if noted:
        context.meter.count("PodsRefused", len(noted))
        _LOG.warning("pods run on no node of theirs", extra={"cluster": cluster, "pods": sorted(noted)[:20]})
    return {**state.refused, **noted}


def refused(
    claims: Iterable[NodeClaim], view: ClusterView, known: Mapping[str, Refusals], now: float
) -> dict[str, Refusals]:
    """Return the refusals to note of pods that wait although nodes of theirs are complete, by uid; sorted.

    A node whose room other pods have taken does not count, and neither does one that turned out too small.
    """
    claims = sorted(claims, key=lambda item: (item.created_at, item.name))
    pending = waiting_pods(view, claims, now)
    if not pending:
        return {}
    new: dict[str, list[NodeClaim]] = {}
    nodes = {node.metadata.name: node for node in view.nodes}
    for claim in claims:
        if claim.state not in _SEEN or claim.missed or not claim.node_name:
            continue
        if claim.state is ClaimState.INITIALIZED and now - claim.changed_at < PATIENCE_S:
            continue
        wanted = _uids(claim)
        if wanted.isdisjoint(pending) or _is_taken(view.by_node.get(claim.node_name, ()), wanted):
            continue
        for uid in wanted & pending.keys():
            if not _is_kept_off(pending[uid], claim, nodes.get(claim.node_name)):
                continue
            if claim.name not in known.get(uid, Refusals()).claims:
                new.setdefault(uid, []).append(claim)
    if not new:
        return {}
    noted = {uid: refusals for uid, refusals in known.items() if uid in pending} | _departed(known, view, now)
    before = _by_likeness(noted, pending)
    found = {}
    for uid in sorted(new):
        like = pod_kind(pending[uid])
        found[uid] = _with(known.get(uid, Refusals()), new[uid], before.get(like), like, now)
    return found


def hold_back(
    view: ClusterView,
    claims: Sequence[NodeClaim],
    known: Mapping[str, Refusals],
    gone: Mapping[str, float],
    now: float,
) -> HeldBackPods:
    """The view without the pods that no node is to be launched for now.

    Args:
        view: the cluster.
        claims: all that are not over.
        known: what is written down of pods, by uid.
        gone: nodes in vain of the last hour, whether they are still there or not: when their claims were created.
        now: epoch seconds.
    """
    pending = waiting_pods(view, claims, now)
    if not pending:
        return HeldBackPods(view)
    seen = judge_nodes(claims, view, now)
    noted = {uid: item for uid, item in {**known, **refused(claims, view, known, now)}.items() if uid in pending}
    departed = {uid: item for uid, item in _departed(known, view, now).items() if item.number >= FREE}
    if not noted and not departed and not seen.unjudged:
        return HeldBackPods(view)
    on_the_way = [*seen.unjudged, *(claim for claim in claims if claim.state in IN_FLIGHT)]
    expected = {uid for claim in on_the_way for uid in _uids(claim)}
    replaced = {item.like for item in departed.values()}
    kept_off = {
        like: item
        for like, item in _by_likeness({**departed, **noted}, pending).items()
        if seen.taken_at.get(like, -1.0) < item.launched_at
    }
    alike: dict[PodKind, list[Pod]] = {}
    for uid in sorted(pending):
        if kept_off and (like := pod_kind(pending[uid])) in kept_off:
            alike.setdefault(like, []).append(pending[uid])
    held = dict.fromkeys(_without_room(seen.unjudged, pending, view))
    reasons: dict[str, str] = {}
    suspects = {pod.metadata.uid for pods in alike.values() for pod in pods}
    for uid, refusals in noted.items():
        if uid not in suspects and (until := _after(len(refusals.claims), refusals.at)) > now:
            reasons[uid] = _reason_of_pod(refusals, until)
    counted = {claim.name: claim.created_at for claim in seen.futile} | dict(gone)
    counted |= {claim.name: claim.created_at for claim in on_the_way if not suspects.isdisjoint(_uids(claim))}
    allowed = allowance(counted.values(), now)
    paused = set(reasons)
    for like in sorted(alike, key=lambda item: (kept_off[item].at, item)):
        refusal, pods = kept_off[like], alike[like]
        until = _after(refusal.number, refusal.at)
        busy = any(pod.metadata.uid in expected for pod in pods)
        tried: set[str] = set()
        if not busy:
            is_news = like not in replaced  # a new pod, unless it may stand for one that was deleted
            rested = [pod for pod in pods if until <= now or (is_news and pod.metadata.uid not in noted)]
            rested.sort(key=lambda pod: (noted.get(pod.metadata.uid, Refusals()).at, pod.key))
            tried = {pod.metadata.uid for pod in rested[: min(FREE, allowed)]}
            allowed -= len(tried)
        left = [pod.metadata.uid for pod in pods if pod.metadata.uid not in tried]
        held.update(dict.fromkeys(left))
        waiting = [uid for uid in left if uid not in expected]
        reasons.update(dict.fromkeys(waiting, _reason_of_all(refusal, until, now)))
        if until > now:
            paused.update(waiting)
    nodes = {node.metadata.name for node in view.nodes}
    out = {uid for uid in (*held, *reasons) if not (_waits(pending[uid]) and _nominated(pending[uid]) in nodes)}
    return _without(view, out, reasons, frozenset(paused))


def _without_room(unjudged: Sequence[NodeClaim], pending: Mapping[str, Pod], view: ClusterView) -> Iterator[str]:
    """Uids of pods whose complete node is closed to them; the others have their room there, and no node is launched."""
    nodes = {node.metadata.name: node for node in view.nodes}
    for claim in unjudged:
        node = nodes.get(claim.node_name)
        yield from (uid for uid in sorted(_uids(claim) & pending.keys()) if _is_closed_to(pending[uid], node))


def allowance(launched_at: Iterable[float], now: float, most: Mapping[float, int] = MOST_IN_WINDOW) -> int:
    """Return how many more nodes may be launched.

    `launched_at` holds the times of the launches that count, `most` the bound of each window.
    """
    times = list(launched_at)
    return max(0, min(number - sum(at > now - window for at in times) for window, number in most.items()))


def held_back_pods(
    view: ClusterView,
    state: DecisionState,
    claims: Callable[[], Sequence[NodeClaim]],
    now: float,
    further: Mapping[str, Refusals] = {},
) -> HeldBackPods:
    """As `hold_back`, by the state that was read; all claims are asked for only where they matter.

    `further` are refusals that were found since the state was read.
    """
    known = {**state.refused, **further}
    if not may_be_held(view, state.claims, known, state.futile):
        return HeldBackPods(view)
    return hold_back(view, claims(), known, state.futile, now)


def without_held_pods(
    view: ClusterView, claims: Sequence[NodeClaim], known: Mapping[str, Refusals], now: float
) -> ClusterView:
    """The view without pods that keep no node: none is launched for them now, or they have waited on one in vain."""
    held = hold_back(view, claims, known, {}, now)
    out = held.paused | {uid for uid, refusals in known.items() if now - refusals.at >= IN_VAIN_S}
    return _left_out(view, out & waiting_pods(view, claims, now).keys()) if out else view


def may_be_held(
    view: ClusterView, unsettled: Iterable[NodeClaim], known: Mapping[str, Refusals], gone: Mapping[str, float]
) -> bool:
    """True if all claims have to be looked at: something is known, or a complete node of ours is without a pod.

    `unsettled` are the claims in flight or leaving.
    """
    waits = bool(view.unbound) or not _drained_nodes(view, unsettled).isdisjoint(view.by_node)
    if known or gone or not waits:
        return waits
    return any(
        node.metadata.labels.get(labels.INITIALIZED) == "true"
        and labels.NODE_CLAIM in node.metadata.labels
        and not any(is_recreated(pod) for pod in view.by_node.get(node.metadata.name, ()))
        for node in view.nodes
    )


def waiting_pods(view: ClusterView, claims: Iterable[NodeClaim], now: float) -> dict[str, Pod]:
    """Pods without a node, and those that have to leave a node that is going for good, by uid."""
    pods = {pod.metadata.uid: pod for pod in view.unbound if _waits(pod)}
    for name in sorted(_drained_nodes(view, claims)):
        on_node = view.by_node.get(name, ())
        running = (pod for pod in on_node if pod.status.phase not in TERMINAL_PHASES)
        pods |= {pod.metadata.uid: pod for pod in running if needs_room_elsewhere(pod, now)}
    return pods


def _drained_nodes(view: ClusterView, claims: Iterable[NodeClaim]) -> set[str]:
    deleted = {node.metadata.name for node in view.nodes if node.metadata.deletion_timestamp}
    return deleted | {claim.node_name for claim in claims if claim.state in GOING_FOR_GOOD and claim.node_name}


def _is_kept_off(pod: Pod, claim: NodeClaim, node: Node | None) -> bool:
    """True if a pod does not run on a complete node of its own.

    A pod not evicted yet may still come if the node is open.
    """
    if _waits(pod):
        return True
    if node is None or pod.spec.node_name == claim.node_name:
        return False
    foreign = [taint for taint in node.spec.taints if taint.key != DISRUPTED.key]
    return node.spec.unschedulable or untolerated(foreign, pod.spec.tolerations) is not None


def _is_closed_to(pod: Pod, node: Node | None) -> bool:
    if node is None or node.spec.unschedulable:
        return True
    return untolerated(node.spec.taints, pod.spec.tolerations) is not None


def _nominated(pod: Pod) -> str:
    return pod.status.nominated_node_name


def pod_kind(pod: Pod) -> PodKind:
    """Return a digest of what a pod shares with pods that the same thing would keep off nodes."""
    spec = pod.spec
    asked = (spec.scheduler_name or "default-scheduler", spec.node_selector, spec.affinity, spec.tolerations)
    return hashlib.blake2b(_encode((pod.metadata.namespace, *asked)), digest_size=16).hexdigest()


def _after(number: int, at: float) -> float:
    if number < FREE:
        return 0.0
    return at + min(FIRST_PAUSE_S * 2.0 ** min(number - FREE, 10), LONGEST_PAUSE_S)


def _departed(known: Mapping[str, Refusals], view: ClusterView, now: float) -> dict[str, Refusals]:
    """Return the refusals noted within the hour of pods that are gone. The pods that replace them have other uids."""
    young = {uid: refusals for uid, refusals in known.items() if refusals.like and now - refusals.at < FUTILE_FOR_S}
    return {uid: young[uid] for uid in young.keys() - {pod.metadata.uid for pod in view.pods}} if young else {}


def _by_likeness(noted: Mapping[str, Refusals], pending: Mapping[str, Pod]) -> dict[PodKind, _Refusal]:
    """Merge the notes on single pods for all pods that are alike."""
    alike: dict[PodKind, list[Refusals]] = {}
    for uid in sorted(noted):
        like = pod_kind(pending[uid]) if uid in pending else noted[uid].like
        alike.setdefault(like, []).append(noted[uid])
    return {like: _together(items) for like, items in alike.items()}


def _together(items: Sequence[Refusals]) -> _Refusal:
    newest = max(items, key=lambda item: item.at)
    number = max(item.number for item in items)
    return _Refusal(newest.claims, newest.at, number, max(item.launched_at or item.at for item in items))


def _with(
    refusals: Refusals, claims: Sequence[NodeClaim], before: _Refusal | None, like: PodKind, now: float
) -> Refusals:
    """With more claims, the oldest first. Those launched together, for whichever pods of a likeness, are one try."""
    number = before.number if before is not None else 0
    launched_at = before.launched_at if before is not None else -1.0
    for claim in claims:
        if claim.created_at > launched_at:
            number, launched_at = number + 1, claim.created_at
    names = tuple(dict.fromkeys((*refusals.claims, *(claim.name for claim in claims))))[-MOST_NAMES:]
    return Refusals(names, now, number, launched_at, like)


def _is_taken(on_node: Iterable[Pod], wanted: Collection[str]) -> bool:
    """True if pods that their node was not launched for stay on it."""
    return any(pod.metadata.uid not in wanted and is_recreated(pod) for pod in on_node)


def _without(
    view: ClusterView, out: Collection[str], reasons: Mapping[str, str], paused: frozenset[str]
) -> HeldBackPods:
    if not out:
        return HeldBackPods(view)
    aside = [pod for pod in view.pods if pod.metadata.uid in out]
    unschedulable = tuple(
        Unschedulable(
            PodReference.of(pod),
            reasons[pod.metadata.uid],
        )
        for pod in sorted(aside, key=lambda item: item.key)
        if pod.metadata.uid in reasons
    )
    return HeldBackPods(_left_out(view, out), unschedulable, paused)


def _left_out(view: ClusterView, out: Collection[str]) -> ClusterView:
    """The view in which nobody plans these pods: they do not wait, or stay where they run."""
    if not out:
        return view
    pods = tuple(pod for pod in view.pods if not (pod.metadata.uid in out and _waits(pod)))
    return with_pods_staying(replace(view, pods=pods), out)


def _reason_of_pod(refusals: Refusals, until: float) -> str:
    names = ", ".join(refusals.claims[-FREE:])
    return (
        f"{len(refusals.claims)} nodes were launched for it, and it runs on none of them ({names}): something beside "
        f"the plan keeps it off, such as a taint set by others; none is launched before {rfc3339(until)}"
    )


def _reason_of_all(refusal: _Refusal, until: float, now: float) -> str:
    names = ", ".join(refusal.claims[-FREE:])
    then = f"the next node is launched after {rfc3339(until)}" if until > now else "one try at a time is made"
    return (
        f"nodes were launched for it or for pods like it, and it runs on none of them ({names}): something beside the "
        f"plan keeps these pods off, such as a taint set by others; {then}"
    )


def _uids(claim: NodeClaim) -> set[str]:
    return {pod.uid for pod in claim.plan.pods if pod.uid}


def _waits(pod: Pod) -> bool:
    """True if a pod waits for a node. One without an object comes to none, so that no node is in vain for it."""
    if has_no_object(pod.metadata.name):
        return False
    return not pod.spec.node_name and not pod.metadata.deletion_timestamp and pod.status.phase not in TERMINAL_PHASES
