"""The state that the simulated cluster keeps from one look to the next is the state that a new look would find."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap_lab.api_server.server import ListOptions
from shiplap_lab.cluster_simulator.informer import Informer
from shiplap_lab.cluster_simulator.kube_scheduler import NodeInfo, PodInfo, Scheduler, choose
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object
from tests.thoroughness import draws

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
TAINTS = ([], [{"key": "closed", "effect": "NoSchedule"}], [{"key": "old", "effect": "PreferNoSchedule"}])
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), NAMES, st.sampled_from(["1", "2", "500m"]), st.booleans()),
        st.tuples(st.just("node"), NAMES, st.sampled_from(["2", "4"]), st.sampled_from(TAINTS)),
        st.tuples(st.just("drop pod"), NAMES),
        st.tuples(st.just("drop node"), NAMES),
        st.tuples(st.just("open"), NAMES),
        st.tuples(st.just("nominate"), NAMES, NAMES),
        st.tuples(st.just("finish"), NAMES),
        st.tuples(st.just("bind"), NAMES, NAMES),
        st.tuples(st.just("step")),
        st.tuples(st.just("compact")),
    ),
    max_size=40,
)


class Forgetful(Scheduler):
    """Looks at every node for every pod."""

    def _choose(self, needs: PodInfo) -> tuple[NodeInfo | None, str]:
        return choose(needs, self._nodes)


NEAR_C = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["c"]}]}
WISH = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": NEAR_C}]}
PREFERS = {"affinity": {"nodeAffinity": WISH}}


def do(server: ApiServer, deed: tuple[Any, ...]) -> None:
    try:
        match deed:
            case ("pod", name, cpu, prefers):
                server.create("pods", pod_object(name, cpu, "1Gi", **(PREFERS if prefers else {})))
            case ("node", name, cpu, taints):
                server.create(
                    "nodes", node_object(name, cpu, "8Gi", "5", labels={"kubernetes.io/hostname": name}, taints=taints)
                )
            case ("drop pod", name):
                server.delete("pods", name, grace_s=0)
            case ("drop node", name):
                server.delete("nodes", name)
            case ("open", name):
                server.patch("nodes", name, {"spec": {"taints": []}})
            case ("nominate", name, where):
                server.patch("pods", name, {"status": {"nominatedNodeName": where}}, subresource="status")
            case ("finish", name):
                server.patch("pods", name, {"status": {"phase": "Succeeded"}}, subresource="status")
            case ("bind", name, where):
                server.bind(name, where)
            case ("compact",):
                server.compact()
    except (ObjectConflict, ObjectNotFound):
        pass  # what happens to nobody changes nothing


def seen(server: ApiServer) -> list[tuple[str, str, str]]:
    """Pods, where they are and what is said of them."""
    return [
        (item["metadata"]["name"], item["spec"].get("nodeName", ""), str(item["status"].get("conditions")))
        for item in server.list("pods").items
    ]


@settings(max_examples=draws(150), deadline=None)
@given(DEEDS)
def test_a_scheduler_that_remembers_does_what_one_that_looks_anew_does(deeds: list[tuple[Any, ...]]) -> None:
    one, other = ApiServer(FakeClock()), ApiServer(FakeClock())
    remembers = Scheduler(one)
    for deed in [*deeds, ("step",)]:
        do(one, deed)
        do(other, deed)
        if deed[0] == "step":
            remembers.step(0.0)
            Forgetful(other).step(0.0)
            assert seen(one) == seen(other)


@settings(max_examples=draws(100), deadline=None)
@given(DEEDS)
def test_lists_that_are_kept_are_what_a_new_client_sees(deeds: list[tuple[Any, ...]]) -> None:
    server = ApiServer(FakeClock())
    scheduler, fake = Scheduler(server), FakeCluster(server)
    known: dict[tuple[str, str], object] = {}
    informer = Informer(server, lambda kind, key, _, now: known.__setitem__((kind, key), now))
    for deed in deeds:
        do(server, deed)
        if deed[0] == "step":
            scheduler.step(0.0)
        assert fake.view() == FakeCluster(server).view()
        informer.refresh()
        told = {key: now for key, now in known.items() if now is not None}
        assert told == {("pods", key): item for key, item in informer.pods.items()} | {
            ("nodes", key): item for key, item in informer.nodes.items()
        }


@settings(max_examples=draws(100), deadline=None)
@given(DEEDS, st.sampled_from(["", "a", "c"]))
def test_pods_of_a_node_are_found_without_looking_at_the_others(deeds: list[tuple[Any, ...]], name: str) -> None:
    server = ApiServer(FakeClock())
    for deed in deeds:
        do(server, deed)
    chosen = server.list("pods", ListOptions(field_selector=f"spec.nodeName={name}")).items
    assert chosen == [item for item in server.list("pods").items if item["spec"].get("nodeName", "") == name]


def test_a_scheduler_with_a_pace_tries_so_many_and_those_that_nothing_fits_once() -> None:
    server = ApiServer(FakeClock())
    for name in ("a", "b", "c"):
        server.create("pods", pod_object(name, "2", "1Gi"))
    scheduler = Scheduler(server, most=2)
    assert scheduler.step(0.0) == 0
    assert [bool(conditions != "None") for _, _, conditions in seen(server)] == [True, True, False]
    assert scheduler.step(2.0) == 0
    marked = seen(server)
    assert all(conditions != "None" for _, _, conditions in marked)
    server.create("nodes", node_object("n", "1", "8Gi", "5", labels={"kubernetes.io/hostname": "n"}, taints=[]))
    assert scheduler.step(4.0) == 0
    assert seen(server) == marked
    server.create("nodes", node_object("m", "4", "8Gi", "5", labels={"kubernetes.io/hostname": "m"}, taints=[]))
    assert scheduler.step(6.0) == 2
    assert scheduler.step(8.0) == 0
    assert [where for _, where, _ in seen(server)] == ["m", "m", ""]
