"""Lists AWS's authorisations of a called operation, by its Service Authorization Reference: actions on resources.

One call may be several authorisations: an instant fleet is RunInstances too, tags written while something is made are
CreateTags, a launch template with an instance profile is PassRole, a transaction is its writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.permissions.evaluator import Request, of

ACCOUNT = "123456789012"
SHARER = "999999999999"
"""Shares its subnets, security groups, capacity reservations and placement groups with ACCOUNT by AWS RAM."""

Params = Mapping[str, Any]
Tags = Mapping[str, str]


class Lookup(NamedTuple):
    """The facts that an authorisation needs beside the call: tags of existing things, templates' contents by name."""

    region: str
    tags_of: Callable[[str], Tags]
    template: Callable[[str], Params]
    template_id: Callable[[str], str]
    role_of_profile: Mapping[str, str]
    arn_in_iam: Callable[[str, str], str] = lambda kind, name: f"arn:aws:iam::{ACCOUNT}:{kind}/{name}"
    """By kind (`role`, `instance-profile`) and name; the path is part of it."""


def authorizations(service: str, operation: str, params: Params, lookup: Lookup) -> tuple[Request, ...]:
    """All that a call is authorised for. Raises NotImplementedError for operations that nobody described here."""
    special = _SPECIAL.get((service, operation))
    if special is not None:
        return tuple(special(params, lookup))
    if service == "ec2" and operation.startswith("Describe"):
        return (of(f"ec2:{operation}", "*", {"aws:RequestedRegion": lookup.region}),)
    raise NotImplementedError(f"what {service}:{operation} is authorised for")


def arn(service: str, region: str, resource: str, account: str = ACCOUNT) -> str:
    """The ARN of something in the account."""
    return f"arn:aws:{service}:{region}:{account}:{resource}"


# EC2


def _tags(specifications: Any) -> dict[str, dict[str, str]]:
    """Tags by resource type of TagSpecifications."""
    return {item["ResourceType"]: {tag["Key"]: tag["Value"] for tag in item["Tags"]} for item in specifications}


def _requested(tags: Tags, **more: str) -> dict[str, Any]:
    context: dict[str, Any] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    return context | ({"aws:TagKeys": sorted(tags)} if tags else {}) | more


def _existing(tags: Tags) -> dict[str, Any]:
    return {f"aws:ResourceTag/{key}": value for key, value in tags.items()}


_OF_RUN_INSTANCES_ALONE = ":(security-group|capacity-reservation)/"
"""What an instant fleet refers to and is not authorised on as a fleet."""


def _create_fleet(params: Params, lookup: Lookup) -> Iterator[Request]:
    region, in_region = lookup.region, {"aws:RequestedRegion": lookup.region}
    by_fleet = _tags(params.get("TagSpecifications", ()))
    for config in params["LaunchTemplateConfigs"]:
        name = config["LaunchTemplateSpecification"]["LaunchTemplateName"]
        data = lookup.template(name)
        made = _tags(data.get("TagSpecifications", ())) | by_fleet
        template = arn("ec2", region, f"launch-template/{lookup.template_id(name)}")
        for action in ("CreateFleet", "RunInstances"):
            yield of(f"ec2:{action}", template, _existing(lookup.tags_of(lookup.template_id(name))) | in_region)
            for resource in _referred(config, data, region):
                if action == "RunInstances" or not re.search(_OF_RUN_INSTANCES_ALONE, resource):
                    yield of(f"ec2:{action}", resource, in_region)
            for kind in ("fleet" if action == "CreateFleet" else "network-interface", "instance", "volume"):
                yield of(f"ec2:{action}", arn("ec2", region, f"{kind}/*"), _requested(made.get(kind, {})) | in_region)
        if "spot-instances-request" in made:
            spot = arn("ec2", region, "spot-instances-request/*")
            yield of("ec2:RunInstances", spot, _requested(made["spot-instances-request"]) | in_region)
        for kind, tags in made.items():
            action = "CreateFleet" if kind == "fleet" else "RunInstances"
            context = _requested(tags, **{"ec2:CreateAction": action})
            yield of("ec2:CreateTags", arn("ec2", region, f"{kind}/*"), context)
        profile = data.get("IamInstanceProfile", {}).get("Name")
        if profile:
            yield pass_role(lookup.role_of_profile[profile])
        for device in data.get("BlockDeviceMappings", ()):
            if key := device.get("Ebs", {}).get("KmsKeyId"):
                yield from _use_key(key, region)


