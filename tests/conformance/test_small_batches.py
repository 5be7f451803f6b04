"""A small batch is placed step by step where that is clearly cheaper than to give every pod its domain first."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.pod_classes import group
from shiplap.scheduling.packing import strategies
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type, incrementing_types
from tests.conformance.given import Outcome, given
from tests.rules import TYPE, ZONE

_TYPES = [
    fake_type(
        name,
        cpu=f"{cpu}100m",
        memory=f"{cpu * 4096 + 10}Mi",
        pods="50",
        offerings=[("on-demand", zone) for zone in (Z1, Z2, Z3)],
        price=usd,
    )
    for name, cpu, usd in (("small", 2, 0.10), ("medium", 4, 0.19), ("large", 8, 0.36))
]


def _spread(app: str) -> dict[str, object]:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }
        ]
    }


def _some(free: int) -> Outcome:
    """A pod of each of two spread groups, and pods that may go anywhere."""
    spread = [
        pod(f"{app}-1", cpu=cpu, memory="1Gi", spec=_spread(app), metadata={"labels": {"app": app}})
        for app, cpu in (("api", "1500m"), ("web", "300m"))
    ]
    return given(*spread, *pods(free, "free", cpu="100m", memory="256Mi"), types=_TYPES)


@pytest.mark.parametrize(("free", "bought"), [(1, ["small"]), (3, ["medium"])])
def test_pods_that_may_go_anywhere_join_the_nodes_of_others(
    free: int, bought: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _some(free)
    assert result.scheduled
    assert [claim.launch.instance_type for claim in result.claims] == bought
    monkeypatch.setattr(strategies, "MOST_STEPWISE_PODS", 0)
    monkeypatch.setattr(strategies, "MOST_PODS_AGAIN", 0)
    assert result.plan.hourly < _some(free).plan.hourly


def test_orders_that_come_to_the_same_are_tried_once() -> None:
    """By cpu, by memory, and by what is constrained, which is nothing here: two orders."""
    lean, fat = pod("lean", cpu="2", memory="1Gi"), pod("fat", cpu="1", memory="8Gi")
    orders = strategies.orders(group([fat, lean]))
    assert [[item.members[0].metadata.name for item in order] for order in orders] == [["lean", "fat"], ["fat", "lean"]]
    assert len(strategies.orders(group([lean]))) == 1


def test_many_classes_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class takes its time in each of the ways that are tried."""
    monkeypatch.setattr(strategies, "MOST_CLASSES", 2)
    monkeypatch.setattr(strategies, "MOST_PODS_AGAIN", 0)
    assert len(_some(1).claims) == 2


def test_a_small_saving_does_not_give_up_that_pods_may_bind_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    dearly = (replace(item, least_saving=0.5) if item.least_saving else item for item in strategies.STRATEGIES)
    monkeypatch.setattr(strategies, "STRATEGIES", tuple(dearly))
    assert len(_some(1).claims) == 2


_TAINT = {"key": "dedicated", "value": "jobs", "effect": "NoSchedule"}
_TOLERATES = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}


def _of_two_weights(*batch: Pod) -> dict[str, tuple[str, list[str]]]:
    """The type and the pods of the node in each NodePool; the heavier one is tainted."""
    result = given(*batch, pools=[pool("default"), pool("jobs", taints=[_TAINT], weight=10)], types=_TYPES)
    assert result.scheduled
    assert len({claim.node_pool for claim in result.claims}) == len(result.claims)
    return {
        claim.node_pool: (claim.launch.instance_type, sorted(entry.name for entry in claim.pods))
        for claim in result.claims
    }


def _labelled(name: str, cpu: str, spec: dict[str, object]) -> Pod:
    return pod(name, cpu=cpu, memory="1Gi", spec={**_spread(name), **spec}, metadata={"labels": {"app": name}})


def test_a_pod_opens_a_node_of_the_heaviest_pool_that_takes_it() -> None:
    """The node of a lighter NodePool is not opened for smaller pods and then enlarged for it."""
    job = pod("job", cpu="1500m", memory="1Gi", spec=_TOLERATES)
    assert _of_two_weights(job, _labelled("api", "1", {})) == {
        "default": ("small", ["api"]),
        "jobs": ("small", ["job"]),
    }


def test_a_pod_joins_the_node_that_a_larger_one_opens_in_a_lighter_pool() -> None:
    """Two small nodes cost more than a medium one: weights say which pool opens a node, as in Karpenter."""
    job = pod("job", cpu="1500m", memory="1Gi", spec=_TOLERATES)
    assert _of_two_weights(job, _labelled("api", "2", {})) == {"default": ("medium", ["api", "job"])}


