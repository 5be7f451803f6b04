"""Every question that AWS answers in pages is read to its last page: botocore's own clients, answers of three pages."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.stub import Stubber

import shiplap.aws
from shiplap.aws.bucket import BucketRecorder
from shiplap.aws.dynamodb import items
from shiplap.aws.ec2 import ec2_compute, fleet_requests, launch_templates
from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.aws.health import Ec2Health
from shiplap.aws.iam_identities import AwsNodeIdentities
from shiplap.aws.pricing import catalog_source, on_demand_prices
from shiplap.aws.selectors import capacity_reservations, network
from shiplap.aws.selectors.amis import AmiResolver
from shiplap.aws.selectors.parameters import Parameters
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    CapacityReservationSelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shiplap.node_identities import OwnNodeRole
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings
from tests.policy_parts import policy_parts
from tests.unit.aws.asked_pages import MADE, Listing, instance

NAMES = ("x1", "x2", "x3")
"""What the three pages of an answer hold, one each."""
NOW = 1_800_000_000.0
NODE_CLASS = EC2NodeClass(
    ObjectMeta(name="default"),
    EC2NodeClassSpec(
        subnet_selector_terms=(SubnetSelectorTerm(tags={"a": "b"}),),
        security_group_selector_terms=(SecurityGroupSelectorTerm(tags={"a": "b"}),),
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"a": "*"}),),
    ),
)
EC2_TOKENS = ("NextToken", "NextToken")
TOKENS = {
    "s3": ("NextContinuationToken", "ContinuationToken"),
    "savingsplans": ("nextToken", "nextToken"),
    "dynamodb": ("LastEvaluatedKey", "ExclusiveStartKey"),
    "iam": ("Marker", "Marker"),
}
"""The fields that name the next page in an answer and in a request, where they are not EC2's."""


def instance_type(name: str) -> dict[str, Any]:
    sizes = {"VCpuInfo": {"DefaultVCpus": 2}, "MemoryInfo": {"SizeInMiB": 8192}}
    runs = {"ProcessorInfo": {"SupportedArchitectures": ["arm64"]}, "SupportedVirtualizationTypes": ["hvm"]}
    return {"InstanceTypes": [{"InstanceType": name, "NetworkInfo": {}, **sizes, **runs}]}


def reservation(name: str) -> dict[str, Any]:
    fields = {"InstanceType": "m5.large", "InstancePlatform": "Linux/UNIX", "Tags": [{"Key": "a", "Value": "b"}]}
    return {"CapacityReservations": [{"CapacityReservationId": name, **fields}]}


def offer(name: str) -> dict[str, Any]:
    return {"PriceList": [name]}


def compute(ec2: Any) -> Ec2Compute:
    settings = ClusterSettings(name="demo", region="eu-west-1", install="shiplap")
    return Ec2Compute(settings, ec2=ec2, ssm=lambda: ec2, eks=lambda: ec2, clock=lambda: NOW)


def health(ec2: Any) -> Ec2Health:
    return Ec2Health("demo", ec2=ec2, eks=lambda: ec2, zonal_shift=lambda: ec2, clock=lambda: NOW)


def ended(ec2: Any) -> Iterator[str]:
    """The instances of a fleet that EC2 says have ended."""
    given = [Instance(name, "m5.large", "a", "spot", "ami", "pending") for name in NAMES]
    kept = {item.id for item in fleet_requests._still_there(ec2, given)}
    return (name for name in NAMES if name not in kept)


IN_IAM = {"Path": "/shiplap/eu-west-1/own/demo/", "Arn": "arn:aws:iam::123456789012:role/x", "CreateDate": MADE}


def identities(client: Any) -> AwsNodeIdentities:
    return AwsNodeIdentities("own", "eu-west-1", iam=client, ec2=client, ssm=lambda: client, eks=lambda: client)


def images(ec2: Any) -> Iterator[str]:
    amis = AmiResolver(ec2, Parameters(lambda: ec2, lambda: NOW), lambda: NOW)
    return (image["ImageId"] for image in amis._images([], ()))


def keys(read: Callable[..., Iterable[items.Item]], **request: Any) -> Callable[[Any], Iterable[str]]:
    return lambda table: (item["key"]["S"] for item in read(table, "table", **request))


