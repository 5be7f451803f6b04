"""Launch templates that nothing uses any more are deleted, for an account may have no more than 5,000 in a region.

One is in use while an instance that was launched from it lives, or while it is young: whoever made it may be about to
launch from it. One that is deleted all the same is made again by whoever needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from shiplap.aws import tags
from shiplap.aws.ec2_errors import TEMPLATE_GONE, aws_errors
from shiplap.aws.failures import code_of

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

UNUSED_FOR_S = 24 * 3600
"""How old a template must be, in seconds."""

MOST_AT_ONCE = 10
"""Templates deleted by one sweep: as many as may be sent at once, so that pods do not wait for it."""

_MADE_FROM = "aws:ec2launchtemplate:id"
_ALIVE = ["pending", "running", "stopping", "stopped"]


def sweep_templates(ec2: EC2Client, cluster: str, now: float, install: str = "") -> int:
    """Delete what nothing uses of a cluster's launch templates, oldest first; returns how many. `now` is epoch seconds.

    Templates of other installs are theirs to delete. One without an install's tag is older than that tag, and whoever
    finds it unused deletes it: it counts as used while an instance of any install was made from it.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    old = _old(ec2, cluster, now, install)
    if not old:
        return 0
    used = _used(ec2, cluster)
    doomed = [template_id for template_id in old if template_id not in used][:MOST_AT_ONCE]
    for template_id in doomed:
        with aws_errors(f"delete launch template {template_id}"):
            try:
                ec2.delete_launch_template(LaunchTemplateId=template_id)
            except ClientError as error:
                if code_of(error) not in TEMPLATE_GONE:
                    raise
    return len(doomed)


def _old(ec2: EC2Client, cluster: str, now: float, install: str) -> list[str]:
    """Ids of the cluster's templates that are old enough and no other install's, oldest first."""
    pages = ec2.get_paginator("describe_launch_templates").paginate(
        Filters=tags.owned_by(cluster), PaginationConfig={"PageSize": 200}
    )
    with aws_errors("describe launch templates"):
        made = sorted(
            (found["CreateTime"].timestamp(), found["LaunchTemplateId"])
            for page in pages
            for found in page["LaunchTemplates"]
            if not tags.is_foreign(tags.read(found.get("Tags", [])), install)
        )
    return [template_id for created, template_id in made if created + UNUSED_FOR_S < now]


def _used(ec2: EC2Client, cluster: str) -> set[str]:
    """Ids of the templates that living instances of the cluster were launched from."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[*tags.owned_by(cluster), {"Name": "instance-state-name", "Values": _ALIVE}],
        PaginationConfig={"PageSize": 1000},
    )
    with aws_errors("describe instances"):
        return {
            tags.read(seen.get("Tags", [])).get(_MADE_FROM, "")
            for page in pages
            for reservation in page["Reservations"]
            for seen in reservation["Instances"]
        }
