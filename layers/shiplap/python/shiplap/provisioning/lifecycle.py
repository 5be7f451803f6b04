"""The lifecycle flow: from launched to in service, and the end of what will never be.

Every hint, be it a node that was seen or a timer, comes down to one question about one claim: what is the next step
that the world allows? Only this flow ends instances, and it never does so on one look alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.errors import ConditionFailed, ObjectNotFound
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.ports import Instance
from shiplap.provisioning import events
from shiplap.provisioning.claims import GRACE_S, facts, fail, is_garbage, release_pilot
from shiplap.provisioning.learn import instance_of
from shiplap.provisioning.messages import NodeSeen, Timer
from shiplap.provisioning.register import initialize, is_ready, register
from shiplap.provisioning.world import World
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

LOOK_AGAIN_S = 15.0
"""How soon a claim is looked at again when its node has joined but is not complete, in seconds."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Claims by what became of them, each sorted by name; `strangers` counts nodes that are not ours."""

    registered: tuple[str, ...] = ()
    initialized: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    strangers: int = 0


def attend(settings: ClusterSettings, hints: Sequence[NodeSeen | Timer], world: World) -> Report:
    """Take every claim the hints point at as far as the world allows.

    Raises:
        ClusterError, StoreError, AwsError: what was done is durable, and the same hints may be handled again.
    """
    rounds = _Rounds(settings.name, world)
    names: set[str] = set()
    strangers = 0
    for hint in hints:
        if isinstance(hint, Timer):
            names.add(hint.claim)
            continue
        name = rounds.claim_of(hint)
        if name:
            names.add(name)
        else:
            strangers += 1
    if strangers:
        world.meter.count("NodesNotOurs", strangers)
    for name in sorted(names):
        rounds.visit(name)
    return Report(
        registered=tuple(rounds.registered),
        initialized=tuple(rounds.initialized),
        ended=tuple(rounds.ended),
        strangers=strangers,
    )


