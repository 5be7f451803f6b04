"""The metrics of an install for people."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.instances.offerings.node_prices import Price
from shiplap.instances.readiness.nodeclass_status import NodeClassStatus, PoolStatus
from shiplap_cli.installs.install_metrics import InstallMetrics
from shiplap_cli.money import dollar_figure, hour_and_month, monthly
from shiplap_cli.output import Printed, titled_table, warning_line

_MOST = 10
"""Failures and refused offerings shown on one screen."""


def metrics_page(metrics: InstallMetrics) -> Iterator[RenderableType]:
    """A table for each part of which anything is known."""
    if metrics.frozen_at:
        why = "`shiplap install uninstall` ends the install, `shiplap install uninstall --cancel` lets launches go on"
        yield warning_line(f"launches are frozen since {metrics.frozen_at}: {why}")
    if metrics.pool_use:
        yield _pools(metrics)
    if metrics.queues:
        yield _queues(metrics)
    if metrics.functions:
        yield _functions(metrics)
    if metrics.failures:
        yield _failures(metrics)
    if metrics.resting:
        yield _resting(metrics)
    if metrics.learned is not None:
        worth = metrics.learned
        yield Text(
            f"Learned capacity: {worth.entries} entries of {worth.nodes} nodes; on the nodes that run, "
            f"{worth.won_back_gib:.1f} GiB ({hour_and_month(Price(worth.hourly))}) more than estimated can be used, "
            f"and {worth.not_there_gib:.1f} GiB that are not there are not promised"
        )
    for line in metrics.unseen:
        yield warning_line(f"not seen: {line}")


def _right(*names: str) -> list[Column]:
    return [Column(name, justify="right") for name in names]


def _pools(metrics: InstallMetrics) -> Table:
    columns = _right("nodes", "starting", "leaving", "$/h", "a month")
    table = titled_table("Nodes", "cluster", "pool", *columns, "limits used")
    for use in metrics.pool_use:
        bounds, price = ", ".join(use.limits_in_words), Price(use.hourly)
        counts = (str(use.nodes), str(use.starting), str(use.leaving), dollar_figure(price), monthly(price))
        table.add_row(use.cluster, use.pool, *counts, Text(bounds or "none"))
    return table


def _queues(metrics: InstallMetrics) -> Table:
    columns = _right("waiting", "in flight", "dead letters")
    table = titled_table("Queues", "queue", *columns, "why they are dead")
    for queue in metrics.queues:
        reasons = "\n".join(f"{number}: {reason}" for reason, number in queue.reasons.items())
        dead = Text(str(queue.dead_letters), style="red" if queue.dead_letters else "")
        table.add_row(queue.name, str(queue.waiting), str(queue.in_flight), dead, Text(reasons))
    return table


def _functions(metrics: InstallMetrics) -> Table:
    columns = _right("version", "invocations", "errors", "throttles")
    table = titled_table("Functions, last hour", "function", *columns)
    for function in metrics.functions:
        counts = ("?" if n is None else str(n) for n in (function.invocations, function.errors, function.throttles))
        table.add_row(function.name, function.version, *counts)
    return table


def _failures(metrics: InstallMetrics) -> Table:
    title = f"Failed within the last hour: {len(metrics.failures)}"
    table = titled_table(title, "at", "cluster", "claim", "why")
    for failure in metrics.failures[:_MOST]:
        table.add_row(failure.at, failure.cluster, failure.claim, Text(failure.why))
    return table


def _resting(metrics: InstallMetrics) -> Table:
    title = f"Offerings left alone for now: {len(metrics.resting)}"
    table = titled_table(title, "type", "zone", "capacity type", "until", "EC2 said")
    for offer in metrics.resting[:_MOST]:
        table.add_row(offer.instance_type, offer.zone, offer.capacity_type, offer.until, offer.code)
    return table


class ClusterStatusDocument(Printed, frozen=True):
    """A cluster; `features` are the names of the optional features that are on."""

    cluster: str
    region: str
    checked_at: str
    age_seconds: int
    node_classes: tuple[NodeClassStatus, ...]
    pools: tuple[PoolStatus, ...]
    features: tuple[str, ...] | UnsetType = UNSET


class CatalogDocument(Printed, frozen=True):
    """`problem` says why there is none."""

    region: str
    version: str = ""
    instance_types: int = 0
    refreshed_at: str = ""
    age_seconds: int = 0
    on_demand_prices_at: str = ""
    spot_prices_at: str = ""
    problem: str = ""


class StatusDocument(Printed, frozen=True):
    clusters: tuple[ClusterStatusDocument, ...]
    catalogues: tuple[CatalogDocument, ...]
