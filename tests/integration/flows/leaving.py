"""Holds the shared parts of tests of leaving nodes: a stage with pods on spot nodes, AWS's events, passing time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

from shiplap.flows.messages import rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

ONLY_LARGE = (family_pool("any", ("m6i",), sizes=("large",), capacity_types=("spot",)),)
SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"
REBALANCE = "EC2 Instance Rebalance Recommendation"


def serving(pods: int = 1, *, pools: Sequence[NodePool] = ONLY_LARGE) -> Stage:
    """Spot nodes in service, one per pod."""
    stage = Stage(pools, spot=True)
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    stage.play_on()
    stage.timers.reminders.clear()
    stage.bus.events.clear()
    stage.faults.clear()
    return stage


def warning(stage: Stage, instance_id: str, kind: str = SPOT, **detail: Any) -> str:
    """An event of EC2, sent now."""
    return json.dumps(
        {
            "version": "0",
            "id": "12345678-1234-1234-1234-123456789012",
            "detail-type": kind,
            "source": "aws.ec2",
            "time": rfc3339(stage.clock.now()),
            "resources": [f"arn:aws:ec2:eu-west-1a:instance/{instance_id}"],
            "detail": {"instance-id": instance_id, **detail},
        }
    )


def scheduled_change(stage: Stage, *instance_ids: str, in_s: float | None = None, status: str = "upcoming") -> str:
    """An event of AWS Health about instances; the change begins after so many seconds, if that is told."""
    begins = {} if in_s is None else {"startTime": formatdate(stage.clock.now() + in_s, usegmt=True)}
    detail = {
        **begins,
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "statusCode": status,
        "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
        "affectedEntities": [{"entityValue": instance_id} for instance_id in instance_ids],
    }
    now = rfc3339(stage.clock.now())
    return json.dumps({"source": "aws.health", "detail-type": "AWS Health Event", "time": now, "detail": detail})


def first(stage: Stage) -> tuple[NodeClaim, Instance]:
    """The first claim in service and its instance."""
    claim = next(c for c in stage.claims() if c.state is ClaimState.INITIALIZED)
    instance = next(i for i in stage.compute.alive() if i.id == claim.instance_id)
    stage.faults.clear()  # looking is not a step of any flow
    return claim, instance


def claim_now(stage: Stage, claim: NodeClaim) -> NodeClaim:
    known = stage.state.claim(stage.name, claim.name)
    assert known is not None
    return known


def evicted(stage: Stage) -> list[str]:
    """Names of pods that are being deleted."""
    pods = stage.server.list("pods").items
    return sorted(pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp"))


def kubelets_end_pods(stage: Stage) -> None:
    """Evicted pods end, and their controllers make new ones."""
    for number, name in enumerate(evicted(stage)):
        stage.server.delete("pods", name, grace_s=0)
        stage.add_pods(1, cpu="1200m", memory="2Gi", prefix=f"again-{number}-{name}")


def seconds_pass(stage: Stage, seconds: float) -> None:
    """The clock moves, and timers are delivered."""
    stage.clock.advance(seconds)
    stage.attend_timers()


def play_out(stage: Stage) -> None:
    """Everything that would happen, until all is quiet."""
    for _ in range(60):
        stage.sweep()
        stage.attend_timers()
        kubelets_end_pods(stage)
        stage.join()
        stage.attend()
        gone = {c.node_name for c in stage.claims()}
        for node in stage.server.list("nodes").items:  # the cloud's controller
            name = node["metadata"]["name"]
            if name not in gone:
                for pod in stage.server.list("pods").items:
                    if pod["spec"].get("nodeName") == name:
                        stage.server.delete("pods", pod["metadata"]["name"], grace_s=0)
                        stage.add_pods(1, cpu="1200m", memory="2Gi", prefix=f"lost-{pod['metadata']['name']}")
                stage.server.delete("nodes", name)
        stage.bind()
        if stage.quiet():
            return
        stage.clock.advance(10)
    raise AssertionError(stage.summary())
