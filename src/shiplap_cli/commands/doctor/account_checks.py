"""Checks of the account and of what the stack deployed: credentials, functions, queues, quotas, network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import unquote

from shiplap.aws import tags
from shiplap.aws.failures import FAILURES
from shiplap.settings import OtlpSettings
from shiplap_cli.commands.doctor import fixes
from shiplap_cli.commands.doctor.check_results import CheckReporter, CheckResult, Client, Deployment, answer_or_none
from shiplap_cli.commands.doctor.fixes import Fix, by_hand
from shiplap_cli.installs.installed import settings_in_layers

_SKEW_WARNING_S, _SKEW_FAILED_S = 30.0, 300.0
"""AWS refuses requests whose clock is five minutes off; tokens for clusters live for little longer."""

_QUEUE_OF_FUNCTION = {"schedule": "Provisioning", "lifecycle": "Lifecycle", "interrupt": "Interruption"}
"""Functions and the queues that feed them, as the outputs name those."""

_QUOTAS = (
    ("ec2", "L-1216C47A", "vCPUs of running on-demand standard instances", "on-demand"),
    ("ec2", "L-34B43A08", "vCPUs of running spot standard instances", "spot"),
    ("ec2", "L-FB451C26", "launch templates in the Region", "templates"),
)
_STANDARD = "acdhimrtz"
_NEARLY_FULL = 0.8
_LEAST_CONCURRENCY = 50

ENDPOINTS: tuple[str, ...] = ("ec2", "eks", "sqs", "events", "ssm")
"""Interface endpoints that functions inside a VPC need when it has no way out, by the end of the service's name.

Not `sts`: tokens for clusters are signed, not fetched. Clusters with `kubeconfigSecret`, and all where `otlp` has
`headersSecret`, need `secretsmanager` too, and clusters with `zonalShift` need `arc-zonal-shift`.
"""
GATEWAYS = ("s3", "dynamodb")
"""The same, of kind gateway, which cost nothing."""


def credentials(client: Client, deployment: Deployment, now: float) -> Iterator[CheckResult]:
    """Check the caller's identity, and that this machine's clock is AWS's."""
    yield from caller(client, deployment.region, now)


def caller(client: Client, region: str, now: float, account: str = "") -> Iterator[CheckResult]:
    """Check the caller's identity, that the account is the meant one, and that this machine's clock is AWS's."""
    answer, report = client("sts").get_caller_identity(), CheckReporter("credentials")
    if account and answer["Account"] != account:
        says = f"is of account {answer['Account']}, not of {account}"
        fix = by_hand(f"use credentials of account {account}, or correct `account` in shiplap.yaml")
        yield report.failed(answer["Arn"], says, fix)
    else:
        yield report.ok(answer["Arn"], f"account {answer['Account']}, {region}")
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    if date:
        yield _clock_skew(now - parsedate_to_datetime(date).timestamp())


def _clock_skew(seconds: float) -> CheckResult:
    report, says = CheckReporter("clock"), f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} AWS"
    fix = by_hand("set this machine's clock by NTP; AWS and API servers refuse requests that are minutes off")
    if abs(seconds) >= _SKEW_FAILED_S:
        return report.failed("this machine", says, fix)
    if abs(seconds) >= _SKEW_WARNING_S:
        return report.warning("this machine", says, fix)
    return report.ok("this machine", says)


def stack(client: Client, deployment: Deployment) -> Iterator[CheckResult]:
    """Check that the last deployment was completed."""
    report, name = CheckReporter("stack"), deployment.stack
    (described,) = client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    status, says = described["StackStatus"], f"is {described['StackStatus']}"
    events = f"`aws cloudformation describe-stack-events --stack-name {name}` says why"
    if status == "UPDATE_ROLLBACK_FAILED":
        yield report.failed(name, f"{says}: it takes no deployment", fixes.continue_rollback(name))
    elif status == "DELETE_FAILED":
        yield report.failed(name, says, by_hand("`shiplap install uninstall` names what is not deleted, and goes on"))
    elif status in ("UPDATE_FAILED", "UPDATE_ROLLBACK_COMPLETE"):
        yield report.warning(name, f"{says}: its last deployment failed", by_hand(f"{events}; correct it and deploy"))
    elif status.endswith("_IN_PROGRESS") and "CLEANUP" not in status:
        yield report.warning(name, says, by_hand("wait for its end, and run this again"))
    else:
        yield report.ok(name, says)


