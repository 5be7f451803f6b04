"""Each error of the table is answered to the adapter that meets it, and what the adapter makes of it is noted.

The adapters run on botocore's real client; only the answers are scripted. An error of a request that Shiplap does not
send is answered to the request that meets it here: what EC2 refuses of RunInstances comes back with CreateFleet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import boto3
import msgspec
from botocore.config import Config

from shiplap.aws.bucket import BucketStatus
from shiplap.aws.dynamodb.items import put_if, query
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.aws.eks import api_server
from shiplap.aws.health import Ec2Health
from shiplap.aws.instance_profiles import is_missing
from shiplap.aws.pricing.catalog_source import instance_types, spot_prices
from shiplap.aws.pricing.on_demand_prices import on_demand_prices
from shiplap.aws.selectors.amis import AmiResolver
from shiplap.aws.selectors.network import security_groups
from shiplap.aws.selectors.parameters import Parameters
from shiplap.aws.sqs import SqsTimers
from shiplap.errors import ShiplapError
from shiplap.flows.schedule.launch import BLAMELESS
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass, Subnet
from shiplap.instances.readiness.nodeclass_status import InstallStatus
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    AmiSelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    SecurityGroupSelectorTerm,
)
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import FleetOverride, FleetRequest, Move, UnavailableOffering
from shiplap.settings import ClusterSettings
from shiplap_cli.commands.doctor.doctor import outputs_of
from shiplap_cli.installs import dead_letter_queues, published_versions
from tests.aws_faults import AwsFaults
from tests.aws_rules.error_texts import Answer, ErrorText, answer_of
from tests.builders.claims import node_claim, with_fields

CLUSTER = "demo"
CLAIMS = [node_claim(cluster=CLUSTER, name=name, version=1) for name in ("default-1", "default-2")]
ZONES = ("a", "b")
TYPES = ("m5.large", "c7g.xlarge")
SUBNET = "subnet-of-a"
RESERVATION = "cr-1"
NOW = 1_700_000_000.0
ALIVE = 1000
"""How often an answer is given that is not the one in question."""

_URL = "https://sqs.test/queue"
_NODE_CLASS = EC2NodeClass(
    ObjectMeta(name="default"),
    EC2NodeClassSpec(
        ami_selector_terms=(AmiSelectorTerm(alias="al2023@latest"),),
        security_group_selector_terms=(SecurityGroupSelectorTerm(tags={"a": "b"}),),
    ),
)
_SETTINGS = ClusterSettings(
    name=CLUSTER,
    region="eu-west-1",
    endpoint="https://demo.example",
    certificate_authority="Q0E=",
    kubernetes_version="1.34",
    service_cidr="10.100.0.0/16",
)
_RESOLVED = ResolvedNodeClass(
    "default",
    "AL2023",
    (),
    tuple(Subnet(f"subnet-of-{zone}", zone, free_ips=100) for zone in ZONES),
    ("sg-1",),
    "profile",
    "https://demo.example",
    "Q0E=",
    "10.100.0.0/16",
)
_TYPE = re.compile(r"\b[a-z][a-z0-9-]*\.(?:metal|nano|micro|small|medium|large|\d*xlarge)\b")


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the results of an adapter that gets an answer of AWS.

    error: the error it raised, None without.
    kinds: the kinds of refused offerings.
    rests: the scopes that rest afterwards, for how many seconds each.
    text: what it says, of the error or of the first refusal.
    answer: what it returned.
    requests: how often the request was sent.
    """

    error: ShiplapError | None = None
    kinds: frozenset[str] = frozenset()
    rests: dict[tuple[str, str, str], float] = {}
    text: str = ""
    answer: Any = None
    requests: int = 0


@cache
def _client(service: str) -> tuple[Any, AwsFaults]:
    client = boto3.client(
        service,  # type: ignore[call-overload]  # by name
        region_name="eu-west-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
        config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
    )
    return client, AwsFaults(client)


