"""A view is asked once; whoever looks at it again hears what was found, and never what was found about another."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import Node
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.pods import pod_on as pod

asked: list[int] = []


def number(view: ClusterView) -> int:
    asked.append(len(view.pods))
    return len(view.pods)


def named(view: ClusterView) -> str:
    asked.append(-1)
    return view.version


def test_a_question_is_asked_once_of_a_view_and_anew_of_another() -> None:
    asked.clear()
    view = ClusterView(pods=(pod("a"), pod("b")), version="1")
    assert [view.of_pods(number), view.of_pods(number)] == [2, 2]
    assert [view.once(named), view.once(named)] == ["1", "1"]
    assert asked == [2, -1]
    other = replace(view, pods=(pod("a"),), version="2")
    assert (other.of_pods(number), other.once(named)) == (1, "2")
    assert asked == [2, -1, 1, -1]


def test_beside_other_objects_pods_are_still_known_and_the_view_is_not() -> None:
    asked.clear()
    view = ClusterView(pods=(pod("a"),), version="1")
    beside = view.beside(nodes=(Node(),), version="2")
    assert (beside.pods, len(beside.nodes)) == (view.pods, 1)
    assert [view.of_pods(number), beside.of_pods(number)] == [1, 1]
    assert [view.once(named), beside.once(named)] == ["1", "2"]
    assert asked == [1, -1, -1]


def test_pods_are_known_by_their_nodes() -> None:
    pods = (pod("a", "n"), pod("b"), pod("c", "m"), pod("d", "n"))
    view = ClusterView(pods=pods)
    assert view.unbound == (pods[1],)
    assert view.by_node == {"n": [pods[0], pods[3]], "m": [pods[2]]}


def test_what_was_found_is_no_part_of_a_view() -> None:
    fresh, known = ClusterView(pods=(pod("a"),)), ClusterView(pods=(pod("a"),))
    known.of_pods(number)
    assert known == fresh
    assert msgspec.msgpack.encode(known) == msgspec.msgpack.encode(fresh)


def test_a_cluster_in_which_nothing_changes_is_the_same_view_again() -> None:
    server = ApiServer(FakeClock())
    server.create("nodes", {"metadata": {"name": "n"}})
    server.create("pods", {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "main"}]}})
    cluster = FakeCluster(server)
    first = cluster.view()
    assert cluster.view() is first
    server.bind("a", "n")
    second = cluster.view()
    assert ([item.spec.node_name for item in second.pods], second.version) == (["n"], server.resource_version)
    assert [item.spec.node_name for item in first.pods] == [""]
    assert cluster.view({"n"}) is not second
