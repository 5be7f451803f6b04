"""`shiplap status`: one screen of an install: can nodes be launched, what runs, what failed, what waits.

What is shown is what the functions wrote into the install's bucket and tables, and what SQS, Lambda and CloudWatch say
of them; neither EC2 nor a cluster is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import UNSET
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.errors import InvalidInput, StoreError
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import FAILED_STATES, UPCOMING_STATES
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus, NodeClassStatus
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_cli.commands.status.recorded_standings import Standings, read_standings, standings_page
from shiplap_cli.installs.find_install import STACK, Bucket, DeployedInstall, Dev, Stack, find_install
from shiplap_cli.installs.install_metrics import InstallMetrics, gather_metrics, queues_of
from shiplap_cli.joined_documents import joined, joined_type
from shiplap_cli.output import (
    Format,
    HtmlFile,
    Output,
    Printed,
    confirm,
    emit,
    plain_table,
    spaced,
    titled_table,
    write_page,
)
from shiplap_cli.render.status_page import CatalogDocument, ClusterStatusDocument, StatusDocument, metrics_page

_OLD_S = 3 * 3600
"""A catalogue that was not refreshed for so long, seconds, is pointed out: it should be every hour."""


class RedrivenQueue(Printed, frozen=True):
    """Dead letters that were put back into their queue, and malformed ones that stay."""

    moved: int
    malformed: int


StatusAnswer = joined_type(StatusDocument, InstallMetrics, Standings)
RedriveAnswer = dict[str, RedrivenQueue]


def status(
    *,
    bucket: Bucket = "",
    stack: Stack = STACK,
    dev: Dev = False,
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Put dead letters back into their queues, but for malformed ones.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before --redrive.")] = False,
    html: HtmlFile = None,
    openmetrics: Annotated[
        Path | None,
        typer.Option(help="Also write the figures as OpenMetrics text, for Prometheus' textfile collector."),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """One screen of an install: node classes, pools and their limits, queues, functions, failures, learned capacity.

    Exit code 0 when every EC2NodeClass is ready, 1 when one is not or nothing is known yet, 2 for bad input.

    Example: shiplap status --cluster prod

    Example: shiplap status --openmetrics /var/lib/node_exporter/shiplap.prom

    Example: shiplap status --redrive
    """
    install = find_install(bucket=bucket, stack=stack, dev=dev)
    if redrive:
        return _redrive(install, output, ask=not yes)
    document, metrics = _read_status(install, cluster)
    if html is not None:
        from shiplap_cli.render.html_status import pictures_of, status_report  # noqa: PLC0415 - it shows what is found here

        now = time.time()
        pictures, missing = pictures_of(install, [each.cluster for each in document.clusters], now)
        write_page(html, status_report(document, metrics, pictures, missing, now))
    if openmetrics is not None:
        from shiplap_cli.render.openmetrics import openmetrics_text, write_openmetrics  # noqa: PLC0415 - asked for seldom

        write_openmetrics(openmetrics, openmetrics_text(document, metrics))
    standings, unread = read_standings(install, document.clusters, time.time())
    metrics = replace(metrics, unseen=(*metrics.unseen, *unread))

    def page() -> RenderableType:
        return Group(*spaced([*_status_tables(document), *standings_page(standings), *metrics_page(metrics)]))

    emit(joined(document, metrics, standings), output, page)
    classes = [item for each in document.clusters for item in each.node_classes]
    return 0 if classes and all(item.ready.status == nodeclass_status.TRUE for item in classes) else 1


def _redrive(install: DeployedInstall, output: Format, *, ask: bool) -> int:
    """Exit code 1 when malformed messages stay. Raises StoreError, InvalidInput."""
    from shiplap_cli.installs import dead_letter_queues  # noqa: PLC0415 - loads botocore

    urls = {
        name: (install.output(f"{name}DeadLettersUrl"), install.output(f"{name}QueueUrl"))
        for name in queues_of(install)
    }
    waiting = {name.lower(): sum(dead_letter_queues.depth(dead)) for name, (dead, _) in urls.items()}
    if ask and any(waiting.values()):
        listed = ", ".join(f"{number} of {name}" for name, number in waiting.items() if number)
        confirm("--redrive", f"Put dead letters back ({listed})?")
    moved = {name.lower(): dead_letter_queues.redrive(dead, queue) for name, (dead, queue) in urls.items()}
    answer = {name: RedrivenQueue(done, left) for name, (done, left) in moved.items()}
    rows = [(name, str(done), str(left)) for name, (done, left) in moved.items()]
    emit(answer, output, lambda: plain_table("queue", "put back", "malformed, left alone", rows=rows))
    return 1 if any(left for _, left in moved.values()) else 0


def _read_status(install: DeployedInstall, cluster: str) -> tuple[StatusDocument, InstallMetrics]:
    """Raises StoreError, AwsError, InvalidInput."""
    now = time.time()
    known = _chosen_clusters(install.inspected(), cluster)
    loaded: dict[str, Catalog] = {}
    catalogues = []
    for region in sorted({item.region for item in known}):
        try:
            loaded[region] = install.catalog(region)
            catalogues.append(_catalog_document(loaded[region], now))
        except StoreError as error:
            catalogues.append(CatalogDocument(region, problem=str(error)))
    of_cluster = {item.cluster: loaded[item.region] for item in known if item.region in loaded}
    limits = {(item.cluster, pool.name): pool.limits for item in known for pool in item.pools}
    metrics = gather_metrics(install, [item.cluster for item in known], of_cluster, limits, now)
    return StatusDocument(tuple(_cluster_document(item, now) for item in known), tuple(catalogues)), metrics


def _chosen_clusters(known: InstallStatus, name: str) -> Sequence[ClusterStatus]:
    chosen = [item for item in known.clusters if name in ("", item.cluster)]
    if name and not chosen:
        names = ", ".join(item.cluster for item in known.clusters) or "none"
        raise InvalidInput("--cluster", f"nothing is known of cluster {name!r}; known are {names}")
    return chosen


def _cluster_document(known: ClusterStatus, now: float) -> ClusterStatusDocument:
    age = int(now - known.checked_at)
    return ClusterStatusDocument(
        known.cluster,
        known.region,
        rfc3339(known.checked_at),
        age,
        known.node_classes,
        known.pools,
        known.features or UNSET,
    )


def _catalog_document(known: Catalog, now: float) -> CatalogDocument:
    return CatalogDocument(
        region=known.region,
        version=known.version,
        instance_types=len(known.types),
        refreshed_at=_rfc3339(known.refreshed_at),
        age_seconds=int(now - known.refreshed_at),
        on_demand_prices_at=_rfc3339(known.on_demand_at),
        spot_prices_at=_rfc3339(known.spot_at),
    )


def _rfc3339(epoch_s: float) -> str:
    return rfc3339(epoch_s) if epoch_s else ""


def _status_tables(document: StatusDocument) -> Iterator[RenderableType]:
    if not document.clusters:
        yield Text("Nothing is known yet: the first inspection follows within five minutes of a deployment.")
        return
    for each in document.clusters:
        yield from _cluster_tables(each)
    yield _catalogue_table(document)


def _cluster_tables(shown: ClusterStatusDocument) -> Iterator[RenderableType]:
    title = f"Cluster {shown.cluster} ({shown.region}), looked at {_age(shown.age_seconds)} ago"
    classes = titled_table(title, "node class", "ready", "AMIs", "subnets", "free IPs", "types", "why")
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
    reserved = [row for item in shown.node_classes for row in _reservation_rows(item)]
    if reserved:
        yield plain_table("capacity reservation", "node class", "type", "zone", "state", "next, UTC", rows=reserved)
    rows = ((pool.name, pool.node_class, str(pool.weight), pool.ready) for pool in shown.pools)
    yield plain_table("node pool", "node class", "weight", "ready", rows=rows)


def _reservation_rows(known: NodeClassStatus) -> Iterator[tuple[str, ...]]:
    """A reservation's start, when nodes of a block begin to be emptied, and its end, as far as there are any."""
    for held in (*known.upcoming_reservations, *known.capacity_reservations):
        times = (
            ("starts", held.starts_at if held.state in UPCOMING_STATES else 0.0),
            ("drains", held.drains_at(known.drain_s)),
            ("ends", held.ends_at),
        )
        told = ", ".join(f"{what} {rfc3339(at)}" for what, at in times if at)
        never = held.state in FAILED_STATES
        yield held.id, known.name, held.instance_type, held.zone, held.state, "never starts" if never else told


def _reasons(status: NodeClassStatus) -> list[str]:
    """Every condition that is not True, by name and reason; what follows from another is left out."""
    wrong = [
        condition
        for condition in status.conditions
        if condition.status != nodeclass_status.TRUE and condition.type != nodeclass_status.READY
    ]
    if any(condition.status == nodeclass_status.UNKNOWN for condition in wrong):
        return [f"{wrong[0].reason}: {wrong[0].message}"]
    return [f"{item.type}: {item.reason}: {item.message}" for item in wrong if item.reason != "DependenciesNotReady"]


def _catalogue_table(document: StatusDocument) -> Table:
    table = plain_table("catalogue", "version", "types", "age", "on-demand prices of", "spot prices of", "", rows=())
    for catalog in document.catalogues:
        old = "not refreshed lately" if catalog.age_seconds > _OLD_S else ""
        table.add_row(
            catalog.region,
            catalog.version,
            str(catalog.instance_types),
            "" if catalog.problem else _age(catalog.age_seconds),
            catalog.on_demand_prices_at or "never: estimated",
            catalog.spot_prices_at or "never: estimated",
            catalog.problem or old,
        )
    return table


def _age(seconds: int) -> str:
    """Seconds as people say them."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
