"""One invocation for many clusters: one that hangs delays no other, one at rest costs a request, none is forgotten."""

from __future__ import annotations

import importlib.util
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event, current_thread
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.cluster import transport
from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.connect import ApiEndpoint, connect
from shiplap.errors import ClustersNotServed, StoreError
from shiplap.flows import turns
from shiplap.flows.disrupt import entry as disrupt_entry
from shiplap.flows.messages import Sweep, decode
from shiplap.flows.watch.watch import watch_all
from shiplap.ports import BusEvent
from shiplap.settings import ClusterSettings
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeBus, FakeClock
from tests.builders.pods import pod_object
from tests.integration.flows.shared_install import Clusters, Context, SharedInstall, launched, pending, records
from tests.integration.flows.stage import Stage

FUNCTIONS = Path(__file__).parents[3] / "functions"
TEST_S = 60.0
"""How long a thread waits at most for what the test is about to see."""
SWEEP = '{"kind": "sweep"}'


Load = Callable[[str, Clusters], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, own_logger: None) -> Load:
    """Import a function's handler and give it clusters to serve."""

    def loaded(name: str, clusters: Clusters) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"handler_of_{name}", FUNCTIONS / name / "handler.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        install = SharedInstall(name, clusters)
        monkeypatch.setattr(module, "install", lambda: install)
        return module

    return loaded


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that accepts connections and never answers; times are cut to fit."""
    monkeypatch.setattr(turns, "PROBE_S", 0.3)
    monkeypatch.setattr(turns, "GATHER_S", 0.2)
    monkeypatch.setattr(transport, "_READ_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def client(endpoint: str) -> KubernetesClient:
    def unused(_: str) -> ApiEndpoint:
        raise AssertionError("the settings name the endpoint")

    settings = ClusterSettings(name="c", region="eu-west-1", endpoint=endpoint, token="secret")
    return connect(
        settings, describe_cluster=unused, credentials=lambda: None, clock=FakeClock(), sleep=time.sleep, back_off_s=()
    )


def unschedulable(stage: Stage) -> None:
    """A pod that kube-scheduler has found no node for."""
    stage.server.create("pods", pod_object("p", waits=True))


@pytest.mark.parametrize("bodies", [[SWEEP], [pending("a-hangs"), pending("b"), pending("c")]])
def test_an_api_server_that_never_answers_keeps_no_other_cluster_from_its_nodes(
    load: Load, hanging: str, bodies: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = Clusters("a-hangs", "b", "c")
    clusters.put("a-hangs", client(hanging))
    for name in ("b", "c"):
        clusters.stages[name].add_pods(1)
    answer = load("schedule", clusters).handle(records(*bodies), Context())
    assert launched(clusters) == {"a-hangs": 0, "b": 1, "c": 1}
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    said = [json.loads(line).get("message", "") for line in capsys.readouterr().out.splitlines()]
    assert said.index("launched") < next(n for n, line in enumerate(said) if line.startswith("not done: "))


def test_a_cluster_whose_turn_does_not_come_is_handed_on_and_not_forgotten(load: Load) -> None:
    clusters = Clusters("a", "b")
    at = clusters.first.clock.now()
    body = json.dumps({"kind": "sweep", "time": "2023-11-14T22:13:20Z"})
    for stage in clusters.stages.values():
        stage.add_pods(1)
    answer = load("schedule", clusters).handle(records(body), Context(34.0))
    assert launched(clusters) == {"a": 1, "b": 0}
    assert answer == {"batchItemFailures": []}
    (hint,) = clusters.stages["b"].bus.of_type("PodPending")
    again = json.dumps({"detail-type": hint.detail_type, "detail": hint.detail})
    assert decode(again, "queue") == Sweep("b", 1_700_000_000.0)
    assert clusters.first.clock.now() == at
    load("schedule", clusters).handle(records(again), Context())
    assert launched(clusters) == {"a": 1, "b": 1}


def test_where_it_cannot_be_handed_on_its_messages_stay(load: Load) -> None:
    clusters = Clusters("a", "b")
    for stage in clusters.stages.values():
        stage.add_pods(1)
    clusters.first.faults.on("before", "bus.publish", StoreError("the bus is gone"), nth=2)
    answer = load("schedule", clusters).handle(records(pending("a"), pending("b")), Context(34.0))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m1"}]}


def test_a_hundred_clusters_at_rest_cost_a_request_a_minute_each_and_a_sweep_now_and_then(load: Load) -> None:
    names = [f"c{number:03}" for number in range(100)]
    clusters = Clusters(*names)
    with KubeHttpServer(ApiServer(FakeClock())) as server:
        for name in names:
            clusters.put(name, client(server.endpoint))
        schedule, disrupt = load("schedule", clusters), load("disrupt", clusters)

        def requests(handler: ModuleType, event: Mapping[str, Any]) -> float:
            before = sum(server.seen.values())
            handler.handle(event, Context())
            return (sum(server.seen.values()) - before) / len(names)

        assert requests(schedule, records(SWEEP)) == 6  # the look; nodes, pending and bound pods, DaemonSets, events
        for _ in range(4):
            clusters.first.clock.advance(60)
            assert requests(schedule, records(SWEEP)) == 1
        clusters.first.clock.advance(60)
        assert requests(schedule, records(SWEEP)) == 6
        assert requests(disrupt, {}) == 0


def test_disruption_of_all_clusters_serves_those_with_nodes_and_says_which_it_could_not(
    load: Load, hanging: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters = Clusters("a-hangs", "b", "c-rests")
    for name in ("a-hangs", "b"):
        stage = clusters.stages[name]
        stage.add_pods(1)
        stage.play_on()
        stage.server.delete("pods", "web-000", grace_s=0)
    clusters.put("a-hangs", client(hanging))
    module = load("disrupt", clusters)
    for _ in range(2):
        with pytest.raises(ClustersNotServed, match="a-hangs"):
            module.handle({}, Context())
        clusters.first.clock.advance(60)
    assert [command.method for command in clusters.first.state.commands("b")] == ["emptiness"]
    capsys.readouterr()


def test_a_minute_with_too_much_disruption_is_divided_among_invocations(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = Clusters("a", "b")
    for stage in clusters.stages.values():
        stage.add_pods(1)
        stage.play_on()
        stage.server.delete("pods", "web-000", grace_s=0)
    module = load("disrupt", clusters)
    monkeypatch.setattr(disrupt_entry, "SHARED_S", -1.0)
    for _ in range(2):
        module.handle({}, Context())
        told = clusters.stages["b"].bus.of_type("DisruptionDue")
        module.handle({"detail-type": "DisruptionDue", "detail": told[-1].detail}, Context())
        clusters.first.clock.advance(60)
    assert clusters.stages["a"].bus.of_type("DisruptionDue") == []
    for name in ("a", "b"):
        assert [command.method for command in clusters.first.state.commands(name)] == ["emptiness"]


class UntilTold(FakeBus):
    """A bus that waits for so many events, and a clock that then is past every deadline."""

    def __init__(self, events: int) -> None:
        super().__init__()
        self._events, self.told = events, Event()

    def publish(self, events: Sequence[BusEvent]) -> None:
        super().publish(events)
        if len(self.events) >= self._events:
            self.told.set()

    def now(self) -> float:
        return 1e12 if self.told.is_set() else time.monotonic()


def test_clusters_are_watched_side_by_side_and_one_that_hangs_delays_no_other(
    hanging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiplap.flows.watch.watch.ESTABLISHING_S", 0.1)
    clusters = Clusters("a-hangs", "b", "c")
    bus = UntilTold(2)
    with ExitStack() as running:
        for name in ("b", "c"):
            stage = clusters.stages[name]
            clusters.put(name, client(running.enter_context(KubeHttpServer(stage.server)).endpoint))
            unschedulable(stage)
        clusters.put("a-hangs", client(hanging))
        contexts = {name: replace(context, clock=bus, bus=bus) for name, context in clusters.contexts.items()}
        assert watch_all(contexts, deadline=1e11, pause=lambda _: bus.told.wait(TEST_S)) == 2
    assert sorted(event.detail["cluster"] for event in bus.events) == ["b", "c"]


def test_a_watch_that_was_given_up_begins_anew_and_the_invocation_fails_in_the_end(
    hanging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = Clusters("a", "b")
    bus = UntilTold(1)

    class Broken:
        def list_for_watch(self, kind: str) -> Any:
            raise ZeroDivisionError(f"a bug in {kind}")

    monkeypatch.setattr("shiplap.flows.watch.watch.ESTABLISHING_S", 0.1)
    with KubeHttpServer(clusters.stages["b"].server) as server:
        clusters.put("b", client(server.endpoint))
        contexts = {
            name: replace(context, clock=bus, bus=bus, snapshots=None) for name, context in clusters.contexts.items()
        }
        contexts["a"] = replace(contexts["a"], cluster=Broken())  # type: ignore[arg-type]

        def pause(_: float) -> None:
            if current_thread().name == "watch-a" and clusters.stages["a"].meter.counts["WatchesGivenUp"] == 2:
                unschedulable(clusters.stages["b"])
                bus.told.wait(TEST_S)

        with pytest.raises(ClustersNotServed, match="not served: a;"):
            watch_all(contexts, deadline=1e11, pause=pause)
    assert len(bus.events) == 1
    assert clusters.stages["a"].meter.counts["WatchesGivenUp"] >= 2