LISTINGS = {
    "bucket.BucketRecorder._listed": Listing(
        "s3",
        "list_objects_v2",
        lambda name: {"Contents": [{"Key": f"records/{name}"}]},
        lambda s3: BucketRecorder(s3, "bucket")._listed("records/", after="records/a"),
    ),
    "bucket.BucketRecorder._folders": Listing(
        "s3",
        "list_objects_v2",
        lambda name: {"CommonPrefixes": [{"Prefix": name}]},
        lambda s3: BucketRecorder(s3, "bucket")._folders("records/"),
    ),
    "dynamodb.items.query": Listing(
        "dynamodb",
        "query",
        lambda name: {"Items": [{"key": {"S": name}}]},
        keys(items.query, equals=("cluster", "demo")),
    ),
    "dynamodb.items.scan": Listing(
        "dynamodb", "scan", lambda name: {"Items": [{"key": {"S": name}}]}, keys(items.scan)
    ),
    "ec2.ec2_compute.images": Listing(
        "ec2", "describe_instances", instance, lambda ec2: ec2_compute.images(ec2, NAMES, {})
    ),
    "ec2.ec2_compute.Ec2Compute._tagged": Listing(
        "ec2", "describe_instances", instance, lambda ec2: (found.id for found in compute(ec2)._tagged("demo", []))
    ),
    "ec2.fleet_requests._still_there": Listing(
        "ec2", "describe_instances", lambda name: instance(name, State={"Name": "terminated"}), ended
    ),
    "ec2.launch_templates._old": Listing(
        "ec2",
        "describe_launch_templates",
        lambda name: {"LaunchTemplates": [{"LaunchTemplateId": name, "CreateTime": MADE}]},
        lambda ec2: launch_templates._old(ec2, "demo", NOW, "shiplap"),
    ),
    "ec2.launch_templates._used": Listing(
        "ec2", "describe_instances", instance, lambda ec2: launch_templates._used(ec2, "demo")
    ),
    "iam_identities.AwsNodeIdentities._pages": Listing(
        "iam",
        "list_roles",
        lambda name: {"Roles": [{"RoleName": name, "RoleId": "A" * 16, **IN_IAM}]},
        lambda iam: (item["RoleName"] for item in identities(iam)._listed("list_roles", "Roles")),
    ),
    "iam_identities.AwsNodeIdentities.holders": Listing(
        "iam",
        "list_instance_profiles_for_role",
        lambda name: {
            "InstanceProfiles": [{"InstanceProfileName": name, "InstanceProfileId": "A" * 16, "Roles": [], **IN_IAM}]
        },
        lambda iam: identities(iam).holders(OwnNodeRole("nodes", "arn:nodes", "demo", NOW)),
    ),
    "iam_identities.AwsNodeIdentities._current": Listing(
        "ssm",
        "get_parameters_by_path",
        lambda name: {"Parameters": [{"Name": f"/shiplap/own/demo/{name}", "Value": name}]},
        lambda ssm: sorted(identities(ssm)._current()),
    ),
    "iam_identities.AwsNodeIdentities._instances": Listing(
        "ec2",
        "describe_instances",
        instance,
        lambda ec2: (seen["InstanceId"] for seen in identities(ec2)._instances(["arn:nodes"])),
    ),
    "pricing.catalog_source.instance_types": Listing(
        "ec2",
        "describe_instance_types",
        instance_type,
        lambda ec2: (kind.instance_type for kind in catalog_source.instance_types(ec2)),
    ),
    "pricing.catalog_source.spot_prices": Listing(
        "ec2",
        "describe_spot_price_history",
        lambda name: {
            "SpotPriceHistory": [{"InstanceType": name, "AvailabilityZone": "a", "SpotPrice": "0.1", "Timestamp": MADE}]
        },
        lambda ec2: catalog_source.spot_prices(ec2, NOW),
    ),
    "pricing.catalog_source.zones_by_type": Listing(
        "ec2",
        "describe_instance_type_offerings",
        lambda name: {"InstanceTypeOfferings": [{"InstanceType": name, "Location": "a"}]},
        catalog_source.zones_by_type,
    ),
    "pricing.on_demand_prices._offers": Listing(
        "pricing",
        "get_products",
        offer,
        lambda pricing: map(str, on_demand_prices._offers(pricing, "eu-west-1", "Shared", "Compute Instance")),
    ),
    "health.Ec2Health.ailing": Listing(
        "ec2",
        "describe_instance_status",
        lambda name: {"InstanceStatuses": [{"InstanceId": name, "InstanceStatus": {"Status": "impaired"}}]},
        lambda ec2: (problem.instance_id for problem in health(ec2).ailing()),
    ),
    "selectors.amis.AmiResolver._images": Listing(
        "ec2", "describe_images", lambda name: {"Images": [{"ImageId": name}]}, images
    ),
    "selectors.capacity_reservations.capacity_reservations": Listing(
        "ec2",
        "describe_capacity_reservations",
        reservation,
        lambda ec2: (found.id for found in capacity_reservations.capacity_reservations(ec2, NODE_CLASS, "linux")),
    ),
    "selectors.network.security_groups": Listing(
        "ec2",
        "describe_security_groups",
        lambda name: {"SecurityGroups": [{"GroupId": name, "GroupName": name}]},
        lambda ec2: (group.id for group in network.security_groups(ec2, NODE_CLASS)),
    ),
    "selectors.network.subnets": Listing(
        "ec2",
        "describe_subnets",
        lambda name: {"Subnets": [{"SubnetId": name, "AvailabilityZone": "a", "AvailableIpAddressCount": 9}]},
        lambda ec2: (subnet.id for subnet in network.subnets(ec2, NODE_CLASS)),
    ),
    **{name: asked for module in policy_parts("unit.aws", "pages") for name, asked in module.LISTINGS.items()},
}
"""By the function that asks, named from `shiplap.aws` on."""

