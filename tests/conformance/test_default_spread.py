"""Default spread constraints of the cluster, for pods that have none of their own (scenario 111)."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod, TopologySpreadConstraint
from shiplap.kubernetes.related_objects import ReplicaSet, ReplicationController, StatefulSet
from shiplap.manifests.scheduler_config import DefaultConstraint, PodTopologySpread
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, incrementing_types
from tests.conformance.given import Around, Outcome, controller, given, service

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"app": "web"}


def default(key: str = ZONE, *, skew: int = 1, hard: bool = True, least: int | None = None) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(skew, key, "DoNotSchedule" if hard else "ScheduleAnyway", min_domains=least)


def owned(number: int, name: str = "web", kind: str = "ReplicaSet", owner: str = "owner", **fields: Any) -> list[Pod]:
    """Pods of a controller."""
    reference = {"kind": kind, "name": owner, "uid": owner, "controller": True}
    return pods(number, name, metadata={"labels": WEB, "ownerReferences": [reference], **fields})


def spread_over(outcome: Outcome) -> list[int]:
    """Pods per zone, ascending."""
    held: dict[str, int] = {}
    for claim in outcome.claims:
        held[claim.launch.zone] = held.get(claim.launch.zone, 0) + len(claim.pods)
    return sorted(held.values())


OWNERS: dict[str, tuple[str, list[Around]]] = {
    "ReplicaSet": ("ReplicaSet", [controller(ReplicaSet, app="web")]),
    "StatefulSet": ("StatefulSet", [controller(StatefulSet, app="web")]),
    "ReplicationController": ("ReplicationController", [controller(ReplicationController, app="web")]),
    "a Job that a Service selects": ("Job", [service(app="web")]),
}


@pytest.mark.parametrize(("kind", "around"), OWNERS.values(), ids=OWNERS.keys())
def test_pods_of_a_controller_or_service_are_spread_over_zones(kind: str, around: list[Around]) -> None:
    outcome = given(*owned(4, kind=kind), around=around, default_spread=(default(),))
    assert outcome.scheduled
    assert spread_over(outcome) == [1, 1, 2]


def test_hostnames() -> None:
    outcome = given(*owned(3), around=[controller(ReplicaSet, app="web")], default_spread=(default(HOST),))
    assert [len(claim.pods) for claim in outcome.claims] == [1, 1, 1]


ALONE: dict[str, list[Around]] = {"nothing selects them": [], "a Service for others": [service(app="other")]}


@pytest.mark.parametrize("around", ALONE.values(), ids=ALONE.keys())
def test_bare_pods_are_not_spread(around: list[Around]) -> None:
    waiting = pods(4, "web", metadata={"labels": WEB})
    assert len(given(*waiting, around=around, default_spread=(default(HOST),)).claims) == 1


def test_jobs_without_a_service_are_not_spread() -> None:
    assert len(given(*owned(4, kind="Job"), default_spread=(default(HOST),)).claims) == 1


def test_a_constraint_of_its_own_replaces_all_defaults() -> None:
    own = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    reference = {"kind": "ReplicaSet", "name": "owner", "controller": True}
    waiting = pods(
        6,
        "web",
        metadata={"labels": WEB, "ownerReferences": [reference]},
        spec={"topologySpreadConstraints": [own]},
    )
    outcome = given(*waiting, around=[controller(ReplicaSet, app="web")], default_spread=(default(HOST),))
    assert spread_over(outcome) == [2, 2, 2]
    assert len(outcome.claims) == 3


def test_workloads_and_revisions_are_spread_apart() -> None:
    """The ReplicaSets of a Deployment differ in pod-template-hash, so each revision is spread for itself."""
    around = [controller(ReplicaSet, name, app="web", **{"pod-template-hash": name}) for name in ("a", "b")]
    waiting = [
        item for name in ("a", "b") for item in owned(3, name, owner=name, labels={**WEB, "pod-template-hash": name})
    ]
    outcome = given(*waiting, around=around, default_spread=(default(HOST),), types=incrementing_types(10))
    assert [sorted(entry.name[0] for entry in claim.pods) for claim in outcome.claims] == [["a", "b"]] * 3


def test_soft_defaults_give_way() -> None:
    closed = pool("default", rule(ZONE, "In", Z1))
    full = node("full", pods="0", labels={ZONE: Z3})
    around = [controller(ReplicaSet, app="web")]
    soft = given(*owned(4), around=around, nodes=[full], pools=[closed], default_spread=(default(hard=False),))
    assert soft.scheduled
    hard = given(*owned(4), around=around, nodes=[full], pools=[closed], default_spread=(default(),))
    assert len(hard.plan.unschedulable) == 3


def test_min_domains_are_carried() -> None:
    closed = pool("default", rule(ZONE, "In", Z1, Z2))
    around = [controller(ReplicaSet, app="web")]
    outcome = given(*owned(3), around=around, pools=[closed], default_spread=(default(least=3),))
    assert spread_over(outcome) == [1, 1]
    assert len(outcome.plan.unschedulable) == 1


def test_existing_pods_are_counted_through_the_deduced_selector() -> None:
    here = node("here", labels={ZONE: Z1}, pods="0")
    standing = [pod("old", node="here", metadata={"labels": WEB}), pod("other", node="here")]
    outcome = given(
        *owned(2), *standing, nodes=[here], around=[controller(ReplicaSet, app="web")], default_spread=(default(),)
    )
    assert {claim.launch.zone for claim in outcome.claims} == {Z2, Z3}


def test_service_and_controller_are_joined() -> None:
    """A ReplicaSet that contradicts the Service selects no pod: the constraint is there, but counts no pod."""
    both = [service(app="web"), controller(ReplicaSet, app="web", tier="front")]
    front = owned(3, labels={**WEB, "tier": "front"})
    assert len(given(*front, around=both, default_spread=(default(HOST),)).claims) == 3
    torn = [service(app="web"), controller(ReplicaSet, app="other")]
    assert len(given(*owned(3), around=torn, default_spread=(default(HOST),)).claims) == 1
    replaced = [service(app="other"), service("mine", app="web"), controller(ReplicationController, app="web")]
    assert (
        len(given(*owned(3, kind="ReplicationController"), around=replaced, default_spread=(default(HOST),)).claims)
        == 3
    )


def test_the_policy_ignore_drops_soft_defaults() -> None:
    around = [controller(ReplicaSet, app="web")]
    outcome = given(*owned(4), around=around, default_spread=(default(HOST, hard=False),), preference_policy="Ignore")
    assert len(outcome.claims) == 1


def test_what_a_configuration_stands_for() -> None:
    written = PodTopologySpread(
        default_constraints=(DefaultConstraint(max_skew=2, topology_key=ZONE, when_unsatisfiable="DoNotSchedule"),)
    )
    assert written.constraints() == (default(skew=2),)
    built_in = PodTopologySpread(defaulting_type="System").constraints()
    assert built_in == (default(HOST, skew=3, hard=False), default(ZONE, skew=5, hard=False))
    assert all(item.label_selector is None for item in built_in)