class Aws:
    """A service whose requests are all answered from a script, which begins empty."""

    def __init__(self, service: str) -> None:
        self.client, self.faults = _client(service)
        self.faults.forget()

    def refuse(self, operation: str, answer: Answer, times: int = ALIVE) -> None:
        self.faults.answer(operation, answer.body, status=answer.status, headers=answer.headers, times=times)

    def give(self, operation: str, body: str) -> None:
        self.faults.answer(operation, body, times=ALIVE)

    def sent(self, operation: str) -> int:
        return len(self.faults.made(operation))


def seen(aws: Aws, operation: str, act: Callable[[], Any]) -> Seen:
    """Return the result of an act: its answer or its ShiplapError, and how often the operation was sent."""
    try:
        answer = act()
    except ShiplapError as error:
        return Seen(error=error, text=str(error), requests=aws.sent(operation))
    return Seen(answer=answer, requests=aws.sent(operation))


def _xml(action: str, inner: str = "") -> str:
    return f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{inner}</{action}Response>'


def _instances(*ids: str) -> str:
    shown = "".join(
        f"<item><instanceId>{each}</instanceId><instanceType>m5.large</instanceType>"
        "<instanceState><code>16</code><name>running</name></instanceState>"
        "<launchTime>2023-11-14T22:13:20.000Z</launchTime><tagSet>"
        f"<item><key>kubernetes.io/cluster/{CLUSTER}</key><value>owned</value></item></tagSet></item>"
        for each in ids
    )
    inner = (
        f"<reservationSet><item><instancesSet>{shown}</instancesSet></item></reservationSet>"
        if ids
        else "<reservationSet/>"
    )
    return _xml("DescribeInstances", inner)


_GIVEN = _xml(
    "CreateFleet",
    "<fleetId>fleet-1</fleetId><fleetInstanceSet><item><launchTemplateAndOverrides><overrides>"
    "<instanceType>m5.large</instanceType><availabilityZone>a</availabilityZone></overrides>"
    "</launchTemplateAndOverrides><instanceIds><item>i-1</item></instanceIds>"
    "<instanceType>m5.large</instanceType></item></fleetInstanceSet>",
)


class Asked(msgspec.Struct, frozen=True):
    """The request to EC2. The first offering is of the type that the error's text names, if it names one."""

    offerings: tuple[tuple[str, str], ...]
    capacity_type: str
    names_type: bool


def asked_of(row: ErrorText) -> Asked:
    """Two offerings, or one of a reservation; of spot where the error is about spot."""
    named = _TYPE.search(row.message)
    offerings = ((named[0] if named else TYPES[0], ZONES[0]), (TYPES[1], ZONES[1]))
    if row.outcome == "reservation":
        return Asked(offerings[:1], labels.RESERVED, named is not None)
    is_spot = "spot" in f"{row.code} {row.message}".lower() or row.outcome == "spot-role"
    return Asked(offerings, labels.SPOT if is_spot else labels.ON_DEMAND, named is not None)


def _compute(ec2: Aws) -> Ec2Compute:
    return Ec2Compute(
        _SETTINGS,
        ec2=ec2.client,
        ssm=lambda: ec2.client,
        eks=lambda: ec2.client,
        clock=lambda: NOW,
        sleep=lambda _: None,
    )


