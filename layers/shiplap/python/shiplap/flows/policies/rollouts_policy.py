"""Rollouts within flows: Deployments of pods that must not be missing are restarted, and the pods leave by that."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound
from shiplap.flows.claim_updates import facts
from shiplap.flows.context import FlowContext
from shiplap.flows.pod_events import publish_on_node, publish_on_pod
from shiplap.flows.policies.policy import DecisionFacts, Policy
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, OwnerReference, Pod, is_ready
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.related_objects import RolledWorkload, ScalableName
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.policies.rollouts.rollout_steps import (
    PodOwners,
    RolloutStep,
    StepTaken,
    controller_of,
    covers,
    is_readable,
    restart_annotations,
    restarted_at,
    restarted_for,
    step_of,
)
from shiplap.policies.rollouts.rollout_wish import RolloutWish, wish_of
from shiplap.policies.rollouts.rollouts_settings import RolloutSettings
from shiplap.scheduling.model.planned_pods import ends_with_its_node
from shiplap.scheduling.model.protected_pods import pdb_limits_of
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.policies.rollouts.rollouts_input import MovedPod, RolloutsInUse

_LOG = logging.getLogger(__name__)

MOST_OWNERS = 200
"""Owners read in one invocation. Pods of further ones wait for the next."""

STARTED = "RolloutStarted"
"""Reason of the event about a pod whose Deployment is restarted, and of the one about its node."""
AWAITED = "RolloutAwaited"
"""Reason of the event about a pod that stays until its Deployment is restarted or replaces it."""
IMPOSSIBLE = "RolloutImpossible"
"""Reason of the event about a pod whose Deployment, if it has one, cannot be restarted as it is."""

_NOT_PERMITTED = "Shiplap may not patch it: apply docs/rbac-rollouts.yaml"
_MOST_NAMED = 5
_LONGEST = 200
_TURN_S = 60.0


class _Move(msgspec.Struct):
    """A pod that may leave now, its owners, and the step about it."""

    pod: Pod
    wish: RolloutWish
    owners: PodOwners
    taken: StepTaken

    @property
    def problem(self) -> str:
        """The reason why no restart moves the pod as things are; empty if one does."""
        if self.taken.step not in (RolloutStep.STUCK, RolloutStep.UNABLE):
            return ""
        if self.owners.problem or self.taken.step is RolloutStep.UNABLE:
            return self.taken.why
        return f"{self.owners.title} is not restarted, {self.taken.why}"


class RolloutPolicy(Policy):
    """Restarts Deployments, and keeps their pods from being evicted meanwhile."""

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        super().__init__(settings, context)
        self._chosen = settings.policy(RolloutSettings) or RolloutSettings()
        self._read: dict[ScalableName, RolledWorkload | None] = {}
        self._unread: dict[ScalableName, str] = {}
        self._covering: Mapping[str, Sequence[PodDisruptionBudget]] = {}
        self._let_go: Counter[str] = Counter()

    def moved_otherwise(
        self, claim: NodeClaim, node: Node, leaving: Sequence[Pod], pods: Sequence[Pod]
    ) -> Collection[str]:
        """Restart what can be restarted; return the uids of pods that leave by that, or stay until it is possible."""
        wishes = [(pod, wish) for pod in leaving if (wish := self._wish_of(pod, claim.plan.node_pool)) is not None]
        self._cover(pod for pod, _ in wishes)
        found = (self._move_of(pod, wish, claim.name, pods) for pod, wish in wishes)
        moves = [move for move in found if move is not None]
        self._restart(claim, node, moves)
        held = set()
        for move in moves:
            if self._is_held(move, claim):
                held.add(move.pod.metadata.uid)
            elif move.owners.whole is not None:
                self._let_go[move.owners.whole.metadata.uid] += 1
            self._tell(move, claim)
        if held:
            self.context.meter.count("PodsAwaitRollout", len(held))
        return held

    def disruption_input(self, facts: DecisionFacts) -> RolloutsInUse | None:
        """Return the pods that a restart would move, and those that none can move.

        Owners are read node by node, from another node on each minute: what is read later keeps its node until then.
        """
        from shiplap.policies.rollouts.rollouts_input import RolloutsInUse  # noqa: PLC0415 - only what decides needs it

        view = facts.snapshot.view
        nodes = sorted(
            (node.metadata.name, node.metadata.labels[labels.NODE_POOL])
            for node in view.nodes
            if labels.NODE_POOL in node.metadata.labels
        )
        first = int(facts.snapshot.now // _TURN_S) % max(1, len(nodes))
        wishes = [
            (pod, name, wish)
            for name, pool in (*nodes[first:], *nodes[:first])
            for pod in view.by_node.get(name, ())
            if (wish := self._wish_of(pod, pool)) is not None
        ]
        self._cover(pod for pod, _, _ in wishes)
        planned = (self._planned_move(pod, name, wish, view.by_node[name]) for pod, name, wish in wishes)
        found = [move for move in planned if move is not None]
        return RolloutsInUse(tuple(sorted(found, key=lambda item: (item.node, item.pod)))) if found else None

    def _planned_move(self, pod: Pod, node: str, wish: RolloutWish, pods: Sequence[Pod]) -> MovedPod | None:
        """What becomes of a pod if its node leaves; None if nothing but an eviction."""
        from shiplap.policies.rollouts.rollouts_input import MovedPod  # noqa: PLC0415 - as above

        if wish.evicts and pod.key not in self._covering:
            return None
        move = self._move_of(pod, wish, "", pods)
        if move is None or move.taken.step is RolloutStep.EVICT:
            return None
        return MovedPod(
            pod=pod.key,
            node=node,
            workload=move.owners.title,
            within_s=wish.within_s,
            evicts=wish.evicts,
            problem=move.problem,
            restarted_at=restarted_at(move.owners.deployment) if move.owners.deployment else 0.0,
        )

    def _move_of(self, pod: Pod, wish: RolloutWish, claim: str, pods: Sequence[Pod]) -> _Move | None:
        if not is_ready(pod.status) or pod.metadata.deletion_timestamp or ends_with_its_node(pod):
            return None
        owners = PodOwners(problem=wish.problem) if wish.problem else self._owners_of(pod)
        going = 1
        if (whole := owners.whole) is not None:
            here = [other for other in pods if is_ready(other.status) and not other.metadata.deletion_timestamp]
            going = sum(covers(whole, other) for other in here) + self._let_go[whole.metadata.uid]
        taken = step_of(pod, owners, claim, budgets=self._covering.get(pod.key, ()), going=going)
        return _Move(pod, wish, owners, taken)

    def _wish_of(self, pod: Pod, pool: str) -> RolloutWish | None:
        """The wish of a pod on a node of a NodePool, whose name may be cut to the length of a label."""
        return wish_of(pod, self._annotations.get(label_value_of(pool), {}), self._chosen.within_s)

    @cached_property
    def _annotations(self) -> Mapping[str, Mapping[str, str]]:
        pools = self.settings.manifests.node_pools
        return {label_value_of(pool.metadata.name): pool.metadata.annotations for pool in pools}

    def _restart(self, claim: NodeClaim, node: Node, moves: Sequence[_Move]) -> None:
        """Restart Deployments, no more at once than the settings allow; each pod's step is what came of it."""
        under_way = {
            deployment.metadata.uid
            for move in moves
            if move.taken.step is RolloutStep.LEAVES
            and (deployment := move.owners.deployment) is not None
            and claim.name in restarted_for(deployment)
        }
        began: dict[str, StepTaken] = {}
        started = []
        for move in moves:
            deployment = move.owners.deployment
            if move.taken.step is not RolloutStep.RESTART or deployment is None:
                continue
            if self._is_late(move, claim) and move.wish.evicts:
                continue
            uid = deployment.metadata.uid
            if uid not in began:
                if len(under_way) >= self._chosen.at_once:
                    move.taken = StepTaken(RolloutStep.WAIT, f"{len(under_way)} others are restarted for this node")
                    continue
                began[uid] = self._restarted(deployment, claim)
                if began[uid].step is RolloutStep.RESTART:
                    under_way.add(uid)
                    started.append(move.owners.title)
            move.taken = began[uid]
        if started:
            more = f" and {len(started) - _MOST_NAMED} more" if len(started) > _MOST_NAMED else ""
            text = f"Restarted so that their pods leave this node: {', '.join(started[:_MOST_NAMED])}{more}"
            publish_on_node(node, STARTED, text, self.context)

    def _restarted(self, deployment: RolledWorkload, claim: NodeClaim) -> StepTaken:
        metadata = deployment.metadata
        name = ScalableName(metadata.namespace, "Deployment", metadata.name)
        changed = restart_annotations(deployment, claim.name, self.context.clock.now())
        try:
            self._read[name] = self.context.cluster.annotate_template(
                name, changed, uid=metadata.uid, resource_version=metadata.resource_version
            )
        except ClusterDenied as error:
            self.context.meter.count("RolloutsDenied")
            _LOG.warning("Deployment %s is not restarted: %s", metadata.name, error, extra=facts(claim))
            return StepTaken(RolloutStep.STUCK, _NOT_PERMITTED)
        except (ObjectConflict, ObjectNotFound) as error:  # the next round sees what it is now
            _LOG.info("Deployment %s is not restarted: %s", metadata.name, error, extra=facts(claim))
            return StepTaken(RolloutStep.WAIT, "it has just changed")
        except ClusterUnreachable:
            raise
        except ClusterError as error:  # such as an admission webhook's refusal
            _LOG.warning("Deployment %s is not restarted: %s", metadata.name, error, extra=facts(claim))
            return StepTaken(RolloutStep.STUCK, f"the API server refuses that: {error}"[:_LONGEST])
        self.context.meter.count("RolloutsStarted")
        _LOG.info("Deployment %s/%s is restarted", metadata.namespace, metadata.name, extra=facts(claim))
        return StepTaken(RolloutStep.RESTART)

    def _is_late(self, move: _Move, claim: NodeClaim) -> bool:
        return self.context.clock.now() >= claim.changed_at + move.wish.within_s

    def _is_held(self, move: _Move, claim: NodeClaim) -> bool:
        if move.taken.step is RolloutStep.EVICT:
            return False
        if not move.wish.evicts:
            return True
        return move.taken.step is not RolloutStep.UNABLE and not self._is_late(move, claim)

    def _tell(self, move: _Move, claim: NodeClaim) -> None:
        """Tell users of a pod what is done about it. What was told within the hour is not told again."""
        step, why = move.taken.step, move.taken.why
        if step is RolloutStep.EVICT:
            return
        after = f"after {move.wish.within_s:.0f} s it is evicted" if move.wish.evicts else "the pod stays until then"
        leaves = f"Its node leaves ({claim.failure})"
        if step in (RolloutStep.RESTART, RolloutStep.LEAVES):
            publish_on_pod(
                move.pod, STARTED, f"{leaves}: {move.owners.title} replaces the pod by a restart; {after}", self.context
            )
        elif step is RolloutStep.WAIT:
            text = f"{leaves}: {move.owners.title} is restarted later, {why}; {after}"
            publish_on_pod(move.pod, AWAITED, text, self.context)
        else:
            if step is RolloutStep.UNABLE:
                after = "the pod is evicted" if move.wish.evicts else "the pod stays"
            publish_on_pod(move.pod, IMPOSSIBLE, f"{leaves}: {move.problem}; {after}", self.context)

    def _owners_of(self, pod: Pod) -> PodOwners:
        reference = controller_of(pod.metadata)
        if reference is None or not is_readable(reference):
            return PodOwners(reference)
        found, problem = self._workload(pod.metadata.namespace, reference)
        above = controller_of(found.metadata) if found is not None else None
        if problem or above is None or above.kind != "Deployment":
            return PodOwners(reference, found, problem=problem)
        deployment, problem = self._workload(pod.metadata.namespace, above)
        return PodOwners(reference, found if deployment or problem else None, deployment, problem)

    def _workload(self, namespace: str, reference: OwnerReference) -> tuple[RolledWorkload | None, str]:
        """The workload that an owner reference names, None if it is gone; and why it cannot be read."""
        name = ScalableName(namespace, reference.kind, reference.name)
        if name not in self._read and name not in self._unread:
            if len(self._read) >= MOST_OWNERS:
                return None, "its owner is read in a later round"
            self._read_once(name)
        if name in self._unread:
            return None, self._unread[name]
        found = self._read[name]
        return (found if found is not None and found.metadata.uid == reference.uid else None), ""

    def _read_once(self, name: ScalableName) -> None:
        try:
            self._read[name] = self.context.cluster.workload(name)
        except ClusterUnreachable:
            raise
        except ClusterDenied as error:
            self._unread[name] = "Shiplap may not read its owner: apply docs/rbac.yaml"
            _LOG.warning("%s %s is not read: %s", name.kind, name.name, error, extra={"cluster": self.settings.name})
        except ClusterError as error:
            self._unread[name] = f"{name.kind} {name.namespace}/{name.name} cannot be read"
            _LOG.warning("%s %s is not read: %s", name.kind, name.name, error, extra={"cluster": self.settings.name})

    def _cover(self, pods: Iterable[Pod]) -> None:
        """Find the budgets of these pods, by the pod's namespace and name."""
        known = tuple(pods)
        self._covering = pdb_limits_of(self._budgets, known).by_pod if known else {}

    @cached_property
    def _budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return self.context.cluster.disruption_budgets()
