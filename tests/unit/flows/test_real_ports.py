"""Tests the ports that an install in Lambda makes for a function, and its work at the end of each invocation."""

from __future__ import annotations

import random
from itertools import chain, repeat
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from shiplap.errors import StoreError
from shiplap.flows import install as installs
from shiplap.flows import turns
from shiplap.flows.install import Install, Lazy
from shiplap.flows.otlp_push import OtlpPush
from shiplap.flows.turns import ThreadPerProbe
from shiplap.flows.watch import watch
from shiplap.settings import ClusterSettings, OtlpSettings, ResourceNames, Settings
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.stage import CLUSTER, Stage

pytestmark = pytest.mark.usefixtures("own_logger")

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")
CLUSTERS = (
    ClusterSettings(name="blue", region="eu-west-1", endpoint="https://blue.example", token="t"),
    ClusterSettings(
        name="green",
        region="us-east-1",
        endpoint="https://green.example",
        token="t",
    ),
)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The clients that are made, with their regions."""
    made: list[tuple[str, ...]] = []

    def client(*of: str) -> object:
        made.append(of)
        return MagicMock()

    monkeypatch.setattr(installs, "client", client)
    return made


def made(service: str = "schedule", *, otlp: bool = False) -> Install:
    collector = OtlpSettings("https://collector.example/v1/metrics") if otlp else None
    return Install(service, Settings(CLUSTERS, otlp=collector), NAMES)


@pytest.mark.parametrize(
    ("service", "pushes"),
    [("schedule", True), ("disrupt", True), ("lifecycle", False), ("interrupt", False), ("watch", False)],
)
def test_only_functions_that_look_at_each_cluster_each_minute_send_metrics_to_a_collector(
    service: str, pushes: bool, clients: list[tuple[str, ...]]
) -> None:
    assert isinstance(made(service, otlp=True)._push, OtlpPush) is pushes
    assert made(service)._push is None
    assert clients == []


@pytest.mark.parametrize("wanted", [True, False])
def test_a_metric_of_each_cluster_is_made_where_the_settings_ask_for_it(
    wanted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    meter = Install("schedule", Settings(CLUSTERS, cluster_metrics=wanted), NAMES).meter
    meter.count("Nodes", 2, dimensions={"cluster": "a"})
    meter.flush()
    assert ('"Dimensions":[["install"],["install","cluster"]]' in capsys.readouterr().out.replace(" ", "")) is wanted


class Push:
    """Takes what is sent to a collector."""

    def __init__(self, *, taken: bool) -> None:
        self.taken = taken
        self.sent: list[tuple[float, float]] = []

    def add(self, *_: Any) -> None:
        """Nothing is kept."""

    def push(self, started: float, now: float) -> bool:
        self.sent.append((started, now))
        return self.taken


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("taken", [True, False])
def test_metrics_are_sent_and_written_at_the_end_whatever_happens(
    taken: bool, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    install, push = made(), Push(taken=taken)
    install._push = push  # type: ignore[assignment]
    times = chain((10.0,), repeat(25.0))
    install.clock.now = lambda: next(times)  # type: ignore[method-assign]
    try:
        with install.reporting("request-1"):
            install.meter.count("Pods")
            if fails:
                raise StoreError("broken")
    except StoreError:
        assert fails
    else:
        assert not fails
    assert push.sent == [(10.0, 25.0)]
    written = capsys.readouterr().out
    assert '"Pods"' in written
    assert ("MetricsNotPushed" in written) is not taken
    assert ("StoreError" in written) is fails


def test_without_a_collector_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    install = made()
    with install.reporting("request-1"):
        install.meter.count("Pods")
    assert "MetricsNotPushed" not in capsys.readouterr().out


def test_chance_begins_anew_in_each_invocation() -> None:
    drawn = []
    for _ in range(2):
        random.seed(7)
        with made().reporting("request"):
            drawn.append(random.random())  # noqa: S311
    assert drawn[0] != drawn[1]


def test_the_ports_of_a_cluster_are_made_once_and_each_when_it_is_used(clients: list[tuple[str, ...]]) -> None:
    install = made()
    blue, green = (install.context(cluster) for cluster in CLUSTERS)
    assert clients == []
    assert install.context(CLUSTERS[0]) is blue
    assert green is not blue
    assert blue.dry_runs is not None
    assert blue.dry_runs.save is not None
    assert clients == [("s3",)]


PORTS = {
    "compute": ("launch", {("dynamodb",), ("ec2", "us-east-1")}),
    "state": ("read", {("dynamodb",)}),
    "capacity": ("learned", {("dynamodb",)}),
    "catalog": ("load", {("s3",)}),
    "source": ("fetch", {("ec2", "us-east-1")}),
    "bus": ("publish", {("events",)}),
    "timers": ("remind", {("sqs",)}),
    "recorder": ("record", {("s3",)}),
    "joins": ("read", {("dynamodb",)}),
    "status": ("load", {("s3",)}),
    "dry_runs": ("load", {("s3",)}),
    "snapshots": ("load", {("s3",)}),
    "manifests": ("load", {("s3",)}),
    "memory": ("load", {("s3",)}),
    "health": ("ailing", {("ec2", "us-east-1")}),
}


@pytest.mark.parametrize("port", PORTS)
def test_each_port_has_the_adapter_of_its_service(port: str, clients: list[tuple[str, ...]]) -> None:
    method, services = PORTS[port]
    assert callable(getattr(getattr(made().context(CLUSTERS[1]), port), method))
    assert set(clients) == services


@pytest.mark.parametrize(
    ("adapter", "port", "others"),
    [
        ("shiplap.aws.ec2.ec2_compute.Ec2Compute", "compute", {"ssm": "ssm", "eks": "eks", "iam": "iam"}),
        ("shiplap.aws.health.Ec2Health", "health", {"eks": "eks", "zonal_shift": "arc-zonal-shift"}),
    ],
)
def test_clients_that_are_seldom_needed_are_of_the_clusters_region(
    adapter: str, port: str, others: dict[str, str], clients: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(adapter, lambda *_, **parts: given.update(parts) or MagicMock())
    assert getattr(made().context(CLUSTERS[1]), port).anything is not None
    clients.clear()
    for name in others:
        given[name]()
    assert clients == [(service, "us-east-1") for service in others.values()]


def test_letters_and_the_state_of_all_clusters_are_made_when_they_are_used(clients: list[tuple[str, ...]]) -> None:
    install = made()
    letters = install.dead_letters
    for stands_in in (install.state, install.status):
        assert isinstance(stands_in, Lazy)
    assert clients == []
    letters.send("body", "reason")
    assert callable(install.state.epoch)
    assert callable(install.status.save)
    assert clients == [("sqs",), ("dynamodb",), ("s3",)]


def test_optional_calls_of_all_clusters_share_the_budgets_of_an_invocation(clients: list[tuple[str, ...]]) -> None:
    install = made()
    blue, green = (install.context(cluster) for cluster in CLUSTERS)
    assert blue.optional is green.optional is install.optional
    begun: list[None] = []
    install.optional.begin = lambda: begun.append(None)  # type: ignore[method-assign]
    for number in range(2):
        with install.reporting(f"request-{number}"):
            assert len(begun) == number + 1
    assert clients == []


def test_what_stands_in_is_made_once() -> None:
    made_of: list[int] = []

    def make() -> str:
        made_of.append(1)
        return "text"

    lazy = Lazy(make)
    assert made_of == []
    assert (lazy.upper(), lazy.title()) == ("TEXT", "Text")
    assert made_of == [1]


@pytest.mark.parametrize(("size", "mib"), [(None, 4096), ("512", 512)])
def test_a_function_knows_its_memory(monkeypatch: pytest.MonkeyPatch, size: str | None, mib: int) -> None:
    monkeypatch.delenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", size)
    assert made().memory_mib == mib


class Started:
    """Notes how threads are made, and runs their bodies at once."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []

    def __call__(self, **options: Any) -> Started:
        self.made.append(options)
        return self

    def start(self) -> None:
        options = self.made[-1]
        options["target"](*options.get("args", ()))