def _run_instances(params: Params, lookup: Lookup) -> Iterator[Request]:
    region, in_region = lookup.region, {"aws:RequestedRegion": lookup.region}
    name = params["LaunchTemplate"]["LaunchTemplateName"]
    data = lookup.template(name)
    made = _tags(data.get("TagSpecifications", ())) | _tags(params.get("TagSpecifications", ()))
    template = arn("ec2", region, f"launch-template/{lookup.template_id(name)}")
    yield of("ec2:RunInstances", template, _existing(lookup.tags_of(lookup.template_id(name))) | in_region)
    subnets = [{"ImageId": data["ImageId"], "SubnetId": item["SubnetId"]} for item in params["NetworkInterfaces"]]
    for resource in _referred({"Overrides": subnets}, data | params, region):
        yield of("ec2:RunInstances", resource, in_region)
    made.pop("launch-template", None)  # the emulated EC2 keeps a template's own tags among those of what it makes
    for kind in {"instance", "volume", "network-interface"} | made.keys():
        yield of("ec2:RunInstances", arn("ec2", region, f"{kind}/*"), _requested(made.get(kind, {})) | in_region)
    for kind, tags in made.items():
        context = _requested(tags, **{"ec2:CreateAction": "RunInstances"})
        yield of("ec2:CreateTags", arn("ec2", region, f"{kind}/*"), context)
    yield pass_role(lookup.role_of_profile[data["IamInstanceProfile"]["Name"]])


def _referred(config: Params, data: Params, region: str) -> Iterator[str]:
    for override in config["Overrides"]:
        yield arn("ec2", region, f"image/{override['ImageId']}", account="")
        yield arn("ec2", region, f"subnet/{override['SubnetId']}", account=SHARER)
    for interface in data.get("NetworkInterfaces", ()):
        for group in interface.get("Groups", ()):
            yield arn("ec2", region, f"security-group/{group}", account=SHARER)
    if group := data.get("Placement", {}).get("GroupName") or data.get("Placement", {}).get("GroupId"):
        yield arn("ec2", region, f"placement-group/{group}", account=SHARER)
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    if reservation := target.get("CapacityReservationId"):
        yield arn("ec2", region, f"capacity-reservation/{reservation}", account=SHARER)


def pass_role(role_arn: str, service: str = "ec2.amazonaws.com") -> Request:
    """Giving a role to a service."""
    return of("iam:PassRole", role_arn, {"iam:PassedToService": service})


def _use_key(key: str, region: str) -> Iterator[Request]:
    """Yield EC2's requests to KMS in the name of the caller who launches an instance with encrypted volumes."""
    via: dict[str, Any] = {"kms:ViaService": f"ec2.{region}.amazonaws.com"}
    if key.startswith("alias/"):
        via["kms:ResourceAliases"] = [key]
    resource = arn("kms", region, "key/00000000-0000-0000-0000-000000000000" if "alias/" in key else f"key/{key}")
    for action in ("Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo"):
        yield of(f"kms:{action}", resource, via)
    yield of("kms:CreateGrant", resource, via | {"kms:GrantIsForAWSResource": "true"})


def _create_launch_template(params: Params, lookup: Lookup) -> Iterator[Request]:
    tags = _tags(params.get("TagSpecifications", ())).get("launch-template", {})
    resource = arn("ec2", lookup.region, "launch-template/*")
    yield of("ec2:CreateLaunchTemplate", resource, _requested(tags))
    if tags:
        yield of("ec2:CreateTags", resource, _requested(tags, **{"ec2:CreateAction": "CreateLaunchTemplate"}))