WITHOUT_PAGINATOR = {
    "dynamodb.items.query",
    "dynamodb.items.scan",
    *(name for module in policy_parts("unit.aws", "pages") for name in module.WITHOUT_PAGINATOR),
}
"""Functions that follow the pages on their own."""

REQUESTS = {"health.Ec2Health.ailing": 3}
"""How many questions a function asks, each of them answered in as many pages, where it is not one."""


@cache
def client_of(service: str) -> Any:
    secrets = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    return botocore.session.Session().create_client(service, region_name="eu-west-1", **secrets)


def pages(listing: Listing) -> Iterator[dict[str, Any]]:
    """An answer in pages, each but the last with the token of the next."""
    given, _ = TOKENS.get(listing.service, EC2_TOKENS)
    for number, name in enumerate(NAMES, 1):
        token: Any = str(number) if listing.service != "dynamodb" else {"key": {"S": str(number)}}
        more = number < len(NAMES)
        truncated = {"IsTruncated": more} if listing.service in ("s3", "iam") else {}
        yield {**listing.page(name), **truncated, **({given: token} if more else {})}


@pytest.mark.parametrize("function", LISTINGS)
def test_what_only_the_last_page_holds_is_found(function: str) -> None:
    listing = LISTINGS[function]
    client = client_of(listing.service)
    given, wanted = TOKENS.get(listing.service, EC2_TOKENS)
    asked_for: list[Any] = []

    def note(params: Mapping[str, Any], **_: Any) -> None:
        asked_for.append(params.get(wanted))

    answers = list(pages(listing)) * REQUESTS.get(function, 1)
    client.meta.events.register("before-parameter-build.*.*", note, unique_id=function)
    try:
        with Stubber(client) as answered:
            for answer in answers:
                answered.add_response(listing.operation, answer)
            assert sorted(listing.read(client)) == sorted(NAMES)
            answered.assert_no_pending_responses()
    finally:
        client.meta.events.unregister("before-parameter-build.*.*", unique_id=function)
    assert asked_for == [None, *(answer.get(given) for answer in answers[:-1])], "each page is asked for by its token"


def test_every_function_that_asks_for_pages_is_tried() -> None:
    assert set(asking("get_paginator")) == LISTINGS.keys() - WITHOUT_PAGINATOR


def asking(method: str) -> Iterator[str]:
    """The functions of the adapters that call a method, named from `shiplap.aws` on."""
    folder = Path(shiplap.aws.__path__[0])
    for file in sorted(folder.rglob("*.py")):
        module = ".".join(file.relative_to(folder).with_suffix("").parts)
        yield from (f"{module}.{name}" for name in _calling(ast.parse(file.read_text(encoding="utf-8")), method))


def _calling(node: ast.AST, method: str, inside: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _calling(child, method, f"{inside}.{child.name}".lstrip("."))
        elif isinstance(child, ast.Attribute) and child.attr == method:
            yield inside
        else:
            yield from _calling(child, method, inside)
