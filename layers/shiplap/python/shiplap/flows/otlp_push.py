"""Sends what one invocation has measured to an OpenTelemetry collector, as OTLP/HTTP in JSON.

Names are Karpenter's where they mean the same, so that its dashboards keep working; others begin with `shiplap_`.
Gauges are values of the moment. Counters are sums of one invocation, with delta temporality: nothing remembers totals
from one invocation to the next. A backend that takes only cumulative sums, such as Prometheus, needs the collector's
processor `deltatocumulative`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf
from threading import Lock
from typing import Any

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from shiplap.errors import AwsError
from shiplap.settings import OtlpSettings

_LOG = logging.getLogger(__name__)

TIMEOUT_S = 2.0
"""For connecting, and for each part of the answer. METRICS in `flows/optional` bounds it together with the secret."""

REST_S = 600.0
"""How long nothing is tried after no answer of the secret or of the collector, and how old a refused secret may be."""

_UNAUTHORIZED = (401, 403)
_DELTA = 1
"""AGGREGATION_TEMPORALITY_DELTA of OpenTelemetry's protocol."""


class ExportedMetric(msgspec.Struct, frozen=True):
    """The name and the unit (UCUM) of a metric at the collector; `counter` says that its values add up."""

    name: str
    unit: str = "1"
    counter: bool = False


EXPORTED: Mapping[str, ExportedMetric] = {
    "CommandsBegun": ExportedMetric("karpenter_voluntary_disruption_decisions_total", counter=True),
    "HourlyCost": ExportedMetric("shiplap_cost_per_hour", "{USD}"),
    "HourlyListPrice": ExportedMetric("shiplap_list_price_per_hour", "{USD}"),
    "Nodes": ExportedMetric("karpenter_cluster_state_node_count"),
    "NodesLaunched": ExportedMetric("karpenter_nodeclaims_created_total", counter=True),
    "NodesNotDisruptable": ExportedMetric("shiplap_nodes_not_disruptable"),
    "OldestPodWaiting": ExportedMetric("shiplap_oldest_pod_waiting", "s"),
    "Pods": ExportedMetric("shiplap_pods"),
    "PodsUnschedulable": ExportedMetric("karpenter_scheduler_unschedulable_pods_count"),
    "PodsWaiting": ExportedMetric("karpenter_scheduler_queue_depth"),
}
"""What is sent, by the name of the metric in CloudWatch."""

_ATTRIBUTES = {"pool": "nodepool"}
"""Attributes that Karpenter calls otherwise."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


class OtlpPush:
    """Collects the measurements of an invocation and sends them at its end. Several threads may measure.

    Args:
        settings: the collector's address, and where its headers are kept.
        install: the install's name, an attribute of the resource.
        secret_text: reads a secret by its ARN; its text is a JSON object of header names and values.
    """

    def __init__(self, settings: OtlpSettings, install: str, secret_text: Callable[[str], str]) -> None:
        self._settings = settings
        self._install = install
        self._secret_text = secret_text
        self._headers: dict[str, str] | None = None
        self._read_at = -inf
        self._rests_until = -inf
        self._lock = Lock()
        self._values: dict[_Key, float] = {}
        self._pool = urllib3.PoolManager(retries=False, timeout=TIMEOUT_S)

    def add(self, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """Keep a value of a metric that is sent: the sum of a counter's values, the last of a gauge's."""
        metric = EXPORTED.get(name)
        if metric is None:
            return
        key = (name, tuple(sorted(dimensions.items())))
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + value if metric.counter else value

    def push(self, started: float, now: float) -> bool:
        """Send what was kept, in one request, without a second try: the next minute has new values.

        After no answer, neither the secret nor the collector is asked for REST_S seconds. The headers are kept; if the
        collector refuses them, the secret is read again once they are as old.

        Args:
            started: epoch seconds from which counters count.
            now: epoch seconds.

        Returns: False if the collector did not take it, which is logged.
        """
        values = self.forget()
        if not values:
            return True
        if now < self._rests_until:
            return False
        body = msgspec.json.encode(otlp_document(values, self._install, started, now))
        try:
            headers = {"content-type": "application/json", **self._read_headers(now)}
            answer = self._pool.request("POST", self._settings.endpoint, body=body, headers=headers)
        except (HTTPError, AwsError, msgspec.DecodeError) as error:
            # The text of an error may hold what the secret holds: only its kind is logged.
            _LOG.warning("metrics were not sent to the collector: %s", type(error).__name__)
            self._rests_until = now + REST_S
            return False
        if answer.status in _UNAUTHORIZED and now >= self._read_at + REST_S:
            self._headers = None
        if answer.status >= 300:
            _LOG.warning("the collector refused metrics with status %d", answer.status)
            return False
        return True

    def forget(self) -> dict[_Key, float]:
        """Take what was kept: whoever does not send it has no use for it a minute later."""
        with self._lock:
            values, self._values = self._values, {}
        return values

    def _read_headers(self, now: float) -> dict[str, str]:
        if self._headers is None:
            secret = self._settings.headers_secret
            self._read_at = now
            self._headers = msgspec.json.decode(self._secret_text(secret), type=dict[str, str]) if secret else {}
        return self._headers


def otlp_document(values: Mapping[_Key, float], install: str, started: float, now: float) -> dict[str, Any]:
    """An ExportMetricsServiceRequest in OTLP's JSON encoding: 64-bit integers are strings, enums are numbers."""
    points: dict[str, list[dict[str, Any]]] = {}
    for (name, dimensions), value in sorted(values.items()):
        point: dict[str, Any] = {
            "attributes": _attributes({_ATTRIBUTES.get(key, key): text for key, text in dimensions}),
            "timeUnixNano": _nanoseconds(now),
            "asDouble": value,
        }
        if EXPORTED[name].counter:
            point["startTimeUnixNano"] = _nanoseconds(started)
        points.setdefault(name, []).append(point)
    resource = {"attributes": _attributes({"service.name": "shiplap", "service.instance.id": install})}
    metrics = [_metric(EXPORTED[name], of_metric) for name, of_metric in points.items()]
    scope = {"scope": {"name": "shiplap"}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}


def _metric(metric: ExportedMetric, points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if metric.counter:
        data = {"sum": {"aggregationTemporality": _DELTA, "isMonotonic": True, "dataPoints": points}}
    else:
        data = {"gauge": {"dataPoints": points}}
    return {"name": metric.name, "unit": metric.unit, **data}


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in values.items()]


def _nanoseconds(moment: float) -> str:
    return str(round(moment * 1_000_000) * 1000)
