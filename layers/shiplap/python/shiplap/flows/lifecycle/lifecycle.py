"""The lifecycle flow: from launched to in service, and the end of what will never be.

Every hint, be it a node that was seen or a timer, comes down to one question about one claim: what is the next step
that the cluster allows? What cannot be done yet is looked at again when the sweep comes by.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

import msgspec

from shiplap.disruption.repair.reboots import is_left_over
from shiplap.errors import (
    AwsThrottled,
    ClusterDenied,
    ClusterError,
    ClusterGone,
    ClusterUnreachable,
    ConditionFailed,
    ObjectNotFound,
    ShiplapError,
    StoreThrottled,
)
from shiplap.flows import claim_events
from shiplap.flows.claim_updates import DISRUPTION, ENDED, GARBAGE, RESERVATION, InstanceOwners, facts
from shiplap.flows.context import FlowContext
from shiplap.flows.learn import has_reported, instance_of
from shiplap.flows.lifecycle.drain import Drains, cordon, drain, let_pods_go
from shiplap.flows.lifecycle.endings import (
    Inventory,
    delete_orphaned_node,
    give_up,
    give_up_ended,
    has_ended_by_itself,
    has_vanished,
    terminate_claims,
    terminate_garbage,
    why_ended,
    write_off,
)
from shiplap.flows.lifecycle.joining import JoinRecorder, give_up_incomplete, record_failed_join
from shiplap.flows.lifecycle.pod_placement import Steering
from shiplap.flows.lifecycle.registration import initialize, is_unregistered, register, seconds_since
from shiplap.flows.messages import NodeSeen, Timer
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, is_ready
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

LOOK_AGAIN_S = 15.0
"""How soon a claim is looked at again when its node was seen too early, in seconds."""

NODE_GRACE_S = 300.0
"""How long the Node of a claim in service may be missing before its instance is ended, in seconds."""


_NOT_MARKED = f"it has the providerID of a joining instance and lacks the taint {labels.UNREGISTERED_TAINT}"

_NOT_OF_ONE_CLAIM = (ClusterUnreachable, ClusterDenied, StoreThrottled, AwsThrottled)
"""Errors that every further visit would meet, too."""


class FailedHint(msgspec.Struct, frozen=True):
    """A hint that could not be followed, and why. It is worth delivering again."""

    hint: NodeSeen | Timer
    error: ShiplapError


class LifecycleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Claims by what became of them, each sorted by name; `foreign_nodes` counts nodes that are not ours.

    `failures` are of single hints, each logged; the other hints were handled.
    """

    registered: tuple[str, ...] = ()
    initialized: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    foreign_nodes: int = 0
    failures: tuple[FailedHint, ...] = ()


def visit_claims(settings: ClusterSettings, hints: Sequence[NodeSeen | Timer], context: FlowContext) -> LifecycleReport:
    """Take every claim the hints point at as far as the cluster allows. One that fails does not hold up the others.

    What was done is durable, and the same hints may be handled again.

    Raises:
        ClusterUnreachable, ClusterDenied, StoreThrottled, AwsThrottled: a failure that every visit would have met.
    """
    if settings.paused:  # the first sweep after the pause reminds of all that is due by then
        context.meter.count("InvocationsPaused")
        _LOG.info("paused", extra={"cluster": settings.name, "hints": len(hints)})
        return LifecycleReport()
    reported_ended = {hint.claim for hint in hints if isinstance(hint, Timer) and hint.step == ENDED}
    visiting = _Visits(settings, reported_ended, context)
    wanted = _wanted_visits(visiting, hints)
    if wanted.strangers:
        context.meter.count("NodesNotOurs", wanted.strangers)
    try:
        errors = visit_all(visiting, wanted)
        errors |= visiting.finish()
    finally:
        visiting.joins.write()
        if visiting.disruption_is_due:
            context.publish(claim_events.disruption_due(settings.name, settings.network, context.clock.now()))
        if visiting.reservation_is_due:
            context.publish(claim_events.reservation_started(settings.name, "", context.clock.now()))
    failures = [FailedHint(hint, errors[name]) for name in sorted(errors) for hint in wanted.hints[name]]
    return LifecycleReport(
        registered=tuple(visiting.registered),
        initialized=tuple(visiting.initialized),
        ended=tuple(visiting.ended),
        foreign_nodes=wanted.strangers,
        failures=(*wanted.failures, *failures),
    )


class WantedVisits(msgspec.Struct, frozen=True):
    """The claims that hints point at, each with its hints; `seen` are claims whose node was seen."""

    hints: Mapping[str, Sequence[NodeSeen | Timer]]
    seen: Collection[str]
    garbage: Collection[str]
    strangers: int
    failures: Sequence[FailedHint]


