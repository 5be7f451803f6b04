"""The law that rollouts change no plan, and the pods that they move when nodes are disrupted."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.kubernetes.labels import ROLLOUT
from shiplap.kubernetes.objects import Pod
from shiplap.policies.rollouts.rollout_wish import RolloutWish, wish_of
from shiplap.policies.rollouts.rollouts_input import MovedPod, RolloutsInUse
from shiplap.scheduling.model.snapshot import Snapshot
from tests.rules import POOL

NAME = "rollouts change no plan"

_WITHIN_S = 900.0


def idle(snapshot: Snapshot) -> Snapshot:
    """Every NodePool asks for rollouts. They matter only once a node leaves."""
    pools = tuple(
        replace(pool, metadata=replace(pool.metadata, annotations=pool.metadata.annotations | {ROLLOUT: "stay"}))
        for pool in snapshot.manifests.node_pools
    )
    return replace(snapshot, manifests=replace(snapshot.manifests, node_pools=pools))


def disruption_inputs(snapshot: Snapshot) -> list[DisruptionInput]:
    """Return the pods that restarts would move: pods of a ReplicaSet can, and one of each was restarted lately."""
    of_pools = {pool.metadata.name: pool.metadata.annotations for pool in snapshot.manifests.node_pools}
    pools = {node.metadata.name: node.metadata.labels.get(POOL, "") for node in snapshot.view.nodes}
    moved = [
        _moved(pod, wish, snapshot.now)
        for pod in snapshot.view.pods
        if (name := pools.get(pod.spec.node_name)) is not None
        and (wish := wish_of(pod, of_pools.get(name, {}), _WITHIN_S)) is not None
    ]
    return [RolloutsInUse(tuple(sorted(moved, key=lambda item: (item.node, item.pod))))] if moved else []


def _moved(pod: Pod, wish: RolloutWish, now: float) -> MovedPod:
    can = any(owner.kind == "ReplicaSet" for owner in pod.metadata.owner_references)
    return MovedPod(
        pod=pod.key,
        node=pod.spec.node_name,
        workload=f"Deployment {pod.metadata.labels.get('app')}",
        within_s=wish.within_s,
        evicts=wish.evicts,
        problem="" if can else "it has no Deployment",
        restarted_at=now - 3600 if can and pod.metadata.name.endswith("-0") else 0.0,
    )