class Launch:
    """A launch that EC2 answers with the error."""

    def __init__(self, row: ErrorText) -> None:
        self.row = row
        self.asked = asked_of(row)
        self.aws = Aws("ec2")
        self.compute = _compute(self.aws)

    def request(self) -> FleetRequest:
        reservation = RESERVATION if self.asked.capacity_type == labels.RESERVED else ""
        return FleetRequest(
            claims=(node_claim(cluster=CLUSTER, name="default-1", node_pool="default", node_class="default"),),
            node_class=_NODE_CLASS,
            resolved=_RESOLVED,
            capacity_type=self.asked.capacity_type,
            overrides=tuple(
                FleetOverride(1, name, zone, "ami-1", 29, reservation=reservation)
                for name, zone in self.asked.offerings
            ),
            token="token",
        )

    def refused_whole(self, operation: str = "CreateFleet", times: int = ALIVE) -> Seen:
        """EC2 answers the request with the error."""
        self.aws.refuse(operation, answer_of(self.row), times)
        return self._launched(operation)

    def refused_in_part(self, times: int = ALIVE) -> Seen:
        """EC2 answers with a fleet without instances; the error is about the first offering."""
        name, zone = self.asked.offerings[0]
        body = _xml(
            "CreateFleet",
            "<fleetId>fleet-1</fleetId><errorSet><item><launchTemplateAndOverrides><overrides>"
            f"<instanceType>{name}</instanceType><subnetId>{SUBNET}</subnetId>"
            f"<availabilityZone>{zone}</availabilityZone></overrides></launchTemplateAndOverrides>"
            f"<errorCode>{escape(self.row.code)}</errorCode>"
            f"<errorMessage>{escape(self.row.message)}</errorMessage></item></errorSet>",
        )
        self.aws.faults.answer("CreateFleet", body, times=times)
        return self._launched("CreateFleet")

    def _launched(self, operation: str) -> Seen:
        """The launch; what is not scripted yet is answered as if all was well."""
        self.aws.give("DescribeLaunchTemplates", _xml("DescribeLaunchTemplates", "<launchTemplates/>"))
        self.aws.give("CreateLaunchTemplate", _xml("CreateLaunchTemplate"))
        self.aws.give("DescribeTags", _xml("DescribeTags", "<tagSet/>"))
        self.aws.give("DescribeInstances", _instances())
        self.aws.give("CreateFleet", _GIVEN)
        noted = seen(self.aws, operation, lambda: self.compute.launch(self.request()))
        if noted.error is not None:
            return noted
        failures = noted.answer.failures
        marked = [
            UnavailableOffering.after(None, failure, NOW) for failure in failures if failure.kind not in BLAMELESS
        ]
        return msgspec.structs.replace(
            noted,
            kinds=frozenset(failure.kind for failure in failures),
            rests={(rest.instance_type, rest.zone, rest.capacity_type): rest.until - NOW for rest in marked},
            text=failures[0].message if failures else "",
        )


def _ended(row: ErrorText) -> Seen:
    """Two instances are to be ended; EC2 refuses whatever names the first."""
    ec2 = Aws("ec2")
    compute = _compute(ec2)
    ec2.give("DescribeInstances", _instances("i-1", "i-2"))
    ec2.refuse("TerminateInstances", answer_of(row), times=2)  # both together, then the first by itself
    ec2.give("TerminateInstances", _xml("TerminateInstances"))
    return seen(ec2, "TerminateInstances", lambda: compute.terminate(CLUSTER, "i-1", "i-2"))


def _of_compute(row: ErrorText, operation: str, act: Callable[[Ec2Compute], Any]) -> Seen:
    ec2 = Aws("ec2")
    ec2.refuse(operation, answer_of(row))
    return seen(ec2, operation, lambda: act(_compute(ec2)))


def _of(service: str, operation: str, act: Callable[[Any], Any]) -> Callable[[ErrorText], Seen]:
    """An act with a client of a service, whose operation is refused."""

    def play(row: ErrorText) -> Seen:
        aws = Aws(service)
        aws.refuse(operation, answer_of(row))
        return seen(aws, operation, lambda: act(aws.client))

    return play


def _images(ec2: Any, ssm: Any) -> Any:
    resolver = AmiResolver(ec2, Parameters(lambda: ssm, lambda: NOW), lambda: NOW)
    return resolver.resolve(_NODE_CLASS, "1.34")


def _parameters(row: ErrorText) -> Seen:
    """SSM refuses parameters; those that do not exist it names in an answer, as several are asked for at once."""
    ssm, ec2 = Aws("ssm"), Aws("ec2")
    ec2.give("DescribeImages", _xml("DescribeImages", "<imagesSet/>"))
    if row.code == "ParameterNotFound":
        ssm.give("GetParameters", '{"Parameters": [], "InvalidParameters": ["/aws/service/image_id"]}')
    else:
        ssm.refuse("GetParameters", answer_of(row))
    return seen(ssm, "GetParameters", lambda: _images(ec2.client, ssm.client))


