"""The live picture of `shiplap dev`: nodes with their pods and fill, what happens, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import CPU, MEMORY, add_resources, parse_resources
from shiplap.kubernetes.requests import pod_requests
from shiplap.local.observation import ClusterObservation, Observation
from shiplap.local.report import summarize

_BAR_WIDTH = 12
_EVENT_LINES = 12
_TIER_COLOURS = ("green", "yellow", "magenta")


def frame(title: str, say: str, world: Observation, happened: Sequence[str]) -> RenderableType:
    """One frame: the step being played, each cluster's nodes, the newest events and the totals."""
    return Group(
        Text(title, style="bold"),
        Text(f"> {say}", style="cyan"),
        *(_cluster(cluster) for cluster in world.clusters if cluster.nodes or cluster.workload or cluster.claims),
        Panel(Text("\n".join(happened[-_EVENT_LINES:]) or "(nothing yet)"), title="events", title_align="left"),
        _totals(world),
    )


def _cluster(cluster: ClusterObservation) -> RenderableType:
    drawn = Table(title=f"cluster {cluster.name}", title_justify="left", expand=True)
    for heading in ("node", "type", "pool", "state", "cpu", "memory", "pods", "USD/h"):
        drawn.add_column(heading, no_wrap=True)
    claims = {claim.node_name or claim.name: claim for claim in cluster.claims}
    for node in sorted(cluster.nodes, key=lambda item: item.metadata.name):
        drawn.add_row(*_node_row(cluster, node, claims.get(node.metadata.name)))
    for claim in cluster.claims:
        if not claim.node_name and claim.state not in (ClaimState.GONE, ClaimState.FAILED):
            drawn.add_row(*_claim_row(claim))
    waiting = [pod.metadata.name for pod in cluster.workload if not pod.spec.node_name]
    if waiting:
        shown = ", ".join(waiting[:8]) + (" …" if len(waiting) > 8 else "")
        drawn.caption = f"{len(waiting)} pods wait: {shown}"
        drawn.caption_justify = "left"
    return drawn


def _node_row(cluster: ClusterObservation, node: Node, claim: NodeClaim | None) -> Iterable[RenderableType]:
    allocatable = parse_resources(node.status.allocatable)
    bound = [pod for pod in cluster.pods if pod.spec.node_name == node.metadata.name]
    used = add_resources(*(pod_requests(pod) for pod in bound))
    ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
    yield node.metadata.name
    yield node.metadata.labels.get(labels.INSTANCE_TYPE, "")
    yield _pool(claim)
    yield Text("missed", style="red") if claim and claim.missed else ("Ready" if ready else "NotReady")
    yield _bar(used.get(CPU, 0), allocatable.get(CPU, 0))
    yield _bar(used.get(MEMORY, 0), allocatable.get(MEMORY, 0))
    yield " ".join(sorted(pod.metadata.name for pod in cluster.pods_on(node.metadata.name)))
    yield f"{claim.hourly:.4f}" if claim else ""


def _claim_row(claim: NodeClaim) -> Iterable[RenderableType]:
    yield Text(claim.name, style="dim")
    yield claim.instance_type or f"{len(claim.instance_types)} types"
    yield _pool(claim)
    yield Text(claim.state.value, style="dim")
    yield ""
    yield ""
    yield Text(" ".join(sorted(pod.name for pod in claim.pods)), style="dim")
    yield f"{claim.hourly:.4f}" if claim.hourly else ""


def _pool(claim: NodeClaim | None) -> RenderableType:
    if claim is None:
        return Text("(not ours)", style="dim")
    colour = _TIER_COLOURS[min(claim.tier, len(_TIER_COLOURS) - 1)]
    return Text(claim.node_pool + (f" tier {claim.tier}" if claim.tier else ""), style=colour)


def _bar(used: int, of: int) -> Text:
    share = used / of if of > 0 else 0.0
    filled = min(_BAR_WIDTH, round(share * _BAR_WIDTH))
    return Text("█" * filled + "░" * (_BAR_WIDTH - filled) + f" {share:4.0%}", style="red" if share > 1 else "")


def _totals(world: Observation) -> Text:
    result = summarize("", world, {})
    latency = result.event_to_launch_seconds
    return Text(
        f"{result.bound} of {result.pods} pods run on {len(result.nodes)} nodes; {result.launches} launches, "
        f"{result.misses} misses; {result.hourly:.4f} USD/h (estimated prices); "
        f"event to launch p50 {latency.p50:.2f} s, max {latency.max:.2f} s"
    )


def remember(happened: list[str], world: Observation) -> None:
    """Add a line for everything that is new in an observation: launches, joins, misses, bindings per node."""
    lines = []
    for cluster in world.clusters:
        for claim in cluster.claims:
            what = f"{cluster.name}: {claim.name}"
            if claim.instance_id:
                lines.append(f"{what}: {claim.instance_type} in {claim.zone} launched, tier {claim.tier}")
            if claim.node_name:
                lines.append(f"{what}: joined as {claim.node_name}")
            if claim.missed:
                lines.append(f"{what}: MISSED, {claim.instance_type} on {claim.ami} has less than predicted")
            if claim.failure:
                lines.append(f"{what}: {claim.failure}")
    happened.extend(line for line in lines if line not in happened)
