"""The subnets and security groups an EC2NodeClass selects: terms are alternatives, tags in a term must all match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import SecurityGroup, Subnet
from shiplap.manifests.custom_resources import EC2NodeClass

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import FilterTypeDef, SubnetTypeDef


def tag_filters(tags: Mapping[str, str]) -> list[FilterTypeDef]:
    """One filter per tag, sorted by key; the value `*` asks only that the tag exists."""
    return [
        {"Name": "tag-key", "Values": [key]} if value == "*" else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]


def subnets(ec2: EC2Client, node_class: EC2NodeClass) -> tuple[Subnet, ...]:
    """The subnets, those with most free addresses first.

    Raises:
        NodeClassNotReady: nothing matches.
        AwsThrottled, AwsError: EC2 refused.
    """
    terms = node_class.spec.subnet_selector_terms
    queries = _queries([(term.id, tag_filters(term.tags)) for term in terms], "subnet-id")
    by_id: dict[str, SubnetTypeDef] = {}
    for query in queries:
        with aws_errors("describe subnets"):
            for page in ec2.get_paginator("describe_subnets").paginate(Filters=query):
                by_id |= {subnet["SubnetId"]: subnet for subnet in page["Subnets"]}
    if not by_id:
        raise NodeClassNotReady(
            f"EC2NodeClass {node_class.metadata.name}: subnetSelectorTerms match no subnet", code="SubnetsNotFound"
        )
    answered = [
        Subnet(subnet_id, seen["AvailabilityZone"], seen.get("AvailabilityZoneId", ""), seen["AvailableIpAddressCount"])
        for subnet_id, seen in by_id.items()
    ]
    return tuple(sorted(answered, key=lambda subnet: (-subnet.free_ips, subnet.id)))


def security_groups(ec2: EC2Client, node_class: EC2NodeClass) -> tuple[SecurityGroup, ...]:
    """The security groups, sorted by id.

    Raises:
        NodeClassNotReady: nothing matches.
        AwsThrottled, AwsError: EC2 refused.
    """
    terms = node_class.spec.security_group_selector_terms
    queries = _queries([(term.id, tag_filters(term.tags)) for term in terms], "group-id")
    names = sorted({term.name for term in terms if term.name})
    if names:
        queries.append([{"Name": "group-name", "Values": names}])
    by_id: dict[str, SecurityGroup] = {}
    for query in queries:
        with aws_errors("describe security groups"):
            for page in ec2.get_paginator("describe_security_groups").paginate(Filters=query):
                for group in page["SecurityGroups"]:
                    by_id[group["GroupId"]] = SecurityGroup(group["GroupId"], group.get("GroupName", ""))
    if not by_id:
        raise NodeClassNotReady(
            f"EC2NodeClass {node_class.metadata.name}: securityGroupSelectorTerms match no security group",
            code="SecurityGroupsNotFound",
        )
    return tuple(by_id[group_id] for group_id in sorted(by_id))


def _queries(terms: list[tuple[str, list[FilterTypeDef]]], id_filter: str) -> list[list[FilterTypeDef]]:
    """One query for all terms with an id, one for each term with tags."""
    ids = sorted({term_id for term_id, _ in terms if term_id})
    queries: list[list[FilterTypeDef]] = [[{"Name": id_filter, "Values": ids}]] if ids else []
    return queries + [tags for _, tags in terms if tags]
