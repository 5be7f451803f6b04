"""Finds an install for commands: by the outputs of its stack, by its bucket, or `shiplap lab dev` on this machine."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.readiness.nodeclass_status import InstallStatus
from shiplap.ports import CapacityStore, JoinLog, ManifestStore, StateStore
from shiplap.settings import ClusterSettings
from shiplap_cli.hints import with_hint
from shiplap_cli.options import Options
from shiplap_cli.output import FURTHER

if TYPE_CHECKING:
    from shiplap.aws.bucket import BucketRecorder
    from shiplap.aws.policy_adapters import MakePorts
    from shiplap.cluster.kubeconfig import Access

Bucket = Annotated[
    str,
    typer.Option(
        envvar="SHIPLAP_BUCKET", help="The install's bucket; found by the stack without.", rich_help_panel=FURTHER
    ),
]
Stack = Annotated[str, typer.Option(help="Name of the install's CloudFormation stack.", rich_help_panel=FURTHER)]
Dev = Annotated[
    bool, typer.Option("--dev", help="The `shiplap lab dev` that runs on this machine.", rich_help_panel=FURTHER)
]
STACK = "Shiplap"
"""The default name of the stack."""

_SCHEDULE = re.compile("Schedule(.*)Function")


class InstallOptions(Options, frozen=True, kw_only=True):
    """The options that name a cluster of an install, where a command may ask one beside the cluster itself."""

    cluster: Annotated[
        str,
        typer.Option("--cluster", help="A cluster of an install; its only one without."),
    ] = ""
    stack: Annotated[
        str, typer.Option("--stack", help=f"Name of the install's stack; {STACK} without.", rich_help_panel=FURTHER)
    ] = ""
    dev: Annotated[
        bool, typer.Option("--dev", help="The `shiplap lab dev` that runs on this machine.", rich_help_panel=FURTHER)
    ] = False

    @property
    def given(self) -> bool:
        """True if the options name a live install."""
        return bool(self.cluster or self.stack or self.dev)


class DeployedInstall(msgspec.Struct, frozen=True):
    """The names of an install's AWS resources; empty where they are not known.

    `outputs` are those of the stack, empty when the install was named by its bucket alone.
    """

    bucket: str
    outputs: dict[str, str] = {}

    def output(self, name: str) -> str:
        """A resource by the name of its output.

        Raises:
            InvalidInput: it is not known.
        """
        value = self.outputs.get(name, "")
        if not value:
            raise InvalidInput("--stack", f"the output {name} is not known; name the install's stack, not its bucket")
        return value

    def state(self) -> StateStore:
        """Its table `state`. Raises InvalidInput: its name is not known."""
        from shiplap.aws.dynamodb.state_table import DynamoState  # noqa: PLC0415 - so that --help does not wait for botocore
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return DynamoState(client("dynamodb"), self.output("StateTable"))

    def joins(self) -> JoinLog:
        """Return the log of its nodes' joins. Raises InvalidInput: the name of table `state` is not known."""
        from shiplap.aws.dynamodb.join_log import DynamoJoins  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return DynamoJoins(client("dynamodb"), self.output("StateTable"))

    def capacity(self) -> CapacityStore:
        """Its learned capacity. Raises InvalidInput: the table's name is not known."""
        from shiplap.aws.dynamodb.capacity_table import DynamoCapacity  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return DynamoCapacity(client("dynamodb"), self.output("CapacityTable"))

    def records(self) -> BucketRecorder:
        """Its flight recorder."""
        from shiplap.aws.bucket import BucketRecorder  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return BucketRecorder(client("s3"), self.bucket)

    def inspected(self) -> InstallStatus:
        """The result of its last inspection. Raises StoreError."""
        from shiplap.aws.bucket import BucketStatus  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return BucketStatus(client("s3"), self.bucket).load()

    def catalog(self, region: str) -> Catalog:
        """The types and prices that its functions decide with. Raises StoreError."""
        from shiplap.aws.bucket import BucketCatalog  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return BucketCatalog(client("s3"), self.bucket, region).load()

    def policy_ports(self, policy: str, settings: ClusterSettings) -> MakePorts:
        """Return how to make the ports of an optional feature. Raises InvalidInput: a table's name is not known."""
        from shiplap.aws.policy_adapters import PolicyResources, adapters_of  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        tables = self.output("StateTable"), self.output("CapacityTable")
        return adapters_of(
            policy, PolicyResources(client, *tables, self.bucket, settings.region, settings.install, time.time)
        )

    def manifests(self) -> ManifestStore:
        """Return the store of manifests that its functions read last."""
        from shiplap.aws.bucket import BucketManifests  # noqa: PLC0415 - as above
        from shiplap.aws.session import client  # noqa: PLC0415 - as above

        return BucketManifests(client("s3"), self.bucket)


