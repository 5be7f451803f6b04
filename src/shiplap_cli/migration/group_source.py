"""What AWS answers about the groups of a cluster, asked for with the caller's own credentials; read-only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from shiplap.aws.session import config, session
from shiplap.errors import AwsError, InvalidInput
from shiplap.manifests.files.documents import Document

_TAGS = ("k8s.io/cluster-autoscaler/{}", "kubernetes.io/cluster/{}")


def documents_of(cluster: str, region: str) -> list[Document]:
    """Node groups, Auto Scaling groups and their launch templates, as the AWS command line would print them.

    Raises:
        InvalidInput: there is no cluster of this name, or it has no group.
        AwsError: AWS refused; the message names the action that is missing.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow to import

    try:
        answers = list(_answers(cluster, region))
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "ResourceNotFoundException":
            raise InvalidInput("--cluster", f"EKS knows no cluster {cluster!r} in this region") from error
        raise AwsError(f"AWS refused {error.operation_name}: {error}", code=code) from error
    except BotoCoreError as error:
        raise AwsError(f"AWS cannot be asked: {error}") from error
    if not answers:
        raise InvalidInput("--cluster", f"cluster {cluster!r} has neither node groups nor tagged Auto Scaling groups")
    return [Document("AWS", number, 0, f"answer {number + 1}", answer) for number, answer in enumerate(answers)]


def _answers(cluster: str, region: str) -> Iterator[dict[str, Any]]:
    templates: set[tuple[str, str]] = set()
    eks = _client("eks", region)
    for page in eks.get_paginator("list_nodegroups").paginate(clusterName=cluster):
        for name in page["nodegroups"]:
            answer = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
            yield {"nodegroup": answer}
            written = answer.get("launchTemplate") or {}
            templates.add((written.get("id", ""), written.get("version", "$Default")))
    groups = list(_groups(cluster, region))
    if groups:
        yield {"AutoScalingGroups": groups}
    for group in groups:
        mixed = (group.get("MixedInstancesPolicy") or {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
        written = mixed or group.get("LaunchTemplate") or {}
        templates.add((written.get("LaunchTemplateId", ""), written.get("Version", "$Default")))
    ec2 = _client("ec2", region)
    for template, version in sorted(templates):
        if template:
            found = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=[version])
            versions = [
                entry | ({"DefaultVersion": True, "VersionNumber": entry["VersionNumber"]} if "$" in version else {})
                for entry in found["LaunchTemplateVersions"]
            ]
            yield {"LaunchTemplateVersions": versions}


def _groups(cluster: str, region: str) -> Iterator[dict[str, Any]]:
    seen = set()
    paginator = _client("autoscaling", region).get_paginator("describe_auto_scaling_groups")
    for tag in _TAGS:
        for page in paginator.paginate(Filters=[{"Name": "tag-key", "Values": [tag.format(cluster)]}]):
            for group in page["AutoScalingGroups"]:
                if group["AutoScalingGroupName"] not in seen:
                    seen.add(group["AutoScalingGroupName"])
                    yield group


def _client(service: str, region: str) -> Any:
    return session().create_client(service, region_name=region or os.environ.get("AWS_REGION"), config=config())