def test_a_pod_takes_room_that_is_paid_for_in_another_zone_before_it_enlarges_a_node() -> None:
    """Every node of Karpenter's fake types costs by its size, so only room that is paid for decides."""
    follow = {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "topology.kubernetes.io/zone",
                        "labelSelector": {"matchLabels": {"app": "follow"}},
                    }
                ]
            }
        }
    }
    web = {"labels": {"app": "web"}}
    result = given(
        *pods(2, "follow", cpu="2250m", memory="2304Mi", spec=follow, metadata={"labels": {"app": "follow"}}),
        *pods(2, "web", cpu="1", memory="100Mi", spec=_spread("web"), metadata=web),
        pod("api", cpu="5170m", memory="10588Mi", spec=_spread("api"), metadata={"labels": {"app": "api"}}),
        pod("one", cpu="300m", memory="2Gi", spec=_spread("one"), metadata={"labels": {"app": "one"}}),
        types=incrementing_types(20),
    )
    assert result.scheduled
    assert sorted(claim.launch.instance_type for claim in result.claims) == ["fake-it-1", "fake-it-10"]


@pytest.mark.parametrize(
    "idle", [pool("idle", rule(TYPE, "In", "none"), weight=9), pool("idle", node_class="broken", weight=9)]
)
def test_a_pool_without_types_changes_nothing(idle: NodePool) -> None:
    """Pods are also placed so that they may join nodes of lighter NodePools, where NodePools differ in weight."""
    batch = [
        *pods(2, "web", cpu="350m", memory="248Mi", spec={"nodeSelector": {ZONE: Z3}}),
        *pods(5, "db", cpu="7250m", memory="10Gi"),
        pod("job", cpu="500m", memory="128Mi"),
    ]
    share = {Z1: 0.4, Z3: 0.5}
    types = [
        replace(item, offerings=tuple(Offering(zone, "spot", cpu * 0.05 * share[zone]) for zone in share))
        for size, cpu in (("large", 2), ("2xlarge", 8), ("4xlarge", 16))
        for item in [fake_type(size, cpu=str(cpu), memory=f"{2 * cpu}Gi", pods="50")]
    ]
    alone, beside = (
        given(*batch, pools=pools, types=types, not_ready={"broken": "no subnets"}).claims
        for pools in ([pool()], [pool(), idle])
    )
    assert [replace(claim, reasons=()) for claim in beside] == list(alone)


def _few_on_a_node(app: str, most: int) -> dict[str, object]:
    rule = {
        "maxSkew": most,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"topologySpreadConstraints": [rule]}


def test_pods_that_keep_apart_open_the_nodes_that_others_fill() -> None:
    """By cpu, then memory, the first pods share a node, and those that keep apart need others beside it."""
    result = given(
        *pods(3, "cache", cpu="2", memory="8Gi"),
        *pods(2, "web", cpu="2", memory="1Gi", spec=_few_on_a_node("web", 1), metadata={"labels": {"app": "web"}}),
        pod("one", cpu="500m", memory="2Gi", spec=_spread("one"), metadata={"labels": {"app": "one"}}),
        types=incrementing_types(20),
    )
    assert result.scheduled
    assert sorted(claim.launch.instance_type for claim in result.claims) == ["fake-it-4", "fake-it-9"]


def test_pods_with_a_rule_on_nodes_share_nodes_of_any_pool_of_equal_weight() -> None:
    """Pods with much cpu may use both NodePools, those with much memory only one: together they fill nodes."""
    jobs, web = {"labels": {"app": "jobs"}}, {"labels": {"app": "web"}}
    with_cpu = pods(160, "job", cpu="2", memory="1Gi", spec={**_few_on_a_node("jobs", 8), **_TOLERATES}, metadata=jobs)
    with_memory = pods(160, "web", cpu="500m", memory="4Gi", spec=_few_on_a_node("web", 8), metadata=web)

    def hourly(*batch: Pod) -> float:
        pools = [pool("default"), pool("jobs", taints=[_TAINT])]
        result = given(*batch, pools=pools, types=incrementing_types(20))
        assert result.scheduled
        return result.plan.hourly

    assert hourly(*with_cpu, *with_memory) < 0.7 * (hourly(*with_cpu) + hourly(*with_memory))


def test_pods_of_a_larger_batch_join_nodes_of_a_lighter_pool_too() -> None:
    """Every node of either NodePool holds a few of these pods: together they need one medium node instead of two."""
    web, jobs = {"labels": {"app": "web"}}, {"labels": {"app": "jobs"}}
    apart = pods(40, "web", cpu="1500m", memory="1Gi", spec=_few_on_a_node("web", 1), metadata=web)
    few = {**_few_on_a_node("jobs", 15), **_TOLERATES}
    small = pods(600, "job", cpu="100m", memory="64Mi", spec=few, metadata=jobs)
    pools = [pool("default"), pool("jobs", taints=[_TAINT], weight=10)]
    result = given(*apart, *small, pools=pools, types=_TYPES)
    assert result.scheduled
    assert {(claim.node_pool, claim.launch.instance_type) for claim in result.claims} == {("default", "medium")}
    assert len(result.claims) == 40
