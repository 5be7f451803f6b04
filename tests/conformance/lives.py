"""A node's life as a table row: what happens to it, second by second, and what is to be seen at the end.

    life(spot(), after(10)) → Seen(state="Draining", evicted=("web-000",), …)

One pod runs on one spot node; the rows say what befalls it. Time passes only in `after`, with timers delivered as they
fall due and a sweep each minute; kubelets end no pods unless the row says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Budget, NodePool
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import InstanceProblem
from tests.builders.claims import changes
from tests.integration.flows.leaving import (
    ONLY_LARGE,
    REBALANCE,
    STATE,
    claim_now,
    evicted,
    first,
    scheduled_change,
    seconds_pass,
    serving,
    warning,
)
from tests.integration.flows.stage import Stage

RESERVATION = "EC2 Capacity Reservation Instance Interruption Warning"

Move = Callable[[Stage, NodeClaim], object]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a life in figures.

    Holds the claim's state, the seconds to its deadline (0 for none), the evicted pods, the offerings at rest and the
    number of replacements.
    """

    state: str
    deadline_s: float = 0.0
    evicted: tuple[str, ...] = ()
    resting: tuple[str, ...] = ()
    launched: int = 0


def life(*moves: Move, pools: Sequence[NodePool] = ONLY_LARGE) -> Seen:
    """Play the moves on the one node of a fresh stage."""
    stage = serving(pools=pools)
    claim, _ = first(stage)
    launches = len(stage.compute.launches)
    for move in moves:
        move(stage, claim)
        stage.attend_timers()
    known = claim_now(stage, claim)
    now = stage.clock.now()
    at_rest = stage.state.read(stage.name, now).unavailable
    return Seen(
        state=known.state,
        deadline_s=max(0.0, known.deadline_at - now) if known.deadline_at else 0.0,
        evicted=tuple(evicted(stage)),
        resting=tuple(item.capacity_type for item in at_rest),
        launched=len(stage.compute.launches) - launches,
    )


def patient(grace: str, annotations: Mapping[str, str] | None = None) -> tuple[NodePool, ...]:
    """The usual pool with a terminationGracePeriod."""
    (plain,) = ONLY_LARGE
    claim = msgspec.structs.replace(plain.spec.template.spec, termination_grace_period=grace or None)
    template = msgspec.structs.replace(plain.spec.template, spec=claim)
    metadata = msgspec.structs.replace(plain.metadata, annotations=dict(annotations or {}))
    spec = msgspec.structs.replace(plain.spec, template=template)
    return (msgspec.structs.replace(plain, metadata=metadata, spec=spec),)


def no_disruption() -> tuple[NodePool, ...]:
    """The usual pool with a budget that allows no disruption at all."""
    (plain,) = ONLY_LARGE
    budgets = msgspec.structs.replace(plain.spec.disruption, budgets=(Budget(nodes="0"),))
    return (msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, disruption=budgets)),)


def spot() -> Move:
    return lambda stage, claim: stage.interrupt(warning(stage, claim.instance_id))


def reservation() -> Move:
    def move(stage: Stage, claim: NodeClaim) -> None:
        stage.state.advance(claim, claim.state, **changes(claim, capacity_type="reserved"))
        stage.interrupt(warning(stage, claim.instance_id, RESERVATION))

    return move


def rebalance() -> Move:
    return lambda stage, claim: stage.interrupt(warning(stage, claim.instance_id, REBALANCE))


def instance_is(state: str) -> Move:
    return lambda stage, claim: stage.interrupt(warning(stage, claim.instance_id, STATE, state=state))


def change_scheduled() -> Move:
    return lambda stage, claim: stage.interrupt(scheduled_change(stage, claim.instance_id))


def ails(kind: str) -> Move:
    """EC2 tells of a check that failed two minutes ago, or of an event."""

    def move(stage: Stage, claim: NodeClaim) -> None:
        since = 0.0 if kind == "event" else stage.clock.now() - 120
        stage.health.ailments.add(InstanceProblem(claim.instance_id, kind, since))
        stage.sweep()

    return move


def condition(kind: str, status: str) -> Move:
    def move(stage: Stage, claim: NodeClaim) -> None:
        item = {"type": kind, "status": status, "lastTransitionTime": rfc3339(stage.clock.now())}
        stage.server.patch("nodes", claim.node_name, {"status": {"conditions": [item]}}, subresource="status")

    return move


def after(seconds: int) -> Move:
    """Time passes in steps of five seconds; a sweep comes by each minute, and at the end."""

    def move(stage: Stage, _: NodeClaim) -> None:
        for number in range(seconds // 5):
            seconds_pass(stage, 5)
            if number % 12 == 11:
                stage.sweep()
                stage.attend_timers()

    return move


def swept() -> Move:
    return lambda stage, _: stage.sweep()


def replaced() -> Move:
    """The replacement joins and is ready."""

    def move(stage: Stage, _: NodeClaim) -> None:
        stage.schedule()
        stage.join()
        stage.attend()

    return move


def pod_becomes(**changes: Any) -> Move:
    """The pod is like this: `metadata` and `spec` are merged in."""

    def move(stage: Stage, _: NodeClaim) -> None:
        item = stage.server.get("pods", "web-000", "default")
        for part, fields in changes.items():
            item = {**item, part: {**item[part], **fields}}
        stage.server.replace("pods", item, "default")

    return move


def guarded() -> Move:
    """A PodDisruptionBudget allows no eviction of the pod, which is ready."""

    def move(stage: Stage, _: NodeClaim) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        stage.server.patch("pods", "web-000", {"status": status}, subresource="status")
        budget = {"metadata": {"name": "all"}, "spec": {"maxUnavailable": 0, "selector": {}}}
        stage.server.create("poddisruptionbudgets", budget)

    return move


def deleted() -> Move:
    """The pod is deleted by somebody else."""
    return lambda stage, _: stage.server.delete("pods", "web-000", "default")


def gone() -> Move:
    """The pod has ended."""
    return lambda stage, _: stage.server.delete("pods", "web-000", "default", grace_s=0)


def attached() -> Move:
    def move(stage: Stage, claim: NodeClaim) -> None:
        spec = {"attacher": "ebs.csi.aws.com", "nodeName": claim.node_name}
        spec |= {"source": {"persistentVolumeName": "pv-1"}}
        stage.server.create("volumeattachments", {"metadata": {"name": "csi-1"}, "spec": spec})

    return move


def claimed() -> Move:
    """The pod stays to the end, and the volume that is attached is its own."""

    def move(stage: Stage, claim: NodeClaim) -> None:
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        pod_becomes(spec={"tolerations": [{"operator": "Exists"}], "volumes": [volume]})(stage, claim)
        body = {"metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "pv-1"}}
        stage.server.create("persistentvolumeclaims", body)

    return move
