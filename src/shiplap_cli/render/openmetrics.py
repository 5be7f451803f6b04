"""The figures of `shiplap status` as OpenMetrics text, for Prometheus' textfile collector and its relatives.

The format is that of https://prometheus.io/docs/specs/om/open_metrics_spec/. All figures are gauges: counts of the last
hour go up and down.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from shiplap.instances.readiness.nodeclass_status import TRUE
from shiplap.kubernetes.quantity import parse_amount
from shiplap.printable import printable
from shiplap_cli.installs.install_metrics import FunctionMetrics, InstallMetrics, PoolUsage, QueueMetrics
from shiplap_cli.render.status_page import StatusDocument

_GIB = 2**30


class MetricFamily(msgspec.Struct, frozen=True):
    """A gauge with its samples: labels and value. A unit is also the end of the name."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]
    unit: str = ""


def write_openmetrics(path: Path, text: str) -> None:
    """Replace a file at once, so that no collector reads a half. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def openmetrics_text(document: StatusDocument, metrics: InstallMetrics) -> str:
    """The text of all families that have samples."""
    families = (
        *_of_manifests(document),
        *_of_nodes(metrics),
        *_of_queues(metrics),
        *_of_functions(metrics),
        *_of_install(metrics),
    )
    lines = [line for family in families if family.samples for line in _lines(family)]
    return "\n".join([*lines, "# EOF", ""])


def _lines(family: MetricFamily) -> Iterator[str]:
    yield f"# TYPE {family.name} gauge"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {family.help}"
    for labels, value in family.samples:
        shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{family.name}{f'{{{shown}}}' if shown else ''} {value:.17g}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_manifests(document: StatusDocument) -> Iterator[MetricFamily]:
    clusters = document.clusters
    yield MetricFamily(
        "shiplap_node_class_ready",
        "1 if an EC2NodeClass is ready, else 0.",
        tuple(
            ({"cluster": each.cluster, "node_class": item.name}, float(item.ready.status == TRUE))
            for each in clusters
            for item in each.node_classes
        ),
    )
    yield MetricFamily(
        "shiplap_node_pool_ready",
        "1 if a NodePool can launch, else 0.",
        tuple(
            ({"cluster": each.cluster, "node_pool": pool.name}, float(pool.ready == TRUE))
            for each in clusters
            for pool in each.pools
        ),
    )
    yield MetricFamily(
        "shiplap_inspection_age_seconds",
        "Time since the EC2NodeClasses of a cluster were looked at.",
        tuple(({"cluster": each.cluster}, float(each.age_seconds)) for each in clusters),
        "seconds",
    )
    yield MetricFamily(
        "shiplap_catalogue_age_seconds",
        "Time since the instance types and prices of a Region were read.",
        tuple(({"region": each.region}, float(each.age_seconds)) for each in document.catalogues if not each.problem),
        "seconds",
    )


def _of_nodes(metrics: InstallMetrics) -> Iterator[MetricFamily]:
    pools = [({"cluster": use.cluster, "node_pool": use.pool}, use) for use in metrics.pool_use]
    counts: tuple[tuple[str, str, Callable[[PoolUsage], float]], ...] = (
        ("shiplap_nodes", "Nodes of a NodePool, those that start and leave included.", lambda use: use.nodes),
        ("shiplap_nodes_starting", "Nodes that are launched and not ready.", lambda use: use.starting),
        ("shiplap_nodes_leaving", "Nodes that are being removed.", lambda use: use.leaving),
        ("shiplap_nodes_cost_usd_per_hour", "Price of a NodePool's nodes, USD per hour.", lambda use: use.hourly),
    )
    for name, text, figure in counts:
        yield MetricFamily(name, text, tuple((labels, float(figure(use))) for labels, use in pools))
    yield MetricFamily(
        "shiplap_node_pool_limit_used_ratio",
        "Used part of a limit of a NodePool.",
        tuple(
            ({**labels, "resource": name}, parse_amount(name, use.used.get(name, "0")) / whole)
            for labels, use in pools
            for name, limit in sorted((use.limits or {}).items())
            if (whole := parse_amount(name, limit))
        ),
        "ratio",
    )


def _of_queues(metrics: InstallMetrics) -> Iterator[MetricFamily]:
    counts: tuple[tuple[str, str, Callable[[QueueMetrics], int]], ...] = (
        ("shiplap_queue_messages", "Messages that wait in a queue.", lambda queue: queue.waiting),
        ("shiplap_queue_messages_in_flight", "Messages that a function has received.", lambda queue: queue.in_flight),
        ("shiplap_queue_dead_letters", "Messages that no delivery could handle.", lambda queue: queue.dead_letters),
    )
    for name, text, figure in counts:
        queues = tuple(({"queue": queue.name}, float(figure(queue))) for queue in metrics.queues)
        yield MetricFamily(name, text, queues)


def _of_functions(metrics: InstallMetrics) -> Iterator[MetricFamily]:
    counts: tuple[tuple[str, Callable[[FunctionMetrics], int | None]], ...] = (
        ("invocations", lambda each: each.invocations),
        ("errors", lambda each: each.errors),
        ("throttles", lambda each: each.throttles),
    )
    for counted, figure in counts:
        samples = tuple(
            ({"function": each.name, "version": each.version}, float(number))
            for each in metrics.functions
            if (number := figure(each)) is not None
        )
        text = f"{counted.capitalize()} of a function within the last hour."
        yield MetricFamily(f"shiplap_function_{counted}_last_hour", text, samples)


def _of_install(metrics: InstallMetrics) -> Iterator[MetricFamily]:
    yield _single("shiplap_launches_frozen", "1 if launches are frozen, else 0.", float(bool(metrics.frozen_at)))
    failed = len(metrics.failures)
    yield _single("shiplap_claims_failed_last_hour", "Claims that failed within the last hour.", failed)
    yield _single("shiplap_offerings_resting", "Offerings that EC2 refused and that rest.", len(metrics.resting))
    yield _single("shiplap_status_unseen", "Sources that could not be read.", len(metrics.unseen))
    learned = metrics.learned
    if learned is not None:
        yield _single("shiplap_learned_capacity_entries", "Entries of learned capacity.", learned.entries)
        text = "Memory on running nodes that estimates would have left unused."
        yield _single("shiplap_learned_memory_bytes", text, learned.won_back_gib * _GIB, "bytes")


def _single(name: str, text: str, value: float, unit: str = "") -> MetricFamily:
    return MetricFamily(name, text, (({}, float(value)),), unit)
