"""Required anti-affinity of pods on nodes: a decision reads a bounded part of it, and never plans against the rest."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.kubernetes.objects import Node, Pod
from shiplap.scheduling.model import topology_constraints
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.planner import plan, solve
from shiplap.scheduling.removal import Removals
from tests.builders.nodes import node
from tests.builders.pods import owned_by, pod
from tests.conformance.catalogues import Z1, Z2, incrementing_types
from tests.conformance.given import daemon_set, given

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MOST = 50


@pytest.fixture(autouse=True)
def few_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_constraints, "BOUNDS", replace(BOUNDS, topology_constraints=MOST))


def two_nodes() -> list[Node]:
    return [node(name, cpu="64", zone=zone) for name, zone in (("a", Z1), ("b", Z2))]


def keeps_off(name: str, apps: list[str], *, on: str = "a", key: str = ZONE, **fields: Any) -> Pod:
    """A pod on a node that keeps away pods of these apps."""
    return pod(name, cpu="100m", node=on, spec=anti(apps, key=key), **fields)


def anti(apps: list[str], *, key: str = ZONE, **more: Any) -> dict[str, Any]:
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more} for app in apps]
    return {"affinity": {"podAntiAffinity": {REQUIRED: terms}}}


def own(number: int, terms: int) -> list[str]:
    return [f"of-{number}-{place}" for place in range(terms)]


def crowd(pods: int, terms: int, **how: Any) -> list[Pod]:
    """Pods that each keep away pods of apps that no other pod names."""
    return [keeps_off(f"s{number:03}", own(number, terms), **how) for number in range(pods)]


def terms_read(*pods: Pod, **around: Any) -> int:
    compiled, _ = solve(
        given(*pods, pod("w", cpu="1"), nodes=two_nodes(), types=incrementing_types(4), **around).snapshot
    )
    return len(compiled.base_counts.terms.all)


def goes_to(waiting: Pod, *standing: Pod, **around: Any) -> str:
    """The node on which a pod finds room; empty if a new one is launched for it."""
    decided = plan(given(*standing, waiting, nodes=two_nodes(), types=incrementing_types(4), **around).snapshot)
    assert not decided.unschedulable
    return next((place.name for place in decided.existing_nodes if place.pods), "")


@pytest.mark.parametrize(("pods", "terms"), [(20, 20), (100, 5), (10, 100)])
def test_what_pods_on_nodes_keep_away_is_bounded_however_many_they_are(pods: int, terms: int) -> None:
    """Read are those of pods with few; a pod beyond them has one term for each label of nodes."""
    assert terms_read(*crowd(pods, terms)) <= MOST + 1
    assert terms_read(*(each for on in "ab" for each in crowd(pods, terms, on=on))) <= MOST + 1


def test_labels_that_no_node_has_are_none_of_them() -> None:
    invented = [keeps_off(f"s{number}", ["x"] * 9, key=f"example.com/{number}") for number in range(40)]
    assert terms_read(*invented) <= MOST


def test_daemon_sets_count_as_well() -> None:
    daemons = [daemon_set(f"d{number:02}", cpu="10m", spec=anti(own(number, 20), key=HOST)) for number in range(10)]
    assert terms_read(daemon_sets=daemons) <= MOST + 1


def test_equal_terms_of_many_pods_are_read_as_they_are_written() -> None:
    same = [keeps_off(f"s{number:03}", ["web", "db"]) for number in range(100)]
    assert terms_read(*same) == 2
    assert goes_to(pod("w", cpu="1", labels={"app": "web"}), *same) == "b"
    assert goes_to(pod("w", cpu="1", labels={"app": "other"}), *same) == "a"


def test_no_pod_is_planned_where_a_term_that_is_not_read_keeps_it_away() -> None:
    """The last pod with as many terms is beyond the bound: it keeps all of its namespace out of its zone."""
    standing = crowd(20, 20)
    assert goes_to(pod("w", cpu="1", labels={"app": "of-19-19"}), *standing) == "b"
    assert goes_to(pod("w", cpu="1", labels={"app": "another"}), *standing) == "b"


def test_pods_of_other_namespaces_are_planned_as_ever() -> None:
    """What one tenant's pods demand costs that tenant alone."""
    standing = crowd(20, 20, namespace="hostile")
    assert goes_to(pod("w", cpu="1"), *standing) == "a"
    assert goes_to(pod("w", cpu="1", namespace="hostile"), *standing) == "b"


def test_pods_with_few_terms_are_read_before_those_with_many() -> None:
    honest = keeps_off("z-honest", ["web"], namespace="shop")
    standing = [*crowd(20, 20, namespace="hostile"), honest]
    assert goes_to(pod("w", cpu="1", namespace="shop", labels={"app": "web"}), *standing) == "b"
    assert goes_to(pod("w", cpu="1", namespace="shop", labels={"app": "db"}), *standing) == "a"


@pytest.mark.parametrize(
    "reaching",
    [{"namespaces": ["shop"]}, {"namespaceSelector": {}}, {"namespaceSelector": {"matchLabels": {"a": "b"}}}],
)
def test_a_term_that_reaches_other_namespaces_keeps_all_of_them_away(reaching: dict[str, Any]) -> None:
    """Staying away from more is safe: kube-scheduler would refuse some of these pods."""
    standing = [
        pod(f"s{number:03}", cpu="100m", node="a", namespace="hostile", spec=anti(own(number, 20), **reaching))
        for number in range(20)
    ]
    assert goes_to(pod("w", cpu="1", namespace="shop", labels={"app": "of-19-0"}), *standing) == "b"


def test_a_term_over_the_hostname_keeps_nobody_off_another_node_of_the_zone() -> None:
    standing = crowd(20, 20, key=HOST)
    beside = node("c", cpu="64", zone=Z1)
    decided = plan(
        given(*standing, pod("w", cpu="1"), nodes=[*two_nodes(), beside], types=incrementing_types(4)).snapshot
    )
    assert {place.name for place in decided.existing_nodes if place.pods} <= {"b", "c"}


def test_a_removal_reads_no_more_than_a_plan() -> None:
    """The pods of a removed node are moved where nothing keeps them away, read or not."""
    moving = pod("m", cpu="1", node="c", labels={"app": "of-19-3"}, metadata=owned_by("ReplicaSet"))
    around = [*two_nodes(), node("c", cpu="64", zone=Z2)]
    snapshot = given(*crowd(20, 20), moving, nodes=around, types=incrementing_types(4)).snapshot
    decided, packing = Removals(snapshot, ["c"]).plan_without(["c"])
    assert len(packing.counts.terms.all) <= MOST + 1
    assert [place.name for place in decided.existing_nodes if place.pods] == ["b"]
