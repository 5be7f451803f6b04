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
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from shiplap.flows.context import FlowContext
from shiplap.flows.install import Install
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.manifests.custom_resources import NodePool
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


def milliseconds(samples: int) -> list[float]:
    """The time of each invocation after the first, which is not counted."""
    with contextlib.redirect_stdout(io.StringIO()):  # logs and metrics
        return _milliseconds(samples)


def _milliseconds(samples: int) -> list[float]:
    catalog, handler = embedded.load(), _handler()
    first = _stage(catalog)
    install = _Install("schedule", Settings((first.settings,)), _NAMES)
    install.clock = first.clock  # type: ignore[assignment]
    setattr(handler, "install", lambda: install)  # noqa: B010 - a module's attribute
    body = json.dumps({"kind": "sweep", "cluster": first.settings.name})
    event: dict[str, Any] = {"Records": [{"messageId": "m", "body": body}]}
    taken = []
    for stage in (first, *(_stage(catalog) for _ in range(samples))):
        install.staged, install.clock = stage, stage.clock  # type: ignore[assignment]
        started = time.perf_counter()
        answer = handler.handle(event, _Context())
        taken.append(1000 * (time.perf_counter() - started))
        assert answer == {"batchItemFailures": []}
        assert len(stage.compute.launches) == 1
    return taken[1:]
