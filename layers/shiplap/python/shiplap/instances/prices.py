"""Prices guessed from hardware, for where AWS has not been asked."""

from __future__ import annotations

from shiplap.instances.catalog import Ec2InstanceType

SPOT_FRACTION = 0.4


def on_demand(kind: Ec2InstanceType) -> float:
    """USD per hour of an on-demand Linux instance in us-east-1."""
    return round(kind.v_cpu_info.default_v_cpus * 0.0336 + kind.memory_info.size_in_mi_b / 1024 * 0.0036, 5)
