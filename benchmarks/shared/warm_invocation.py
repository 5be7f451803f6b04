"""Measures a warm invocation of `schedule` by itself: one pending pod in, one instance out, fakes instead of AWS.

The catalogue is the real one and the NodePool takes any type of it, so that nothing is left out of the decision. What
the network takes comes on top.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from shiplap.flows.context import FlowContext
from shiplap.flows.install import Install
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.manifests.custom_resources import NodePool
from shiplap.ports import FleetRequest, FleetResult
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_lab.catalogue import embedded
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.stores import FakeCatalog
from tests.integration.flows.stage import Stage

ROOT = Path(__file__).resolve().parents[2]

_ANY_TYPE = {"metadata": {"name": "default"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "default"}}}}}
_NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead")


class _Context:
    aws_request_id = "warm"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


class _Install(Install):
    """An install whose FlowContext is a stage's."""

    staged: Stage

    def context(self, _cluster: ClusterSettings) -> FlowContext:
        return self.staged.context


def _stage(catalog: Catalog) -> Stage:
    stage = Stage((msgspec.convert(_ANY_TYPE, NodePool),))
    stage.settings = msgspec.structs.replace(stage.settings, region=catalog.region)
    zones = sorted({zone for sold in catalog.zones.values() for zone in sold})
    stage.compute = FakeCompute(stage.clock, faults=stage.faults, zones=zones)
    store = FakeCatalog(catalog, stage.faults)
    stage.context = msgspec.structs.replace(stage.context, compute=stage.compute, catalog=store)
    stage.add_pods(1)
    return stage


def _handler() -> ModuleType:
    path = ROOT / "functions" / "schedule" / "handler.py"
    spec = importlib.util.spec_from_file_location("schedule_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Sample(NamedTuple):
    """Milliseconds of processor time of an invocation, and of the part before CreateFleet; bytes that it recorded."""

    all_ms: float
    before_launch_ms: float
    recorded_bytes: int


def samples(number: int) -> list[Sample]:
    """Measure invocations of one process; the first, which stores the catalogue for its record, is not counted."""
    with contextlib.redirect_stdout(io.StringIO()):  # logs and metrics
        return _samples(number)


def _samples(number: int) -> list[Sample]:
    catalog, handler = embedded.load(), _handler()
    first = _stage(catalog)
    install = _Install("schedule", Settings((first.settings,)), _NAMES)
    install.clock = first.clock  # type: ignore[assignment]
    setattr(handler, "install", lambda: install)  # noqa: B010 - a module's attribute
    body = json.dumps({"kind": "sweep", "cluster": first.settings.name})
    event: dict[str, Any] = {"Records": [{"messageId": "m", "body": body}]}
    taken = []
    for stage in (first, *(_stage(catalog) for _ in range(number))):
        stage.context = msgspec.structs.replace(stage.context, recorder=first.recorder)
        install.staged, install.clock = stage, stage.clock  # type: ignore[assignment]
        launched_at: list[float] = []
        compute = stage.compute
        setattr(compute, "launch", _noting(launched_at, compute.launch))  # noqa: B010 - the fake's own
        first.recorder.records.clear()
        kept = set(first.recorder.chunks)
        started = time.process_time()
        answer = handler.handle(event, _Context())
        ended = time.process_time()
        assert answer == {"batchItemFailures": []}
        assert len(compute.launches) == 1
        chunks = [document for name, document in first.recorder.chunks.items() if name not in kept]
        recorded = sum(map(len, (*first.recorder.records.values(), *chunks)))
        taken.append(Sample(1000 * (ended - started), 1000 * (launched_at[0] - started), recorded))
    return taken[1:]


def _noting(at: list[float], launch: Callable[[FleetRequest], FleetResult]) -> Callable[[FleetRequest], FleetResult]:
    def noted(request: FleetRequest) -> FleetResult:
        at.append(time.process_time())
        return launch(request)

    return noted
