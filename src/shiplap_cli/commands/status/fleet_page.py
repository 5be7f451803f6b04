"""A fleet for people: a screen of 80 columns, and a page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from shiplap.drawing.markup import NOTHING, dollars, monthly, table
from shiplap_cli.commands.status.fleet_document import ClusterOverview, FleetDocument, InstallOverview
from shiplap_cli.output import counted, plain_table, warning_line
from shiplap_cli.render.page import page


def fleet_screen(fleet: FleetDocument) -> RenderableType:
    """Sums, a line for each cluster, and every problem on a line of its own."""
    sums = (
        f"{counted(fleet.clusters, 'cluster')}, {counted(fleet.nodes, 'node')}, "
        f"{counted(fleet.waiting, 'pod')} waiting, ${fleet.hourly:,.2f}/h ({monthly(fleet.hourly)} a month), "
        f"${fleet.savable:,.2f}/h savable ({monthly(fleet.savable)} a month)"
    )
    right = [Column(name, justify="right") for name in ("nodes", "waiting", "$/h", "savable", "wrong")]
    rows = [
        (install.install, cluster.cluster, *_figures(cluster))
        for install in fleet.installs
        for cluster in install.clusters
    ]
    lines: list[RenderableType] = [Text(sums, style="bold"), Text()]
    if rows:
        lines += [plain_table("install", "cluster", *right, rows=rows), Text()]
    lines.append(
        plain_table("install", "region", "profile", "version", "release", rows=map(_install_row, fleet.installs))
    )
    problems = list(all_problems(fleet))
    if problems:
        lines.append(Text())
    lines += [warning_line(f"{where}: {problem}") for where, problem in problems]
    return Group(*lines)


def all_problems(fleet: FleetDocument) -> Iterator[tuple[str, str]]:
    """Yield each problem, with its place: the install, or install and cluster."""
    for install in fleet.installs:
        yield from ((install.install, problem) for problem in install.problems)
        for cluster in install.clusters:
            yield from ((f"{install.install}/{cluster.cluster}", problem) for problem in cluster.problems)


def _figures(cluster: ClusterOverview) -> tuple[str | Text, ...]:
    wrong = Text(str(len(cluster.problems)), style="red") if cluster.problems else ""
    return str(cluster.nodes), waiting_text(cluster), f"{cluster.hourly:,.2f}", f"{cluster.savable:,.2f}", wrong


def waiting_text(cluster: ClusterOverview) -> str:
    """The pods that wait; `3+` where only those of nodes on their way are known."""
    return f"{cluster.coming}+" if cluster.waiting is None and cluster.coming else str(cluster.waiting or 0)


def _install_row(install: InstallOverview) -> tuple[str, ...]:
    return install.install, install.region, install.profile or "-", install.version or "?", install.release or "?"


def fleet_report(fleet: FleetDocument) -> str:
    """The page: big numbers first, then what is wrong, then installs and clusters."""
    facts = (
        ("clusters", f"{fleet.clusters:,}"),
        ("nodes", f"{fleet.nodes:,}"),
        ("pods waiting", f"{fleet.waiting:,}"),
        ("per hour", f"${fleet.hourly:,.2f}"),
        ("a month", monthly(fleet.hourly)),
        ("still savable per hour", f"${fleet.savable:,.2f}"),
        ("still savable a month", monthly(fleet.savable)),
        ("problems", f"{fleet.problems:,}"),
    )
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    body = [f"<dl class=totals>{shown}</dl>"]
    problems = list(all_problems(fleet))
    if problems:
        body.append(f"<h2>What is wrong</h2>{table(('where', 'what'), problems, stacks=True)}")
    body.append(f"<h2>Clusters</h2>{_clusters(fleet)}")
    head = ("install", "account", "Region", "profile", "Shiplap", "release", "pods waiting")
    rows = [
        (
            install.install,
            install.account or NOTHING,
            install.region,
            install.profile or NOTHING,
            install.version or NOTHING,
            install.release or NOTHING,
            NOTHING if install.waiting is None else f"{install.waiting:,}",
        )
        for install in fleet.installs
    ]
    body.append(f"<h2>Installs</h2>{table(head, rows, numbers=(6,), stacks=True)}")
    body.append(
        "<p class=note>Savable is what perfect packing of the requests that nodes were launched for would save on the "
        "instance types in use. It is a bound, not a plan. Pods that have ended since are not known here.</p>"
    )
    return page("A fleet of Shiplap", f"{text_of_installs(fleet)}; {fleet.at}", "".join(body))


def text_of_installs(fleet: FleetDocument) -> str:
    """`3 installs, 50 clusters`."""
    return f"{counted(len(fleet.installs), 'install')}, {counted(fleet.clusters, 'cluster')}"


def _clusters(fleet: FleetDocument) -> str:
    head = ("cluster", "Region", "nodes", "starting", "leaving", "pods waiting", "per hour", "savable", "wrong")
    rows = [
        (
            f"{install.install}/{cluster.cluster}",
            cluster.region,
            f"{cluster.nodes:,}",
            str(cluster.starting or ""),
            str(cluster.leaving or ""),
            waiting_text(cluster),
            dollars(cluster.hourly),
            dollars(cluster.savable),
            str(len(cluster.problems) or ""),
        )
        for install in fleet.installs
        for cluster in install.clusters
    ]
    return table(head, rows, numbers=(2, 3, 4, 5, 6, 7, 8), stacks=True)
