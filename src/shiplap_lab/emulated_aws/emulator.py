"""AWS on this machine: MiniStack, with the project's own stack deployed on it by the CDK.

MiniStack plays EventBridge, SQS, Lambda, DynamoDB, S3 and CloudFormation; EC2 and what else the functions ask are
played elsewhere and given as `endpoints`. Nothing outside of this module and `cdk` knows about either tool.

What MiniStack does otherwise than AWS, as far as it matters here: functions run with this interpreter and keep its
environment (so it is started with a clean one); a queue's batching window is ignored and batches hold ten messages at
most; TTL and point-in-time recovery of tables are not applied; its CloudFormation does not know `RecursiveLoop`, so
that it is set here. Trace headers are passed on by `shiplap_lab.emulated_aws.traced_ministack`.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from shiplap.errors import ShiplapError
from shiplap_cdk.shipped_files import work_folder
from shiplap_lab.emulated_aws.cdk import Cdk, finish
from shiplap_lab.emulated_aws.processes import Process
from shiplap_lab.emulated_aws.run_folder import RunFolder

# The account that moto, which plays EC2, lives in.
ACCOUNT = "123456789012"

FOLDER = work_folder("local")
"""The folder in which each run has one."""

_START_TIMEOUT_S = 300.0
"""MiniStack answers within three seconds on two quiet cores, and not within 30 at a load of 18 there."""
_ANSWER_TIMEOUT_S = 900.0
"""The longest that Lambda lets a function run."""
_FUNCTION = "Function"
"""Ends the name of each output that names a function."""


class DeployedStack(msgspec.Struct, frozen=True):
    """Names and addresses of what the stack made. `functions` maps a function to its name in Lambda."""

    bus: str
    provisioning_queue_url: str
    provisioning_dead_letters_url: str
    lifecycle_queue_url: str
    lifecycle_dead_letters_url: str
    interruption_queue_url: str
    interruption_dead_letters_url: str
    state_table: str
    capacity_table: str
    bucket: str
    functions: dict[str, str]

    @property
    def dead_letters_urls(self) -> tuple[str, ...]:
        """Return the URLs of the queues in which messages end that nobody could handle."""
        return self.provisioning_dead_letters_url, self.lifecycle_dead_letters_url, self.interruption_dead_letters_url

    @property
    def queue_urls(self) -> tuple[str, ...]:
        """The queues that feed functions."""
        return self.provisioning_queue_url, self.lifecycle_queue_url, self.interruption_queue_url

    @classmethod
    def of(cls, outputs: Mapping[str, str]) -> DeployedStack:
        """From the stack's outputs, whose names are these fields' in CamelCase."""
        named = {
            field: outputs["".join(word.capitalize() for word in field.split("_"))]
            for field in cls.__struct_fields__
            if field != "functions"
        }
        functions = {name: value for name, value in outputs.items() if name.endswith(_FUNCTION)}
        return cls(
            **named, functions={name.removesuffix(_FUNCTION).lower(): value for name, value in functions.items()}
        )


class AwsEmulator:
    """An emulated account in one Region. `start`, then `deploy`; `stop` ends all processes and removes all files.

    As a context manager it is started on entry. Its logs stay in `state` when the block fails or `keep_logs` is set.
    """

    def __init__(self, region: str = "us-east-1", *, folder: Path = FOLDER) -> None:
        self.region = region
        self.port = _free_port()
        self._folder = RunFolder(folder, str(self.port))
        self.state = self._folder.path
        self.keep_logs = False
        self.phases: dict[str, float] = {}
        self._running = ExitStack()
        self._cdk = Cdk(self.state, self.environment(), region, ACCOUNT)
        self._bootstrap: Process | None = None
        self._server: Process | None = None

    @property
    def log(self) -> Path:
        """Return the log file of MiniStack and the functions."""
        return self.state / "ministack.log"

    @property
    def process(self) -> int:
        """The process that guards MiniStack, below which all functions run. Raises ShiplapError before the start."""
        if self._server is None:
            raise ShiplapError("the emulator is not started")
        return self._server.id

    @property
    def url(self) -> str:
        """The endpoint of every emulated service; by name, because S3 takes an address for a bucket's."""
        return f"http://localhost:{self.port}"

    def start(self) -> AwsEmulator:
        """Start MiniStack and, once it answers, begin to bootstrap. Raises ShiplapError when it does not answer."""
        began = time.monotonic()
        self._folder.hold()
        (self.state / "tmp").mkdir()
        server = self._server = self._running.enter_context(
            Process(
                [sys.executable, "-m", "shiplap_lab.emulated_aws.traced_ministack"],
                log=self.log,
                environment=self._server_environment(),
                folder=self.state,
            )
        )
        while not self._answers():
            self.check()
            if time.monotonic() > began + _START_TIMEOUT_S:
                raise ShiplapError(f"MiniStack did not answer within {_START_TIMEOUT_S:.0f} s; see {server.log}")
            time.sleep(0.02)
        self.phases["start"] = time.monotonic() - began
        self._bootstrap = self._running.enter_context(self._cdk.bootstrap())
        return self

    def deploy(
        self, settings: Path, endpoints: Mapping[str, str], context: Mapping[str, str] | None = None
    ) -> DeployedStack:
        """Deploy the stack for a `shiplap.yaml`, anew or again.

        Args:
            settings: the settings file.
            endpoints: addresses of what functions find elsewhere, by service id (`EC2`, `SSM`, `PRICING`).
            context: of the CDK app, as `-c` gives it.

        Raises:
            ShiplapError: a step failed; the text holds the end of its output.
        """
        began = time.monotonic()
        if self._bootstrap is None:
            raise ShiplapError("the emulator is not started")
        finish(self._cdk.synth(settings.resolve(), endpoints, context or {}), "synthesising the stack")
        self.phases["synth"] = time.monotonic() - began
        finish(self._bootstrap, "cdk bootstrap")
        self.phases["synth and bootstrap"] = time.monotonic() - began
        began = time.monotonic()
        finish(self._cdk.deploy(), "cdk deploy")
        for name in self._cdk.recursive_functions():
            self.client("lambda").put_function_recursion_config(FunctionName=name, RecursiveLoop="Allow")
        if "SSM" in endpoints:
            self._hand_on_parameters(endpoints["SSM"])
        self.phases["deploy"] = time.monotonic() - began
        return DeployedStack.of(self._cdk.outputs())

    def bootstrap(self) -> None:
        """Run `cdk bootstrap` again. Raises ShiplapError when it fails."""
        finish(self._cdk.bootstrap(), "cdk bootstrap")

    def destroy(self) -> None:
        """Delete the deployed stack. Raises ShiplapError."""
        finish(self._cdk.destroy(), "cdk destroy")

    def _hand_on_parameters(self, endpoint: str) -> None:
        """Have SSM elsewhere hold the parameters that the stack has made here, and none that it has removed."""
        elsewhere = self.client("ssm", endpoint)
        # CloudFormation's reference to an instance profile is its name, MiniStack's the ARN.
        here = {name: value.rpartition("/")[2] for name, value in _parameters(self.client("ssm")).items()}
        there = _parameters(elsewhere)
        for name, value in sorted(here.items() - there.items()):
            elsewhere.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
        for name in sorted(there.keys() - here.keys()):
            elsewhere.delete_parameter(Name=name)

    def check(self) -> None:
        """Raises ShiplapError, with the end of the log, when MiniStack has ended: what its tables held is lost."""
        if self._server is not None and self._server.ended:
            raise self._server.failure("MiniStack")

    def client(self, service: str, endpoint: str = "") -> Any:
        """A boto3 client of an emulated service, or of one that is played at another endpoint."""
        import boto3  # noqa: PLC0415 - a second that starting does not wait for
        from botocore.config import Config  # noqa: PLC0415 - as above

        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=endpoint or self.url,
            region_name=self.region,
            aws_access_key_id=ACCOUNT,
            aws_secret_access_key="local",  # noqa: S106 - the emulator checks none
            config=Config(read_timeout=_ANSWER_TIMEOUT_S),
        )

    def end(self) -> None:
        """End all processes."""
        self._running.close()

    def stop(self) -> None:
        """End all processes and remove all files, or all but the logs."""
        self.end()
        self._folder.release(keep_logs=self.keep_logs)

    def __enter__(self) -> AwsEmulator:
        try:
            return self.start()
        except BaseException as error:
            self.keep_logs = isinstance(error, Exception)
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.keep_logs = self.keep_logs or (kind is not None and issubclass(kind, Exception))
        self.stop()

    def environment(self) -> dict[str, str]:
        """Return the variables that point AWS clients at this account; an access key of twelve digits chooses it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _server_environment(self) -> dict[str, str]:
        """Return the variables of MiniStack and every function: of this process only where programs and home are."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "SYSTEMROOT") if name in os.environ}
        credentials = self.environment()
        # Functions get MiniStack's address from MiniStack.
        del credentials["AWS_ENDPOINT_URL"]
        return (
            kept
            | credentials
            | {
                "BIND_HOST": "127.0.0.1",
                "GATEWAY_PORT": str(self.port),
                "MINISTACK_REGION": self.region,
                "MINISTACK_ACCOUNT_ID": ACCOUNT,
                "LAMBDA_WARM_TTL_SECONDS": "3600",
                # Listens on a port of its own, which is not free a second time.
                "IOT_MTLS_ENABLED": "0",
                "STATE_DIR": str(self.state / "tmp"),
                "TMPDIR": str(self.state / "tmp"),
                "PYTHONUNBUFFERED": "1",
            }
        )

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/_ministack/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _parameters(ssm: Any) -> dict[str, str]:
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path="/shiplap", Recursive=True)
    return {item["Name"]: item["Value"] for page in pages for item in page["Parameters"]}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
