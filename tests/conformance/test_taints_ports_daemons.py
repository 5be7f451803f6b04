"""Taints and tolerations, host ports, and what DaemonSets take of every new node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import fake_type, incrementing_types
from tests.conformance.given import daemon_set, given

TAINT = {"key": "test-key", "value": "test-value", "effect": "NoSchedule"}
SOFT = {**TAINT, "effect": "PreferNoSchedule"}

TOLERATIONS: dict[str, tuple[list[dict[str, str]], bool]] = {
    "Exists": ([{"key": "test-key", "operator": "Exists"}], True),
    "Exists with effect": ([{"key": "test-key", "operator": "Exists", "effect": "NoSchedule"}], True),
    "everything": ([{"operator": "Exists"}], True),
    "Equal": ([{"key": "test-key", "operator": "Equal", "value": "test-value"}], True),
    "none": ([], False),
    "other key": ([{"key": "other", "operator": "Exists"}], False),
    "other value": ([{"key": "test-key", "operator": "Equal", "value": "x"}], False),
    "Equal without value": ([{"key": "test-key", "operator": "Equal"}], False),
    "other effect": ([{"key": "test-key", "operator": "Exists", "effect": "NoExecute"}], False),
}


@pytest.mark.parametrize(("tolerations", "placed"), TOLERATIONS.values(), ids=TOLERATIONS.keys())
def test_taints_of_the_pool(tolerations: list[dict[str, str]], placed: bool) -> None:
    outcome = given(pod(tolerations=tolerations), pools=[pool(taints=[TAINT])])
    assert outcome.scheduled is placed
    if placed:
        assert [(taint.key, taint.value) for taint in outcome.claim.taints] == [("test-key", "test-value")]
    else:
        assert "did not tolerate taint test-key=test-value:NoSchedule" in outcome.left("pod").message


@pytest.mark.parametrize(
    ("operator", "limit", "chosen"), [("Gt", "950", "gold"), ("Lt", "950", "bronze"), ("Gt", "999", None)]
)
def test_a_toleration_compares_the_integer_of_a_taint(operator: str, limit: str, chosen: str | None) -> None:
    """As Kubernetes does with its feature gate TaintTolerationComparisonOperators, and Karpenter always."""
    tainted = [
        pool(name, taints=[{"key": "sla", "value": value, "effect": "NoSchedule"}])
        for name, value in (("bronze", "900"), ("gold", "999"))
    ]
    outcome = given(pod(tolerations=[{"key": "sla", "operator": operator, "value": limit}]), pools=tainted)
    assert outcome.scheduled is (chosen is not None)
    if chosen is not None:
        assert outcome.claim.node_pool == chosen


def test_tolerations_never_taint_a_node() -> None:
    assert given(pod(tolerations=[{"key": "test-key", "operator": "Exists"}])).claim.taints == ()


def test_startup_taints_keep_nobody_away() -> None:
    claim = given(pod(), pools=[pool(startup_taints=[TAINT])]).claim
    assert [taint.key for taint in claim.startup_taints] == ["test-key"]


def test_prefer_no_schedule_is_avoided_while_another_pool_can_take_the_pod() -> None:
    soft, plain = pool("soft", taints=[SOFT], weight=10), pool("plain")
    assert given(pod(), pools=[soft, plain]).claim.node_pool == "plain"
    assert given(pod(), pools=[soft]).claim.node_pool == "soft"


def test_one_host_port_needs_two_nodes() -> None:
    outcome = given(*pods(2, ports=[80]), pod("free"))
    assert outcome.scheduled
    assert len(outcome.claims) == 2
    assert len(given(pod("a", ports=[80]), pod("b", ports=[81])).claims) == 1


def test_host_ports_of_bound_pods_and_daemons_are_taken() -> None:
    here = node("here")
    taken = pod("old", ports=[80], node="here")
    assert given(pod(ports=[80]), taken, nodes=[here]).home("pod") != "here"
    assert given(pod(ports=[81]), taken, nodes=[here]).home("pod") == "here"
    assert given(pod(ports=[80]), daemon_sets=[daemon_set(ports=[80])]).claims == ()
    assert given(pod(ports=[81]), daemon_sets=[daemon_set(ports=[80])]).scheduled


def test_the_ports_of_all_pods_of_a_node_are_taken_and_those_of_no_other_node() -> None:
    nodes = [node("here"), node("there")]
    bound = [
        pod("a", ports=[80], node="here"),
        pod("b", ports=[443], node="here"),
        pod("c", ports=[8080], node="there"),
    ]
    for port, home in ((80, "there"), (443, "there"), (8080, "here"), (81, "here")):
        assert given(pod(ports=[port]), *bound, nodes=nodes).home("pod") == home


def host_port(address: str, protocol: str = "TCP") -> dict[str, Any]:
    port = {"containerPort": 80, "hostPort": 80, "hostIP": address, "protocol": protocol}
    return {"containers": [{"name": "c", "ports": [port]}]}


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (host_port("10.0.0.1"), host_port("10.0.0.2"), True),
        (host_port("10.0.0.1"), host_port("10.0.0.1"), False),
        (host_port("10.0.0.1"), host_port("0.0.0.0"), False),  # noqa: S104 - a pod's port, nothing listens
        (host_port("::"), host_port("10.0.0.1"), False),
        (host_port(""), host_port("", "UDP"), True),
    ],
)
def test_host_ports_collide_by_address_and_protocol(first: Any, second: Any, together: bool) -> None:
    outcome = given(pod("a", spec=first), pod("b", spec=second))
    assert (outcome.home("a") == outcome.home("b")) is together


@pytest.mark.parametrize("startup", [[], [TAINT]], ids=["plain", "startup taint"])
def test_daemons_make_the_node_larger(startup: list[dict[str, str]]) -> None:
    outcome = given(
        pod(cpu="1", memory="1Gi"),
        pools=[pool(startup_taints=startup)],
        daemon_sets=[daemon_set(cpu="2", memory="2Gi")],
    )
    assert outcome.claim.launch.instance_type == "default-instance-type"
    assert outcome.claim.requests["cpu"] == 3000
    assert outcome.claim.requests["pods"] == 2


def test_a_daemon_no_node_can_hold_leaves_the_pod_out() -> None:
    record = given(pod(cpu="1"), daemon_sets=[daemon_set(cpu="10000")]).left("pod")
    assert "10001 needed (pod 1 + daemonsets 10000)" in record.message


def test_the_newest_daemon_pod_counts_not_the_template() -> None:
    running = pod(
        "d-1", cpu="2", memory="2Gi", node="here", owner="daemon", metadata={"creationTimestamp": "2026-01-02"}
    )
    older = pod("d-0", cpu="9", memory="9Gi", node="here", owner="daemon", metadata={"creationTimestamp": "2026-01-01"})
    outcome = given(
        pod(cpu="1", memory="1Gi"),
        running,
        older,
        nodes=[node("here", cordoned=True)],
        daemon_sets=[daemon_set(cpu="4", memory="4Gi")],
    )
    assert outcome.claim.launch.instance_type == "default-instance-type"


# A daemon of 2 cpu | whether it runs on the pool's nodes (label team=a, taint test-key).
DAEMONS: dict[str, tuple[dict[str, Any], bool]] = {
    "everywhere": ({"tolerations": [{"operator": "Exists"}]}, True),
    "does not tolerate": ({}, False),
    "selects the pool's label": ({"tolerations": [{"operator": "Exists"}], "selector": {"team": "a"}}, True),
    "selects another label": ({"tolerations": [{"operator": "Exists"}], "selector": {"team": "b"}}, False),
    "NotIn on an undefined label": (
        {"tolerations": [{"operator": "Exists"}], "requires": [[rule("unspecified", "NotIn", "x")]]},
        True,
    ),
    "one of two terms": (
        {
            "tolerations": [{"operator": "Exists"}],
            "requires": [[rule("team", "In", "b")], [rule("team", "In", "a")]],
        },
        True,
    ),
    "incompatible preference": (
        {"tolerations": [{"operator": "Exists"}], "prefers": [[rule("team", "In", "b")]]},
        True,
    ),
    "only on finished nodes": (
        {"tolerations": [{"operator": "Exists"}], "selector": {"karpenter.sh/initialized": "true"}},
        True,
    ),
    "only on registered nodes": (
        {"tolerations": [{"operator": "Exists"}], "selector": {"karpenter.sh/registered": "true"}},
        True,
    ),
}


@pytest.mark.parametrize(("shape", "counts"), DAEMONS.values(), ids=DAEMONS.keys())
def test_which_daemons_count(shape: dict[str, Any], counts: bool) -> None:
    outcome = given(
        pod(cpu="1", tolerations=[{"operator": "Exists"}]),
        pools=[pool(labels={"team": "a"}, taints=[TAINT])],
        daemon_sets=[daemon_set(cpu="2", **shape)],
    )
    assert outcome.claim.requests["cpu"] == (3000 if counts else 1000)


def test_daemons_tolerate_preferences() -> None:
    outcome = given(pod(cpu="1"), pools=[pool(taints=[SOFT])], daemon_sets=[daemon_set(cpu="2")])
    assert outcome.claim.requests["cpu"] == 3000


def test_daemons_count_per_instance_type() -> None:
    types = [fake_type("plain", cpu="3", price=1.0), fake_type("arm", cpu="3", arch="arm64", price=2.0)]
    only_plain = daemon_set(cpu="2", selector={"kubernetes.io/arch": "amd64"})
    outcome = given(pod(cpu="2"), types=types, daemon_sets=[only_plain])
    assert outcome.claim.instance_types == ("arm",)


def test_daemons_count_with_no_node_at_all_and_on_every_claim() -> None:
    outcome = given(*pods(12, cpu="1"), types=incrementing_types(5), daemon_sets=[daemon_set(cpu="500m", memory="1Gi")])
    assert outcome.scheduled
    for claim in outcome.claims:
        assert claim.requests["cpu"] == 500 + 1000 * len(claim.pods)
        assert claim.requests["memory"] == 2**30


@pytest.mark.parametrize(
    "shape",
    [
        {"cpu": "lots"},
        {"cpu": "1", "requires": [[{"key": "x", "operator": "Near", "values": ["y"]}]]},
        {"cpu": "1", "spec": {"resourceClaims": [{"name": "device"}]}},
    ],
    ids=["quantity", "operator", "device"],
)
def test_daemons_that_could_not_run_anyway_are_left_out(shape: dict[str, Any]) -> None:
    assert given(pod(cpu="1"), daemon_sets=[daemon_set(**shape)]).claim.requests["cpu"] == 1000
