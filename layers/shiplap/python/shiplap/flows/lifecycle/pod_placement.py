"""Steers pods to the node that was launched for them, so that what was planned is what happens.

kube-scheduler does not know the plan, and by default it spreads pods over what is there: new nodes end up half empty.
Placement is help, never a promise: a pod that is not steered is scheduled like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound
from shiplap.flows.claim_updates import facts
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import STEERED_PODS
from shiplap.instances.capacity.learned_capacity import shortfall
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Node, ObjectMeta, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.related_objects import has_claims
from shiplap.kubernetes.selectors import node_affinity_allows
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.scheduling.model.planned_pods import owner_kind
from shiplap.scheduling.model.snapshot import ClusterView

_LOG = logging.getLogger(__name__)

NONE, NOMINATE, BIND = "none", "nominate", "bind"
"""What the setting `placement` of a cluster may say."""

WITHDRAWN_S = 60.0
"""A nominated pod that still waits so long after its node is complete, in seconds, is nominated no more."""

LOOK_S = 2.0
"""A look at the pods of a node counts for so long, in seconds, before further pods are bound to it: as long as one
optional call may take."""

MOST_WITHDRAWN = 100
"""Nominations that one sweep takes back: each is a write, and where thousands wait, kube-scheduler has not come to most
of them yet."""

FIRST_PODS = 100
"""Pending pods that one request lists; where as many wait, it is a crowd."""

_SCHEDULERS = ("", "default-scheduler")


class Steering:
    """One invocation's placements in a cluster; pending pods are listed once, when they are first needed.

    In a crowd, many nodes join in many invocations, and each would list thousands of pods for the sake of a few. So
    pods are nominated there without being read: a node that has what its claim relied on has room for them, and what
    has become of a pod meanwhile the API server knows. Pods to be bound are read one by one.
    """

    def __init__(self, placement: str, context: FlowContext) -> None:
        self._placement = placement
        self._context = context
        self._cluster = context.within(STEERED_PODS, context.cluster)
        self._nominated: set[tuple[str, str]] = set()
        """Uids of pods that this invocation has nominated, each with its node."""

    @cached_property
    def _first(self) -> dict[str, Pod]:
        return {pod.metadata.uid: pod for pod in self._cluster.pending_pods(most=FIRST_PODS)}

    @property
    def _is_crowd(self) -> bool:
        return len(self._first) >= FIRST_PODS

    def _waiting(self, claim: NodeClaim) -> list[Pod]:
        """The claim's pods that have no node yet."""
        waiting = []
        for wanted in _with_objects(claim):
            pod = self._first.get(wanted.uid)
            if pod is None and self._is_crowd:
                pod = self._cluster.pending_pod(wanted.namespace, wanted.name)
            if pod is not None and pod.metadata.uid == wanted.uid:
                waiting.append(pod)
        return waiting

    def nominate(self, claim: NodeClaim, node: Node) -> None:
        """Set `status.nominatedNodeName` of the claim's pods, just before the node is opened to all.

        kube-scheduler then keeps the room for them and, where its version honours it, tries this node first.
        """
        if self._placement != NONE:
            self._steer(claim, lambda: self._nominate(self._chosen(claim, node), node))

    def bind(self, claim: NodeClaim, read: Callable[[], Node | None]) -> None:
        """Bind the claim's pods that still wait to their node, once it is complete; `read` says what it is now."""
        if self._placement == BIND and (node := read()) is not None:
            self._steer(claim, lambda: self._bind(claim, node))

    def _steer(self, claim: NodeClaim, act: Callable[[], None]) -> None:
        try:
            act()
        except ClusterError as error:
            self._context.meter.count("PodsNotSteered")
            _LOG.warning("pods are left to kube-scheduler: %s", error, extra=facts(claim))

    def _nominate(self, pods: Iterable[Pod], node: Node) -> None:
        for pod in pods:
            with suppress(ObjectNotFound, ObjectConflict):  # it has a node already, or is gone
                self._cluster.nominate(pod, node.metadata.name)
                self._nominated.add((pod.metadata.uid, node.metadata.name))
                self._context.meter.count("PodsNominated")

    def _bind(self, claim: NodeClaim, node: Node) -> None:
        """Bind pods while their room is kept: kube-scheduler gives it to others where they are not nominated.

        Pods of a higher priority may take it all the same, so that a look at the room soon says nothing any more.
        """
        left, now = self._waiting(claim), self._context.clock.now
        looked_at, fitting = now(), self._fitting(claim, node, left, binding=True)
        if without := [pod for pod in fitting if not self._is_nominated(pod, node.metadata.name)]:
            self._nominate(without, node)
            looked_at, fitting = now(), self._fitting(claim, node, left, binding=True)
        while fitting:
            pod = fitting.pop(0)
            left.remove(pod)
            with suppress(ObjectNotFound, ObjectConflict):  # it has a node already, or is gone
                self._cluster.bind(pod, node.metadata.name)
                self._context.meter.count("PodsBound")
            if fitting and now() - looked_at > LOOK_S:
                looked_at, fitting = now(), self._fitting(claim, node, left, binding=True)

    def _is_nominated(self, pod: Pod, node: str) -> bool:
        return pod.status.nominated_node_name == node or (pod.metadata.uid, node) in self._nominated

    def _fitting(self, claim: NodeClaim, node: Node, waiting: Sequence[Pod], *, binding: bool) -> list[Pod]:
        """Return the claim's pods that fit beside the pods on the node at this moment."""
        here = self._cluster.pods_on(node.metadata.name) if waiting else ()
        return placeable(claim, node, waiting, here, binding=binding)

    def _chosen(self, claim: NodeClaim, node: Node) -> list[Pod]:
        """The claim's pods that are to be nominated."""
        if self._is_crowd and not shortfall(claim.plan.requests, parse_resources(node.status.allocatable)):
            return [
                Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid))
                for pod in _with_objects(claim)
            ]
        return self._fitting(claim, node, self._waiting(claim), binding=False)