def install_name(outputs: Mapping[str, str]) -> str:
    """The install's own name, by the outputs of its stack; empty where they name no function `schedule`.

    Functions are called NAME-schedule, those of a named network NAME-schedule-NETWORK. NAME may itself contain them.
    """
    for output in sorted(outputs):
        if found := _SCHEDULE.fullmatch(output):
            return outputs[output].removesuffix(f"-schedule-{found[1].lower()}".removesuffix("-"))
    return ""


def aws_client(service: str, region: str = "") -> Any:
    """A client that no function has, so it is not among those of `aws.session`."""
    from shiplap.aws.session import config, session  # noqa: PLC0415 - as above

    return session().create_client(service, region or os.environ.get("AWS_REGION"), config=config())


def find_install(*, bucket: str, stack: str, dev: bool) -> DeployedInstall:
    """The install that the options name.

    Raises:
        AwsError: the stack cannot be looked up.
        InvalidInput: there is no such stack, it is not Shiplap's, or no `shiplap lab dev` runs.
    """
    if dev:
        from shiplap_lab.dev.dev_session import find_session as running  # noqa: PLC0415 - not for those who ask a live install

        session = running()
        os.environ.update(session.environment)
        return DeployedInstall(session.bucket, _outputs(stack) or {})
    if bucket:
        return DeployedInstall(bucket)
    outputs = _outputs(stack)
    if outputs is None:
        from shiplap_cli.installs.stack_outputs import no_stack  # noqa: PLC0415 - so that --help does not wait for botocore

        raise no_stack(stack)
    if "Bucket" not in outputs:
        raise InvalidInput("--stack", f"stack {stack!r} has no output Bucket: it is not an install of Shiplap")
    return DeployedInstall(outputs["Bucket"], outputs)


def sole_cluster(install: DeployedInstall, named_by: str = "--cluster") -> str:
    """The cluster of an install that serves one; `named_by` is the option or argument that names it otherwise.

    Raises:
        InvalidInput: it serves several or none, or does not tell.
    """
    try:
        names = [status.cluster for status in install.inspected().clusters]
    except StoreError as error:
        raise InvalidInput(
            named_by, f"is missing, and the install does not tell its clusters: {with_hint(error)}"
        ) from error
    if len(names) != 1:
        raise InvalidInput(named_by, f"the install serves {', '.join(names) or 'no cluster yet'}; name one of them")
    return names[0]


def install_finder(which: InstallOptions) -> Callable[[], tuple[DeployedInstall, str]]:
    """A function that finds an install and the cluster's name in it: at its first call, and again until both are found.

    It raises InvalidInput and AwsError, as `find_install` and `sole_cluster` do.
    """

    @cache
    def found() -> tuple[DeployedInstall, str]:
        install = find_install(bucket="", stack=which.stack or STACK, dev=which.dev)
        return install, which.cluster or sole_cluster(install)

    return found


def dev_access(cluster: str) -> Access:
    """The API server of a cluster of the `shiplap lab dev` that runs here; of its first one when none is named.

    Raises:
        InvalidInput: nothing runs here, or no such cluster.
    """
    from shiplap.cluster.kubeconfig import Access  # noqa: PLC0415 - as below
    from shiplap_lab.dev.dev_session import find_session as running  # noqa: PLC0415 - only for people who try it out

    endpoints = running().endpoints
    name = cluster or min(endpoints)
    if name not in endpoints:
        raise InvalidInput("--cluster", f"`shiplap lab dev` runs {', '.join(sorted(endpoints))}, not {name}")
    return Access(context=name, server=endpoints[name])


def _outputs(stack: str) -> dict[str, str] | None:
    """The outputs of a stack; None when there is none. Raises AwsError, InvalidInput: it was never completed."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - so that --help does not wait for it

    from shiplap_cli.installs.stack_outputs import stack_outputs  # noqa: PLC0415 - as above

    try:
        client = aws_client("cloudformation")
    except BotoCoreError as error:  # no Region, no such profile
        raise AwsError(f"could not look up stack {stack}: {error}") from error
    return stack_outputs(client, stack)
