"""Functions loaded as Lambda loads them, with the records that invoke them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shiplap.flows.context import FlowContext
from shiplap.flows.install import Install
from shiplap.ports import (
    CatalogSource,
    CatalogStore,
    DeadLetters,
    KeptIdentityStore,
    MemoryStore,
    NodeIdentities,
    StateStore,
    StatusStore,
)
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_lab.fakes.identities import FakeKeptIdentities, FakeNodeIdentities
from shiplap_lab.fakes.signals import FakeDeadLetters
from shiplap_lab.fakes.stores import FakeCatalog, FakeMemory, FakeStatus
from tests.integration.flows.stage import CLUSTER, Stage, catalog

FUNCTIONS = Path(__file__).parents[3] / "functions"


NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")


class Context:
    aws_request_id = "request-1"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:shiplap-widget:live"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


class StagedInstall(Install):
    """An install whose only FlowContext is a stage's."""

    def __init__(self, service: str, stage: Stage) -> None:
        super().__init__(service, Settings((stage.settings,)), NAMES)
        self.clock = stage.clock  # type: ignore[assignment]
        self.letters = FakeDeadLetters()
        self.catalogs = FakeCatalog()
        self.statuses = FakeStatus()
        self.memories = FakeMemory()
        self._stage = stage

    @property
    def dead_letters(self) -> DeadLetters:  # type: ignore[override]
        return self.letters

    @property
    def state(self) -> StateStore:  # type: ignore[override]
        return self._stage.state

    def context(self, cluster: ClusterSettings) -> FlowContext:
        assert cluster == self._stage.settings
        return self._stage.context

    def catalog_store(self, region: str) -> CatalogStore:
        assert region == "eu-west-1"
        return self.catalogs

    def node_identities(self, region: str) -> NodeIdentities:
        return FakeNodeIdentities()

    def kept_identities(self, region: str) -> KeptIdentityStore:
        return FakeKeptIdentities()

    def catalog_source(self, region: str) -> CatalogSource:
        return Source()

    @property
    def status(self) -> StatusStore:  # type: ignore[override]
        return self.statuses

    @property
    def memory(self) -> MemoryStore:  # type: ignore[override]
        return self.memories


class Source:
    def fetch(self, previous: object) -> Any:
        return catalog()


Load = Callable[[str, Stage], tuple[ModuleType, StagedInstall]]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, own_logger: None) -> Load:
    """Import a function's handler and give it a stage to act on."""

    def loaded(name: str, stage: Stage) -> tuple[ModuleType, StagedInstall]:
        spec = importlib.util.spec_from_file_location(f"handler_of_{name}", FUNCTIONS / name / "handler.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        install = StagedInstall(name, stage)
        monkeypatch.setattr(module, "install", lambda: install)
        return module, install

    return loaded


def records(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]}


def sweep(cluster: str = CLUSTER) -> str:
    return json.dumps({"kind": "sweep", "cluster": cluster})
