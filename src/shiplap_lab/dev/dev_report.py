"""The result of a played scenario, in the fixed format of `shiplap lab dev --once -o json`."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec
from rich.table import Table

from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation
from shiplap_lab.judge.promises import Promise


class NodeReport(msgspec.Struct, frozen=True, rename="camel"):
    """One node; `pods` counts the scenario's pods on it, `hourly` is USD per hour."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    node_pool: str
    tier: int
    pods: int
    ami: str
    hourly: float


class Latency(msgspec.Struct, frozen=True):
    p50: float
    max: float


class DevReport(msgspec.Struct, frozen=True, rename="camel"):
    """`event_to_launch_seconds` runs from the first event of a claim's pods to its instance's launch, real time."""

    scenario: str
    pods: int
    bound: int
    nodes: tuple[NodeReport, ...]
    misses: int
    launches: int
    hourly: float
    event_to_launch_seconds: Latency
    invariants: dict[str, bool]


def summarize(scenario: str, world: RegionObservation, verdicts: dict[str, bool]) -> DevReport:
    """The report of a played scenario. `verdicts` are invariants and the steps' expectations."""
    nodes = tuple(node for cluster in world.clusters for node in _nodes(cluster))
    workload = [pod for cluster in world.clusters for pod in cluster.workload]
    claims = [claim for cluster in world.clusters for claim in cluster.launched]
    started = {instance.id: instance.launched_at for cluster in world.clusters for instance in cluster.instances}
    waits = [
        max(0.0, started[claim.instance_id] - claim.cause.first_event_at)
        for claim in claims
        if claim.cause.first_event_at and started.get(claim.instance_id)
    ]
    return DevReport(
        scenario=scenario,
        pods=len(workload),
        bound=sum(bool(pod.spec.node_name) for pod in workload),
        nodes=nodes,
        misses=sum(claim.missed for claim in claims),
        launches=len(claims),
        hourly=round(sum(node.hourly for node in nodes), 5),
        event_to_launch_seconds=Latency(round(median(waits), 3), round(max(waits), 3)) if waits else Latency(0.0, 0.0),
        invariants=verdicts,
    )


def _nodes(cluster: ClusterObservation) -> list[NodeReport]:
    claims = {claim.node_name: claim for claim in cluster.claims if claim.node_name and claim.state != ClaimState.GONE}
    rows = []
    for node in sorted(cluster.nodes, key=lambda item: item.metadata.name):
        claim = claims.get(node.metadata.name)
        shown = node.metadata.labels
        rows.append(
            NodeReport(
                name=node.metadata.name,
                instance_type=shown.get(labels.INSTANCE_TYPE, ""),
                zone=shown.get(labels.ZONE, ""),
                capacity_type=claim.known_instance.capacity_type if claim else shown.get(labels.CAPACITY_TYPE, ""),
                node_pool=claim.plan.node_pool if claim else "",
                tier=claim.plan.tier if claim else 0,
                pods=len(cluster.pods_on(node.metadata.name)),
                ami=claim.known_instance.ami if claim else "",
                hourly=claim.hourly if claim else 0.0,
            )
        )
    return rows


def table(report: DevReport) -> Table:
    """The report for people."""
    title = f"{report.scenario}: {report.bound} of {report.pods} pods run"
    drawn = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("node", "type", "zone", "pool", "tier", "pods", "AMI", "USD/h"):
        drawn.add_column(heading, justify="right" if heading in ("tier", "pods", "USD/h") else "left")
    for node in report.nodes:
        drawn.add_row(
            node.name,
            node.instance_type,
            node.zone,
            node.node_pool or "(not ours)",
            str(node.tier) if node.node_pool else "",
            str(node.pods),
            node.ami,
            f"{node.hourly:.4f}" if node.node_pool else "",
        )
    latency = report.event_to_launch_seconds
    drawn.caption = "\n".join(
        [
            f"{report.launches} launches, {report.misses} {'miss' if report.misses == 1 else 'misses'}, "
            f"{report.hourly:.4f} USD/h (estimated prices), "
            f"event to launch p50 {latency.p50} s, max {latency.max} s",
            *_empty_nodes(report),
            *_verdicts(report),
        ]
    )
    drawn.caption_justify = "left"
    return drawn


def _empty_nodes(report: DevReport) -> Iterator[str]:
    """Yield why nodes without a pod still exist and cost dollars."""
    empty = [node for node in report.nodes if node.node_pool and not node.pods]
    if empty:
        hourly = sum(node.hourly for node in empty)
        yield (
            f"{', '.join(node.name.partition('.')[0] for node in empty)}: empty, {hourly:.4f} USD/h until `disrupt` "
            "removes what its NodePool's consolidateAfter allows; the scenario ends before that"
        )


TRY_NEXT = (
    "shiplap lab dev --scenario spot-interruption   # AWS takes a node away",
    "shiplap lab dev --keep                         # stays up, for kubectl and a browser",
    "shiplap lab simulate mixed --seed 7            # messages lost, functions dying, in virtual time",
    "shiplap plan --context NAME                    # your own cluster and its NodePools, with lists only",
)
"""Commands for those who have seen the demo."""


def _verdicts(report: DevReport) -> Iterator[str]:
    """A line for each expectation, for each invariant that was broken, and for all invariants in numbers."""
    always = frozenset(Promise)
    for name, kept in report.invariants.items():
        if name not in always or not kept:
            yield f"{'kept' if kept else 'BROKEN'}: {name}"
    invariants = [kept for name, kept in report.invariants.items() if name in always]
    yield f"{sum(invariants)} of {len(invariants)} invariants kept"