def _by_id(ec2: Any) -> Any:
    resolver = AmiResolver(ec2, Parameters(lambda: ec2, lambda: NOW), lambda: NOW)
    terms = (AmiSelectorTerm(id="ami-1"),)
    return resolver.resolve(
        EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(ami_selector_terms=terms)), "1.34"
    )


def _dead_letters(operation: str, act: Callable[[], Any]) -> Callable[[ErrorText], Seen]:
    def play(row: ErrorText) -> Seen:
        sqs = Aws("sqs")
        letter = {"MessageId": "1", "ReceiptHandle": "handle", "Body": "{}"}
        sqs.refuse(operation, answer_of(row))
        sqs.faults.answer("ReceiveMessage", msgspec.json.encode({"Messages": [letter]}).decode())
        sqs.give("ReceiveMessage", "{}")
        sqs.give("SendMessage", "{}")
        known = dead_letter_queues.client
        dead_letter_queues.client = lambda _: sqs.client  # type: ignore[assignment]
        try:
            return seen(sqs, operation, act)
        finally:
            dead_letter_queues.client = known

    return play


def _credentials(row: ErrorText) -> Seen:
    """STS refuses while botocore gets the credentials of another request."""
    sts, ec2 = Aws("sts"), Aws("ec2")
    sts.refuse(row.operation, answer_of(row))

    def ask(**_: Any) -> None:
        if row.operation == "AssumeRole":
            sts.client.assume_role(RoleArn="arn:aws:iam::111122223333:role/other", RoleSessionName="session")
        else:
            sts.client.get_caller_identity()

    events = ec2.client.meta.events
    events.register_first("request-created", ask)
    try:
        return seen(sts, row.operation, lambda: _compute(ec2).instances(CLUSTER))
    finally:
        events.unregister("request-created", ask)


_WITHOUT_ENDPOINT = msgspec.structs.replace(_SETTINGS, endpoint="")

