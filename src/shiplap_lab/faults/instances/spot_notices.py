"""Notices of EC2 for spot instances."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.fault_world import FaultWorld

WARNING_S = 120.0
"""How long before it takes an instance back spot warns, in seconds."""

_INTERRUPTION = "EC2 Spot Instance Interruption Warning"
_REBALANCE = "EC2 Instance Rebalance Recommendation"


def spot_instances(world: FaultWorld) -> list[Instance]:
    """All that have not ended."""
    return [instance for instance in world.compute.alive() if instance.capacity_type == "spot"]


def warn(world: FaultWorld, instance_id: str, happened_at: float) -> None:
    """Send the warning that spot takes an instance back, with the moment that it names, epoch seconds."""
    world.say(_INTERRUPTION, instance_id, happened_at, **{"instance-action": "terminate"})


def advise(world: FaultWorld, instance_id: str) -> None:
    """Send the recommendation to leave an instance."""
    world.say(_REBALANCE, instance_id)