def functions(client: Client, deployment: Deployment) -> Iterator[CheckResult]:
    """Check that each function is deployed, not switched off, and in service with its newest version."""
    report, lambdas = CheckReporter("functions"), client("lambda")
    for name, function in deployment.functions.items():
        configuration = lambdas.get_function_configuration(FunctionName=function)
        state, update = configuration.get("State", "Active"), configuration.get("LastUpdateStatus", "Successful")
        why = configuration.get("StateReason") or configuration.get("LastUpdateStatusReason", "")
        says = f"is {state}, its last update {update}: {why}"
        if "Failed" in (state, update):
            yield report.failed(name, says, fixes.update_function(function))
            continue
        if state == "Pending" or update == "InProgress":
            yield report.warning(name, says, by_hand("a deployment is under way: wait a minute and run this again"))
            continue
        reserved = lambdas.get_function_concurrency(FunctionName=function).get("ReservedConcurrentExecutions")
        if reserved == 0:
            says = "is switched off: its concurrency is 0"
            yield report.failed(name, says, fixes.give_concurrency_back(function))
            continue
        yield _in_service(lambdas, name, function, deployment.function(f"schedule{deployment.networks[0]}"))


def _in_service(lambdas: Any, name: str, function: str, schedule: str) -> CheckResult:
    """`schedule` is the function in Lambda whose versions name the releases."""
    report = CheckReporter("functions")
    live = lambdas.get_alias(FunctionName=function, Name="live")["FunctionVersion"]
    newest = _newest_version(lambdas, function)
    if int(live) < newest:
        says = f"version {live} is in service, {newest} is the newest"
        return report.warning(name, says, fixes.move_forward(_newest_version(lambdas, schedule)))
    return report.ok(name, f"version {live} is in service")


def _newest_version(lambdas: Any, function: str) -> int:
    pages = lambdas.get_paginator("list_versions_by_function").paginate(FunctionName=function)
    return max(int(item["Version"]) for page in pages for item in page["Versions"] if item["Version"].isdigit())


def _queues_of_functions(deployment: Deployment) -> dict[str, str]:
    """Functions and the queues that feed them; those of a named network end in its name, `interrupt` is of none."""
    return {
        f"{name}{network}": f"{queue}{network.capitalize()}"
        for name, queue in _QUEUE_OF_FUNCTION.items()
        for network in dict.fromkeys(("", *deployment.networks))
        if f"{name}{network}" in deployment.functions
    }


def event_sources(client: Client, deployment: Deployment) -> Iterator[CheckResult]:
    """Check that Lambda polls the queues."""
    report, lambdas = CheckReporter("event sources"), client("lambda")
    for name in _queues_of_functions(deployment):
        function = deployment.function(name)
        found = lambdas.list_event_source_mappings(FunctionName=f"{function}:live")["EventSourceMappings"]
        states = sorted({item.get("State", "Enabled") for item in found})
        if not found:
            says = "no queue feeds it: its event source mapping was deleted"
            yield report.failed(name, says, fixes.make_mapping_again(function))
        elif states != ["Enabled"]:
            says = f"its queue's mapping is {', '.join(states)}"
            yield report.failed(name, says, fixes.enable_mapping(found[0].get("UUID", "UUID")))
        else:
            yield report.ok(name, "its queue is polled")


def queues(client: Client, deployment: Deployment) -> Iterator[CheckResult]:
    """Check that EventBridge may send to the queues, and that no message was set aside."""
    report, sqs = CheckReporter("queues"), client("sqs")
    for queue in _queues_of_functions(deployment).values():
        url, dead_letters = deployment.output(f"{queue}QueueUrl"), deployment.output(f"{queue}DeadLettersUrl")
        attributes, of_dead_letters = _attributes(sqs, url), _attributes(sqs, dead_letters)
        is_well = True
        if "events.amazonaws.com" not in unquote(attributes.get("Policy", "")):
            is_well, fix = False, _fix_of_policy(client, deployment, url, attributes["QueueArn"])
            yield report.failed(queue.lower(), "its policy does not let events.amazonaws.com send", fix)
        if "RedrivePolicy" not in attributes:
            is_well = False
            fix = fixes.set_dead_letters(url, of_dead_letters["QueueArn"])
            yield report.failed(queue.lower(), "it has no dead letters", fix)
        if is_well:
            waiting = attributes.get("ApproximateNumberOfMessages", "0")
            yield report.ok(queue.lower(), f"EventBridge may send; {waiting} messages wait")
        number = int(of_dead_letters.get("ApproximateNumberOfMessages", "0"))
        if number:
            says, fix = f"{number} messages could not be handled", fixes.put_dead_letters_back(deployment.stack)
            yield report.failed(f"{queue.lower()} dead letters", says, fix)
        else:
            yield report.ok(f"{queue.lower()} dead letters", "empty")


def _fix_of_policy(client: Client, deployment: Deployment, url: str, queue: str) -> Fix:
    """The policy of a queue, given by URL and ARN, lets its rules send. A refusal to list them hides no finding."""
    try:
        rules = _rules_of(client, deployment, queue)
    except FAILURES as error:
        return by_hand(f"its rules cannot be listed: {error}; allow it, and run this again")
    if not rules:
        return by_hand("no rule sends to it: run `npx aws-cdk deploy --revert-drift`, and then this again")
    return fixes.let_rules_send(url, queue, rules)


