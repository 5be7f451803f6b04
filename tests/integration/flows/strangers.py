"""A stage with an instance that nobody has recorded."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import MEMORY, format_resources
from shiplap.ports import Instance
from tests.builders.pools import family_pool
from tests.integration.flows.stage import MIB, Stage

TYPE = "m6i.large"


AMI = "ami-twin"


TRUE_MEMORY = 7600 * MIB


def found(*, ami: str = AMI, **changes: Any) -> Stage:
    """A stage with a node of somebody else's; `changes` of its capacity, or of what it keeps back."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    instance = Instance(
        id="i-0000000000000beef",
        instance_type=TYPE,
        zone="eu-west-1a",
        capacity_type="on-demand",
        ami=ami,
        state="running",
        cluster="somebody-elses",
    )
    stage.compute.add(instance)
    known = stage.types[TYPE]
    capacity = {**known.capacity, MEMORY: TRUE_MEMORY, **changes.get("capacity", {})}
    overhead = {**known.overhead, **changes.get("overhead", {})}
    allocatable = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
    stage.server.create(
        "nodes",
        {
            "metadata": {"name": "theirs", "labels": {labels.INSTANCE_TYPE: TYPE}},
            "spec": {"providerID": instance.provider_id, "unschedulable": True},
            "status": {"capacity": format_resources(capacity), "allocatable": format_resources(allocatable)},
        },
    )
    stage.add_pods(1)
    return stage