def _wanted_visits(visiting: _Visits, hints: Sequence[NodeSeen | Timer]) -> WantedVisits:
    """Raises what would go wrong with every hint."""
    by_claim: dict[str, list[NodeSeen | Timer]] = {}
    seen: set[str] = set()
    garbage: set[str] = set()
    strangers = 0
    failures: list[FailedHint] = []
    for hint in hints:
        if isinstance(hint, Timer) and hint.step == DISRUPTION:
            visiting.disruption_is_due = True
            continue
        if isinstance(hint, Timer) and hint.step == RESERVATION:
            visiting.reservation_is_due = True
            continue
        try:
            name = hint.claim if isinstance(hint, Timer) else visiting.claim_of(hint)
        except _NOT_OF_ONE_CLAIM:
            raise
        except ShiplapError as error:
            _LOG.warning("node not attended: %s", error, extra={"cluster": visiting.cluster})
            failures.append(FailedHint(hint, error))
            continue
        if not name:
            strangers += 1
            continue
        by_claim.setdefault(name, []).append(hint)
        if isinstance(hint, NodeSeen):
            seen.add(name)
        elif hint.step == GARBAGE:
            garbage.add(name)
    return WantedVisits(by_claim, seen, garbage, strangers, failures)


def visit_all(visiting: _Visits, wanted: WantedVisits) -> dict[str, ShiplapError]:
    """The errors of single claims, by their names. Raises what would go wrong with all of them."""
    errors: dict[str, ShiplapError] = {}
    for name in sorted(wanted.hints, key=lambda name: (name not in wanted.seen, name)):  # who joined waits for nobody
        try:
            if name in wanted.garbage:
                visiting.clear(name)
            visiting.visit(name, seen=name in wanted.seen)
        except _NOT_OF_ONE_CLAIM:
            raise
        except ShiplapError as error:
            _LOG.warning("claim not attended: %s", error, extra={"cluster": visiting.cluster, "claim": name})
            errors[name] = error
    return errors