def _delete_launch_template(params: Params, lookup: Lookup) -> Iterator[Request]:
    name = params["LaunchTemplateId"]
    resource = arn("ec2", lookup.region, f"launch-template/{name}")
    yield of("ec2:DeleteLaunchTemplate", resource, _existing(lookup.tags_of(name)))


def _on_instances(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    def requests(params: Params, lookup: Lookup) -> Iterator[Request]:
        for name in params["InstanceIds"]:
            resource = arn("ec2", lookup.region, f"instance/{name}")
            yield of(f"ec2:{action}", resource, _existing(lookup.tags_of(name)))

    return requests


def _create_tags(params: Params, lookup: Lookup) -> Iterator[Request]:
    written = {tag["Key"]: tag["Value"] for tag in params["Tags"]}
    for name in params["Resources"]:
        context = _requested(written) | _existing(lookup.tags_of(name))
        yield of("ec2:CreateTags", arn("ec2", lookup.region, f"instance/{name}"), context)


# Stores and messages


def _on_table(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    def asked(params: Params, lookup: Lookup) -> Iterator[Request]:
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        resource = arn("dynamodb", lookup.region, f"table/{params['TableName']}{index}")
        yield of(f"dynamodb:{action}", resource, _leading_key(params))

    return asked


def _leading_key(params: Params) -> dict[str, Any]:
    """The partition of an item that is named by its key."""
    partition = [value["S"] for name, value in params.get("Key", {}).items() if name != "item"]
    return {"dynamodb:LeadingKeys": partition} if partition else {}


def _on_tables(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    def asked(params: Params, lookup: Lookup) -> Iterator[Request]:
        for table in params["RequestItems"]:
            yield of(f"dynamodb:{action}", arn("dynamodb", lookup.region, f"table/{table}"), {})

    return asked


_WRITES = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def _transaction(params: Params, lookup: Lookup) -> Iterator[Request]:
    for item in params["TransactItems"]:
        for kind, write in item.items():
            table = arn("dynamodb", lookup.region, f"table/{write['TableName']}")
            yield of(f"dynamodb:{_WRITES[kind]}", table, _leading_key(write))


def _on_object(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    def asked(params: Params, _: Lookup) -> Iterator[Request]:
        yield of(f"s3:{action}", f"arn:aws:s3:::{params['Bucket']}/{params['Key']}", {})

    return asked


def _send(params: Params, lookup: Lookup) -> Iterator[Request]:
    yield of("sqs:SendMessage", arn("sqs", lookup.region, params["QueueUrl"].rpartition("/")[2]), {})


def _put_events(params: Params, lookup: Lookup) -> Iterator[Request]:
    for entry in params["Entries"]:
        bus = arn("events", lookup.region, f"event-bus/{entry['EventBusName']}")
        yield of("events:PutEvents", bus, {"events:source": entry["Source"]})


# Looking things up


def _get_parameters(params: Params, lookup: Lookup) -> Iterator[Request]:
    for name in params["Names"]:
        own = "" if name.startswith("/aws/service/") else ACCOUNT
        given = name if name.startswith("arn:") else arn("ssm", lookup.region, f"parameter/{name.lstrip('/')}", own)
        yield of("ssm:GetParameters", given, {})


def _get_profile(params: Params, _: Lookup) -> Iterator[Request]:
    yield of("iam:GetInstanceProfile", arn("iam", "", f"instance-profile/{params['InstanceProfileName']}"), {})


def _on_parameters_below(params: Params, lookup: Lookup) -> Iterator[Request]:
    yield of("ssm:GetParametersByPath", arn("ssm", lookup.region, f"parameter/{params['Path'].lstrip('/')}"), {})


def _on_list(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    def asked(_: Params, __: Lookup) -> Iterator[Request]:
        yield of(f"iam:{action}", "*", {})

    return asked


def _on_identity(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    def asked(params: Params, lookup: Lookup) -> Iterator[Request]:
        kind = "instance-profile" if "InstanceProfileName" in params else "role"
        name = params["InstanceProfileName"] if kind == "instance-profile" else params["RoleName"]
        yield of(f"iam:{action}", lookup.arn_in_iam(kind, name), {})

    return asked


def _delete_entry(params: Params, lookup: Lookup) -> Iterator[Request]:
    name = params["principalArn"].rpartition("/")[2]
    entry = f"access-entry/{params['clusterName']}/role/{ACCOUNT}/{name}/00c7ab00-0000-4000-8000-000000000000"
    yield of(
        "eks:DeleteAccessEntry", arn("eks", lookup.region, entry), {"aws:ResourceTag/shiplap.dev/install": "shiplap"}
    )


def _describe_cluster(params: Params, lookup: Lookup) -> Iterator[Request]:
    yield of("eks:DescribeCluster", arn("eks", lookup.region, f"cluster/{params['name']}"), {})


def _zonal_shift(params: Params, _: Lookup) -> Iterator[Request]:
    """Authorised on load balancers only: a cluster is told by the condition key."""
    asked = {"arc-zonal-shift:ResourceIdentifier": params["resourceIdentifier"]}
    yield of("arc-zonal-shift:GetManagedResource", "*", asked)


def _products(_: Params, __: Lookup) -> Iterator[Request]:
    yield of("pricing:GetProducts", "*", {})


_OF_SAVINGS_PLANS = ("SavingsPlans", "SavingsPlanRates")


def _savings_plans(action: str) -> Callable[[Params, Lookup], Iterator[Request]]:
    """Authorised on the plans of the account; the service has no Regions."""

    def asked(params: Params, _: Lookup) -> Iterator[Request]:
        yield of(
            f"savingsplans:{action}", arn("savingsplans", "", f"savingsplan/{params.get('savingsPlanId', '*')}"), {}
        )

    return asked


_OF_IDENTITIES = (
    "RemoveRoleFromInstanceProfile",
    "DeleteInstanceProfile",
    "ListInstanceProfilesForRole",
    "ListAttachedRolePolicies",
    "DetachRolePolicy",
    "ListRolePolicies",
    "DeleteRolePolicy",
    "DeleteRole",
)

_SPECIAL: dict[tuple[str, str], Callable[[Params, Lookup], Iterator[Request]]] = {
    ("ec2", "CreateFleet"): _create_fleet,
    ("ec2", "RunInstances"): _run_instances,
    ("ec2", "CreateLaunchTemplate"): _create_launch_template,
    ("ec2", "DeleteLaunchTemplate"): _delete_launch_template,
    **{("ec2", name): _on_instances(name) for name in ("RebootInstances", "TerminateInstances")},
    ("ec2", "CreateTags"): _create_tags,
    ("dynamodb", "TransactWriteItems"): _transaction,
    **{("dynamodb", name): _on_table(name) for name in ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query")},
    **{("dynamodb", name): _on_tables(name) for name in ("BatchGetItem", "BatchWriteItem")},
    **{("s3", name): _on_object(name) for name in ("GetObject", "PutObject")},
    ("s3", "HeadObject"): _on_object("GetObject"),
    ("sqs", "SendMessage"): _send,
    ("events", "PutEvents"): _put_events,
    ("ssm", "GetParameters"): _get_parameters,
    ("iam", "GetInstanceProfile"): _get_profile,
    **{("iam", name): _on_list(name) for name in ("ListInstanceProfiles", "ListRoles")},
    **{("iam", name): _on_identity(name) for name in _OF_IDENTITIES},
    ("ssm", "GetParametersByPath"): _on_parameters_below,
    ("eks", "DeleteAccessEntry"): _delete_entry,
    ("eks", "DescribeCluster"): _describe_cluster,
    ("arc-zonal-shift", "GetManagedResource"): _zonal_shift,
    ("pricing", "GetProducts"): _products,
    **{("savingsplans", f"Describe{name}"): _savings_plans(f"Describe{name}") for name in _OF_SAVINGS_PLANS},
}
