"""Metrics for an OpenTelemetry collector: what is sent, over real HTTP on loopback, and what happens if it fails."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.aws import secrets
from shiplap.aws.session import config, hurried
from shiplap.errors import AwsError
from shiplap.flows import install as installs
from shiplap.flows import otlp_push
from shiplap.flows.install import EmfMeter, Install
from shiplap.flows.optional.optional_calls import METRICS
from shiplap.flows.otlp_push import EXPORTED, REST_S, OtlpPush, otlp_document
from shiplap.settings import OtlpSettings, ResourceNames, Settings
from shiplap_lab.fakes.signals import FakeClock

pytestmark = pytest.mark.usefixtures("own_logger")

SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:otlp"
NAMES = ResourceNames("state", "capacity", "bucket", "bus", "queue", install="shiplap")


class Collector:
    """A collector that keeps what it gets; `status` is what it answers."""

    def __init__(self) -> None:
        self.status = 200
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []

    @property
    def points(self) -> dict[str, list[dict[str, Any]]]:
        """The data points of the only request, by the name of their metric."""
        ((_, body),) = self.requests
        ((scope,),) = [resource["scopeMetrics"] for resource in body["resourceMetrics"]]
        return {metric["name"]: (metric.get("gauge") or metric.get("sum"))["dataPoints"] for metric in scope["metrics"]}


@contextmanager
def serving(collector: Collector, port: int = 0) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests.append((dict(self.headers), json.loads(body)))
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def pushing(endpoint: str, secret: str = "") -> OtlpPush:
    def text(arn: str) -> str:
        assert arn == SECRET
        return secret

    return OtlpPush(OtlpSettings(endpoint, SECRET if secret else ""), "shiplap", text)


def test_gauges_have_their_last_value_and_counters_their_sum() -> None:
    collector = Collector()
    with serving(collector) as endpoint:
        push = pushing(endpoint)
        meter = EmfMeter("shiplap", push=push)
        meter.count("Nodes", 4, dimensions={"cluster": "a", "pool": "web", "tier": "0"})
        meter.count("Nodes", 3, dimensions={"cluster": "a", "pool": "web", "tier": "0"})
        meter.count("Nodes", 2, dimensions={"cluster": "b", "pool": "web", "tier": "0"})
        meter.count("CommandsBegun")
        meter.count("CommandsBegun", 2)
        meter.count("EventToLaunch", 0.3)
        assert push.push(1_700_000_000.25, 1_700_000_001.5)

    nodes = collector.points["karpenter_cluster_state_node_count"]
    assert [point["asDouble"] for point in nodes] == [3, 2]
    assert nodes[0]["attributes"] == [
        {"key": "cluster", "value": {"stringValue": "a"}},
        {"key": "nodepool", "value": {"stringValue": "web"}},
        {"key": "tier", "value": {"stringValue": "0"}},
    ]
    (decisions,) = collector.points["karpenter_voluntary_disruption_decisions_total"]
    assert decisions["asDouble"] == 3
    assert (decisions["startTimeUnixNano"], decisions["timeUnixNano"]) == ("1700000000250000000", "1700000001500000000")
    assert collector.points.keys() == {
        "karpenter_cluster_state_node_count",
        "karpenter_voluntary_disruption_decisions_total",
    }
    ((headers, body),) = collector.requests
    assert headers["content-type"] == "application/json"
    resource = body["resourceMetrics"][0]["resource"]["attributes"]
    assert {item["key"]: item["value"]["stringValue"] for item in resource} == {
        "service.name": "shiplap",
        "service.instance.id": "shiplap",
    }
    (scope,) = body["resourceMetrics"][0]["scopeMetrics"]
    sums = {metric["name"]: metric["sum"] for metric in scope["metrics"] if "sum" in metric}
    assert [(item["isMonotonic"], item["aggregationTemporality"]) for item in sums.values()] == [(True, 1)]


def test_headers_come_from_the_secret_and_nothing_is_sent_twice() -> None:
    collector = Collector()
    with serving(collector) as endpoint:
        push = pushing(endpoint, '{"authorization": "Bearer abc"}')
        push.add("Pods", 5, {"cluster": "a", "pool": "web"})
        assert push.push(0.0, 1.0)
        assert push.push(1.0, 2.0), "nothing was measured since"

    ((headers, _),) = collector.requests
    assert headers["authorization"] == "Bearer abc"


@pytest.mark.parametrize("secret", ["no json", '{"authorization": 1}'])
def test_a_secret_that_cannot_be_read_is_not_logged(secret: str, caplog: pytest.LogCaptureFixture) -> None:
    push = pushing("http://127.0.0.1:9/v1/metrics", secret)
    push.add("Pods", 5, {})

    assert not push.push(0.0, 1.0)
    assert "metrics were not sent" in caplog.text
    assert secret not in caplog.text


class Secret:
    """A secret that answers these texts one after the other, "" for a refusal; `read` counts how often it was asked."""

    def __init__(self, *texts: str) -> None:
        self._texts, self.read = list(texts), 0

    def __call__(self, _: str) -> str:
        self.read += 1
        text = self._texts.pop(0)
        if not text:
            raise AwsError("denied")
        return text


TOKEN = '{"authorization": "Bearer abc"}'


def sent(push: OtlpPush, at: float, value: float = 1.0) -> bool:
    push.add("Pods", value, {})
    return push.push(at - 1, at)


def test_a_refused_secret_is_asked_again_after_ten_minutes() -> None:
    collector, secret = Collector(), Secret("", TOKEN)
    with serving(collector) as endpoint:
        push = OtlpPush(OtlpSettings(endpoint, SECRET), "shiplap", secret)
        assert [sent(push, at) for at in (0.0, 60.0, 599.0)] == [False, False, False]
        assert (secret.read, collector.requests) == (1, [])
        assert sent(push, 600.0, 6.0)

    assert [point["asDouble"] for point in collector.points["shiplap_pods"]] == [6]
    assert REST_S == 600.0


def test_a_collector_without_an_answer_is_asked_again_after_ten_minutes_and_its_headers_are_kept() -> None:
    collector, secret = Collector(), Secret(TOKEN)
    with serving(collector) as endpoint:
        push = OtlpPush(OtlpSettings(endpoint, SECRET), "shiplap", secret)
        assert sent(push, 0.0)
    assert [sent(push, at) for at in (60.0, 120.0)] == [False, False]
    port = int(endpoint.split(":")[2].split("/")[0])
    with serving(collector, port):
        assert not sent(push, 659.0)
        assert sent(push, 660.0)

    assert secret.read == 1
    assert len(collector.requests) == 2


def test_a_collector_that_answers_with_a_refusal_is_asked_the_next_minute() -> None:
    collector, secret = Collector(), Secret(TOKEN)
    with serving(collector) as endpoint:
        push = OtlpPush(OtlpSettings(endpoint, SECRET), "shiplap", secret)
        collector.status = 503
        assert not sent(push, 0.0)
        collector.status = 200
        assert sent(push, 60.0)
    assert secret.read == 1


def test_refused_headers_are_read_again_once_they_are_ten_minutes_old() -> None:
    collector, secret = Collector(), Secret(TOKEN, '{"authorization": "Bearer new"}')
    collector.status = 401
    with serving(collector) as endpoint:
        push = OtlpPush(OtlpSettings(endpoint, SECRET), "shiplap", secret)
        assert [sent(push, at) for at in (0.0, 60.0, 600.0)] == [False, False, False]
        assert secret.read == 1
        collector.status = 200
        assert sent(push, 660.0)
    assert secret.read == 2
    assert collector.requests[-1][0]["authorization"] == "Bearer new"


@contextmanager
def accepting() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
    let_end()


def let_end() -> None:
    """Wait for calls that were left alone, so that none logs into another test."""
    for thread in threading.enumerate():
        if thread.name == "optional":
            thread.join()


def unlimited(monkeypatch: pytest.MonkeyPatch, call_s: float) -> None:
    """Nothing but the budget of the part ends a call, and that soon."""
    part = replace(METRICS, call_s=call_s)
    monkeypatch.setattr(installs, "METRICS", part)
    monkeypatch.setattr(otlp_push, "TIMEOUT_S", 600.0)


def test_a_collector_that_accepts_and_never_answers_ends_with_the_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unlimited(monkeypatch, 0.05)
    with accepting() as port:
        install = installed("disrupt", f"http://127.0.0.1:{port}/v1/metrics")
        install.clock = FakeClock()  # type: ignore[assignment]
        with install.reporting("request"):
            install.meter.count("HourlyCost", 1.5, "None", dimensions={"cluster": "a"})
    assert '"MetricsNotPushed":[1.0]' in capsys.readouterr().out.replace(" ", "")


def test_a_secret_that_is_never_answered_ends_with_the_budget_and_rests_for_ten_minutes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unlimited(monkeypatch, 0.05)
    asked, released = [], Event()

    def never(secret: str, _client: object) -> str:
        asked.append(secret)
        released.wait()
        return "{}"

    monkeypatch.setattr(secrets, "text_of", never)
    clock = FakeClock()
    install = Install("disrupt", Settings(otlp=OtlpSettings("http://127.0.0.1:9/v1/metrics", SECRET)), NAMES)
    install.clock = clock  # type: ignore[assignment]
    for later_s in (0.0, 60.0, 539.0):
        clock.advance(later_s)
        with install.reporting("request"):
            install.meter.count("HourlyCost", 1.5, "None", dimensions={"cluster": "a"})
    assert asked == [SECRET]
    assert capsys.readouterr().out.replace(" ", "").count('"MetricsNotPushed":[1.0]') == 3
    clock.advance(1.0)
    with install.reporting("request"):
        install.meter.count("HourlyCost", 1.5, "None", dimensions={"cluster": "a"})
    assert asked == [SECRET] * 2
    released.set()
    let_end()


def test_the_secret_is_asked_for_once_and_for_a_second() -> None:
    assert METRICS.call_s == 2.0
    assert hurried().retries == {"mode": "standard", "total_max_attempts": 1}
    assert (hurried().connect_timeout, hurried().read_timeout) == (1, 1)
    assert config().retries == {"mode": "standard", "total_max_attempts": 5}, "others are repeated as before"


def installed(service: str, endpoint: str) -> Install:
    return Install(service, Settings(otlp=OtlpSettings(endpoint)), NAMES)


def test_an_invocation_goes_on_if_the_collector_is_gone_or_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    collector = Collector()
    collector.status = 503
    with serving(collector) as endpoint:
        install = installed("disrupt", endpoint)
        with install.reporting("request"):
            install.meter.count("HourlyCost", 1.5, "None", dimensions={"cluster": "a"})

    assert len(collector.requests) == 1
    assert '"MetricsNotPushed":[1.0]' in capsys.readouterr().out.replace(" ", "")
    gone = installed("disrupt", endpoint)
    with gone.reporting("request"):
        gone.meter.count("HourlyCost", 1.5, "None", dimensions={"cluster": "a"})
    assert '"MetricsNotPushed":[1.0]' in capsys.readouterr().out.replace(" ", "")


def test_only_the_functions_that_run_each_minute_send_and_only_if_asked_to() -> None:
    collector = Collector()
    with serving(collector) as endpoint:
        for service in ("schedule", "disrupt", "lifecycle", "watch"):
            install = installed(service, endpoint)
            with install.reporting("request"):
                install.meter.count("Pods", 1, dimensions={"cluster": "a", "pool": "web"})
        silent = Install("disrupt", Settings(), NAMES)
        with silent.reporting("request"):
            silent.meter.count("Pods", 1)

    assert len(collector.requests) == 2


@pytest.mark.parametrize(
    ("metric", "name", "unit", "kind"),
    [
        ("CommandsBegun", "karpenter_voluntary_disruption_decisions_total", "1", "sum"),
        ("HourlyCost", "shiplap_cost_per_hour", "{USD}", "gauge"),
        ("HourlyListPrice", "shiplap_list_price_per_hour", "{USD}", "gauge"),
        ("Nodes", "karpenter_cluster_state_node_count", "1", "gauge"),
        ("NodesLaunched", "karpenter_nodeclaims_created_total", "1", "sum"),
        ("NodesNotDisruptable", "shiplap_nodes_not_disruptable", "1", "gauge"),
        ("OldestPodWaiting", "shiplap_oldest_pod_waiting", "s", "gauge"),
        ("Pods", "shiplap_pods", "1", "gauge"),
        ("PodsUnschedulable", "karpenter_scheduler_unschedulable_pods_count", "1", "gauge"),
        ("PodsWaiting", "karpenter_scheduler_queue_depth", "1", "gauge"),
    ],
)
def test_each_metric_is_sent_as_the_operators_page_says(metric: str, name: str, unit: str, kind: str) -> None:
    values = {(metric, (("cluster", "a"),)): 2.0}
    (resource,) = otlp_document(values, "shiplap", 1.5, 2.0)["resourceMetrics"]
    ((scope,),) = [resource["scopeMetrics"]]
    assert scope["scope"] == {"name": "shiplap"}
    (sent,) = scope["metrics"]
    assert (sent["name"], sent["unit"]) == (name, unit)
    assert sent.keys() == {"name", "unit", kind}
    (point,) = sent[kind]["dataPoints"]
    assert (point["asDouble"], point["timeUnixNano"]) == (2.0, "2000000000")
    assert point.get("startTimeUnixNano") == ("1500000000" if kind == "sum" else None)


def test_what_is_not_known_at_the_collector_is_not_sent() -> None:
    push = pushing("http://127.0.0.1:9/v1/metrics")
    push.add("Unheard", 1.0, {})
    assert push.push(0.0, 1.0)


def test_names_at_the_collector_are_unique() -> None:
    assert len({metric.name for metric in EXPORTED.values()}) == len(EXPORTED)
    assert all(metric.name.startswith(("karpenter_", "shiplap_")) for metric in EXPORTED.values())
