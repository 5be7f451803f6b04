"""AWS's answers to the questions of doctor."""

from __future__ import annotations

import copy
from collections.abc import Callable
from email.utils import formatdate
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.session import get_session
from botocore.validate import ParamValidator

from shiplap.aws.bucket import IDENTITIES_PREFIX, STATUS_KEY
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus, NodeClassStatus, conditions
from shiplap.manifests.live.live_manifests import LiveManifests, ObservedManifest, RefusedManifest
from shiplap.node_identities import KeptIdentities
from shiplap_cli.commands.doctor import check_results, cluster_checks, doctor
from shiplap_cli.commands.doctor.check_results import CheckResult

NOW = 1_790_000_000.0


RBAC = Path(__file__).parents[3] / "docs" / "rbac.yaml"


FUNCTIONS = ("Schedule", "Lifecycle", "Interrupt", "Catalog", "Disrupt", "Watch", "Audit")


QUEUES = ("Provisioning", "Lifecycle", "Interruption")


Answer = Any
"""What an operation answers: a value, an exception, or a function of the request."""


def denied(operation: str, action: str = "") -> ClientError:
    message = f"User: me is not authorized to perform: {action} on resource: *" if action else "no"
    return ClientError({"Error": {"Code": "AccessDeniedException", "Message": message}}, operation)


def missing(operation: str) -> ClientError:
    return ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no"}}, operation)


class Model:
    """An operation as botocore knows it."""

    def __init__(self, service: str, operation: str) -> None:
        models = get_session().get_service_model(service)
        named = {xform_name(name): name for name in models.operation_names}
        self._shape = models.operation_model(named[operation]).input_shape

    def validate(self, request: dict[str, Any]) -> None:
        """That the request is one that the operation takes."""
        if self._shape is None:
            assert not request
        else:
            report = ParamValidator().validate(request, self._shape)
            assert not report.has_errors(), report.generate_report()


model = cache(Model)


class Aws:
    """AWS by canned answers, keyed `service.operation`."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = healthy()

    def client(self, service: str) -> Any:
        return _Client(service, self.answers)


class _Client:
    meta = SimpleNamespace(region_name="eu-west-1")

    def __init__(self, service: str, answers: dict[str, Answer]) -> None:
        self._service = service
        self._answers = answers

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            model(self._service, operation).validate(request)
            answer = self._answers[f"{self._service}.{operation}"]
            if isinstance(answer, Exception):
                raise answer
            return answer(**request) if callable(answer) else copy.deepcopy(answer)

        return call

    def get_paginator(self, operation: str) -> Any:
        return SimpleNamespace(paginate=lambda **request: [getattr(self, operation)(**request)])


def outputs() -> dict[str, str]:
    found = {f"{name}Function": f"shiplap-{name.lower()}" for name in FUNCTIONS}
    for queue in QUEUES:
        found |= {f"{queue}QueueUrl": f"https://sqs/{queue}", f"{queue}DeadLettersUrl": f"https://sqs/{queue}-dead"}
    return found | {"Bucket": "bucket", "Bus": "shiplap"}


def status(*problems: NodeClassProblem, checked_at: float = NOW - 60) -> InstallStatus:
    item = NodeClassStatus("default", "0" * 12, conditions(problems), family="AL2023", instance_profile="nodes")
    return InstallStatus((ClusterStatus("production", "eu-west-1", checked_at, (item,)),))


def objects(
    known: InstallStatus, live: LiveManifests | None = None, kept: KeptIdentities | None = None
) -> Callable[..., Any]:
    """S3's get_object on the install's bucket."""

    def get_object(*, Bucket: str, Key: str) -> Any:  # noqa: N803 - S3's names
        assert Bucket == "bucket"
        if Key.startswith("manifests/"):
            if live is None:
                raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "none"}}, "GetObject")
            return {"Body": _Body(msgspec.json.encode(live))}
        if Key == f"{IDENTITIES_PREFIX}eu-west-1.json":
            return {"Body": _Body(msgspec.json.encode(kept or KeptIdentities()))}
        assert Key == STATUS_KEY
        return {"Body": _Body(msgspec.json.encode(known))}

    return get_object


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> _Body:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


def configuration(**changes: Any) -> Callable[..., Any]:
    def get(*, FunctionName: str) -> dict[str, Any]:  # noqa: N803
        role = f"arn:aws:iam::1:role/{FunctionName}"
        return {"State": "Active", "LastUpdateStatus": "Successful", "Role": role} | changes

    return get


def attributes(
    *, dead: int = 0, policy: str = '{"Service": "events.amazonaws.com"}', redrive: str = "{}"
) -> Callable[..., Any]:
    def get(*, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:  # noqa: N803
        assert AttributeNames == ["All"]
        if QueueUrl.endswith("-dead"):
            return {"Attributes": {"ApproximateNumberOfMessages": str(dead), "QueueArn": f"arn:{QueueUrl}"}}
        found = {"ApproximateNumberOfMessages": "2", "RedrivePolicy": redrive, "Policy": policy}
        return {"Attributes": {"QueueArn": f"arn:{QueueUrl}"} | {name: value for name, value in found.items() if value}}

    return get


NODES = "arn:aws:iam::1:role/nodes"


def entry(nodes: str = "EC2_LINUX", groups: tuple[str, ...] = ("shiplap",)) -> Callable[..., Any]:
    """Access entries: of the type `nodes` for the nodes' role, of some groups for all others; none where empty."""

    def get(*, clusterName: str, principalArn: str) -> dict[str, Any]:  # noqa: N803
        assert clusterName == "production"
        if not (nodes if principalArn == NODES else groups):
            raise missing("DescribeAccessEntry")
        if principalArn == NODES:
            return {"accessEntry": {"type": nodes, "kubernetesGroups": ["system:nodes"]}}
        return {"accessEntry": {"type": "STANDARD", "kubernetesGroups": list(groups)}}

    return get


