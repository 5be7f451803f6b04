"""Tests the metrics of nodes, money, pods and waiting."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import pytest

from shiplap.errors import StoreError
from shiplap.flows import cluster_metrics
from shiplap.flows.install import EmfMeter
from shiplap.instances.catalog.ec2_catalog import Catalog, TypePrices
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import MEMORY
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_lab.fakes.signals import FakeMeter
from tests.builders.claims import references, running_claim
from tests.builders.pods import pod
from tests.integration.flows.stage import CLUSTER, ZONES, Stage

GIB = 2**30
claim = partial(running_claim, cluster=CLUSTER, node_pool="general", hourly=0.04, allocatable={MEMORY: 7 * GIB})


def test_nodes_are_counted_by_pool_and_tier_and_weighed_against_list_prices() -> None:
    stage = Stage()
    stage.context.catalog.save(
        Catalog(region="eu-west-1", types=(), prices={"m5.large": TypePrices(on_demand=0.1)}, refreshed_at=1.0)
    )
    claims = [claim("a"), claim("b"), claim("c", tier=1), claim("d", state=ClaimState.GONE)]

    cluster_metrics.measure_nodes(CLUSTER, claims, stage.context)

    assert stage.meter.seen["Nodes"] == [
        (2, (("cluster", CLUSTER), ("pool", "general"), ("tier", "0"))),
        (1, (("cluster", CLUSTER), ("pool", "general"), ("tier", "1"))),
    ]
    assert stage.meter.seen["HourlyCost"] == [(pytest.approx(0.12), (("cluster", CLUSTER),))]
    assert stage.meter.seen["HourlyListPrice"] == [(pytest.approx(0.3), (("cluster", CLUSTER),))]


@pytest.mark.parametrize("state", list(ClaimState))
def test_instances_are_counted_from_their_launch_to_their_end(state: ClaimState) -> None:
    stage = Stage()
    cluster_metrics.measure_nodes(CLUSTER, [claim("a", state=state)], stage.context)
    over = (ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.FAILED, ClaimState.GONE)
    assert ("Nodes" in stage.meter.counts) is (state not in over)


def test_a_claim_without_an_instance_is_no_node() -> None:
    stage = Stage()
    cluster_metrics.measure_nodes(CLUSTER, [msgspec.structs.replace(claim("a"), instance=None)], stage.context)
    assert stage.meter.counts == {}


def test_without_a_catalogue_nodes_count_at_the_price_they_were_bought_for() -> None:
    stage = Stage()
    stage.faults.on("before", "catalog.load", StoreError("gone"))

    cluster_metrics.measure_nodes(CLUSTER, [claim("a")], stage.context)

    assert stage.meter.counts["HourlyListPrice"] == stage.meter.counts["HourlyCost"]


def test_a_cluster_without_anything_costs_no_metric() -> None:
    stage = Stage()
    cluster_metrics.measure_nodes(CLUSTER, [], stage.context)
    cluster_metrics.measure_pods(CLUSTER, stage.cluster.view(), stage.clock.now(), stage.meter)
    assert stage.meter.counts == {}


def waiting(name: str, created: str | None) -> Pod:
    unscheduled = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    written = {"metadata": {"name": name, "uid": name, "creationTimestamp": created}, "status": unscheduled}
    return msgspec.convert(written, Pod)


def bound(name: str, node: str) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": {"nodeName": node}}, Pod)


def test_pods_are_counted_where_they_run_and_by_how_long_they_wait() -> None:
    nodes = [
        msgspec.convert({"metadata": {"name": name, "labels": marks}}, Node)
        for name, marks in (
            ("a", {"karpenter.sh/nodepool": "general"}),
            ("b", {"karpenter.sh/nodepool": "general"}),
            ("c", {"karpenter.sh/nodepool": "batch"}),
            ("of-others", {}),
        )
    ]
    pods = [
        *(bound(f"p{place}", name) for place, name in enumerate(("a", "a", "b", "c", "of-others", "unknown"))),
        waiting("young", "2026-01-01T00:00:50Z"),
        waiting("old", "2026-01-01T00:00:00Z"),
        waiting("undated", None),
    ]
    view = ClusterView(pods=tuple(pods), nodes=tuple(nodes), unreadable=("Pod a/b", "Pod a/c"))
    meter = FakeMeter()
    cluster_metrics.measure_pods(CLUSTER, view, 1_767_225_660.0, meter)
    own = ("cluster", CLUSTER)
    assert meter.seen == {
        "ObjectsUnreadable": [(2, (own,))],
        "Pods": [(1, (own, ("pool", "batch"))), (3, (own, ("pool", "general")))],
        "PodsWaiting": [(3, (own,))],
        "OldestPodWaiting": [(60.0, (own,))],
    }


def test_a_node_of_a_users_node_claim_is_of_no_pool() -> None:
    stage = Stage()
    cluster_metrics.measure_nodes(CLUSTER, [claim("a", node_pool="")], stage.context)
    assert stage.meter.seen["Nodes"] == [(1, (("cluster", CLUSTER), ("pool", "none"), ("tier", "0")))]


@pytest.mark.parametrize(("refreshed_ago_s", "age_s"), [(90.0, 90.0), (-5.0, 0.0)])
def test_the_age_of_a_catalogue_is_never_negative(refreshed_ago_s: float, age_s: float) -> None:
    meter = FakeMeter()
    cluster_metrics.measure_catalog(
        Catalog(region="eu-west-1", types=(), refreshed_at=1000.0 - refreshed_ago_s), 1000.0, meter
    )
    assert [value for value, _ in meter.seen["CatalogAge"]] == [age_s]


def test_pods_that_another_autoscaler_has_do_not_wait_for_us() -> None:
    unscheduled = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    written = {"metadata": {"name": "a", "namespace": "b"}, "status": unscheduled}
    view = ClusterView(pods=(msgspec.convert(written, Pod),))
    meter = FakeMeter()
    cluster_metrics.measure_pods(CLUSTER, view, 0.0, meter, (ClaimRule(namespaces=("a",)),))
    assert meter.counts == {}
    cluster_metrics.measure_pods(CLUSTER, view, 0.0, meter, (ClaimRule(namespaces=("b",)),))
    assert meter.counts == {"PodsWaiting": 1}


def test_the_age_of_a_thousand_pods_is_told_by_a_hundred_of_them() -> None:
    meter = FakeMeter()
    claims = [claim(f"p{n}", pods=references(f"p{n}")) for n in range(1000)]
    pods = [
        pod(f"p{n}", metadata={"creationTimestamp": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z"}) for n in range(1000)
    ]
    pods += [pod("p0"), pod("other", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})]

    cluster_metrics.measure_waits(claims, pods, 1_767_226_800.0, meter)

    ages = [value for value, _ in meter.seen["PodAge"]]
    assert len(ages) == 100
    assert (ages[0], ages[-1]) == (201.0, 1200.0)
    assert ages == sorted(ages)


def test_pods_that_still_run_have_not_waited() -> None:
    meter = FakeMeter()
    running = pod("a", node="node-1", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    cluster_metrics.measure_waits([claim("a", pods=references("a"))], [running], 1_767_226_800.0, meter)
    assert meter.counts == {}


@pytest.mark.parametrize(
    ("found", "metric"),
    [(7.5, "MemoryBeyondPlan"), (6.5, "MemoryShort"), (7.0, "")],
    ids=["more", "less", "as planned"],
)
def test_memory_that_a_plan_did_not_know_of_is_measured(found: float, metric: str) -> None:
    meter = FakeMeter()
    cluster_metrics.measure_memory(claim("a"), {MEMORY: int(found * GIB)}, meter)
    assert meter.counts == ({metric: 0.5} if metric else {})


def test_a_node_that_reports_no_memory_lacks_all_that_was_planned() -> None:
    meter = FakeMeter()
    cluster_metrics.measure_memory(claim("a"), {}, meter)
    assert meter.counts == {"MemoryShort": 7.0}


def test_a_story_is_measured_from_event_to_ready_and_carries_its_events_id() -> None:
    stage = Stage()
    stage.add_pods(2)
    stage.schedule()
    stage.play_on()

    assert {"LaunchToJoined", "JoinedToReady", "EventToReady"} <= set(stage.meter.counts)
    assert len(stage.meter.seen["MemoryBeyondPlan"]) == len(stage.claims())
    assert all(item.cause.event_id for item in stage.claims())


def test_an_invocation_that_launches_nothing_of_what_it_tried_says_so() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.compute.capacity.update({(name, zone, "on-demand"): 0 for name in stage.types for zone in ZONES})
    stage.schedule()
    assert stage.meter.counts["LaunchesFruitless"] == 1
    assert stage.meter.counts["FailedForCapacity"] >= 1


def test_every_set_of_dimensions_is_a_document_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    meter = EmfMeter("platform")
    meter.count("NodesLaunched")
    meter.count("Nodes", 2, dimensions={"cluster": "a", "pool": "general", "tier": "0"})
    meter.count("Nodes", 3, dimensions={"cluster": "b", "pool": "general", "tier": "0"})
    meter.flush()
    meter.flush()

    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["_aws"]["CloudWatchMetrics"][0]["Namespace"] for item in documents] == ["Shiplap"] * 3
    assert [(item.get("cluster"), item.get("Nodes")) for item in documents] == [(None, None), ("a", [2]), ("b", [3])]
    assert {item["install"] for item in documents} == {"platform"}
    assert "service" not in documents[0]
    assert documents[0]["NodesLaunched"] == [1.0], "counted once"
    assert [item["_aws"]["CloudWatchMetrics"][0]["Dimensions"] for item in documents] == [[["install"]]] * 3


def test_only_a_detailed_meter_makes_metrics_of_each_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    meter = EmfMeter("platform", detailed=True)
    meter.count("NodesLaunched")
    meter.count("Nodes", 2, dimensions={"cluster": "a", "pool": "general", "tier": "0"})
    meter.flush()

    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    dimensions = [item["_aws"]["CloudWatchMetrics"][0]["Dimensions"] for item in documents]
    assert dimensions == [[["install"]], [["install"], ["install", "cluster", "pool", "tier"]]]
    assert (documents[1]["pool"], documents[1]["Nodes"]) == ("general", [2])
    meter.count("Nodes", 5, dimensions={"cluster": "a", "pool": "general", "tier": "0"})
    meter.flush()
    again = json.loads(capsys.readouterr().out)
    assert again | {"_aws": 0} == documents[1] | {"_aws": 0, "Nodes": [5.0]}, "each invocation writes alike"
    assert again["_aws"]["CloudWatchMetrics"] == documents[1]["_aws"]["CloudWatchMetrics"]


def test_many_threads_may_count(capsys: pytest.CaptureFixture[str]) -> None:
    meter = EmfMeter("platform")

    def count(_: int) -> None:
        for _number in range(50):
            meter.count("PodsTold")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    meter.flush()

    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(sum(item["PodsTold"]) for item in documents) == 200


def test_a_hundred_values_are_written_at_once_and_none_twice(capsys: pytest.CaptureFixture[str]) -> None:
    meter = EmfMeter("platform")
    for number in range(100):
        meter.count("PodAge", number, "Seconds")
    meter.flush()

    (document,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert len(document["PodAge"]) == 100
