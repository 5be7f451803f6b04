"""Clusters in which gangs wait: each pod needs a node of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from shiplap.kubernetes.objects import Node, Pod
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import PolicyInput, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.given import snapshot_of

TYPES = (fake_type("only", cpu="2", price=1.0),)


def gang(
    name: str = "train", size: int = 4, minimum: int | None = None, *, created: str = "", **fields: Any
) -> list[Pod]:
    """Pods of a Kueue pod group; `minimum` where they say another number than there are of them."""
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": str(size if minimum is None else minimum),
        **fields.pop("annotations", {}),
    }
    labels = {"kueue.x-k8s.io/pod-group-name": name, **fields.pop("labels", {})}
    given = {"cpu": "1", "ports": [80], "metadata": {"creationTimestamp": created}, **fields}
    return pods(size, name, labels=labels, annotations=annotations, **given)


def snapshot(
    *waiting: Pod,
    nodes: int = 0,
    existing: Sequence[Node] = (),
    known: KnownGangs | None = None,
    policies: Sequence[PolicyInput] = (),
    **fields: Any,
) -> Snapshot:
    """A cluster whose only NodePool may launch so many nodes; 0 for any number. `existing` are of no NodePool."""
    limits = {"nodes": str(nodes)} if nodes else {}
    given = {"pools": [pool(limits=limits)], "types": TYPES, **fields}
    return snapshot_of(waiting, existing, **given).with_policies([GangInput(known or KnownGangs()), *policies])


def planned(*waiting: Pod, **fields: Any) -> Plan:
    """The plan of such a cluster."""
    return plan(snapshot(*waiting, **fields))


def homes(made: Plan) -> list[str]:
    """The names of the pods that get a new node, sorted."""
    return sorted(pod.name for claim in made.node_claims for pod in claim.pods)


def reasons(made: Plan) -> dict[str, str]:
    """Why pods have no place, by name."""
    return {entry.pod.name: entry.message for entry in made.unschedulable}


def without_gangs(of: Snapshot) -> Snapshot:
    """The same cluster with gangs off."""
    return replace(of, policies=tuple(item for item in of.policies if not isinstance(item, GangInput)))
