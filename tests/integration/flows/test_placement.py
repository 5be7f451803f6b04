"""The plan is followed: pods are nominated or bound to the node that was launched for them, as far as they fit."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from shiplap.errors import ClusterDenied, ObjectConflict, ObjectNotFound
from shiplap.flows.lifecycle.pod_placement import FIRST_PODS, LOOK_S, MOST_WITHDRAWN, placeable
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import parse_resources
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap_lab.api_server.server import ListOptions
from tests.builders.claims import node_claim, references
from tests.builders.nodes import node as any_node
from tests.builders.pods import pod as any_pod
from tests.integration.flows.stage import FLEX_FIRST, Stage, share


def planned(placement: str, **options: Any) -> Stage:
    """Three pods wait for the node that was launched for them."""
    stage = Stage(FLEX_FIRST, **options)
    stage.settings = msgspec.structs.replace(stage.settings, placement=placement)
    stage.add_pods(3, cpu="500m", memory="500Mi")
    assert len(stage.schedule().launched) == 1
    stage.join()
    return stage


def field_of_pods(stage: Stage, *path: str) -> list[str]:
    """One field of every pod, by name; empty where it is not set."""
    found = []
    for item in sorted(stage.server.list("pods").items, key=lambda pod: pod["metadata"]["name"]):
        value: Any = item
        for key in path:
            value = value.get(key, "")
        found.append(value)
    return found


def test_pods_are_nominated_before_the_node_is_opened() -> None:
    stage = planned("nominate")
    stage.faults.clear()
    stage.attend()
    (claim,) = stage.claims()
    assert field_of_pods(stage, "status", "nominatedNodeName") == [claim.node_name] * 3
    assert field_of_pods(stage, "spec", "nodeName") == [""] * 3
    points = [point for point in stage.faults.points if point.startswith("after ")]
    assert points.index("after cluster.nominate") < points.index("after cluster.patch_node")
    assert (stage.meter.counts["NodesRegistered"], stage.meter.counts["PodsNominated"]) == (1, 3)
    assert reads_of_pods(stage) == ["after cluster.pending_pods", "after cluster.pods_on"]
    assert stage.schedule().launched == ()  # they count as served
    stage.add_pods(1, cpu="500m", memory="500Mi", prefix="late")
    assert stage.bind() == 3
    assert set(field_of_pods(stage, "spec", "nodeName")) == {"", claim.node_name}
    assert len(stage.schedule().launched) == 1


def reads_of_pods(stage: Stage) -> list[str]:
    reading = ("after cluster.pending_pod", "after cluster.pods_on")
    return [point for point in stage.faults.points if point.startswith(reading)]


def test_a_pod_that_has_gone_meanwhile_is_not_looked_for() -> None:
    stage = planned("nominate")
    stage.server.delete("pods", "web-001")
    stage.faults.clear()
    stage.attend()
    assert stage.meter.counts["PodsNominated"] == 2
    assert reads_of_pods(stage) == ["after cluster.pending_pods", "after cluster.pods_on"]


def test_in_a_crowd_pods_are_nominated_without_being_read() -> None:
    stage = planned("nominate")
    stage.add_pods(FIRST_PODS, cpu="500m", memory="500Mi", prefix="aaa")  # they come first in a list
    stage.server.delete("pods", "web-001")
    stage.add_pods(1, cpu="500m", memory="500Mi", prefix="other")
    stage.faults.clear()
    stage.attend()
    nominated = stage.server.list("pods", ListOptions(field_selector="status.nominatedNodeName!=")).items
    assert [item["metadata"]["name"] for item in nominated] == ["web-000", "web-002"]
    assert reads_of_pods(stage) == ["after cluster.pending_pods"]


@pytest.mark.parametrize(("placement", "steered"), [("nominate", "PodsNominated"), ("bind", "PodsBound")])
def test_in_a_crowd_pods_are_read_one_by_one_where_it_must_be_known_what_they_need(
    placement: str, steered: str
) -> None:
    """Before they are bound, and where the node is smaller than planned."""
    stage = planned(placement, **({"true_memory": share(0.45)} if placement == "nominate" else {}))
    stage.add_pods(FIRST_PODS, cpu="500m", memory="500Mi", prefix="aaa")
    stage.faults.clear()
    stage.attend()
    assert 0 < stage.meter.counts[steered] <= 3
    reads = reads_of_pods(stage)
    assert reads[0] == "after cluster.pending_pods"
    assert reads[1:5] == ["after cluster.pending_pod"] * 3 + ["after cluster.pods_on"]


def test_a_pod_that_got_a_node_in_a_crowd_does_not_keep_the_others_from_being_nominated() -> None:
    stage = planned("nominate")
    stage.add_pods(FIRST_PODS, cpu="500m", memory="500Mi", prefix="aaa")
    stage.server.bind("web-000", "elsewhere")
    stage.attend()
    assert stage.meter.counts["PodsNominated"] == 2
    assert "PodsNotSteered" not in stage.meter.counts


def test_a_pod_that_was_made_anew_is_not_the_one_that_was_planned() -> None:
    stage = planned("nominate")
    stage.add_pods(FIRST_PODS, cpu="500m", memory="500Mi", prefix="aaa")
    stage.server.delete("pods", "web-001")
    stage.server.create("pods", {"metadata": {"name": "web-001"}, "spec": {"containers": [{"name": "main"}]}})
    stage.attend()
    assert stage.meter.counts["PodsNominated"] == 2


def test_pods_are_bound_once_their_node_is_complete() -> None:
    stage = planned("bind")
    stage.attend()
    (claim,) = stage.claims()
    assert claim.state == "Initialized"
    assert field_of_pods(stage, "spec", "nodeName") == [claim.node_name] * 3
    assert stage.meter.counts["PodsBound"] == 3


def test_pods_are_not_bound_while_the_node_is_not_ready() -> None:
    stage = Stage()
    stage.settings = msgspec.structs.replace(stage.settings, placement="bind")
    stage.add_pods(1)
    stage.schedule()
    stage.join(ready=False)
    stage.attend()
    (claim,) = stage.claims()
    assert (claim.state, field_of_pods(stage, "spec", "nodeName")) == ("Registered", [""])
    assert field_of_pods(stage, "status", "nominatedNodeName") == [claim.node_name]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    stage.server.patch("nodes", claim.node_name, ready, subresource="status")
    stage.attend()
    assert field_of_pods(stage, "spec", "nodeName") == [claim.node_name]


def test_pods_are_bound_only_where_kube_scheduler_keeps_their_room() -> None:
    """It gives the room of a pod that is not nominated to any other."""
    stage = planned("bind")
    stage.faults.on("before", "cluster.nominate", ClusterDenied("no permission", status=403))
    stage.faults.on("before", "cluster.nominate", ClusterDenied("no permission", status=403), nth=2)
    stage.attend()
    assert field_of_pods(stage, "status", "nominatedNodeName") == field_of_pods(stage, "spec", "nodeName") == [""] * 3
    assert stage.meter.counts["PodsNotSteered"] == 2

    stage = planned("bind")
    stage.faults.on("before", "cluster.nominate", ClusterDenied("no permission", status=403), nth=2)
    stage.attend()
    (claim,) = stage.claims()
    calls = [point.partition(" ")[2] for point in stage.faults.points if point.startswith("before cluster.")]
    last = calls.index("cluster.bind")
    assert calls[last - 3 : last] == ["cluster.nominate", "cluster.nominate", "cluster.pods_on"]
    assert field_of_pods(stage, "spec", "nodeName") == [claim.node_name] * 3


@pytest.mark.parametrize(("seconds", "bound"), [(LOOK_S, 3), (LOOK_S + 0.1, 1)])
def test_a_look_at_a_node_counts_for_seconds_while_pods_are_bound_to_it(seconds: float, bound: int) -> None:
    """Pods of a higher priority take room that is kept for others. The second node is only as slow, and gets all."""
    stage = planned("bind")

    def others_come() -> None:
        (claim,) = stage.claims()
        stage.add_pods(2, cpu="700m", memory="500Mi", prefix="high")
        for name in ("high-000", "high-001"):
            stage.server.bind(name, claim.node_name)
        stage.clock.advance(seconds)

    stage.faults.on("after", "cluster.bind", others_come)
    stage.attend()
    assert stage.meter.counts["PodsBound"] == bound
    neighbour = planned("bind", beside=stage)
    neighbour.faults.on("after", "cluster.bind", lambda: neighbour.clock.advance(seconds))
    neighbour.attend()
    assert neighbour.meter.counts["PodsBound"] == 3


def test_pods_can_be_left_to_kube_scheduler() -> None:
    stage = planned("none")
    stage.attend()
    assert field_of_pods(stage, "status", "nominatedNodeName") == [""] * 3
    assert "cluster.pending_pods" not in {point.partition(" ")[2] for point in stage.faults.points}


def test_a_pod_that_found_a_place_meanwhile_is_left_there() -> None:
    stage = planned("bind")
    stage.server.create("nodes", {"metadata": {"name": "other"}})
    stage.faults.on("before", "cluster.bind", lambda: stage.server.bind("web-000", "other", "default"))
    stage.attend()
    (claim,) = stage.claims()
    assert field_of_pods(stage, "spec", "nodeName") == ["other", claim.node_name, claim.node_name]


@pytest.mark.parametrize("error", [ObjectConflict("recreated", status=409), ObjectNotFound("deleted", status=404)])
def test_refusals_do_not_hold_up_the_node(error: Exception) -> None:
    stage = planned("nominate")
    stage.faults.on("before", "cluster.nominate", error)
    stage.faults.on("before", "cluster.nominate", ClusterDenied("no permission", status=403), nth=2)
    stage.attend()
    (claim,) = stage.claims()
    assert claim.state == "Initialized"
    assert (stage.meter.counts["PodsNotSteered"], stage.meter.counts.get("PodsNominated", 0)) == (1, 0)


def test_a_node_that_is_too_small_is_given_only_what_fits() -> None:
    stage = planned("nominate", true_memory=share(0.45))
    stage.attend()
    (claim,) = stage.claims()
    assert claim.missed
    nominated = [node for node in field_of_pods(stage, "status", "nominatedNodeName") if node]
    (node,) = (item for item in stage.server.list("nodes").items if item["metadata"]["name"] == claim.node_name)
    room = parse_resources(node["status"]["allocatable"])["memory"] // (500 * 2**20)
    assert len(nominated) <= room < 3


def test_a_nomination_that_comes_to_nothing_is_withdrawn_and_the_pods_are_planned_for_again() -> None:
    stage = planned("nominate")
    stage.attend()
    (claim,) = stage.claims()
    taint = {"key": "neighbour.example.com/mine", "effect": "NoSchedule"}
    stage.server.patch("nodes", claim.node_name, {"spec": {"taints": [taint]}})
    stage.clock.advance(30)
    assert stage.sweep().launched == ()
    stage.clock.advance(30)
    stage.sweep()
    assert set(field_of_pods(stage, "status", "nominatedNodeName")) == {""}
    assert stage.meter.counts["NominationsWithdrawn"] == 3
    stage.clock.advance(60)
    assert len(stage.sweep().launched) == 1


def test_of_very_many_nominations_the_oldest_are_withdrawn_first() -> None:
    """kube-scheduler may not have come to the others yet."""
    stage = Stage(FLEX_FIRST)
    stage.add_pods(20, cpu="10m", memory="10Mi", prefix="zzz")
    stage.schedule()
    stage.join()
    stage.attend()
    stage.clock.advance(1)
    stage.add_pods(MOST_WITHDRAWN, cpu="10m", memory="10Mi")
    stage.schedule()
    stage.join()
    stage.attend()
    nominated = stage.meter.counts["PodsNominated"]
    assert nominated > MOST_WITHDRAWN
    stage.clock.advance(60)
    stage.sweep()
    left = stage.server.list("pods", ListOptions(field_selector="status.nominatedNodeName!=")).items
    assert stage.meter.counts["NominationsWithdrawn"] == MOST_WITHDRAWN
    assert len(left) == nominated - MOST_WITHDRAWN
    assert {item["metadata"]["name"][:3] for item in left} == {"web"}
    stage.clock.advance(60)
    stage.sweep()
    assert stage.meter.counts["NominationsWithdrawn"] == nominated


def test_a_nomination_is_kept_while_pods_end_on_the_node() -> None:
    stage = planned("nominate")
    stage.attend()
    (claim,) = stage.claims()
    leaving = {"metadata": {"name": "victim", "deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["a/b"]}}
    stage.server.create("pods", {**leaving, "spec": {"nodeName": claim.node_name}})
    stage.clock.advance(120)
    stage.sweep()
    assert field_of_pods(stage, "status", "nominatedNodeName").count(claim.node_name) == 3


@pytest.mark.parametrize("error", [ObjectConflict("recreated", status=409), ObjectNotFound("deleted", status=404)])
def test_refusals_to_withdraw_hold_up_no_sweep(error: Exception) -> None:
    stage = planned("nominate")
    stage.attend()
    stage.clock.advance(120)
    stage.faults.on("before", "cluster.nominate", error)
    stage.faults.on("before", "cluster.nominate", ClusterDenied("no permission", status=403), nth=2)
    stage.sweep()
    assert (stage.meter.counts["PodsNotSteered"], stage.meter.counts.get("SweepsIncomplete", 0)) == (1, 0)


pod = partial(any_pod, cpu="1")
node = partial(any_node, "n1", memory="8Gi", pods="10", labels={"disk": "ssd"})


def claim_of(*names: str, cpu_milli: int) -> NodeClaim:
    requests = {"cpu": cpu_milli, "pods": len(names)}
    return node_claim(
        cluster="demo", name="c", node_pool="p", node_class="d", pods=references(*names), requests=requests
    )


def placed(
    claim: NodeClaim, waiting: list[Pod], here: list[Pod], *, binding: bool = True, on: Node | None = None
) -> list[str]:
    return [item.metadata.name for item in placeable(claim, on or node(), waiting, here, binding=binding)]


def test_room_is_kept_for_daemons_that_are_still_to_come() -> None:
    waiting = [pod("a"), pod("b"), pod("c")]
    claim = claim_of("a", "b", "c", cpu_milli=4000)  # one core of it for daemons
    assert placed(claim, waiting, []) == ["a", "b", "c"]
    stranger = pod("stranger")
    assert placed(claim, waiting, [stranger]) == ["a", "b"]
    assert placed(claim, waiting, [pod("daemon", owner="d")]) == ["a", "b", "c"]


def test_a_pod_that_is_on_its_node_already_is_placed_there_once() -> None:
    """kube-scheduler has bound it between the two reads: its room is no room that daemons have left."""
    waiting = [pod("a"), pod("b"), pod("c")]
    assert placed(claim_of("a", "b", "c", cpu_milli=4000), waiting, [pod("a")]) == ["b", "c"]
    assert placed(claim_of("a", "b", "c", cpu_milli=4000), waiting, [pod("a"), pod("stranger")]) == ["b"]


def test_the_most_important_pods_come_first() -> None:
    waiting = [pod("a", cpu="3"), pod("b", cpu="3", priority=100)]
    assert placed(claim_of("a", "b", cpu_milli=0), waiting, []) == ["b"]
    equals = [pod("b", cpu="3"), pod("a", cpu="3")]
    assert placed(claim_of("a", "b", cpu_milli=0), equals, []) == ["a"]


def test_what_a_node_does_not_have_no_pod_gets() -> None:
    waiting = [pod("a", requests={"example.com/device": "1"}), pod("b")]
    assert placed(claim_of("a", "b", cpu_milli=0), waiting, []) == ["b"]


TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
        {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
        {"topologySpreadConstraints": [SPREAD]},
        {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
        {"schedulerName": "volcano"},
        {"schedulingGates": [{"name": "wait"}]},
        {"hostNetwork": True},
        {"nodeSelector": {"disk": "hdd"}},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_what_only_kube_scheduler_can_check_is_nominated_and_not_bound(spec: dict[str, Any]) -> None:
    claim = claim_of("a", cpu_milli=1000)
    assert placed(claim, [pod("a", spec=spec)], []) == []
    assert placed(claim, [pod("a", spec=spec)], [], binding=False) == ["a"]


def test_soft_wishes_do_not_stand_in_the_way() -> None:
    spread = {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}
    item = pod("a", spec={"topologySpreadConstraints": [spread]}, selector={"disk": "ssd"})
    assert placed(claim_of("a", cpu_milli=1000), [item], []) == ["a"]
    avoided = node(taints=[{"key": "team", "value": "other", "effect": "PreferNoSchedule"}])
    assert placed(claim_of("a", cpu_milli=1000), [pod("a")], [], on=avoided) == ["a"]


def test_nothing_is_bound_to_a_node_that_takes_no_pods() -> None:
    claim = claim_of("a", cpu_milli=1000)
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert placed(claim, [pod("a")], [], on=node(taints=[taint])) == []
    assert placed(claim, [pod("a")], [], on=node(cordoned=True)) == []
    tolerant = pod("a", tolerations=[{"operator": "Exists"}])
    assert placed(claim, [tolerant], [], on=node(taints=[taint])) == ["a"]
