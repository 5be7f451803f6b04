"""Karpenter's own scheduler as a program: `main.go`, compiled once from the Go module that go.mod pins."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.custom_resources import RequirementSpec
from tests.e2e.programs import stated
from tests.line_programs import LineProgram, built

MODULE = Path(__file__).resolve().parent
CACHE = MODULE.parents[1] / "build" / "karpenter-scheduler"
_SOURCES = ("go.mod", "go.sum", "main.go")
_VERSION = re.compile(r"^\s*sigs\.k8s\.io/karpenter (v\S+)$", re.MULTILINE)


class LaunchedOffering(msgspec.Struct, frozen=True, rename="camel"):
    """One way to buy a node, with its price in USD per hour."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float


class OpenedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """A claim as a scheduler wrote it: `launch` is what the scheduler itself takes for the cheapest offering."""

    node_pool: str
    requirements: tuple[RequirementSpec, ...]
    instance_types: tuple[str, ...]
    launch: LaunchedOffering
    pods: tuple[str, ...]


class ScheduledBatch(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of a scheduler; `left_out` are pods with the reason."""

    claims: tuple[OpenedClaim, ...]
    left_out: dict[str, str]
    cpu_seconds: float = 0.0


def version() -> str:
    """The release of Karpenter, such as v1.15.0."""
    return stated(MODULE, _VERSION)


def build() -> Path:
    """The program, built if it is missing.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: it cannot be built.
    """
    return built(CACHE, version(), [MODULE / name for name in _SOURCES], MODULE)


def as_written(item: InstanceType) -> dict[str, Any]:
    """An instance type as the program reads it: labels with their values (none: no such label), amounts, offerings."""
    return {
        "name": item.name,
        "labels": {entry.key: sorted(entry.values) for entry in item.requirements},
        "capacity": item.capacity,
        "overhead": item.overhead,
        "offerings": [
            {
                "zone": offering.zone,
                "capacityType": offering.capacity_type,
                "price": offering.price,
                "available": offering.available,
            }
            for offering in item.offerings
        ],
    }


def read_answer(line: bytes) -> ScheduledBatch:
    """Return the program's answer to a batch."""
    return msgspec.json.decode(line, type=ScheduledBatch)


def as_line(content: object) -> bytes:
    """Catalogues or a batch as the program reads them."""
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


class KarpenterScheduler(LineProgram):
    """The program at work.

    `catalogues` are instance types that batches refer to by name. All that passes, catalogues and batches in, claims
    out, is also written to files of a folder, if one is given.
    """

    def __init__(
        self, program: Path, catalogues: Mapping[str, Sequence[InstanceType]], dump: Path | None = None
    ) -> None:
        self._dump = dump
        if dump is not None:
            dump.mkdir(parents=True, exist_ok=True)
        super().__init__(program)
        self.send(as_line({"catalogues": {name: list(map(as_written, types)) for name, types in catalogues.items()}}))

    def schedule(self, batch: Mapping[str, object]) -> ScheduledBatch:
        """Karpenter's claims for a batch: `nodePools`, `pods`, `daemonPods`, and a `catalogue` or `types`."""
        self.send(as_line(batch))
        answer = self.receive()
        self._keep("claims.jsonl", answer)
        return read_answer(answer)

    def _keep(self, name: str, line: bytes) -> None:
        if self._dump is not None:
            with (self._dump / name).open("ab") as file:
                file.write(line)

    def send(self, line: bytes) -> None:
        """Write one line, and keep it."""
        self._keep("batches.jsonl", line)
        super().send(line)
