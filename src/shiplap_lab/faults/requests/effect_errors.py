"""The effects that campaigns draw, and the errors of adapters when AWS or the API server do not do as they are told."""

from __future__ import annotations

from shiplap.errors import AwsError, AwsThrottled, ClusterUnreachable, ConditionFailed, ShiplapError, StoreThrottled

CLUSTER, EC2 = "cluster.", "compute."
"""Prefixes of the names of effects."""

EFFECTS = (
    "state.*",
    "state.advance",
    "state.advance_all",
    "state.commit",
    "capacity.*",
    "cluster.*",
    "cluster.patch_node",
    "cluster.evict",
    "compute.*",
    "compute.launch",
    "compute.terminate",
    "bus.publish",
    "timers.remind",
    "joins.*",
    "memory.*",
    "recorder.record",
)


def refusal(effect: str) -> ShiplapError:
    """The error that the adapter raises when AWS or the cluster refuses the request for now."""
    if effect.startswith(CLUSTER):
        return ClusterUnreachable("503 Service Unavailable", status=503)
    if effect.startswith((EC2, "health.")):
        return AwsThrottled("Request limit exceeded", code="RequestLimitExceeded")
    return StoreThrottled("throughput exceeded")


def silence(effect: str) -> ShiplapError:
    """The error that the adapter raises when a request was carried out but its answer was lost."""
    if effect.startswith(CLUSTER):
        return ClusterUnreachable("connection reset")
    if effect.startswith(EC2):
        return AwsError("connection reset", code="")
    if effect in ("state.advance", "state.advance_all", "state.commit"):
        return ConditionFailed("a repeated request met what it had written itself")
    return StoreThrottled("connection reset")
