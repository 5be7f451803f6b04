"""Which AMIs instances were launched from, whoever launched them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shiplap.aws.ec2_errors import aws_errors

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

_VALUES = 200
"""Values one filter takes."""


def images(ec2: EC2Client, instance_ids: Sequence[str], known: dict[str, str]) -> dict[str, str]:
    """The AMI of each instance that EC2 knows.

    An instance keeps its AMI for life, so what was once answered is kept in `known` and not asked again; neither are
    instances that EC2 did not know, which are kept as empty.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    unknown = [instance_id for instance_id in instance_ids if instance_id not in known]
    for start in range(0, len(unknown), _VALUES):
        asked = unknown[start : start + _VALUES]
        pages = ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-id", "Values": asked}])
        with aws_errors("describe instances"):
            seen = {
                instance["InstanceId"]: instance.get("ImageId", "")
                for page in pages
                for reservation in page["Reservations"]
                for instance in reservation["Instances"]
            }
        known.update({instance_id: seen.get(instance_id, "") for instance_id in asked})
    return {instance_id: known[instance_id] for instance_id in instance_ids if known[instance_id]}
