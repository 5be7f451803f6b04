"""An install of several clusters whose functions share invocations."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from shiplap.cluster.client import KubernetesClient
from shiplap.flows.context import FlowContext
from shiplap.flows.install import Install
from shiplap.ports import DeadLetters, MemoryStore
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_lab.fakes.signals import FakeDeadLetters
from shiplap_lab.fakes.stores import FakeMemory
from tests.integration.flows.stage import Stage

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")


class Context:
    aws_request_id = "request-1"

    def __init__(self, seconds: float = 300.0) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class Clusters:
    """Clusters of one install, each a stage of its own; all of them share time, state and faults."""

    def __init__(self, *names: str) -> None:
        self.first = Stage()
        self.stages: dict[str, Stage] = {}
        self.contexts: dict[str, FlowContext] = {}
        for name in names:
            stage = Stage(beside=self.first)
            stage.name = name
            stage.settings = replace(stage.settings, name=name)
            self.stages[name] = stage
            self.contexts[name] = stage.context

    def put(self, name: str, cluster: KubernetesClient) -> None:
        self.contexts[name] = replace(self.contexts[name], cluster=cluster)


class SharedInstall(Install):
    """An install whose FlowContexts are those of stages."""

    def __init__(self, service: str, clusters: Clusters) -> None:
        super().__init__(service, Settings(tuple(stage.settings for stage in clusters.stages.values())), NAMES)
        self.clock = clusters.first.clock  # type: ignore[assignment]
        self._clusters = clusters
        self._letters = FakeDeadLetters()
        self._memory = FakeMemory()

    @property
    def dead_letters(self) -> DeadLetters:  # type: ignore[override]
        return self._letters

    @property
    def memory(self) -> MemoryStore:  # type: ignore[override]
        return self._memory

    def context(self, cluster: ClusterSettings) -> FlowContext:
        return self._clusters.contexts[cluster.name]


def records(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]}


def pending(cluster: str) -> str:
    return json.dumps({"detail-type": "PodPending", "detail": {"cluster": cluster}})


def launched(clusters: Clusters) -> dict[str, int]:
    return {name: len(stage.compute.launches) for name, stage in clusters.stages.items()}