_READS: dict[tuple[str, str], Callable[[ErrorText], Seen]] = {
    ("ec2", "DescribeInstances"): lambda row: _of_compute(
        row, "DescribeInstances", lambda compute: compute.instance(CLUSTER, "i-1")
    ),
    ("ec2", "DescribeInstanceStatus"): _of(
        "ec2",
        "DescribeInstanceStatus",
        lambda ec2: Ec2Health(CLUSTER, ec2=ec2, eks=lambda: ec2, zonal_shift=lambda: ec2, clock=lambda: NOW).ailing(),
    ),
    ("ec2", "DescribeSecurityGroups"): _of(
        "ec2", "DescribeSecurityGroups", lambda ec2: security_groups(ec2, _NODE_CLASS)
    ),
    ("ec2", "DescribeImages"): _of("ec2", "DescribeImages", _by_id),
    ("ec2", "DescribeInstanceTypes"): _of("ec2", "DescribeInstanceTypes", instance_types),
    ("ec2", "DescribeSpotPriceHistory"): _of("ec2", "DescribeSpotPriceHistory", lambda ec2: spot_prices(ec2, NOW)),
    ("ec2", "CreateTags"): lambda row: _of_compute(
        row, "CreateTags", lambda compute: compute.name(with_fields(CLAIMS[0], instance_id="i-1"))
    ),
    ("eks", "DescribeCluster"): _of("eks", "DescribeCluster", lambda eks: api_server(_WITHOUT_ENDPOINT, lambda: eks)),
    ("iam", "GetInstanceProfile"): _of("iam", "GetInstanceProfile", lambda iam: is_missing(iam, "profile")),
    ("ssm", "GetParameter"): _parameters,
    ("pricing", "GetProducts"): _of("pricing", "GetProducts", lambda pricing: on_demand_prices(pricing, "eu-west-1")),
    ("sqs", "SendMessage"): _of("sqs", "SendMessage", lambda sqs: SqsTimers(sqs, _URL).remind(CLUSTER, "c", "step", 5)),
    ("sqs", "GetQueueAttributes"): _dead_letters("GetQueueAttributes", lambda: dead_letter_queues.depth(_URL)),
    ("sqs", "ReceiveMessage"): _dead_letters("ReceiveMessage", lambda: dead_letter_queues.peek(_URL)),
    ("sqs", "ChangeMessageVisibility"): _dead_letters("ChangeMessageVisibility", lambda: dead_letter_queues.peek(_URL)),
    ("sqs", "DeleteMessage"): _dead_letters("DeleteMessage", lambda: dead_letter_queues.redrive(_URL, f"{_URL}-2")),
    ("dynamodb", "PutItem"): _of(
        "dynamodb",
        "PutItem",
        lambda client: put_if(
            client, "state", {"cluster": {"S": "a"}, "item": {"S": "b"}}, "attribute_not_exists(#item)", ["item"]
        ),
    ),
    ("dynamodb", "UpdateItem"): _of(
        "dynamodb",
        "UpdateItem",
        lambda client: DynamoState(client, "state").close_claims(CLAIMS),
    ),
    ("dynamodb", "Query"): _of("dynamodb", "Query", lambda client: list(query(client, "state", ("cluster", CLUSTER)))),
    ("dynamodb", "BatchWriteItem"): _of(
        "dynamodb",
        "BatchWriteItem",
        lambda client: DynamoState(client, "state", sleep=lambda _: None).mark_missed(CLUSTER, ["uid"], NOW),
    ),
    ("dynamodb", "TransactWriteItems"): _of(
        "dynamodb",
        "TransactWriteItems",
        lambda client: DynamoState(client, "state", sleep=lambda _: None).advance_all(
            [Move(claim, ClaimState.LAUNCHING, {"changed_at": NOW}) for claim in CLAIMS]
        ),
    ),
    ("s3", "PutObject"): _of("s3", "PutObject", lambda s3: BucketStatus(s3, "bucket").save(InstallStatus())),
    ("s3", "GetObject"): _of("s3", "GetObject", lambda s3: BucketStatus(s3, "bucket").load()),
    ("lambda", "ListVersionsByFunction"): _of(
        "lambda", "ListVersionsByFunction", lambda client: published_versions.published_versions(client, ["function"])
    ),
    ("cloudformation", "DescribeStacks"): _of(
        "cloudformation", "DescribeStacks", lambda client: outputs_of(lambda _: client, "stack")
    ),
}

_MET_AS = {
    ("dynamodb", "DescribeTable"): ("dynamodb", "Query"),
    ("iam", "GetGroup"): ("iam", "GetInstanceProfile"),
    ("iam", "ListAttachedRolePolicies"): ("iam", "GetInstanceProfile"),
    ("lambda", "ListAliases"): ("lambda", "ListVersionsByFunction"),
    ("lambda", "Invoke"): ("lambda", "ListVersionsByFunction"),
    ("cloudformation", "DescribeStackEvents"): ("cloudformation", "DescribeStacks"),
}
"""Requests that Shiplap does not send, and those of the same service that meet the same error."""

_OF_TEMPLATES = {
    "CreateLaunchTemplate": "CreateLaunchTemplate",
    "CreateLaunchTemplateVersion": "CreateLaunchTemplate",
    "DescribeLaunchTemplates": "DescribeLaunchTemplates",
}


def plays(row: ErrorText) -> dict[str, Seen]:
    """Return the results of the adapters for an error, by the way in which the error comes."""
    if row.service == "sts":
        return {"credentials": _credentials(row)}
    key = _MET_AS.get((row.service, row.operation), (row.service, row.operation))
    if key in _READS and not (row.code == "InvalidInstanceID.NotFound" and row.outcome == "gone"):
        return {"read": _READS[key](row)}
    if row.code in ("InvalidInstanceID.NotFound", "OperationNotPermitted"):
        return {"end": _ended(row)}
    if row.operation in _OF_TEMPLATES:
        return {"template": Launch(row).refused_whole(_OF_TEMPLATES[row.operation])}
    once = 1 if row.outcome == "not-visible" else ALIVE
    return {"whole": Launch(row).refused_whole(times=once), "part": Launch(row).refused_in_part(once)}