def _rules_of(client: Client, deployment: Deployment, queue: str) -> tuple[str, ...]:
    """ARNs of the rules that send to a queue, given by its ARN, on the account's default bus and the install's."""
    events, found = client("events"), []
    for bus in ("default", deployment.output("Bus")):
        pages = events.get_paginator("list_rule_names_by_target").paginate(TargetArn=queue, EventBusName=bus)
        names = [name for page in pages for name in page["RuleNames"]]
        found += [events.describe_rule(Name=name, EventBusName=bus)["Arn"] for name in names]
    return tuple(found)


def _attributes(sqs: Any, url: str) -> dict[str, str]:
    attributes: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]).get("Attributes", {})
    return attributes


def quotas(client: Client, deployment: Deployment) -> Iterator[CheckResult]:
    """Check the use of the account's quotas: all that runs in the Region shares them."""
    yield from vcpus_and_templates(client)
    yield from concurrency(client, len(deployment.clusters))


def vcpus_and_templates(client: Client) -> Iterator[CheckResult]:
    """EC2's quotas: a launch beyond them is refused."""
    report, used = CheckReporter("quotas"), _used_quotas(client)
    for service, code, what, key in _QUOTAS:
        most = quota_of(client, service, code)
        says = f"{used[key]:g} of {most:g}"
        fix = fixes.ask_for_quota(service, code, 2 * most)
        if used[key] >= most:
            yield report.failed(what, says, fix)
        elif used[key] >= most * _NEARLY_FULL:
            yield report.warning(what, says, fix)
        else:
            yield report.ok(what, says)