class _Visits:
    """One invocation's visits to claims, sharing what has been listed already."""

    def __init__(self, settings: ClusterSettings, reported_ended: Collection[str], context: FlowContext) -> None:
        self.registered: list[str] = []
        self.initialized: list[str] = []
        self.ended: list[str] = []
        self.disruption_is_due = False
        self.reservation_is_due = False
        self.joins = JoinRecorder(settings.name, context)
        self.cluster = settings.name
        self._settings = settings
        self._context = context
        self._reported_ended = reported_ended
        self._terminating: list[NodeClaim] = []
        self._nodes: dict[str, dict[str, Node]] = {}  # by instance, then by the Node's name
        self._listed = False
        self._leaves_pods = False
        self._drains = Drains(settings, context)
        self._inventory = Inventory(settings.name, context)
        self._steering = Steering(settings.placement, context)

    def claim_of(self, hint: NodeSeen) -> str:
        """The name of the claim whose node was seen; empty when the node is not ours."""
        instance_id, marked = instance_of(hint.provider_id), True
        try:
            node = self._context.cluster.node(hint.node)
        except ObjectNotFound:
            pass  # the claim can be found by the hint's own providerID
        else:
            instance_id, marked = instance_of(node.spec.provider_id), is_of_a_node_pool(node)
            self._note(node)
        if not instance_id:
            return ""
        claim = self._context.state.claim_of_instance(instance_id)
        if claim is not None:
            return claim.name if claim.cluster == self.cluster else ""
        if not marked:
            return ""
        # The index may lag behind the launch; the instance's own tag and the claims do not depend on it.
        instance = self._context.compute.instance(self.cluster, instance_id)
        if instance is None or instance.claim:
            return "" if instance is None else instance.claim
        holder = InstanceOwners(self._context.state.claims(self.cluster)).of(instance)
        return "" if holder is None else holder.name

    def clear(self, name: str) -> None:
        """End what carries the tag of a claim, or of a launch, and has no right to."""
        if terminate_garbage(self._settings, name, self._inventory, self._context):
            self.ended.append(name)
        claim = self._context.state.claim(self.cluster, name)
        if claim is not None:
            delete_orphaned_node(self.cluster, claim, self._inventory, self._context)

    def visit(self, name: str, *, seen: bool) -> None:
        """The next steps of one claim; `seen` when its node was, so that it is worth looking again soon."""
        claim = self._context.state.claim(self.cluster, name)
        try:
            if claim is None or claim.newer or claim.state in (ClaimState.FAILED, ClaimState.GONE):
                return
            if claim.state is ClaimState.TERMINATING:
                if has_ended_by_itself(claim):
                    self._let_pods_go(claim)
                self._terminating.append(claim)
            elif claim.state is ClaimState.DRAINING:
                node = self._node_of(claim)
                empty = drain(claim, node, self._drains, self._context, again=not seen)
                if empty is not None:
                    if node is not None and not is_ready(node.status):
                        self._let_pods_go(empty, node)
                    self._terminating.append(empty)
            elif claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING):
                self._look_again_soon(claim, seen=seen)  # its launch is not written down yet, which schedule sees to
            else:
                self._advance(claim, seen=seen)
        except ConditionFailed as error:  # another invocation is at it; what is left to do, it does
            self._context.meter.count("ClaimsLost")
            _LOG.info("claim was advanced meanwhile: %s", error, extra={"cluster": self.cluster, "claim": name})

    def finish(self) -> dict[str, ShiplapError]:
        """End the instances of all claims that are Terminating by now, together; the errors by the claims' names.

        Raises what would go wrong with other claims, too.
        """
        claims, self._terminating = self._terminating, []
        error = self._finish(claims)
        if error is None:
            return {}
        if len(claims) == 1:
            return {claims[0].name: error}
        each = {claim.name: self._finish([claim]) for claim in claims}  # one that cannot be ended keeps no other
        return {name: error for name, error in each.items() if error is not None}

    def _finish(self, claims: Sequence[NodeClaim]) -> ShiplapError | None:
        try:
            for claim in terminate_claims(claims, self._context):
                self._ended(claim)
        except _NOT_OF_ONE_CLAIM:
            raise
        except ShiplapError as error:
            names = ", ".join(claim.name for claim in claims)
            _LOG.warning("instances not ended: %s", error, extra={"cluster": self.cluster, "claim": names})
            return error
        return None

    def _advance(self, claim: NodeClaim, *, seen: bool) -> None:
        node = self._joining_node(claim) if claim.state is ClaimState.LAUNCHED else self._node_of(claim)
        if claim.state is ClaimState.LAUNCHED:
            if node is None or not has_reported(node) or self._has_ended(claim):
                self._wait_for_node(claim, seen=seen and node is not None)
                return
            self._steering.nominate(claim, node)
            launched_at = claim.changed_at
            claim, node = register(claim, node, self._context)
            self.joins.joined(claim, seconds_since(launched_at, claim.changed_at))
            self.registered.append(claim.name)
        if node is None:
            self._without_node(claim)
            return
        if claim.deadline_at:  # its Node was missing, and has come back
            claim = self._context.state.advance(claim, claim.state, deadline_at=0.0)
        if claim.cordoned:
            cordon(node, self._context)
        if claim.state is ClaimState.REGISTERED:
            complete = initialize(claim, node, self._context)
            if complete is None:
                give_up_incomplete(claim, node, self._settings, self._context)
            else:
                self.joins.initialized(complete, seconds_since(claim.changed_at, complete.changed_at))
                self.initialized.append(claim.name)
                self.disruption_is_due |= claim.is_replacement
                self._steering.bind(complete, lambda: self._node_by_name(complete))
        elif not is_ready(node.status) and has_vanished(claim, self._context):
            self._let_pods_go(claim, node)
            self._ended(write_off(claim, self._context))
        elif claim.is_rebooting or is_left_over(claim, node):
            self._reboot(claim, node, seen=seen)

    def _let_pods_go(self, claim: NodeClaim, node: Node | None = None) -> None:
        """Let pods leave a node whose kubelet ends none; without `node` it is read.

        A cluster that refuses is asked once, so that claims end.
        """
        if self._leaves_pods:
            return
        try:
            node = node or self._node_of(claim)
            if node is not None:
                let_pods_go(claim, node, self._drains, self._context)
        except ClusterError as error:
            self._leaves_pods = True
            _LOG.warning("pods of an ended instance are left to Kubernetes: %s", error, extra=facts(claim))

    def _reboot(self, claim: NodeClaim, node: Node, *, seen: bool) -> None:
        from shiplap.flows.lifecycle import rebooting  # noqa: PLC0415 - rare

        if claim.is_rebooting:
            rebooting.reboot(claim, node, self._drains, self._settings, self._context, again=not seen)
        else:
            rebooting.reopen(claim, node, self._context)

    def _has_ended(self, claim: NodeClaim) -> bool:
        """True if AWS reported that the claim's instance has ended, and it has. Its node must not be opened to pods."""
        return claim.name in self._reported_ended and why_ended(claim, self._context) is not None

    def _node_of(self, claim: NodeClaim) -> Node | None:
        """The claim's Node, freshly read: by the name it registered with, or else by its providerID."""
        try:
            return self._read_node_of(claim)
        except ClusterGone:  # as if it were missing: what is not there twice, minutes apart, is given up
            return None

    def _read_node_of(self, claim: NodeClaim) -> Node | None:
        known = self._nodes.get(claim.instance_id, {})
        if claim.node_name:  # read for itself even after a list: one that could not be read is not gone
            return known.get(claim.node_name) or self._node_by_name(claim)
        if not known:
            self._list_nodes()
        return next(iter(self._nodes.get(claim.instance_id, {}).values()), None)

    def _joining_node(self, claim: NodeClaim) -> Node | None:
        """The Node of a Launched claim, by the taint that its user data gives it, as Karpenter asks for it.

        Any kubelet can write the providerID of another instance into its Node. Such a Node is not registered, and does
        not stand in for the one that bears the taint.
        """
        try:
            if not any(map(is_unregistered, self._nodes.get(claim.instance_id, {}).values())):
                self._list_nodes()
        except ClusterGone:  # as if it were missing, as in `_node_of`
            return None
        known = self._nodes.get(claim.instance_id, {})
        marked = {name: node for name, node in known.items() if is_unregistered(node)}
        for name in sorted(known.keys() - marked.keys()):
            self._context.meter.count("NodesRefused")
            _LOG.warning("node %s is not registered: %s", name, _NOT_MARKED, extra=facts(claim))
        if len(marked) <= 1:
            return next(iter(marked.values()), None)
        instance = self._context.compute.instance(self.cluster, claim.instance_id)
        named = marked.get(instance.private_dns) if instance is not None else None
        self._context.meter.count("NodesRefused", len(marked) - (named is not None))
        _LOG.warning("only the node with its instance's name counts of %s", sorted(marked), extra=facts(claim))
        return named

    def _list_nodes(self) -> None:
        if not self._listed:
            self._listed = True
            for node in self._context.cluster.nodes():
                self._note(node)

    def _note(self, node: Node) -> None:
        self._nodes.setdefault(instance_of(node.spec.provider_id), {})[node.metadata.name] = node

    def _node_by_name(self, claim: NodeClaim) -> Node | None:
        """The Node that has the claim's name, freshly read, if it is the claim's: addresses are used again."""
        try:
            node = self._context.cluster.node(claim.node_name)
        except ObjectNotFound:
            return None
        return node if instance_of(node.spec.provider_id) == claim.instance_id else None

    def _wait_for_node(self, claim: NodeClaim, *, seen: bool) -> None:
        """A Launched claim whose Node has not joined, or not reported what it has: wait, or give up."""
        now = self._context.clock.now()
        if (failure := why_ended(claim, self._context)) is not None:
            self._terminating.append(give_up_ended(claim, failure, self._settings, self._context))
        elif has_vanished(claim, self._context):
            self._ended(write_off(claim, self._context))
        elif now >= claim.deadline_at:
            record_failed_join(claim, self._context)
            reason = f"did not join within {now - claim.changed_at:.0f} s"
            self._terminating.append(give_up(claim, reason, self._context))
        else:
            self._look_again_soon(claim, seen=seen)

    def _without_node(self, claim: NodeClaim) -> None:
        """The Node of a claim in service is gone: so is its instance, or it soon will be."""
        now = self._context.clock.now()
        if has_vanished(claim, self._context):
            self._ended(write_off(claim, self._context))
        elif not claim.deadline_at:
            self._context.state.advance(claim, claim.state, deadline_at=now + NODE_GRACE_S)
            self._context.set_timer(self.cluster, claim.name, "node gone", NODE_GRACE_S)
        elif now >= claim.deadline_at:
            self._terminating.append(give_up(claim, f"its Node {claim.node_name} is gone", self._context))

    def _ended(self, claim: NodeClaim) -> None:
        self.ended.append(claim.name)

    def _look_again_soon(self, claim: NodeClaim, *, seen: bool) -> None:
        """Look again soon after a node was seen. A timer is not answered with a timer: the sweep sends the next."""
        if seen:
            self._context.set_timer(self.cluster, claim.name, "join", LOOK_AGAIN_S)


def is_of_a_node_pool(node: Node) -> bool:
    """True if the node shows that it was launched for a NodePool."""
    return is_unregistered(node) or labels.NODE_POOL in node.metadata.labels
