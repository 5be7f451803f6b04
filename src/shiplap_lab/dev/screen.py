"""The live picture of `shiplap lab dev`: nodes with their pods and fill, what happens, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, is_ready
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import CPU, MEMORY, add_resources, format_amount, parse_resources
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation
from shiplap_lab.dev.dev_report import summarize

_BAR_WIDTH = 8
_EVENT_LINES = 10
_TIER_COLOURS = ("green", "yellow", "magenta")
_DIGITS = "0123456789"


def frame(title: str, say: str, world: RegionObservation, happened: Sequence[str]) -> RenderableType:
    """One frame: the step being played, each cluster's nodes, the newest events and the totals; for 120 columns."""
    step, _, waits_for = say.partition("  [")
    return Group(
        Text(title, style="dim"),
        Text(f"> {step}", style="bold cyan"),
        Text(
            f"  waits for: {waits_for.removesuffix(']')}" if waits_for else "", "dim", no_wrap=True, overflow="ellipsis"
        ),
        *(_cluster(cluster) for cluster in world.clusters if cluster.nodes or cluster.workload or cluster.claims),
        Panel(_events(happened), title="events", title_align="left", border_style="dim"),
        _totals(world),
    )


def _events(happened: Sequence[str]) -> Text:
    lines = Text(no_wrap=True, overflow="ellipsis")
    for line in happened[-_EVENT_LINES:] or ["(nothing yet)"]:
        lines.append(("" if not lines else "\n") + line, style="red" if "MISSED" in line else "")
    return lines


def _cluster(cluster: ClusterObservation) -> RenderableType:
    drawn = Table(
        title=f"cluster {cluster.name}",
        title_justify="left",
        title_style="bold",
        expand=True,
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("node", "type", "pool", "state"):
        drawn.add_column(heading, no_wrap=True)
    for heading in ("cpu", "memory"):
        drawn.add_column(heading, no_wrap=True, min_width=_BAR_WIDTH + 5)
    drawn.add_column("pods", no_wrap=True, ratio=1, min_width=8)
    drawn.add_column("USD/h", no_wrap=True, justify="right")
    claims = {claim.instance_id: claim for claim in cluster.claims if claim.instance_id}
    joined = set()
    for node in sorted(cluster.nodes, key=lambda item: item.metadata.name):
        instance = node.spec.provider_id.rpartition("/")[2]
        joined.add(instance)
        drawn.add_row(*_node_row(cluster, node, claims.get(instance)))
    for claim in cluster.claims:
        if claim.instance_id not in joined and claim.state not in (ClaimState.GONE, ClaimState.FAILED):
            drawn.add_row(*_claim_row(claim))
    if not drawn.row_count:
        drawn.add_row(Text("no node", style="dim"))
    waiting = [pod.metadata.name for pod in cluster.workload if not pod.spec.node_name]
    if waiting:
        drawn.caption = f"waiting: {_counted(waiting)}"
        drawn.caption_justify = "left"
    return drawn


def _node_row(cluster: ClusterObservation, node: Node, claim: NodeClaim | None) -> Iterable[RenderableType]:
    allocatable = parse_resources(node.status.allocatable)
    bound = [pod for pod in cluster.pods if pod.spec.node_name == node.metadata.name]
    used = add_resources(*(pod_requests(pod) for pod in bound))
    ready = is_ready(node.status)
    yield node.metadata.name.partition(".")[0]
    yield node.metadata.labels.get(labels.INSTANCE_TYPE, "")
    yield _pool(claim)
    yield Text("missed", style="red") if claim and claim.missed else ("Ready" if ready else "NotReady")
    yield _bar(used.get(CPU, 0), allocatable.get(CPU, 0))
    yield _bar(used.get(MEMORY, 0), allocatable.get(MEMORY, 0))
    yield _counted(pod.metadata.name for pod in cluster.pods_on(node.metadata.name))
    yield f"{claim.hourly:.4f}" if claim else ""


def _claim_row(claim: NodeClaim) -> Iterable[RenderableType]:
    yield Text(claim.name, style="dim")
    yield claim.known_instance.type or f"{len(claim.plan.instance_types)} types"
    yield _pool(claim)
    yield Text(claim.state.value, style="dim")
    yield ""
    yield ""
    yield Text(_counted(pod.name for pod in claim.plan.pods), style="dim")
    yield f"{claim.hourly:.4f}" if claim.hourly else ""


def _counted(names: Iterable[str]) -> str:
    """Pods by the name they share: `web-0`, `web-1` and `db-0` are `db-0, web x2`."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(name.rstrip(_DIGITS).rstrip("-"), []).append(name)
    return ", ".join(group[0] if len(group) == 1 else f"{shared} x{len(group)}" for shared, group in groups.items())


def _pool(claim: NodeClaim | None) -> RenderableType:
    if claim is None:
        return Text("(not ours)", style="dim")
    colour = _TIER_COLOURS[min(claim.plan.tier, len(_TIER_COLOURS) - 1)]
    return Text(claim.plan.node_pool + (f" tier {claim.plan.tier}" if claim.plan.tier else ""), style=colour)


def _bar(used: int, of: int) -> Text:
    share = used / of if of > 0 else 0.0
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    return Text("█" * filled + "░" * (_BAR_WIDTH - filled) + f" {share:4.0%}", style="red" if share > 1 else "")


def _totals(world: RegionObservation) -> Text:
    result = summarize("", world, {})
    latency = result.event_to_launch_seconds
    spent = f"; launched after {latency.p50:.2f} s (max {latency.max:.2f} s)" if result.launches else ""
    return Text(
        f"pods running: {result.bound} of {result.pods}; nodes: {len(result.nodes)}; launches: {result.launches}; "
        f"misses: {result.misses}; {result.hourly:.4f} USD/h (estimated){spent}",
        style="bold",
    )


def _miss(cluster: ClusterObservation, claim: NodeClaim) -> str:
    """Return how much less of which resource the node has than its plan counted on."""
    node = next((node for node in cluster.nodes if node.metadata.name == claim.node_name), None)
    real = parse_resources(node.status.allocatable) if node is not None else {}
    short = [
        f"{format_amount(name, real[name])} of {name} for pods instead of {format_amount(name, planned)}"
        for name, planned in sorted(claim.plan.allocatable.items())
        if real.get(name, planned) < planned
    ]
    return f"has {', '.join(short)}" if short else f"on {claim.known_instance.ami} has less than predicted"


def remember(happened: list[str], world: RegionObservation) -> None:
    """Add a line for everything that is new in an observation: launches, joins, misses, bindings per node."""
    lines = []
    for cluster in world.clusters:
        for claim in cluster.claims:
            what = f"{cluster.name}: {claim.name}"
            if claim.instance_id:
                got = claim.known_instance
                lines.append(f"{what}: {got.type} in {got.zone} launched, tier {claim.plan.tier}")
            if claim.node_name:
                lines.append(f"{what}: joined as {claim.node_name}")
            if claim.missed:
                lines.append(f"{what}: MISSED, {claim.known_instance.type} {_miss(cluster, claim)}")
            if claim.failure:
                lines.append(f"{what}: {claim.failure}")
    happened.extend(line for line in lines if line not in happened)
