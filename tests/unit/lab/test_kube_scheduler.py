"""The simulated kube-scheduler: filters, scores, order and words."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from shiplap.kubernetes.objects import Node, Pod
from shiplap_lab.cluster_simulator.kube_scheduler import (
    NodeInfo,
    PodInfo,
    Scheduler,
    balanced_allocation,
    best,
    least_allocated,
    refusals,
)
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object

pod = partial(pod_object, cpu="1", memory="1Gi")


def why(pod_json: dict, node_json: dict, *others: dict) -> list[str]:
    state = NodeInfo.of(msgspec.convert(node_json, Node))
    for other in others:
        state.add(PodInfo.of(msgspec.convert(other, Pod)))
    return refusals(PodInfo.of(msgspec.convert(pod_json, Pod)), state)


def affinity(*terms: dict) -> dict:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


def expression(key: str, operator: str, *values: str) -> dict:
    return {"key": key, "operator": operator, "values": list(values)}


class TestFilters:
    def test_a_pod_that_fits_is_not_refused(self) -> None:
        assert why(pod("p", cpu="4", memory="8Gi"), node_object("n1", "4", "8Gi", "10")) == []

    def test_every_short_resource_is_named(self) -> None:
        assert why(
            pod("p", cpu="2", memory="6Gi"), node_object("n1", "4", "8Gi", "1"), pod("p", cpu="3", memory="3Gi")
        ) == [
            "Insufficient cpu",
            "Insufficient memory",
            "Too many pods",
        ]
        gpu = pod("p")
        gpu["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
        assert why(gpu, node_object("n1", "4", "8Gi", "10")) == ["Insufficient nvidia.com/gpu"]

    def test_taints_keep_pods_away_unless_tolerated_or_mere_preferences(self) -> None:
        tainted = node_object("n1", "4", "8Gi", "10", taints=[{"key": "team", "value": "db", "effect": "NoSchedule"}])
        assert why(pod("p"), tainted) == ["node(s) had untolerated taint {team: db}"]
        assert why(pod("p", tolerations=[{"key": "team", "operator": "Exists"}]), tainted) == []
        assert (
            why(pod("p"), node_object("n1", "4", "8Gi", "10", taints=[{"key": "team", "effect": "PreferNoSchedule"}]))
            == []
        )

    @pytest.mark.parametrize(
        ("toleration", "reasons"),
        [
            (None, ["node(s) were unschedulable"]),
            ({"key": "other", "operator": "Exists"}, ["node(s) were unschedulable"]),
            ({"operator": "Exists"}, []),
            ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}, []),
        ],
    )
    def test_cordoned_nodes_take_only_pods_that_tolerate_it(
        self, toleration: dict[str, str] | None, reasons: list[str]
    ) -> None:
        needs = pod("p") if toleration is None else pod("p", tolerations=[toleration])
        assert why(needs, node_object("n1", "4", "8Gi", "10", unschedulable=True)) == reasons

    @pytest.mark.parametrize(
        ("expressions", "allowed"),
        [
            ([expression("zone", "In", "a", "b")], True),
            ([expression("zone", "In", "b")], False),
            ([expression("zone", "NotIn", "b")], True),
            ([expression("zone", "NotIn", "a")], False),
            ([expression("missing", "NotIn", "a")], True),
            ([expression("zone", "Exists")], True),
            ([expression("missing", "Exists")], False),
            ([expression("missing", "DoesNotExist")], True),
            ([expression("zone", "DoesNotExist")], False),
            ([expression("cores", "Gt", "7")], True),
            ([expression("cores", "Gt", "8")], False),
            ([expression("cores", "Lt", "9")], True),
            ([expression("zone", "Lt", "9")], False),
            ([expression("missing", "Gt", "1")], False),
            ([expression("zone", "Invented", "a")], False),
            ([expression("zone", "In", "a"), expression("cores", "Gt", "9")], False),
            ([], False),
        ],
    )
    def test_node_affinity(self, expressions: list[dict], allowed: bool) -> None:
        target = node_object("n1", "4", "8Gi", "10", labels={"zone": "a", "cores": "8"})
        refused = ["node(s) didn't match Pod's node affinity/selector"]
        term = {"matchExpressions": expressions}
        assert why(pod("p", affinity=affinity(term)), target) == ([] if allowed else refused)
        other = {"matchExpressions": [expression("zone", "In", "a")]}
        assert why(pod("p", affinity=affinity(term, other)), target) == []
        assert why(pod("p", nodeSelector={"zone": "b"}, affinity=affinity(other)), target) == refused

    def test_affinity_to_a_node_by_name(self) -> None:
        term = {"matchFields": [expression("metadata.name", "In", "n1")]}
        assert why(pod("p", affinity=affinity(term)), node_object("n1", "4", "8Gi", "10")) == []
        assert why(pod("p", affinity=affinity(term)), node_object("n2", "4", "8Gi", "10")) != []

    def test_host_ports_collide_by_protocol_port_and_address(self) -> None:
        def with_port(**port: object) -> dict:
            return pod("p", cpu="100m", containers=[{"name": "main", "ports": [{"containerPort": 80, **port}]}])

        refused = ["node(s) didn't have free ports for the requested pod ports"]
        taken = with_port(hostPort=8080, hostIP="10.0.0.1")
        assert why(with_port(hostPort=8080), node_object("n1", "4", "8Gi", "10"), taken) == refused
        assert why(with_port(hostPort=8080, hostIP="10.0.0.1"), node_object("n1", "4", "8Gi", "10"), taken) == refused
        assert why(with_port(hostPort=8080, hostIP="10.0.0.2"), node_object("n1", "4", "8Gi", "10"), taken) == []
        assert why(with_port(hostPort=8080, protocol="UDP"), node_object("n1", "4", "8Gi", "10"), taken) == []
        assert why(with_port(), node_object("n1", "4", "8Gi", "10"), with_port()) == []
        on_host = {**with_port(), "spec": {**with_port()["spec"], "hostNetwork": True}}
        assert why(on_host, node_object("n1", "4", "8Gi", "10"), on_host) == refused


class TestScores:
    def test_the_emptier_and_the_more_balanced_node_score_higher(self) -> None:
        needs = PodInfo.of(msgspec.convert(pod("p", cpu="1", memory="2Gi"), Pod))
        empty = NodeInfo.of(msgspec.convert(node_object("n1", "4", "8Gi", "10"), Node))
        assert least_allocated(needs, empty) == 75
        assert balanced_allocation(needs, empty) == 100
        lopsided = NodeInfo.of(msgspec.convert(node_object("n1", "4", "64Gi", "10"), Node))
        assert balanced_allocation(needs, lopsided) == 89
        full = NodeInfo.of(msgspec.convert(node_object("n1", "4", "8Gi", "10"), Node))
        full.add(needs)
        assert least_allocated(needs, full) == 50

    def test_a_pod_without_requests_counts_with_a_default(self) -> None:
        needs = PodInfo.of(msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, Pod))
        assert needs.scored == {"cpu": 100, "memory": 200 * 2**20}
        assert needs.requests == {"pods": 1}

    def test_equal_scores_are_decided_by_name(self) -> None:
        needs = PodInfo.of(msgspec.convert(pod("p"), Pod))
        states = [NodeInfo.of(msgspec.convert(node_object(name, "4", "8Gi", "10"), Node)) for name in ("b", "a", "c")]
        assert best(needs, states).node.metadata.name == "a"

    def test_preferences_weigh_in(self) -> None:
        preferred = {"weight": 10, "preference": {"matchExpressions": [expression("disk", "In", "ssd")]}}
        wants = pod("p", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}})
        states = [
            NodeInfo.of(msgspec.convert(node_object("a", "4", "8Gi", "10"), Node)),
            NodeInfo.of(msgspec.convert(node_object("b", "4", "8Gi", "10", labels={"disk": "ssd"}), Node)),
        ]
        assert best(PodInfo.of(msgspec.convert(wants, Pod)), states).node.metadata.name == "b"
        states = [
            NodeInfo.of(
                msgspec.convert(
                    node_object("a", "4", "8Gi", "10", taints=[{"key": "old", "effect": "PreferNoSchedule"}]), Node
                )
            ),
            NodeInfo.of(msgspec.convert(node_object("b", "4", "8Gi", "10"), Node)),
        ]
        assert best(PodInfo.of(msgspec.convert(pod("p"), Pod)), states).node.metadata.name == "b"


class TestScheduler:
    @pytest.fixture
    def server(self) -> ApiServer:
        return ApiServer(FakeClock())

    def placed(self, server: ApiServer) -> dict[str, str]:
        items = server.list("pods").items
        return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}

    def test_pods_spread_over_empty_nodes(self, server: ApiServer) -> None:
        for name in ("n1", "n2"):
            server.create("nodes", node_object(name, "4", "8Gi", "10"))
        for number in range(4):
            server.create("pods", pod(f"p{number}"))
        assert Scheduler(server).step(0.0) == 4
        assert self.placed(server) == {"p0": "n1", "p1": "n2", "p2": "n1", "p3": "n2"}

    def test_the_more_important_pod_comes_first(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "1", "8Gi", "10"))
        server.create("pods", pod("a"))
        server.create("pods", pod("z", priorityClassName="system-cluster-critical"))
        Scheduler(server).step(0.0)
        assert self.placed(server) == {"a": "", "z": "n1"}

    def test_reasons_are_counted_and_written_once(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "1", "8Gi", "10"))
        server.create(
            "nodes",
            node_object("n2", "4", "8Gi", "10", taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]),
        )
        for name in ("a", "b"):
            server.create("pods", pod(name, cpu="2"))
        scheduler = Scheduler(server)
        scheduler.step(0.0)
        untolerated = "1 node(s) had untolerated taint {karpenter.sh/unregistered: }"
        message = f"0/2 nodes are available: 1 Insufficient cpu, {untolerated}."
        for item in server.list("pods").items:
            (condition,) = item["status"]["conditions"]
            assert (condition["type"], condition["status"], condition["reason"]) == (
                "PodScheduled",
                "False",
                "Unschedulable",
            )
            assert condition["message"] == message
        assert [event["message"] for event in server.list("events").items] == [message] * 2
        version = server.resource_version
        scheduler.step(1.0)
        scheduler.step(2.0)
        assert server.resource_version == version

    def test_a_nominated_pod_gets_its_node_and_the_room_is_kept_for_it(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "2", "8Gi", "10"))
        server.create("nodes", node_object("n2", "16", "8Gi", "10"))
        server.create("pods", pod("a", cpu="2"))
        server.create("pods", pod("nominated", cpu="2"))
        server.patch("pods", "nominated", {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        Scheduler(server).step(0.0)
        assert self.placed(server) == {"a": "n2", "nominated": "n1"}

    def test_a_nomination_to_a_node_that_does_not_fit_is_not_binding(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "1", "8Gi", "10"))
        server.create("nodes", node_object("n2", "4", "8Gi", "10"))
        server.create("pods", pod("p", cpu="2"))
        server.patch("pods", "p", {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        Scheduler(server).step(0.0)
        assert self.placed(server) == {"p": "n2"}

    def test_pods_of_others_gated_and_ending_pods_are_left_alone(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "4", "8Gi", "10"))
        server.create("pods", pod("other", schedulerName="mine"))
        server.create("pods", pod("gated", schedulingGates=[{"name": "wait"}]))
        ending = pod("ending")
        ending["metadata"]["finalizers"] = ["example.com/hold"]
        server.create("pods", ending)
        server.delete("pods", "ending")
        Scheduler(server).step(0.0)
        assert set(self.placed(server).values()) == {""}
        gated = server.get("pods", "gated")["status"]["conditions"][0]
        assert gated["reason"] == "SchedulingGated"

    def test_finished_pods_hold_nothing(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "1", "8Gi", "10"))
        server.create("pods", pod("done"))
        scheduler = Scheduler(server)
        scheduler.step(0.0)
        server.create("pods", pod("next"))
        scheduler.step(1.0)
        assert self.placed(server)["next"] == ""
        server.patch("pods", "done", {"status": {"phase": "Succeeded"}}, subresource="status")
        scheduler.step(2.0)
        assert self.placed(server)["next"] == "n1"

    def test_a_pod_deleted_under_the_schedulers_eyes_is_no_error(self, server: ApiServer) -> None:
        server.create("nodes", node_object("n1", "1", "8Gi", "10"))
        for name in ("fits", "too-big"):
            server.create("pods", pod(name, cpu="1" if name == "fits" else "9"))
        scheduler = Scheduler(server)
        bind, patch = server.bind, server.patch

        def late_bind(name: str, *rest: str) -> object:
            server.delete("pods", name)
            return bind(name, *rest)

        def late_patch(plural: str, name: str, *rest: object, **named: object) -> object:
            server.delete("pods", name)
            return patch(plural, name, *rest, **named)

        server.bind = late_bind  # type: ignore[method-assign, assignment]
        server.patch = late_patch  # type: ignore[method-assign, assignment]
        assert scheduler.step(0.0) == 0
        assert self.placed(server) == {}

    def test_it_goes_on_after_the_log_was_compacted(self, server: ApiServer) -> None:
        scheduler = Scheduler(server)
        scheduler.step(0.0)
        server.create("nodes", node_object("n1", "4", "8Gi", "10"))
        server.create("pods", pod("p"))
        server.compact()
        assert scheduler.step(1.0) == 1
