"""`shiplap status`: can nodes be launched: EC2NodeClasses with their conditions, NodePools, the age of the catalogue.

What is shown is what the functions wrote into the install's bucket; neither EC2 nor a cluster is asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.cli.output import Format, Output, emit
from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.instances import conditions
from shiplap.instances.catalog import Catalog
from shiplap.instances.status import ClusterStatus, InstallStatus, NodeClassStatus, PoolStatus
from shiplap.kubernetes.timestamps import rfc3339

_OLD_S = 3 * 3600
"""A catalogue that was not refreshed for so long, seconds, is pointed out: it should be every hour."""


class _Shown(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is printed; times as RFC 3339, empty for never."""


class _Cluster(_Shown, frozen=True):
    cluster: str
    region: str
    checked_at: str
    age_seconds: int
    node_classes: tuple[NodeClassStatus, ...]
    pools: tuple[PoolStatus, ...]


class _Catalogue(_Shown, frozen=True):
    """`problem` says why there is none."""

    region: str
    version: str = ""
    instance_types: int = 0
    refreshed_at: str = ""
    age_seconds: int = 0
    on_demand_prices_at: str = ""
    spot_prices_at: str = ""
    problem: str = ""


class _Status(_Shown, frozen=True):
    clusters: tuple[_Cluster, ...]
    catalogues: tuple[_Catalogue, ...]


def status(
    *,
    bucket: Annotated[
        str, typer.Option(envvar="SHIPLAP_BUCKET", help="The install's bucket; found by the stack without.")
    ] = "",
    stack: Annotated[str, typer.Option(help="Name of the install's CloudFormation stack.")] = "Shiplap",
    dev: Annotated[bool, typer.Option("--dev", help="The `shiplap dev` that runs on this machine.")] = False,
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    output: Output = Format.TABLE,
) -> int:
    """Whether nodes can be launched: node classes with their conditions, node pools, age of catalogue and prices.

    Exit code 0 when every EC2NodeClass is ready, 1 when one is not or nothing is known yet, 2 for bad input.
    """
    if dev:
        bucket = _enter_dev()
    found = _read(bucket or _bucket_of(stack), cluster)
    emit(found, output, lambda: _tables(found))
    classes = [item for each in found.clusters for item in each.node_classes]
    return 0 if classes and all(item.ready.status == conditions.TRUE for item in classes) else 1


def _enter_dev() -> str:
    """Point this process at the running `shiplap dev`; its bucket."""
    from shiplap.local.running import find  # noqa: PLC0415 - not for those who ask a live install

    running = find()
    os.environ.update(running.environment)
    return running.bucket


