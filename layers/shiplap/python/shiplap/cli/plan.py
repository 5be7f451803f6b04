"""`shiplap plan`: what would be launched for a cluster state and manifests, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.api.manifests import inspect
from shiplap.api.nodeclaim import PodReference
from shiplap.api.scheduler_config import SchedulerConfig
from shiplap.api.types import EC2NodeClass, Manifests
from shiplap.cli.inputs import (
    ClusterState,
    for_unknown_ami,
    read_catalog,
    read_cluster_state,
    read_scheduler_config,
)
from shiplap.cli.output import Format, Output, emit
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.instances import embedded, learned_file
from shiplap.instances.resolve import instance_types
from shiplap.instances.setting import from_cluster
from shiplap.instances.types import InstanceType, LearnedCapacity
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.plan import Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.planner import plan as decide
from shiplap.scheduling.snapshot import NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.settings import ClusterSettings

_NODE_CLASS_FIELD = "spec.template.spec.nodeClassRef.name"


def plan(
    *,
    cluster_state: Annotated[
        list[Path], typer.Option(help="Kubernetes objects as YAML or JSON: files, folders, or - for standard input.")
    ],
    manifests: Annotated[list[Path], typer.Option(help="NodePools, EC2NodeClasses, NodeOverlays: files or folders.")],
    catalog: Annotated[
        Path | None, typer.Option(help="Instance types to plan with instead of EC2's; figures are taken as given.")
    ] = None,
    capacity: Annotated[
        Path | None, typer.Option(help="Learned capacity, as `shiplap capacity export` writes it.")
    ] = None,
    now: Annotated[str | None, typer.Option(help="Plan as of this time (RFC 3339); the clock's without.")] = None,
    region: Annotated[str, typer.Option(help="Region of the embedded catalogue.")] = "us-east-1",
    vm_memory_overhead_percent: Annotated[
        float, typer.Option(min=0, max=1, help="Share of memory the hypervisor keeps, as a fraction.")
    ] = 0.075,
    reserved_enis: Annotated[int, typer.Option(min=0, help="Network interfaces that pods cannot use.")] = 0,
    prefix_delegation: Annotated[str, typer.Option(help="auto (as the VPC CNI's DaemonSet says), on or off.")] = "auto",
    min_values_policy: Annotated[str, typer.Option(help="Strict or BestEffort.")] = "Strict",
    preference_policy: Annotated[
        str, typer.Option(help="Respect (preferences bind until a pod cannot be placed) or Ignore.")
    ] = "Respect",
    scheduler_config: Annotated[
        Path | None, typer.Option(help="Default spread constraints (podTopologySpread), as kube-scheduler has them.")
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """What would be launched for this cluster state and these manifests, and why.

    Exit code 0 when every pod has a place, 1 when some have not, 2 for bad input.
    """
    _one_of("--prefix-delegation", prefix_delegation, ("auto", "on", "off"))
    _one_of("--min-values-policy", min_values_policy, ("Strict", "BestEffort"))
    _one_of("--preference-policy", preference_policy, ("Respect", "Ignore"))
    spread = read_scheduler_config(scheduler_config) if scheduler_config is not None else SchedulerConfig()
    moment = _moment(now)
    state = read_cluster_state(cluster_state)
    written = _manifests(manifests, tolerate_missing_classes=catalog is not None)
    cluster = ClusterSettings(
        name="files",
        region=region,
        vm_memory_overhead_percent=vm_memory_overhead_percent,
        reserved_enis=reserved_enis,
        prefix_delegation=prefix_delegation,
    )
    if catalog is not None:
        catalogs = _given_catalogs(written, read_catalog(catalog))
    else:
        learned = learned_file.read(capacity) if capacity is not None else ()
        catalogs = _embedded_catalogs(written, cluster, state, learned)
    snapshot = Snapshot(
        cluster=cluster.name,
        now=moment,
        view=state.view,
        claims=state.claims,
        manifests=written,
        catalogs=catalogs,
        settings=SchedulingSettings(
            preference_policy=preference_policy,
            min_values_policy=min_values_policy,
            default_spread=spread.pod_topology_spread.constraints(),
        ),
    )
    started = time.perf_counter()
    decided = decide(snapshot)
    solve_s = time.perf_counter() - started
    emit(document(decided, solve_s), output, lambda: _table(decided, solve_s))
    return 1 if decided.unschedulable else 0


def document(decided: Plan, solve_s: float) -> dict[str, Any]:
    """A plan in the fixed format of `shiplap plan -o json`; resources as quantities, pods as `namespace/name`."""
    return {
        "nodeClaims": [_claim(claim) for claim in decided.node_claims],
        "existingNodes": [{"name": place.name, "pods": _names(place.pods)} for place in decided.existing_nodes],
        "unschedulable": [_left_out(entry) for entry in decided.unschedulable],
        "ignored": [{"pod": _name(entry.pod), "message": entry.message} for entry in decided.ignored],
        "cost": {"hourly": decided.hourly},
        "stats": {"pods": decided.stats.pods, "classes": decided.stats.classes, "solveSeconds": round(solve_s, 6)},
    }


def _claim(claim: PlannedClaim) -> dict[str, Any]:
    return {
        "name": claim.name,
        "nodePool": claim.node_pool,
        "tier": claim.tier,
        "requirements": msgspec.to_builtins(claim.requirements),
        "taints": msgspec.to_builtins(claim.taints),
        "labels": claim.labels,
        "instanceTypes": list(claim.instance_types),
        "launch": msgspec.to_builtins(claim.launch),
        "requests": format_resources(claim.requests),
        "pods": _names(claim.pods),
        "reasons": list(claim.reasons),
    }


def _left_out(entry: Unschedulable) -> dict[str, Any]:
    result: dict[str, Any] = {"pod": _name(entry.pod), "message": entry.message}
    if entry.nearest is not None and entry.nearest.resource:
        nearest = entry.nearest
        result["nearest"] = {
            "instanceType": nearest.instance_type,
            "nodePool": nearest.node_pool,
            "resource": nearest.resource,
            "short": format_amount(nearest.resource, nearest.short),
        }
    return result


def _name(pod: PodReference) -> str:
    return f"{pod.namespace}/{pod.name}"


def _names(pods: Sequence[PodReference]) -> list[str]:
    return [_name(pod) for pod in pods]


def _pods(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"


def _one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidInput(option, f"{value!r} is none of {', '.join(allowed)}")


def _moment(text: str | None) -> float:
    if text is None:
        return time.time()
    try:
        return epoch(text)
    except ValueError as error:
        raise InvalidInput("--now", f"expected a time such as 2026-01-31T12:00:00Z: {error}") from error


def _manifests(paths: Sequence[Path], *, tolerate_missing_classes: bool) -> Manifests:
    """Manifests without problems. With a catalogue file an EC2NodeClass is only a name, so it need not be there."""
    report = inspect(paths)
    problems = [
        problem
        for problem in report.problems
        if not (tolerate_missing_classes and problem.field == _NODE_CLASS_FIELD and "there is no" in problem.reason)
    ]
    if problems:
        raise InvalidManifests(problems)
    if not report.manifests.node_pools:
        raise InvalidInput(", ".join(map(str, paths)), "there is no NodePool among the manifests")
    return report.manifests


def _class_names(manifests: Manifests) -> list[str]:
    return sorted({pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools})


def _given_catalogs(manifests: Manifests, types: tuple[InstanceType, ...]) -> tuple[NodeClassCatalog, ...]:
    return tuple(NodeClassCatalog(name, types) for name in _class_names(manifests))


def _embedded_catalogs(
    manifests: Manifests, cluster: ClusterSettings, state: ClusterState, learned: Sequence[LearnedCapacity]
) -> tuple[NodeClassCatalog, ...]:
    """EC2's types under each EC2NodeClass.

    Raises:
        InvalidInput: a NodePool names an EC2NodeClass that is not among the manifests.
    """
    setting = from_cluster(cluster, state.view.daemon_sets)
    known = {item.metadata.name: item for item in manifests.node_classes}
    raw = embedded.load(cluster.region)
    catalogs = []
    for name in _class_names(manifests):
        if name not in known:
            pool = next(p for p in manifests.node_pools if p.spec.template.spec.node_class_ref.name == name)
            reason = f"there is no EC2NodeClass {name!r} among the manifests; give it, or a --catalog"
            raise InvalidInput("manifests", reason, document=f"NodePool/{pool.metadata.name}", field=_NODE_CLASS_FIELD)
        applicable = for_unknown_ami(learned, _ami_ids(known[name]))
        types = instance_types(raw, known[name], setting, resolved=None, learned=applicable, unavailable=())
        catalogs.append(NodeClassCatalog(name, types))
    return tuple(catalogs)


def _ami_ids(node_class: EC2NodeClass) -> list[str]:
    return [term.id for term in node_class.spec.ami_selector_terms if term.id]


def _table(decided: Plan, solve_s: float) -> RenderableType:
    """The plan for people: what is added, what is used, what stays out, and the sum."""
    parts: list[RenderableType] = [_claim_table(claim) for claim in decided.node_claims]
    if decided.existing_nodes:
        table = Table("node", "pods", title="Used as they are", title_justify="left", box=None, pad_edge=False)
        for place in decided.existing_nodes:
            table.add_row(place.name, _summary(_names(place.pods)))
        parts += [table, Text()]
    parts += _messages("Without a place", decided.unschedulable, "red")
    parts += _messages("Left alone", decided.ignored, "yellow")
    placed = sum(len(claim.pods) for claim in decided.node_claims)
    reused = sum(len(place.pods) for place in decided.existing_nodes)
    parts.append(
        Text.assemble(
            ("Plan: ", "bold"),
            f"{len(decided.node_claims)} to launch for {_pods(placed)}, {_pods(reused)} on nodes that exist, "
            f"{len(decided.unschedulable)} without a place, {len(decided.ignored)} left alone. ",
            (f"${decided.hourly:.4f} per hour", "bold"),
            f" (classes of pods: {decided.stats.classes}, {solve_s * 1000:.0f} ms)",
        )
    )
    return Group(*parts)


def _claim_table(claim: PlannedClaim) -> RenderableType:
    launch = claim.launch
    table = Table.grid(Column(style="dim", min_width=10), Column(overflow="fold"), padding=(0, 2))
    table.add_row("launch", f"{launch.instance_type} {launch.capacity_type} in {launch.zone}, ${launch.price:.4f}/h")
    others = claim.instance_types[1:]
    if others:
        table.add_row("or", _summary(others))
    requests = ", ".join(
        f"{name} {text}" + (f" of {format_amount(name, claim.allocatable[name])}" if name in claim.allocatable else "")
        for name, text in format_resources(claim.requests).items()
    )
    table.add_row("needs", requests)
    table.add_row("pods", _summary(_names(claim.pods)))
    for reason in claim.reasons:
        table.add_row("because", Text(reason, style="yellow"))
    if claim.relies_on_estimate:
        table.add_row("pilot", f"never measured: {_summary(claim.relies_on_estimate)}")
    tier = f", tier {claim.tier}" if claim.tier else ""
    return Group(
        Text.assemble(("+ ", "green bold"), (claim.name, "bold"), f"  (pool {claim.node_pool}{tier})"), table, Text()
    )


def _messages(title: str, entries: Sequence[Unschedulable], style: str) -> list[RenderableType]:
    """Entries with equal messages as one line."""
    by_message: dict[str, list[str]] = {}
    for entry in entries:
        by_message.setdefault(entry.message, []).append(_name(entry.pod))
    if not by_message:
        return []
    lines: list[RenderableType] = [Text(title, style="italic")]
    for message, pods in by_message.items():
        lines.append(Text.assemble(("- ", f"{style} bold"), (_summary(pods), "bold"), f"\n    {message}"))
    return [*lines, Text()]


def _summary(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