def test_a_probe_runs_in_a_thread_of_its_name_that_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ran = Started(), list[int]()
    monkeypatch.setattr(turns, "Thread", started)
    ThreadPerProbe().submit("probe-blue", lambda: ran.append(1))
    assert ran == [1]
    assert [(item["name"], item["daemon"]) for item in started.made] == [("probe-blue", True)]


def test_a_snapshot_is_kept_in_a_thread_that_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, started = Stage(), Started()
    monkeypatch.setattr(watch, "Thread", started)
    context = replace(stage.context, snapshots=FakeSnapshots())
    now = stage.clock.now()
    assert watch.watch(CLUSTER, context, deadline=now, pause=lambda _: None) == 0
    assert [item["daemon"] for item in started.made] == [True]
    assert watch.watch(CLUSTER, stage.context, deadline=now, pause=lambda _: None) == 0
    assert len(started.made) == 1


@pytest.mark.parametrize(
    ("error", "name"), [(StoreError("down"), "StoreError"), (ZeroDivisionError("a bug"), "UnexpectedErrors")]
)
def test_a_watch_that_is_given_up_is_counted_by_what_ended_it(error: Exception, name: str) -> None:
    stage = Stage()
    kept = watch._Watch(CLUSTER, stage.context, 0.0, lambda _: None, None, manifests=False, buffers=False)
    kept._report_given_up(error)
    assert stage.meter.counts == {"WatchesGivenUp": 1, name: 1}
    assert kept.given_up
    assert kept.established.is_set(), "the next one need not wait for it"


def test_a_watch_that_came_to_its_end_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor may have taken over before the deadline: both would tell of the same changes."""
    stage, begun = Stage(), list[str]()

    def watched(cluster: str, *_: object, **__: object) -> int:
        begun.append(cluster)
        stage.clock.advance(10.0)
        return 3

    monkeypatch.setattr(watch, "watch", watched)
    deadline = stage.clock.now() + 60.0
    kept = watch._Watch(CLUSTER, stage.context, deadline, lambda _: None, None, manifests=False, buffers=False)
    kept.run()
    assert (kept.told, begun, kept.given_up) == (3, [CLUSTER], False)
    assert kept.established.is_set()