class _Rounds:
    """One invocation's visits to claims, sharing what has been listed already."""

    def __init__(self, cluster: str, world: World) -> None:
        self.registered: list[str] = []
        self.initialized: list[str] = []
        self.ended: list[str] = []
        self._cluster = cluster
        self._world = world
        self._nodes: dict[str, Node] = {}
        self._listed = False

    def claim_of(self, hint: NodeSeen) -> str:
        """The name of the claim whose node was seen; empty when the node is not ours."""
        try:
            node = self._world.cluster.node(hint.node)
        except ObjectNotFound:
            instance_id = instance_of(hint.provider_id)
        else:
            instance_id = instance_of(node.spec.provider_id)
            self._nodes[instance_id] = node
        if not instance_id:
            return ""
        claim = self._world.state.claim_of_instance(instance_id)
        if claim is not None:
            return claim.name if claim.cluster == self._cluster else ""
        # The index may lag behind the launch; the instance's own tag does not depend on it.
        instances = self._world.compute.instances(self._cluster)
        return next((instance.claim for instance in instances if instance.id == instance_id), "")

    def visit(self, name: str) -> None:
        """The next steps of one claim."""
        claim = self._world.state.claim(self._cluster, name)
        try:
            if claim is None or claim.state in (ClaimState.FAILED, ClaimState.GONE):
                self._clear_away(name, claim)
            elif claim.state is ClaimState.TERMINATING:
                self._end(claim)
            elif claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING):
                self._again(claim, LOOK_AGAIN_S)  # seen before its launch is written down, which schedule sees to
            else:
                self._attend(claim)
        except ConditionFailed as error:  # another invocation is at it; what is left to do, it does
            self._world.meter.count("ClaimsLost")
            _LOG.info("claim was advanced meanwhile: %s", error, extra={"cluster": self._cluster, "claim": name})

    def _attend(self, claim: NodeClaim) -> None:
        node = self._node_of(claim)
        if node is None:
            self._without_node(claim)
            return
        if claim.state is ClaimState.LAUNCHED:
            registered = register(claim, node, self._world)
            if registered is None:
                self._again(claim, LOOK_AGAIN_S)
                return
            self.registered.append(claim.name)
            claim = registered
            node = self._world.cluster.node(node.metadata.name)
        if claim.state is ClaimState.REGISTERED:
            if initialize(claim, node, self._world) is not None:
                self.initialized.append(claim.name)
        elif not is_ready(node):
            self._without_instance(claim)

    def _node_of(self, claim: NodeClaim) -> Node | None:
        """The claim's Node, freshly read: by the name it registered with, or else by its providerID."""
        if claim.instance_id in self._nodes:
            return self._nodes[claim.instance_id]
        if claim.node_name and not self._listed:
            try:
                return self._world.cluster.node(claim.node_name)
            except ObjectNotFound:
                return None
        if not self._listed:
            self._listed = True
            self._nodes |= {instance_of(node.spec.provider_id): node for node in self._world.cluster.nodes()}
        return self._nodes.get(claim.instance_id)

    def _without_node(self, claim: NodeClaim) -> None:
        """No Node has joined, or it is gone: wait, or give up."""
        now = self._world.clock.now()
        if self._without_instance(claim):
            return
        if claim.state is not ClaimState.LAUNCHED:
            return
        if now < claim.deadline_at:
            self._again(claim, claim.deadline_at - now)
            return
        waited_s = now - claim.changed_at
        reason = f"did not join within {waited_s:.0f} s"
        # Terminating first: from here on nobody can register the node, so that what is ended was never in service.
        claim = self._world.state.advance(claim, ClaimState.TERMINATING, failure=reason, changed_at=now)
        _LOG.warning("node %s", reason, extra=facts(claim))
        self._world.meter.count("NodesNotJoined")
        self._end(claim)

    def _without_instance(self, claim: NodeClaim) -> bool:
        """Whether the claim's instance is gone; if so, so is the claim."""
        now = self._world.clock.now()
        if now < claim.changed_at + GRACE_S:  # describing may lag behind the launch
            return False
        if self._world.compute.find(self._cluster, claim.name) is not None:
            return False
        reason = f"instance {claim.instance_id} is gone"
        if claim.state is ClaimState.LAUNCHED:
            claim = fail(claim, reason, self._world)
            self._replan(claim)
        else:
            claim = self._world.state.advance(claim, ClaimState.GONE, failure=reason, changed_at=now)
            self._world.tell(events.of_claim(events.TERMINATED, claim, now, reason=reason))
        self._world.meter.count("InstancesVanished")
        self.ended.append(claim.name)
        return True

    def _end(self, claim: NodeClaim) -> None:
        """End a Terminating claim's instance, then the claim, and have its pods planned again."""
        world = self._world
        world.compute.terminate(self._cluster, claim.instance_id)
        now = world.clock.now()
        claim = world.state.advance(claim, ClaimState.GONE, changed_at=now)
        world.meter.count("NodesTerminated")
        _LOG.info("terminated", extra=facts(claim))
        world.tell(events.of_claim(events.TERMINATED, claim, now, reason=claim.failure))
        self._replan(claim)
        self.ended.append(claim.name)

    def _replan(self, claim: NodeClaim) -> None:
        now = self._world.clock.now()
        release_pilot(claim, self._world)
        hint = f"{claim.cluster}/{claim.name}/ended"
        self._world.tell(events.pods_pending(claim.cluster, claim.pods, claim.failure, now, event_id=hint))

    def _clear_away(self, name: str, claim: NodeClaim | None) -> None:
        """End an instance that carries this claim's tag although the claim has ended, or was never written.

        The sweep took the first look; this is the second one. An instance whose Node was opened to pods is only
        reported: it may be doing work.
        """
        now = self._world.clock.now()
        instance = self._world.compute.find(self._cluster, name)
        if instance is None or not is_garbage(instance, claim, now):
            return
        if self._in_service(instance):
            self._world.meter.count("NodesWithoutClaim")
            _LOG.warning("node without a claim is left alone", extra=_instance_facts(instance))
            return
        self._world.compute.terminate(self._cluster, instance.id)
        self._world.meter.count("GarbageTerminated")
        _LOG.warning("instance without a claim terminated", extra=_instance_facts(instance))
        self.ended.append(name)

    def _in_service(self, instance: Instance) -> bool:
        for node in self._world.cluster.nodes():
            if instance_of(node.spec.provider_id) == instance.id:
                return all(taint.key != labels.UNREGISTERED_TAINT for taint in node.spec.taints)
        return False

    def _again(self, claim: NodeClaim, delay_s: float) -> None:
        self._world.remind(self._cluster, claim.name, "join", delay_s)


def _instance_facts(instance: Instance) -> dict[str, str]:
    return {"cluster": instance.cluster, "claim": instance.claim, "instance_id": instance.id}
