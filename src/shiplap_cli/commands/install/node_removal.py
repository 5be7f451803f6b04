"""The steps of an uninstall, each of which looks at what is there before it changes anything.

Progress is not kept anywhere: launches are frozen in table `state`, nodes are seen in EC2, the stack in CloudFormation.
Only the names of tables and bucket are (see `removal_record`), for they outlive the stack that tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from shiplap.aws import tags
from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import AwsError, InvalidInput
from shiplap.ports import CapacityStore, StateStore
from shiplap.settings import Settings
from shiplap_cli.commands.install.node_draining import DrainedCluster, drain_cluster
from shiplap_cli.commands.install.removal_record import RemovalRecord, RemovedCluster, read_record, save_record
from shiplap_cli.commands.install.stack_deletion import stack_state
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.installs.published_versions import functions_of, published_versions, settings_layers
from shiplap_cli.installs.releases import PublishedVersion

POLL_S = 15.0
_PRESENT = ("pending", "running", "stopping", "stopped", "shutting-down")


class RunningInstance(msgspec.Struct, frozen=True, rename="camel", order=True):
    """An instance with the install's tag that EC2 shows in any state but terminated."""

    cluster: str
    node_pool: str
    instance: str
    type: str
    state: str
    claim: str = ""


class RemovalClients(NamedTuple):
    """Clients of AWS in the install's Region, and its stores; `state` is None once its table is gone."""

    cloudformation: Any
    ec2: Any
    s3: Any
    dynamodb: Any
    state: StateStore
    capacity: CapacityStore


def found_record(
    install: DeployedInstall, stack: str, settings: Settings | None, s3: Any, functions: Any
) -> RemovalRecord:
    """The install to be removed: by its settings while it is whole, else by what an earlier run has kept.

    Args:
        install: its outputs, and its bucket.
        stack: the name of its stack.
        settings: those in service, None once the stack has begun to go.
        s3: a client, for what an earlier run has kept.
        functions: a client of Lambda, for the versions of its settings layer.

    Raises:
        AwsError: Lambda does not tell.
        StoreError: the bucket cannot be read.
        InvalidInput: there is neither, or the install's instances have no tag of an install.
    """
    if settings is None:
        known = read_record(s3, install.bucket)
        if known is None:
            raise InvalidInput("--bucket", f"no uninstall has begun in {install.bucket}: name the install's --stack")
        return known
    names = sorted({cluster.install for cluster in settings.clusters})
    if len(names) != 1 or not names[0]:
        raise InvalidInput("--stack", "the install's settings have no name: deploy it with this version first")
    return RemovalRecord(
        install=names[0],
        region=settings.clusters[0].region,
        stack=stack,
        bucket=install.bucket,
        state_table=install.output("StateTable"),
        capacity_table=install.output("CapacityTable"),
        clusters=tuple(RemovedCluster(item.name, item.live_manifests) for item in settings.clusters),
        settings_layers=settings_layers(functions, tuple(_versions(install, functions))),
    )


def _versions(install: DeployedInstall, functions: Any) -> Iterator[PublishedVersion]:
    """Of every function; one that somebody has deleted has none. Raises AwsError."""
    for function in functions_of(install):
        try:
            yield from published_versions(functions, (function,))
        except AwsError as error:
            if error.code != "ResourceNotFoundException":
                raise


def is_whole(cloudformation: Any, stack: str) -> bool:
    """True if the stack's functions are there: its deletion has not begun. Raises AwsError."""
    status = stack_state(cloudformation, stack).status
    return bool(status) and not status.startswith("DELETE_")


class NodeRemoval:
    """Freezes launches and ends nodes.

    Args:
        record: the install.
        settings: its clusters; None when its functions are gone, and nothing can be drained any more.
        clients: of its Region.
        now: the clock, epoch seconds.
        sleep: waits, seconds.
    """

    def __init__(
        self,
        record: RemovalRecord,
        settings: Settings | None,
        clients: RemovalClients,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._record, self._settings, self._clients = record, settings, clients
        self._now, self._sleep = now, sleep

    def instances(self) -> tuple[RunningInstance, ...]:
        """All of the install, sorted by cluster and NodePool. Raises AwsError."""
        filters = [
            {"Name": f"tag:{tags.INSTALL}", "Values": [self._record.install]},
            {"Name": "instance-state-name", "Values": list(_PRESENT)},
        ]
        with aws_errors("describe instances"):
            pages = self._clients.ec2.get_paginator("describe_instances").paginate(Filters=filters)
            shown = [seen for page in pages for item in page["Reservations"] for seen in item["Instances"]]
        return tuple(sorted(map(_running, shown)))

    def freeze(self) -> float:
        """Freeze launches; returns since when they are. Raises StoreError."""
        save_record(self._clients.s3, self._record)
        return self._clients.state.freeze([cluster.name for cluster in self._record.clusters], self._now())

    def drain(self, *, kept: Sequence[str] = (), grace_s: float = 0.0) -> dict[str, DrainedCluster]:
        """One look at every cluster, without those that are `kept`. Raises StoreError."""
        clusters = self._settings.clusters if self._settings is not None else ()
        return {
            settings.name: drain_cluster(settings, self._clients.state, self._now(), grace_s=grace_s)
            for settings in clusters
            if settings.name not in kept
        }

    def drain_until_empty(
        self,
        until: float,
        *,
        kept: Sequence[str] = (),
        grace_s: float = 0.0,
        say: Callable[[str], None] = lambda _: None,
    ) -> tuple[tuple[RunningInstance, ...], Mapping[str, DrainedCluster]]:
        """Look again and again until EC2 shows nothing and no claim may still be launched, or the time is up.

        Nodes that join meanwhile are drained as well. Returns what is left, by the last look.

        Raises:
            AwsError, StoreError: what was begun goes on.
        """
        while True:
            drained = self.drain(kept=kept, grace_s=grace_s)
            left = self.instances()
            launching = sum(len(item.launching) for item in drained.values())
            if (not left and not launching) or self._now() >= until or self._settings is None:
                return left, drained
            say(f"{len(left)} instances are still there")
            self._sleep(POLL_S)


def _running(seen: Mapping[str, Any]) -> RunningInstance:
    of = tags.read(seen.get("Tags", []))
    return RunningInstance(
        of.get(tags.CLUSTER, ""),
        of.get(tags.NODE_POOL, ""),
        seen["InstanceId"],
        seen.get("InstanceType", ""),
        seen["State"]["Name"],
        of.get(tags.NODE_CLAIM, ""),
    )