CLUSTER = {
    "status": "ACTIVE",
    "version": "1.34",
    "resourcesVpcConfig": {"endpointPublicAccess": True, "endpointPrivateAccess": True, "vpcId": "vpc-1"},
    "accessConfig": {"authenticationMode": "API"},
}


INSTANCE = {"InstanceType": "m5.large", "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 2}}


def alias(*, FunctionName: str, Name: str) -> dict[str, str]:  # noqa: N803
    return {"FunctionVersion": "4", "AliasArn": f"arn:aws:lambda:eu-west-1:1:function:{FunctionName}:{Name}"}


def healthy() -> dict[str, Answer]:
    listed = [{"OutputKey": name, "OutputValue": value} for name, value in outputs().items()]
    return {
        "cloudformation.describe_stacks": {"Stacks": [{"Outputs": listed, "StackStatus": "UPDATE_COMPLETE"}]},
        "sts.get_caller_identity": {
            "Arn": "arn:aws:iam::1:user/me",
            "Account": "1",
            "ResponseMetadata": {"HTTPHeaders": {"date": formatdate(NOW, usegmt=True)}},
        },
        "s3.get_object": objects(status()),
        "lambda.get_function_configuration": configuration(),
        "lambda.get_function_concurrency": {},
        "lambda.get_alias": alias,
        "lambda.list_versions_by_function": {"Versions": [{"Version": name} for name in ("$LATEST", "3", "4")]},
        "lambda.list_event_source_mappings": {"EventSourceMappings": [{"State": "Enabled", "UUID": "u"}]},
        "lambda.get_account_settings": {"AccountLimit": {"ConcurrentExecutions": 1000}},
        "sqs.get_queue_attributes": attributes(),
        "service-quotas.get_service_quota": {"Quota": {"Value": 100.0}},
        "ec2.describe_instances": {"Reservations": [{"Instances": [INSTANCE, {"InstanceType": "g5.xlarge"}]}]},
        "ec2.describe_launch_templates": {"LaunchTemplates": [{}]},
        "ec2.describe_route_tables": {"RouteTables": []},
        "ec2.describe_vpc_endpoints": {"VpcEndpoints": []},
        "eks.describe_cluster": {"cluster": CLUSTER},
        "eks.describe_access_entry": entry(),
        "iam.get_instance_profile": {"InstanceProfile": {"Roles": [{"Arn": NODES}]}},
        "logs.describe_subscription_filters": {
            "subscriptionFilters": [{"destinationArn": "arn:aws:lambda:eu-west-1:1:function:shiplap-audit:live"}]
        },
    }


def reviews(*refused: str, asked: list[dict[str, Any]] | None = None) -> Callable[[str, str], cluster_checks.Ask]:
    """API servers that refuse some rights, each as `verb resource`."""

    def entering(_cluster: str, _region: str) -> cluster_checks.Ask:
        def ask(path: str, body: Any) -> bytes:
            assert path.startswith("/apis/authorization.k8s.io/v1/")
            if asked is not None:
                asked.append(body)
            wanted = body["spec"]["resourceAttributes"]
            resource = "/".join(filter(None, (wanted["resource"], wanted["subresource"])))
            return msgspec.json.encode({"status": {"allowed": f"{wanted['verb']} {resource}" not in refused}})

        return ask

    return entering


def found(aws: Aws, entering: Any = None, *, only: str = "", myself: bool = False) -> list[CheckResult]:
    looked = doctor.install_checks(
        "Shiplap",
        only,
        RBAC,
        myself=myself,
        entering=entering or reviews(),
        client=aws.client,
        now=lambda: NOW,
    )
    return list(check_results.run_checks(looked))


class FreshCatalogues:
    """The catalogue's age is what matters; how it is stored is tested elsewhere."""

    age_s = 600.0

    def __init__(self, *_: object) -> None:
        """As the real one."""

    def load(self) -> Catalog:
        return Catalog(region="eu-west-1", types=(), refreshed_at=NOW - self.age_s)


TO_NAT = {"Associations": [{"Main": True}], "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"}]}


TO_INTERNET = {
    "Associations": [{"SubnetId": "subnet-1"}],
    "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}],
}


def live(*refused: RefusedManifest) -> Callable[..., Any]:
    observed = (ObservedManifest("NodePool", "general"), ObservedManifest("EC2NodeClass", "default"))
    return objects(status(), LiveManifests(refused=refused, observed=observed))
