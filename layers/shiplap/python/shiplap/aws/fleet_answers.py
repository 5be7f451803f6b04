"""What EC2 answered to a launch whose answer was lost, when its token must not be asked with again.

EC2 keeps the answer with the fleet, and an instant fleet carries the launch's tag. So what a launch came to is known as
soon as its fleet is found, long before it is certain that describing instances shows all there are.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shiplap.aws import fleet, tags
from shiplap.aws.failures import FAILURES
from shiplap.ports import FleetResult, Instance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FleetDataTypeDef

_LOG = logging.getLogger(__name__)

_UNDER_WAY = ("pending_fulfillment", "pending_termination")
_NEVER_NODES = ("shutting-down", "terminated", "stopping", "stopped")


def first_answer(ec2: EC2Client, launch: fleet.Launch, launched_at: float, fleet_id: str = "") -> FleetResult | None:
    """What the fleets of a launch gave, but for instances that have ended since; None while that is not certain.

    None, too, when EC2 refuses to tell: then its instances are looked for by tag for as long as they may be hidden.
    With the id of its fleet, the fleet need not be found by tag.
    """
    token = launch.request.token
    try:
        found = _fleets(ec2, [fleet_id] if fleet_id else _ids(ec2, token))
        if not found or any(item.get("ActivityStatus") in _UNDER_WAY for item in found):
            return None
        given = [each for item in found for each in fleet.instances_of(launch, item, launched_at)]
        instances = _still_there(ec2, sorted(given, key=lambda instance: instance.id))
    except FAILURES as error:
        _LOG.warning("the fleet of launch %s was not found: %s", token, error)
        return None
    return FleetResult(instances, tuple(failure for item in found for failure in fleet.failures_of(launch, item)))


def _ids(ec2: EC2Client, token: str) -> list[str]:
    """Raises what botocore raises."""
    wanted = {"resource-type": "fleet", "key": tags.LAUNCH, "value": token}
    shown = ec2.describe_tags(Filters=[{"Name": name, "Values": [value]} for name, value in wanted.items()])
    return sorted({tag["ResourceId"] for tag in shown["Tags"]})


def _fleets(ec2: EC2Client, ids: list[str]) -> Sequence[FleetDataTypeDef]:
    """Raises what botocore raises."""
    # Instant fleets are described by id alone: a filter leaves them out.
    return ec2.describe_fleets(FleetIds=ids)["Fleets"] if ids else ()


def _still_there(ec2: EC2Client, given: Sequence[Instance]) -> tuple[Instance, ...]:
    """Without those that have ended; what is not shown yet has been launched a moment ago. Raises as botocore does."""
    if not given:
        return ()
    ids = [instance.id for instance in given]
    states: dict[str, str] = {}
    for page in ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-id", "Values": ids}]):
        for reservation in page["Reservations"]:
            states |= {seen["InstanceId"]: seen["State"]["Name"] for seen in reservation["Instances"]}
    kept = (replace(item, state=states.get(item.id, item.state)) for item in given)
    return tuple(item for item in kept if item.state not in _NEVER_NODES)
