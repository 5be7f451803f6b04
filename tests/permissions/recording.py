"""Runs every function as it is deployed and writes down what it asks of AWS and of the Kubernetes API.

The handlers, the wiring and the adapters are the real ones; the names of tables and queues are those of the template.
moto answers for AWS, with the project's own EC2, and a simulated cluster for Kubernetes. Time is a clock that is moved.
"""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import boto3

from shiplap.aws import session
from shiplap.aws.dynamodb import tables
from shiplap.aws.instance_profiles import identity_path
from shiplap.flows.install import Install
from shiplap.settings import ResourceNames, Settings
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.emulated_ec2.ec2_server import Ec2Emulator
from shiplap_lab.fakes.signals import FakeClock
from tests.integration.contracts.in_process_aws import create_table
from tests.own_logger import own_logger
from tests.permissions.authorizations import ACCOUNT, Lookup, Params, authorizations
from tests.permissions.evaluator import Request

FUNCTIONS = Path(__file__).parents[2] / "functions"
KubernetesRequest = tuple[str, str, str]
"""Verb, API group, resource with subresource."""


class Context:
    """Lambda's; the watch function takes a second of it."""

    aws_request_id = "11111111-2222-3333-4444-555555555555"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:shiplap:live"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class Recording:
    """Records the requests so far: `aws` and `kubernetes` by function."""

    def __init__(
        self,
        settings: Settings,
        environments: Mapping[str, Mapping[str, str]],
        region: str,
        role_of_profile: Mapping[str, str],
        parameters: Mapping[str, str],
        *,
        ec2: Ec2Emulator,
        kubernetes: KubeHttpServer,
        clock: FakeClock,
    ) -> None:
        self.aws: dict[str, set[Request]] = defaultdict(set)
        self.kubernetes: dict[str, set[KubernetesRequest]] = defaultdict(set)
        self.clock = clock
        self._settings = settings
        self._environments = environments
        self._names = ResourceNames.of(environments["schedule"])
        self._parameters = parameters
        self._kubernetes = kubernetes
        self._function = ""
        self._unrecorded = {
            name: boto3.client(name, region_name=region, endpoint_url=ec2.url)
            for name in ("ec2", "dynamodb", "s3", "sqs", "events", "iam", "ssm")
        }
        self._lookup = Lookup(
            region, self._tags_of, self._template, self._template_id, role_of_profile, self._arn_in_iam
        )
        self._modules: dict[str, ModuleType] = {}
        session.session().register("provide-client-params", self._note)

    @property
    def live_manifests(self) -> bool:
        """True if functions read manifests from a cluster."""
        return any(cluster.live_manifests for cluster in self._settings.clusters)

    def client(self, service: str) -> Any:
        """A client whose calls are not recorded."""
        return self._unrecorded[service]

    @property
    def state_table(self) -> str:
        """The name of table `state`."""
        return self._names.state_table

    def make_resources(self) -> None:
        """Make what the stack would have made: tables, bucket, bus, queues, instance profiles with their parameters."""
        names = self._names
        create_table(self.client("dynamodb"), names.state_table, tables.STATE)
        create_table(self.client("dynamodb"), names.capacity_table, tables.CAPACITY)
        where = {"LocationConstraint": self._lookup.region}
        self.client("s3").create_bucket(Bucket=names.bucket, CreateBucketConfiguration=where)
        self.client("events").create_event_bus(Name=names.bus)
        urls = {environment.get("SHIPLAP_DEAD_LETTER_QUEUE_URL", "") for environment in self._environments.values()}
        for url in {names.lifecycle_queue_url, *urls} - {""}:
            self.client("sqs").create_queue(QueueName=url.rpartition("/")[2])
        for name, value in self._parameters.items():
            self.client("ssm").put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
        for profile, role in self._lookup.role_of_profile.items():
            name = role.rpartition("/")[2]
            self.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")
            self.client("iam").create_instance_profile(InstanceProfileName=profile)
            self.client("iam").add_role_to_instance_profile(InstanceProfileName=profile, RoleName=name)

    def leave_identity(self, cluster: str, name: str) -> None:
        """Make what a deployment has left behind: an instance profile and a node role that nothing names any more."""
        iam, path = self.client("iam"), identity_path(self._names.install, self._lookup.region, cluster)
        iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument="{}")
        allow = {"Effect": "Allow", "Action": "ec2:DescribeTags", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        policy = iam.create_policy(PolicyName=name, PolicyDocument=document)["Policy"]["Arn"]
        iam.attach_role_policy(RoleName=name, PolicyArn=policy)
        iam.put_role_policy(RoleName=name, PolicyName="ipv6", PolicyDocument=document)
        iam.create_instance_profile(InstanceProfileName=name, Path=f"{path}{name}/")
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)

    def invoke(self, function: str, event: dict[str, Any], *, seconds: float = 60.0) -> Any:
        """Run a function's handler on an event."""
        before = dict(self._kubernetes.seen)
        self._function = function
        try:
            return self._module(function).handle(event, Context(seconds))
        finally:
            for thread in threading.enumerate():
                if thread.name.startswith(("watch-", "keep-snapshot")):  # it may still be asking
                    thread.join(timeout=30)
            self._function = ""
            asked = self._kubernetes.seen
            self.kubernetes[function] |= {key for key, count in asked.items() if count > before.get(key, 0)}

    def _module(self, function: str) -> ModuleType:
        if function not in self._modules:
            spec = importlib.util.spec_from_file_location(f"recorded_{function}", FUNCTIONS / function / "handler.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            made = Install(function, self._settings, ResourceNames.of(self._environments[function]))
            if function != "watch":  # which waits for real
                made.clock = self.clock  # type: ignore[assignment]
            module.install = lambda: made  # type: ignore[attr-defined]
            self._modules[function] = module
        return self._modules[function]

    def _note(self, params: Params, model: Any, **_: Any) -> None:
        """Of botocore, before each call of a client of the library's."""
        if self._function:
            service = model.service_model.signing_name
            service = {"arc-zonal-shift": "arc-zonal-shift"}.get(service, model.service_model.service_name)
            self.aws[self._function] |= set(authorizations(service, model.name, params, self._lookup))

    def _tags_of(self, name: str) -> dict[str, str]:
        found = self.client("ec2").describe_tags(Filters=[{"Name": "resource-id", "Values": [name]}])["Tags"]
        return {tag["Key"]: tag["Value"] for tag in found}

    def _arn_in_iam(self, kind: str, name: str) -> str:
        iam = self.client("iam")
        if kind == "role":
            return str(iam.get_role(RoleName=name)["Role"]["Arn"])
        return str(iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Arn"])

    def _template(self, name: str) -> Params:
        ec2 = self.client("ec2")
        (version,) = ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
        data: Params = version["LaunchTemplateData"]
        return data

    def _template_id(self, name: str) -> str:
        (found,) = self.client("ec2").describe_launch_templates(LaunchTemplateNames=[name])["LaunchTemplates"]
        template_id: str = found["LaunchTemplateId"]
        return template_id


@contextmanager
def aws_of(url: str, region: str, answers: Mapping[tuple[str, str], Any]) -> Iterator[None]:
    """The library's clients, and nobody else's, made anew for an AWS at `url`; some operations have a fixed answer."""
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": ACCOUNT,
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with ExitStack() as undo:
        undo.enter_context(patch.dict("os.environ", environment))
        undo.enter_context(own_logger())
        _forget_clients()
        undo.callback(_forget_clients)
        for (service, operation), answer in answers.items():
            made = session.session()
            made.register(
                f"before-call.{service}.{operation}",
                lambda answer=answer, **_: (SimpleNamespace(status_code=200), answer),
            )
        yield


def _forget_clients() -> None:
    for made in session._CLIENTS.values():
        made.close()
    session._CLIENTS.clear()
    session.session.cache_clear()


def now() -> float:
    """The machine's time in whole seconds: certificates and tokens of clients look at it."""
    return float(int(time.time()))
