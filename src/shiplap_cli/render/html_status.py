"""`shiplap status --html FILE`: an install on one page, with every cluster's nodes as its claims tell."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.drawing.capture import picture_of_claims
from shiplap.drawing.markup import counted, dollars, duration, table, text
from shiplap.drawing.packing_map import missing_list, node_table, packing_map, totals
from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.instances.readiness import conditions
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.installs.install_metrics import InstallMetrics
from shiplap_cli.render.page import page
from shiplap_cli.render.status_page import StatusDocument


def pictures_of(
    install: DeployedInstall, clusters: Sequence[str], now: float
) -> tuple[list[ClusterPicture], list[str]]:
    """A picture of each cluster whose claims may be read, and why the others' may not."""
    found, missing = [], []
    for cluster in clusters:
        try:
            found.append(picture_of_claims(cluster, now, install.state().claims(cluster)))
        except (StoreError, AwsError, InvalidInput) as error:
            missing.append(f"The nodes of {cluster} cannot be read: {error}")
    return found, missing


def status_report(
    found: StatusDocument,
    metrics: InstallMetrics,
    pictures: Sequence[ClusterPicture],
    missing: Sequence[str],
    now: float,
) -> str:
    """Everything on one page; what could not be seen comes first."""
    names = ", ".join(each.cluster for each in found.clusters) or "no cluster is known yet"
    body = [missing_list((*missing, *metrics.unseen)), _failures(metrics), *_classes(found), _pools(metrics)]
    for picture in pictures:
        body += [
            f"<h2>Nodes of {text(picture.cluster)}</h2>",
            totals(picture),
            packing_map(picture),
            node_table(picture),
        ]
    body += [_learned(metrics), _resting(metrics), _queues(metrics), _functions(metrics), _catalogues(found)]
    return page("Status of an install of Shiplap", f"{names}; {rfc3339(now)}", "".join(body))


def _classes(found: StatusDocument) -> list[str]:
    parts = []
    for each in found.clusters:
        rows = [
            (
                item.name,
                item.ready.status,
                str(len(item.amis)),
                str(len(item.subnets)),
                str(item.instance_types),
                "; ".join([*_wrong(item.conditions), *item.warnings]),
            )
            for item in each.node_classes
        ]
        head = ("node class", "ready", "AMIs", "subnets", "types", "why")
        shown = table(head, rows, numbers=(2, 3, 4), stacks=True)
        title = f"{each.cluster} ({each.region}), looked at {duration(each.age_seconds)} ago"
        parts.append(f"<h2>{text(title)}</h2>{shown}")
        pools = [(item.name, item.node_class, str(item.weight), item.ready, item.reason) for item in each.pools]
        if pools:
            heads = ("node pool", "node class", "weight", "ready", "why")
            parts.append(f"<h3>Pools of {text(each.cluster)}</h3>{table(heads, pools, numbers=(2,), stacks=True)}")
    return parts


def _wrong(known: Sequence[conditions.Condition]) -> list[str]:
    return [
        f"{item.type}: {item.reason}: {item.message}"
        for item in known
        if item.status != conditions.TRUE and item.type != conditions.READY
    ]


def _catalogues(found: StatusDocument) -> str:
    rows = [
        (item.region, f"{item.instance_types:,}", duration(item.age_seconds), item.on_demand_prices_at, item.problem)
        for item in found.catalogues
    ]
    head = ("catalogue", "types", "age", "on-demand prices of", "problem")
    return f"<h2>Catalogues</h2>{table(head, rows, numbers=(1, 2), stacks=True)}" if rows else ""


def _pools(metrics: InstallMetrics) -> str:
    rows = [
        (
            f"{use.cluster}/{use.pool}",
            str(use.nodes),
            str(use.starting) if use.starting else "",
            str(use.leaving) if use.leaving else "",
            dollars(use.hourly),
            ", ".join(f"{name} {use.used.get(name, '0')} of {limit}" for name, limit in sorted(use.limits.items())),
        )
        for use in metrics.pool_use
    ]
    head = ("pool", "nodes", "starting", "leaving", "per hour", "limits")
    return f"<h2>What pools have</h2>{table(head, rows, numbers=(1, 2, 3, 4), stacks=True)}" if rows else ""


def _learned(metrics: InstallMetrics) -> str:
    """What measured nodes are worth beside the usual estimate."""
    known = metrics.learned
    if known is None:
        return ""
    facts = (
        ("measured", counted(known.entries, "entry").replace("entrys", "entries")),
        ("by nodes", f"{known.nodes:,}"),
        ("memory won back", f"{known.won_back_gib:,.1f} GiB"),
        ("worth per hour", dollars(known.hourly)),
        ("promised in vain by estimates", f"{known.not_there_gib:,.1f} GiB"),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f"<h2>Learned capacity</h2><dl class=totals>{shown}</dl>"


def _resting(metrics: InstallMetrics) -> str:
    rows = [
        (item.instance_type, item.capacity_type, item.zone, item.code, item.until) for item in metrics.resting[:200]
    ]
    head = ("instance type", "bought as", "zone", "EC2 said", "left alone until")
    return f"<h2>What EC2 refuses for now</h2>{table(head, rows, stacks=True)}" if rows else ""


def _queues(metrics: InstallMetrics) -> str:
    rows = [
        (
            item.name,
            str(item.waiting),
            str(item.in_flight),
            str(item.dead_letters),
            ", ".join(f"{reason}: {count}" for reason, count in item.reasons.items()),
        )
        for item in metrics.queues
    ]
    head = ("queue", "waiting", "in flight", "dead letters", "reasons")
    return f"<h2>Queues</h2>{table(head, rows, numbers=(1, 2, 3), stacks=True)}" if rows else ""


def _functions(metrics: InstallMetrics) -> str:
    rows = [
        (
            item.name,
            item.version,
            *("?" if n is None else f"{n:,}" for n in (item.invocations, item.errors, item.throttles)),
        )
        for item in metrics.functions
    ]
    head = ("function", "version", "calls", "errors", "throttles")
    return f"<h2>Functions in the last hour</h2>{table(head, rows, numbers=(2, 3, 4))}" if rows else ""


def _failures(metrics: InstallMetrics) -> str:
    rows = [(item.at, f"{item.cluster}/{item.claim}", item.why) for item in metrics.failures[:200]]
    return f"<h2>Failures of the last hour</h2>{table(('at', 'claim', 'why'), rows, stacks=True)}" if rows else ""