def concurrency(client: Client, clusters: int) -> Iterator[CheckResult]:
    """Check how many functions may run at once in the account."""
    report, what = CheckReporter("quotas"), "concurrent functions"
    most = client("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    needed = max(_LEAST_CONCURRENCY, 21 + 4 * clusters)
    if most < needed:
        fix = fixes.ask_for_quota("lambda", "L-B99A9384", needed)
        says = f"{most} in the account, {needed} may be needed: functions wait for one another, and launches with them"
        yield report.warning(what, says, fix)
    else:
        yield report.ok(what, f"{most} in the account")


def quota_of(client: Client, service: str, code: str) -> float:
    """A quota of the account, or AWS's default where it has none of its own."""
    service_quotas, quota = client("service-quotas"), {"ServiceCode": service, "QuotaCode": code}
    found = answer_or_none(lambda: service_quotas.get_service_quota(**quota), "NoSuchResourceException")
    found = found or service_quotas.get_aws_default_service_quota(**quota)
    return float(found["Quota"]["Value"])


def _used_quotas(client: Client) -> dict[str, float]:
    ec2 = client("ec2")
    used = {"on-demand": 0.0, "spot": 0.0, "templates": 0.0}
    running = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    for page in ec2.get_paginator("describe_instances").paginate(Filters=running):
        for item in (item for reservation in page["Reservations"] for item in reservation["Instances"]):
            if item["InstanceType"][0] in _STANDARD:
                options = item.get("CpuOptions", {})
                key = "spot" if item.get("InstanceLifecycle") == "spot" else "on-demand"
                used[key] += options.get("CoreCount", 0) * options.get("ThreadsPerCore", 1)
    for page in ec2.get_paginator("describe_launch_templates").paginate():
        used["templates"] += len(page["LaunchTemplates"])
    return used


def other_installs(client: Client, deployment: Deployment, cluster: str) -> Iterator[CheckResult]:
    """Check that no other install launches nodes in the cluster, by the tags of its instances."""
    report, alive = CheckReporter("installs"), {"Name": "instance-state-name", "Values": ["pending", "running"]}
    pages = client("ec2").get_paginator("describe_instances").paginate(Filters=[*tags.owned_by(cluster), alive])
    counts = Counter(
        tags.read(item.get("Tags", [])).get(tags.INSTALL, "")
        for page in pages
        for reservation in page["Reservations"]
        for item in reservation["Instances"]
    )
    ours = counts.pop(deployment.install, 0)
    old = counts.pop("", 0)
    for other, count in sorted(counts.items()):
        says = f"{count} instances of install {other!r} run in it: both serve its pods"
        yield report.warning(
            cluster,
            says,
            by_hand(f"take {cluster} out of one install's shiplap.yaml, or give each its own pods by `claimRules`"),
        )
    if not counts:
        says = f"{ours} instances of {deployment.install}, none of another install"
        yield report.ok(cluster, says + (f", {old} without the tag {tags.INSTALL}" if old else ""))


def network(client: Client, deployment: Deployment) -> Iterator[CheckResult]:
    """Check that functions inside a VPC reach the AWS services they ask: by a route out, or an endpoint for each."""
    for name in deployment.networks:
        function = deployment.function(f"schedule{name}")
        configuration = client("lambda").get_function_configuration(FunctionName=function)
        vpc = configuration.get("VpcConfig", {})
        endpoints, collector = ENDPOINTS, ""
        if vpc.get("SubnetIds") and configuration.get("Layers"):
            settings = settings_in_layers(client("lambda"), function, configuration["Layers"])
            otlp = settings.otlp or OtlpSettings("")
            endpoints = endpoints_of(settings.of_network(name), metrics_secret=bool(otlp.headers_secret))
            collector = otlp.endpoint
        yield from egress(client, vpc.get("VpcId", ""), vpc.get("SubnetIds", ()), endpoints, collector)


class AskingCluster(Protocol):
    """A cluster as it decides which services its functions ask."""

    @property
    def kubeconfig_secret(self) -> object:
        """True in a condition where a secret holds its kubeconfig."""

    @property
    def zonal_shift(self) -> bool:
        """True if the install heeds the cluster's zonal shifts."""


def endpoints_of(clusters: Sequence[AskingCluster], *, metrics_secret: bool) -> tuple[str, ...]:
    """Interface endpoints that the functions of some clusters need where there is no way out.

    `metrics_secret` says that a secret holds the headers of the install's collector.
    """
    reads_secrets = metrics_secret or any(cluster.kubeconfig_secret for cluster in clusters)
    secrets = ("secretsmanager",) if reads_secrets else ()
    shifts = ("arc-zonal-shift",) if any(cluster.zonal_shift for cluster in clusters) else ()
    return (*ENDPOINTS, *secrets, *shifts)


def egress(
    client: Client, vpc: str, subnets: Sequence[str], endpoints: Sequence[str], collector: str = ""
) -> Iterator[CheckResult]:
    """The same for functions in some subnets of a VPC, or in none, that need some interface endpoints.

    Without a way out, a `collector` of metrics must stand inside the VPC, which its address does not tell.
    """
    report, ec2 = CheckReporter("network"), client("ec2")
    if not subnets:
        yield report.ok("functions", "outside of any VPC: they reach AWS, and clusters with public endpoints")
        return
    inside = [{"Name": "vpc-id", "Values": [vpc]}]
    tables = ec2.describe_route_tables(Filters=inside)["RouteTables"]
    found = ec2.describe_vpc_endpoints(Filters=inside)["VpcEndpoints"]
    for subnet in subnets:
        table = _table_of(subnet, tables)
        there = {_service(item) for item in found if _serves(item, table)}
        missing = [name for name in (*endpoints, *GATEWAYS) if name not in there]
        if _has_egress(table):
            yield report.ok(subnet, "has a way out through a NAT gateway or another router")
        elif missing:
            says = f"no way out, and no endpoints for {', '.join(missing)}"
            wanted = f"make VPC endpoints for {', '.join(missing)} (s3 and dynamodb as gateways)"
            yield report.failed(subnet, says, by_hand(f"{wanted}, or route 0.0.0.0/0 to NAT"))
        else:
            yield report.ok(subnet, f"no way out, but endpoints for {', '.join((*endpoints, *GATEWAYS))}")
        if collector and not _has_egress(table):
            fix = by_hand("run the collector inside the VPC, or route 0.0.0.0/0 to NAT; else no metrics arrive")
            yield report.warning(subnet, f"no way out to {collector}, unless it is inside the VPC", fix)


def _service(endpoint: Mapping[str, Any]) -> str:
    name: str = endpoint["ServiceName"]
    return name.rpartition(".")[2]


def _serves(endpoint: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """A gateway serves the subnets whose route table it is in; an interface answers to the service's own name."""
    if endpoint.get("VpcEndpointType") == "Gateway":
        return table.get("RouteTableId") in endpoint.get("RouteTableIds", ())
    return bool(endpoint.get("PrivateDnsEnabled", True))


def _table_of(subnet: str, tables: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The route table of a subnet: its own, or the VPC's main one."""
    for wanted in ("SubnetId", "Main"):
        for table in tables:
            for association in table.get("Associations", ()):
                if association.get(wanted) in (subnet, True):
                    return table
    return {}


def _has_egress(table: Mapping[str, Any]) -> bool:
    """A route to an internet gateway is none for a function: it has no public address."""
    ways = ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "InstanceId", "VpcPeeringConnectionId")
    routes = [route for route in table.get("Routes", ()) if route.get("DestinationCidrBlock") == "0.0.0.0/0"]
    return any(route.get("State", "active") == "active" and any(route.get(way) for way in ways) for route in routes)
