"""Decisions in the fixed formats of the commands, and the caveats of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from rich.console import RenderableType

from shiplap.disruption.commands import Decision, DisruptionProposal
from shiplap.instances.offerings.node_prices import Price
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Plan, PlannedClaim, Unschedulable
from shiplap_cli.inputs.loaded_inputs import LoadedInputs
from shiplap_cli.money import Money
from shiplap_cli.output import warning_line


def caveats_document(inputs: LoadedInputs) -> dict[str, Any]:
    """The Region of its prices and zones, and what an answer does not rest on: rights that are missing, AWS not asked.

    Each is there where there is any of it.
    """
    parts = {"region": inputs.region, "unseen": inputs.unseen, "notes": inputs.notes}
    return {key: msgspec.to_builtins(entries) for key, entries in parts.items() if entries}


def caveat_lines(inputs: LoadedInputs) -> list[RenderableType]:
    """The caveats as lines of a page."""
    return [warning_line(line) for line in caveat_texts(inputs)]


def caveat_texts(inputs: LoadedInputs) -> tuple[str, ...]:
    """The caveats as plain lines."""
    return (*(missing.text for missing in inputs.unseen), *inputs.notes)


def plan_document(decided: Plan, solve_s: float, money: Money) -> dict[str, Any]:
    """A plan in the fixed format of `shiplap plan -o json`; resources as quantities, pods as `namespace/name`.

    Static pools and CapacityBuffers are there where there are any.
    """
    extra = {"staticPools": decided.static_pools, "buffers": decided.buffers}
    return {
        "nodeClaims": [claim_document(claim, money) for claim in decided.node_claims],
        "existingNodes": [{"name": node.name, "pods": _pod_keys(node.pods)} for node in decided.existing_nodes],
        "unschedulable": [_left_out(entry) for entry in decided.unschedulable],
        "ignored": [{"pod": entry.pod.key, "message": entry.message} for entry in decided.ignored],
        "cost": {"hourly": decided.hourly, "estimated": money.of_launches(decided.node_claims).estimated},
        "stats": {"pods": decided.stats.pods, "classes": decided.stats.classes, "solveSeconds": round(solve_s, 6)},
        **{key: msgspec.to_builtins(entries) for key, entries in extra.items() if entries},
    }


def claim_document(claim: PlannedClaim, money: Money) -> dict[str, Any]:
    """A claim as it stands in the fixed formats."""
    return {
        "name": claim.name,
        "nodePool": claim.node_pool,
        "tier": claim.tier,
        "requirements": msgspec.to_builtins(claim.requirements),
        "taints": msgspec.to_builtins(claim.taints),
        "labels": claim.labels,
        "instanceTypes": list(claim.instance_types),
        "launch": launch_document(claim.launch, money.of_launch(claim)),
        "requests": format_resources(claim.requests),
        "pods": _pod_keys(claim.pods),
        "reasons": list(claim.reasons),
        **({"gaveUp": list(claim.gave_up)} if claim.gave_up else {}),
        **({"virtualPods": _pod_keys(claim.virtual_pods)} if claim.virtual_pods else {}),
    }


def launch_document(launch: LaunchChoice, price: Price) -> dict[str, Any]:
    """A reservation is named only where one is used."""
    written = {key: value for key, value in msgspec.to_builtins(launch).items() if value or key != "reservationId"}
    return written | {"priceEstimated": price.estimated}


def _left_out(entry: Unschedulable) -> dict[str, Any]:
    result: dict[str, Any] = {"pod": entry.pod.key, "message": entry.message}
    if entry.nearest is not None and entry.nearest.resource:
        nearest = entry.nearest
        result["nearest"] = {
            "instanceType": nearest.instance_type,
            "nodePool": nearest.node_pool,
            "resource": nearest.resource,
            "short": format_amount(nearest.resource, nearest.short),
        }
    return result


def _pod_keys(pods: Sequence[PodReference]) -> list[str]:
    return [pod.key for pod in pods]


def disruption_document(decided: Decision, money: Money) -> dict[str, Any]:
    """A decision in the fixed format of `shiplap disrupt -o json`."""
    asleep = {"rehearsed": decided.rehearsed, "keptAwake": decided.kept_awake}
    return {
        "commands": [command_document(command, money) for command in decided.commands],
        "blocked": [{"node": entry.node, "reason": entry.reason} for entry in decided.blocked],
        **{name: list(nodes) for name, nodes in asleep.items() if nodes is not UNSET},
    }


def command_document(command: DisruptionProposal, money: Money) -> dict[str, Any]:
    """One command in that format."""
    return {
        "reason": str(command.reason),
        "method": str(command.method),
        "nodes": list(command.nodes),
        "replacements": [claim_document(claim, money) for claim in command.replacements],
        "savingsHourly": command.savings_hourly,
        "savingsEstimated": money.saved([command]).estimated,
        "movedPods": command.moved,
        "detail": command.detail,
        **({} if command.gap is UNSET else {"gap": msgspec.to_builtins(command.gap)}),
    }
