"""`shiplap status --html FILE`: an install on one page, with every cluster's nodes as its claims tell."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.drawing.capture import picture_of_claims
from shiplap.drawing.markup import counted, dollars, duration, monthly, table, text
from shiplap.drawing.packing_map import missing_list, node_table, packing_map, totals
from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.readiness import nodeclass_status
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.installs.install_metrics import InstallMetrics
from shiplap_cli.render.page import page
from shiplap_cli.render.status_page import StatusDocument


def pictures_of(
    install: DeployedInstall, clusters: Sequence[str], now: float
) -> tuple[list[ClusterPicture], list[str]]:
    """A picture of each cluster whose claims may be read, and why the others' may not."""
    pictures, missing = [], []
    learned: Sequence[LearnedCapacity] = ()
    try:
        learned = install.capacity().all()
    except (StoreError, AwsError, InvalidInput) as error:
        missing.append(f"Nodes are drawn with the capacity they were planned with, as no report can be read: {error}")
    for cluster in clusters:
        try:
            pictures.append(picture_of_claims(cluster, now, install.state().claims(cluster), None, learned))
        except (StoreError, AwsError, InvalidInput) as error:
            missing.append(f"The nodes of {cluster} cannot be read: {error}")
    return pictures, missing


def status_report(
    status: StatusDocument,
    metrics: InstallMetrics,
    pictures: Sequence[ClusterPicture],
    missing: Sequence[str],
    now: float,
) -> str:
    """Everything on one page; what could not be seen comes first."""
    names = ", ".join(cluster.cluster for cluster in status.clusters) or "no cluster is known yet"
    body = [missing_list((*missing, *metrics.unseen)), _failures(metrics), *_classes(status), _pools(metrics)]
    for picture in pictures:
        body += [
            f"<h2>Nodes of {text(picture.cluster)}</h2>",
            totals(picture),
            packing_map(picture),
            node_table(picture),
        ]
    body += [_learned(metrics), _resting(metrics), _queues(metrics), _functions(metrics), _catalogues(status)]
    return page("Status of an install of Shiplap", f"{names}; {rfc3339(now)}", "".join(body))


def _section(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), *, stacks: bool = True
) -> str:
    """A table under its title; nothing without rows."""
    return f"<h2>{title}</h2>{table(head, rows, numbers=numbers, stacks=stacks)}" if rows else ""


def _classes(status: StatusDocument) -> list[str]:
    parts = []
    for cluster in status.clusters:
        rows = [
            (
                item.name,
                item.ready.status,
                str(len(item.amis)),
                str(len(item.subnets)),
                str(item.instance_types),
                "; ".join([*_wrong(item.conditions), *item.warnings]),
            )
            for item in cluster.node_classes
        ]
        head = ("node class", "ready", "AMIs", "subnets", "types", "why")
        shown = table(head, rows, numbers=(2, 3, 4), stacks=True)
        title = f"{cluster.cluster} ({cluster.region}), looked at {duration(cluster.age_seconds)} ago"
        parts.append(f"<h2>{text(title)}</h2>{shown}")
        pools = [(pool.name, pool.node_class, str(pool.weight), pool.ready, pool.reason) for pool in cluster.pools]
        if pools:
            heads = ("node pool", "node class", "weight", "ready", "why")
            parts.append(f"<h3>Pools of {text(cluster.cluster)}</h3>{table(heads, pools, numbers=(2,), stacks=True)}")
    return parts


def _wrong(known: Sequence[nodeclass_status.Condition]) -> list[str]:
    return [
        f"{condition.type}: {condition.reason}: {condition.message}"
        for condition in known
        if condition.status != nodeclass_status.TRUE and condition.type != nodeclass_status.READY
    ]


def _catalogues(status: StatusDocument) -> str:
    rows = [
        (
            known.region,
            f"{known.instance_types:,}",
            duration(known.age_seconds),
            known.on_demand_prices_at,
            known.problem,
        )
        for known in status.catalogues
    ]
    head = ("catalogue", "types", "age", "on-demand prices of", "problem")
    return _section("Catalogues", head, rows, numbers=(1, 2))


def _pools(metrics: InstallMetrics) -> str:
    rows = [
        (
            f"{use.cluster}/{use.pool}",
            str(use.nodes),
            str(use.starting) if use.starting else "",
            str(use.leaving) if use.leaving else "",
            dollars(use.hourly),
            monthly(use.hourly),
            ", ".join(use.limits_in_words),
        )
        for use in metrics.pool_use
    ]
    head = ("pool", "nodes", "starting", "leaving", "per hour", "a month", "limits")
    return _section("What pools have", head, rows, numbers=(1, 2, 3, 4, 5))


def _learned(metrics: InstallMetrics) -> str:
    """The value of measured nodes compared with the usual estimate."""
    known = metrics.learned
    if known is None:
        return ""
    facts = (
        ("measured", counted(known.entries, "entry").replace("entrys", "entries")),
        ("by nodes", f"{known.nodes:,}"),
        ("memory won back", f"{known.won_back_gib:,.1f} GiB"),
        ("worth per hour", dollars(known.hourly)),
        ("worth a month", monthly(known.hourly)),
        ("promised in vain by estimates", f"{known.not_there_gib:,.1f} GiB"),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f"<h2>Learned capacity</h2><dl class=totals>{shown}</dl>"


def _resting(metrics: InstallMetrics) -> str:
    rows = [
        (offer.instance_type, offer.capacity_type, offer.zone, offer.code, offer.until)
        for offer in metrics.resting[:200]
    ]
    head = ("instance type", "bought as", "zone", "EC2 said", "left alone until")
    return _section("What EC2 refuses for now", head, rows)


def _queues(metrics: InstallMetrics) -> str:
    rows = [
        (
            queue.name,
            str(queue.waiting),
            str(queue.in_flight),
            str(queue.dead_letters),
            ", ".join(f"{reason}: {count}" for reason, count in queue.reasons.items()),
        )
        for queue in metrics.queues
    ]
    head = ("queue", "waiting", "in flight", "dead letters", "reasons")
    return _section("Queues", head, rows, numbers=(1, 2, 3))


def _functions(metrics: InstallMetrics) -> str:
    rows = [
        (
            function.name,
            function.version,
            *("?" if n is None else f"{n:,}" for n in (function.invocations, function.errors, function.throttles)),
        )
        for function in metrics.functions
    ]
    head = ("function", "version", "calls", "errors", "throttles")
    return _section("Functions in the last hour", head, rows, numbers=(2, 3, 4), stacks=False)


def _failures(metrics: InstallMetrics) -> str:
    rows = [(failure.at, f"{failure.cluster}/{failure.claim}", failure.why) for failure in metrics.failures[:200]]
    return _section("Failures of the last hour", ("at", "claim", "why"), rows)