def _with_objects(claim: NodeClaim) -> list[PodReference]:
    """Return the pods of a claim that can be steered: the others stand for room only."""
    return [pod for pod in claim.plan.pods if not has_no_object(pod.name)]


def withdraw(claims: Iterable[NodeClaim], view: ClusterView, context: FlowContext) -> int:
    """Take back nominations that came to nothing, so that their pods are planned for again; how many were.

    kube-scheduler drops a nomination that it cannot follow as a rule, but not in every version and case, and a pod that
    is nominated counts as served. What is nominated while other pods end on the node is kube-scheduler's own doing.

    Args:
        claims: all that are not over.
        view: the cluster.
        context: the cluster is written; what it refuses is counted, and tried again by the next sweep.
    """
    now = context.clock.now()
    nominated = {node for pod in view.unbound if (node := pod.status.nominated_node_name)}
    complete = {
        claim.node_name: (claim.changed_at, {pod.uid for pod in claim.plan.pods})
        for claim in claims
        if claim.node_name in nominated
        if claim.state is ClaimState.INITIALIZED and now - claim.changed_at >= WITHDRAWN_S
    }
    stale = [
        (complete[node][0], pod.key, pod)
        for pod in view.unbound
        if (node := pod.status.nominated_node_name) in complete
        if pod.metadata.uid in complete[node][1] and not _is_ended_on(node, view)
    ]
    done, cluster = 0, context.within(STEERED_PODS, context.cluster)
    for _, _, pod in sorted(stale, key=lambda item: item[:2])[:MOST_WITHDRAWN]:
        try:
            cluster.nominate(pod, "")
        except (ObjectNotFound, ObjectConflict):
            continue  # it has a node by now, or is gone
        except ClusterError as error:
            context.meter.count("PodsNotSteered")
            _LOG.warning("nominations are not withdrawn: %s", error, extra={"pod": pod.key})
            break
        done += 1
    if done:
        context.meter.count("NominationsWithdrawn", done)
    return done


def _is_ended_on(node: str, view: ClusterView) -> bool:
    return any(pod.metadata.deletion_timestamp for pod in view.by_node.get(node, ()))


def placeable(claim: NodeClaim, node: Node, planned: Sequence[Pod], here: Sequence[Pod], *, binding: bool) -> list[Pod]:
    """The planned pods that fit on their node as it is now, the most important first.

    Args:
        claim: what it requests beyond pods that are known is kept free: daemons that have not started yet.
        node: as it reports itself.
        planned: pods of the claim that wait.
        here: pods on the node.
        binding: whether they are to be bound. Nothing checks that afterwards, so that only pods qualify of which all
            requirements are checked here; kube-scheduler sees to the others.
    """
    on_node = {pod.metadata.uid for pod in here}  # kube-scheduler may bind a pod between two reads
    planned = [pod for pod in planned if pod.metadata.uid not in on_node]
    free = _less(parse_resources(node.status.allocatable), *(pod_requests(pod) for pod in here))
    counted = {pod.uid for pod in claim.plan.pods}
    known = [*planned, *(pod for pod in here if pod.metadata.uid in counted or owner_kind(pod) == "DaemonSet")]
    kept = _less(claim.plan.requests, *(pod_requests(pod) for pod in known))
    free = _less(free, {resource: max(0, amount) for resource, amount in kept.items()})
    placed = []
    for pod in sorted(planned, key=lambda item: (-item.spec.priority, item.key)):
        wanted = pod_requests(pod)
        fits = all(amount <= free.get(resource, 0) for resource, amount in wanted.items())
        if fits and (not binding or _is_simple(pod, node)):
            free = _less(free, wanted)
            placed.append(pod)
    return placed


def _is_simple(pod: Pod, node: Node) -> bool:
    """True if a pod may be bound to a node as far as anything but resources is concerned."""
    spec = pod.spec
    affinity = spec.affinity
    peers = [term for term in (affinity.pod_affinity, affinity.pod_anti_affinity) if term] if affinity else []
    depends_on_others = (
        any(term.required for term in peers)
        or any(spread.when_unsatisfiable == "DoNotSchedule" for spread in spec.topology_spread_constraints)
        or any(port.host_port for container in spec.containers for port in container.ports)
        or has_claims(pod)
        or bool(spec.resource_claims)
        or bool(spec.scheduling_gates)
        or spec.scheduler_name not in _SCHEDULERS
    )
    if depends_on_others or spec.host_network or node.spec.unschedulable:
        return False
    return untolerated(node.spec.taints, spec.tolerations, ignore_preferences=True) is None and node_affinity_allows(
        spec, node
    )


def _less(amounts: Mapping[str, int], *taken: Mapping[str, int]) -> dict[str, int]:
    left = dict(amounts)
    for item in taken:
        for resource, amount in item.items():
            left[resource] = left.get(resource, 0) - amount
    return left
