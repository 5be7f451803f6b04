"""Launch templates, named after what they hold: equal content is one template, and a change makes a new one.

A template is never altered, so any number of functions may make and use it at the same time; they agree only on its
name.

The sweep deletes unused templates, because an account may have at most 5,000 in a region. A template is in use while an
instance that was launched from it lives, or while it is young: its maker may be about to launch from it. A template
that is deleted too early is made again when it is needed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws import tags
from shiplap.aws.ec2.template_data import template_data
from shiplap.aws.ec2_errors import TEMPLATE_EXISTS, TEMPLATE_GONE, aws_errors, launch_errors
from shiplap.aws.failures import code_of
from shiplap.ports import FleetOverride, FleetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import RequestLaunchTemplateDataTypeDef

_NAMES_PER_CALL = 200


class LaunchTemplate(msgspec.Struct, frozen=True):
    """A launch template as it should be. `tags` are the template's own."""

    name: str
    data: RequestLaunchTemplateDataTypeDef
    tags: dict[str, str]


class LaunchTemplates:
    """Makes sure that templates exist, and remembers which do."""

    def __init__(self, ec2: EC2Client) -> None:
        self._ec2 = ec2
        self._known: set[str] = set()

    def ensure(self, wanted: Iterable[LaunchTemplate]) -> None:
        """Create those that do not exist yet.

        Raises:
            NodeClassNotReady: EC2 refuses what the EC2NodeClass asks for.
            AwsThrottled, AwsError: EC2 refused.
        """
        missing = {template.name: template for template in wanted if template.name not in self._known}
        names = sorted(missing)
        for start in range(0, len(names), _NAMES_PER_CALL):
            for found in self._existing(names[start : start + _NAMES_PER_CALL]):
                missing.pop(found, None)
                self._known.add(found)
        for name in sorted(missing):
            self._create(missing[name])
            self._known.add(name)

    def forget(self, names: Iterable[str]) -> None:
        """Look again next time: others may have deleted them."""
        self._known.difference_update(names)

    def _existing(self, names: list[str]) -> list[str]:
        # By filter, because a request by name fails as a whole when one of the names does not exist.
        with aws_errors("describe launch templates"):
            answer = self._ec2.describe_launch_templates(
                Filters=[{"Name": "launch-template-name", "Values": names}], MaxResults=_NAMES_PER_CALL
            )
        return [found["LaunchTemplateName"] for found in answer["LaunchTemplates"]]

    def _create(self, template: LaunchTemplate) -> None:
        with launch_errors(f"create launch template {template.name}"):
            try:
                self._ec2.create_launch_template(
                    LaunchTemplateName=template.name,
                    LaunchTemplateData=template.data,
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags.written(template.tags)}],
                )
            except ClientError as error:
                if code_of(error) != TEMPLATE_EXISTS:  # another function was faster: its content is the same
                    raise


def launch_template(request: FleetRequest, override: FleetOverride, install: str) -> LaunchTemplate:
    """The launch template for one override of a request, and for all that boot like it.

    Raises:
        NodeClassNotReady: user data cannot be made, or a volume size is wrong.
    """
    own_tags = tags.of_pool(request.claim, request.node_class, install)
    data = template_data(request, override, own_tags)
    digest = sha256(msgspec.json.encode((data, own_tags), order="deterministic")).hexdigest()[:20]
    return LaunchTemplate(f"shiplap/{request.claim.cluster}/{digest}", data, own_tags)


UNUSED_FOR_S = 24 * 3600
"""How old a template must be, in seconds."""

MOST_AT_ONCE = 10
"""Templates deleted by one sweep: as many as may be sent at once, so that pods do not wait for it."""

_MADE_FROM = "aws:ec2launchtemplate:id"
_ALIVE = ["pending", "running", "stopping", "stopped"]


def sweep_templates(ec2: EC2Client, cluster: str, now: float, install: str = "") -> int:
    """Delete what nothing uses of a cluster's launch templates, oldest first; returns how many. `now` is epoch seconds.

    Templates of other installs are theirs to delete. One without an install's tag is older than that tag, and any
    install deletes it when it is unused: it counts as used while an instance of any install was made from it.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    old = _old(ec2, cluster, now, install)
    if not old:
        return 0
    used = _used(ec2, cluster)
    unused = [template_id for template_id in old if template_id not in used][:MOST_AT_ONCE]
    for template_id in unused:
        with aws_errors(f"delete launch template {template_id}"):
            try:
                ec2.delete_launch_template(LaunchTemplateId=template_id)
            except ClientError as error:
                if code_of(error) not in TEMPLATE_GONE:
                    raise
    return len(unused)


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