def _bucket_of(stack: str) -> str:
    """The bucket a stack made.

    Raises:
        AwsError: the stack cannot be looked up.
        InvalidInput: there is no such stack, or it is not Shiplap's.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415 - so that --help does not wait for it

    from shiplap.aws.failures import FAILURES  # noqa: PLC0415
    from shiplap.aws.session import config, session  # noqa: PLC0415

    try:  # functions never ask for it, so it is not among the clients that are shipped with them
        formation: Any = session().create_client("cloudformation", os.environ.get("AWS_REGION"), config=config())
        (found,) = formation.describe_stacks(StackName=stack)["Stacks"]
    except FAILURES as error:
        if isinstance(error, ClientError) and "does not exist" in str(error):
            raise InvalidInput("--stack", f"there is no stack {stack!r}; name it, or the bucket by --bucket") from error
        raise AwsError(f"could not look up stack {stack}: {error}") from error
    outputs = {item["OutputKey"]: item["OutputValue"] for item in found.get("Outputs", ())}
    if "Bucket" not in outputs:
        raise InvalidInput("--stack", f"stack {stack!r} has no output Bucket: it is not an install of Shiplap")
    return str(outputs["Bucket"])


def _read(bucket: str, cluster: str) -> _Status:
    """Raises StoreError, AwsError, InvalidInput."""
    from shiplap.aws.bucket import BucketCatalog, BucketStatus  # noqa: PLC0415
    from shiplap.aws.session import client  # noqa: PLC0415

    s3, now = client("s3"), time.time()
    known = _of_cluster(BucketStatus(s3, bucket).load(), cluster)
    regions = sorted({item.region for item in known})
    catalogues = []
    for region in regions:
        try:
            catalogues.append(_catalogue(BucketCatalog(s3, bucket, region).load(), now))
        except StoreError as error:
            catalogues.append(_Catalogue(region, problem=str(error)))
    return _Status(tuple(_cluster(item, now) for item in known), tuple(catalogues))


def _of_cluster(known: InstallStatus, name: str) -> Sequence[ClusterStatus]:
    chosen = [item for item in known.clusters if name in ("", item.cluster)]
    if name and not chosen:
        names = ", ".join(item.cluster for item in known.clusters) or "none"
        raise InvalidInput("--cluster", f"nothing is known of cluster {name!r}; known are {names}")
    return chosen


def _cluster(known: ClusterStatus, now: float) -> _Cluster:
    age = int(now - known.checked_at)
    return _Cluster(known.cluster, known.region, rfc3339(known.checked_at), age, known.node_classes, known.pools)


def _catalogue(known: Catalog, now: float) -> _Catalogue:
    return _Catalogue(
        region=known.region,
        version=known.version,
        instance_types=len(known.types),
        refreshed_at=_moment(known.refreshed_at),
        age_seconds=int(now - known.refreshed_at),
        on_demand_prices_at=_moment(known.on_demand_at),
        spot_prices_at=_moment(known.spot_at),
    )


def _moment(epoch_s: float) -> str:
    return rfc3339(epoch_s) if epoch_s else ""


def _tables(found: _Status) -> RenderableType:
    if not found.clusters:
        return Text("Nothing is known yet: the first inspection follows within five minutes of a deployment.")
    return Group(*(part for each in found.clusters for part in _cluster_tables(each)), _catalogue_table(found))


def _cluster_tables(shown: _Cluster) -> Iterator[RenderableType]:
    title = f"Cluster {shown.cluster} ({shown.region}), looked at {_age(shown.age_seconds)} ago"
    classes = Table("node class", "ready", "AMIs", "subnets", "free IPs", "types", "why", title=title)
    classes.title_justify = "left"
    for item in shown.node_classes:
        classes.add_row(
            item.name,
            item.ready.status,
            str(len(item.amis)),
            str(len(item.subnets)),
            str(sum(subnet.free_ips for subnet in item.subnets)),
            str(item.instance_types),
            "\n".join([*_reasons(item), *(f"warning: {text}" for text in item.warnings)]),
        )
    yield classes
    pools = Table("node pool", "node class", "weight", "ready")
    for pool in shown.pools:
        pools.add_row(pool.name, pool.node_class, str(pool.weight), pool.ready)
    yield pools


def _reasons(status: NodeClassStatus) -> list[str]:
    """Every condition that is not True, by name and reason; what follows from another is left out."""
    wrong = [item for item in status.conditions if item.status != conditions.TRUE and item.type != conditions.READY]
    if any(item.status == conditions.UNKNOWN for item in wrong):
        return [f"{wrong[0].reason}: {wrong[0].message}"]
    return [f"{item.type}: {item.reason}: {item.message}" for item in wrong if item.reason != "DependenciesNotReady"]


def _catalogue_table(found: _Status) -> Table:
    table = Table("catalogue", "version", "types", "age", "on-demand prices of", "spot prices of", "")
    for item in found.catalogues:
        old = "not refreshed lately" if item.age_seconds > _OLD_S else ""
        table.add_row(
            item.region,
            item.version,
            str(item.instance_types),
            "" if item.problem else _age(item.age_seconds),
            item.on_demand_prices_at or "never: estimated",
            item.spot_prices_at or "never: estimated",
            item.problem or old,
        )
    return table


def _age(seconds: int) -> str:
    """Seconds as people say them."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
