"""Pods that have to be near a pod of a DaemonSet, or away from one, on nodes that do not run it yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import DaemonSet
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, given, in_flight, wanted

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EVERYWHERE = [("on-demand", zone) for zone in (Z1, Z2, Z3)]
TYPES = [fake_type("large", cpu="4", memory="8Gi", pods="20", offerings=EVERYWHERE)]


def near(key: str = HOST, **labels: str) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: [_term(key, labels)]}}}


def away(key: str = HOST, **labels: str) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [_term(key, labels)]}}}


def _term(key: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "agent"}}}


def agent(name: str = "agent", *, selector: dict[str, str] | None = None, **spec: Any) -> DaemonSet:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": containers, "nodeSelector": selector or {}, **spec},
    }
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"template": template}}, DaemonSet
    )


def zones(outcome: Outcome) -> set[str]:
    found = wanted(outcome.claim, ZONE)
    assert found is not None
    return set(found.values)


@pytest.mark.parametrize("key", [HOST, ZONE])
def test_a_pod_near_a_daemon_gets_a_node_that_runs_it(key: str) -> None:
    outcome = given(*pods(3, cpu="100m", spec=near(key)), types=TYPES, daemon_sets=[agent()])
    assert outcome.scheduled
    assert len(outcome.claims) == 1


@pytest.mark.parametrize("key", [HOST, ZONE])
def test_it_is_a_node_of_the_zone_in_which_the_daemon_runs(key: str) -> None:
    outcome = given(pod(cpu="100m", spec=near(key)), types=TYPES, daemon_sets=[agent(selector={ZONE: Z2})])
    assert zones(outcome) == {Z2}


@pytest.mark.parametrize("key", [HOST, ZONE])
def test_a_pod_away_from_a_daemon_gets_a_node_that_does_not_run_it(key: str) -> None:
    outcome = given(pod(cpu="100m", spec=away(key)), types=TYPES, daemon_sets=[agent(selector={ZONE: Z2})])
    assert zones(outcome) == ({Z1, Z3} if key == HOST else {Z1})


def test_no_node_is_launched_for_a_pod_whose_node_would_run_what_it_stays_away_from() -> None:
    outcome = given(pod(cpu="100m", spec=away()), pod("other", cpu="100m"), types=TYPES, daemon_sets=[agent()])
    assert "anti-affinity keeps it off nodes with pods of DaemonSet default/agent" in outcome.left("pod").message
    assert outcome.home("other")


def test_a_daemon_keeps_pods_off_its_nodes() -> None:
    """The pods of the DaemonSet demand to be apart from those of the app."""
    daemons = [agent(selector={ZONE: Z1}, **away(app="web"))]
    outcome = given(pod(cpu="100m", metadata={"labels": {"app": "web"}}), pod("free"), types=TYPES, daemon_sets=daemons)
    web = outcome.claim_of("pod")
    assert next(entry.values for entry in web.requirements if entry.key == ZONE) == (Z2, Z3)
    everywhere = [agent(**away(app="web"))]
    assert given(pod(cpu="1", metadata={"labels": {"app": "web"}}), types=TYPES, daemon_sets=everywhere).left("pod")


def test_a_pod_near_a_daemon_that_runs_nowhere_waits_and_says_so() -> None:
    daemons = [agent(selector={"no": "such"})]
    outcome = given(pod(cpu="100m", spec=near()), types=TYPES, daemon_sets=daemons)
    assert "pod affinity holds it to nodes with pods of DaemonSet default/agent" in outcome.left("pod").message


@pytest.mark.parametrize(("spec", "fits"), [(near(), True), (away(), False)])
def test_a_node_on_which_the_daemon_does_not_run_yet_will_run_it(spec: dict[str, Any], fits: bool) -> None:
    outcome = given(pod(cpu="100m", spec=spec), nodes=[node("n1")], pools=[], types=TYPES, daemon_sets=[agent()])
    assert bool(outcome.home("pod")) is fits


def test_a_node_that_the_daemon_does_not_suit_will_not_run_it() -> None:
    nodes = [node("n1", labels={"edge": "yes"}), node("n2")]
    daemons = [agent(selector={"edge": "yes"})]
    assert given(pod(spec=near()), nodes=nodes, pools=[], types=TYPES, daemon_sets=daemons).home("pod") == "n1"
    assert given(pod(spec=away()), nodes=nodes, pools=[], types=TYPES, daemon_sets=daemons).home("pod") == "n2"


def test_pods_of_a_daemon_that_are_there_are_not_counted_twice() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "agent"}},
    }
    waiting = pod(
        metadata={"labels": {"app": "agent"}}, spec={"topologySpreadConstraints": [{**constraint, "maxSkew": 2}]}
    )
    there = pod("agent-1", node="n1", owner="agent", metadata={"labels": {"app": "agent"}})
    outcome = given(waiting, there, nodes=[node("n1")], pools=[], types=TYPES, daemon_sets=[agent()])
    assert outcome.home("pod") == "n1"


def test_a_claim_in_flight_will_run_its_daemons() -> None:
    first = given(pod("first", cpu="100m"), types=TYPES, daemon_sets=[agent()])
    later = given(
        pod("first", cpu="100m"),
        pod("near", cpu="100m", spec=near()),
        types=TYPES,
        daemon_sets=[agent()],
        claims=[in_flight(first.claim)],
    )
    assert later.home("near") == first.claim.name


def test_pods_away_from_a_daemon_of_one_label_get_the_other_one() -> None:
    pools = [pool("default", rule("tier", "In", "x", "y"))]
    daemons = [agent(selector={"tier": "x"})]
    outcome = given(pod("a", spec=away()), pod("b", spec=near()), pools=pools, types=TYPES, daemon_sets=daemons)
    assert (outcome.claim_of("a").labels["tier"], outcome.claim_of("b").labels["tier"]) == ("y", "x")
