"""`shiplap plan`: what would be launched for a cluster state and manifests, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from shiplap.api.nodeclaim import PodReference
from shiplap.cli.output import Format, Output, emit
from shiplap.cli.pages import plan_page
from shiplap.cli.sources import (
    CapacityFile,
    CatalogFile,
    ImproveSeconds,
    ManifestFiles,
    MemoryOverhead,
    MinValuesPolicy,
    Now,
    PreferencePolicy,
    PrefixDelegation,
    Region,
    ReservedEnis,
    SchedulerConfigFile,
    Sources,
    StateFiles,
    snapshot_of,
)
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.scheduling.catalogues import accepted_overlays
from shiplap.scheduling.plan import LaunchChoice, Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.planner import plan as decide
from shiplap.scheduling.snapshot import Snapshot
from shiplap.settings import IMPROVE_S


def plan(
    *,
    cluster_state: StateFiles,
    manifests: ManifestFiles,
    catalog: CatalogFile = None,
    capacity: CapacityFile = None,
    now: Now = None,
    region: Region = "us-east-1",
    vm_memory_overhead_percent: MemoryOverhead = 0.075,
    reserved_enis: ReservedEnis = 0,
    prefix_delegation: PrefixDelegation = "auto",
    min_values_policy: MinValuesPolicy = "Strict",
    preference_policy: PreferencePolicy = "Respect",
    scheduler_config: SchedulerConfigFile = None,
    improve_seconds: ImproveSeconds = IMPROVE_S,
    output: Output = Format.TABLE,
) -> int:
    """What would be launched for this cluster state and these manifests, and why.

    Exit code 0 when every pod has a place, 1 when some have not, 2 for bad input.
    """
    snapshot = snapshot_of(
        Sources(
            cluster_state=cluster_state,
            manifests=manifests,
            catalog=catalog,
            capacity=capacity,
            now=now,
            region=region,
            vm_memory_overhead_percent=vm_memory_overhead_percent,
            reserved_enis=reserved_enis,
            prefix_delegation=prefix_delegation,
            min_values_policy=min_values_policy,
            preference_policy=preference_policy,
            scheduler_config=scheduler_config,
            improve_s=improve_seconds,
        )
    )
    started = time.perf_counter()
    decided = decide(snapshot)
    solve_s = time.perf_counter() - started
    rejected = _rejected_overlays(snapshot)
    answer = document(decided, solve_s) | ({"rejectedOverlays": rejected} if rejected else {})
    emit(answer, output, lambda: plan_page(snapshot, decided, solve_s, rejected))
    return 1 if decided.unschedulable else 0


def _rejected_overlays(snapshot: Snapshot) -> list[str]:
    """Names of NodeOverlays that are applied nowhere because they conflict with another of equal weight, sorted."""
    accepted = {overlay.metadata.name for overlay in accepted_overlays(snapshot)}
    return sorted({overlay.metadata.name for overlay in snapshot.manifests.node_overlays} - accepted)


def document(decided: Plan, solve_s: float) -> dict[str, Any]:
    """A plan in the fixed format of `shiplap plan -o json`; resources as quantities, pods as `namespace/name`.

    Static pools and CapacityBuffers are there where there are any.
    """
    extra = {"staticPools": decided.static_pools, "buffers": decided.buffers}
    return {
        "nodeClaims": [claim_document(claim) for claim in decided.node_claims],
        "existingNodes": [{"name": place.name, "pods": _names(place.pods)} for place in decided.existing_nodes],
        "unschedulable": [_left_out(entry) for entry in decided.unschedulable],
        "ignored": [{"pod": _name(entry.pod), "message": entry.message} for entry in decided.ignored],
        "cost": {"hourly": decided.hourly},
        "stats": {"pods": decided.stats.pods, "classes": decided.stats.classes, "solveSeconds": round(solve_s, 6)},
        **{key: msgspec.to_builtins(entries) for key, entries in extra.items() if entries},
    }


def claim_document(claim: PlannedClaim) -> dict[str, Any]:
    """A claim as it stands in the fixed formats."""
    return {
        "name": claim.name,
        "nodePool": claim.node_pool,
        "tier": claim.tier,
        "requirements": msgspec.to_builtins(claim.requirements),
        "taints": msgspec.to_builtins(claim.taints),
        "labels": claim.labels,
        "instanceTypes": list(claim.instance_types),
        "launch": _launch(claim.launch),
        "requests": format_resources(claim.requests),
        "pods": _names(claim.pods),
        "reasons": list(claim.reasons),
        **({"gaveUp": list(claim.gave_up)} if claim.gave_up else {}),
        **({"virtualPods": _names(claim.virtual_pods)} if claim.virtual_pods else {}),
    }


def _launch(launch: LaunchChoice) -> dict[str, Any]:
    """A reservation is named only where one is used."""
    return {key: value for key, value in msgspec.to_builtins(launch).items() if value or key != "reservationId"}


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
