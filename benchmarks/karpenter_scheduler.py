"""Karpenter's own scheduler as a program: `karpenter/main.go`, compiled once from the Go module that go.mod pins."""

from __future__ import annotations

import json
import os
import re
import subprocess
from hashlib import blake2s
from pathlib import Path
from types import TracebackType

import msgspec
from launched_nodes import ScheduledBatch
from random_batches import Batch, as_written, catalogues

from tests.e2e.programs import run_go, stated

MODULE = Path(__file__).resolve().parent / "karpenter"
CACHE = MODULE.parents[1] / "build" / "karpenter-scheduler"
_SOURCES = ("go.mod", "go.sum", "main.go")
_VERSION = re.compile(r"^\s*sigs\.k8s\.io/karpenter (v\S+)$", re.MULTILINE)


def version() -> str:
    """The release of Karpenter, such as v1.15.0."""
    return stated(MODULE, _VERSION)


def build() -> Path:
    """The program, built if it is missing.

    Raises:
        ProgramsMissing: there is no Go, or the modules cannot be downloaded.
        BuildFailed: it cannot be built.
    """
    digest = blake2s(digest_size=6)
    for name in _SOURCES:
        digest.update((MODULE / name).read_bytes())
    program = CACHE / f"{version()}-{digest.hexdigest()}" / "scheduler"
    if os.access(program, os.X_OK):
        return program
    unfinished = program.with_name(f"scheduler.{os.getpid()}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    run_go(["build", "-trimpath", "-ldflags", "-s -w", "-o", str(unfinished), "."], MODULE)
    unfinished.rename(program)
    return program


def batch_line(batch: Batch) -> bytes:
    """A batch as the program reads it: DaemonSets as the pods that they would have."""
    daemon_pods = [
        {"metadata": daemon["metadata"], "spec": daemon["spec"]["template"]["spec"]} for daemon in batch.daemon_sets
    ]
    return _line(
        {
            "catalogue": batch.catalogue,
            "nodePools": batch.node_pools,
            "pods": batch.pods,
            "daemonPods": daemon_pods,
        }
    )


def read_answer(line: bytes) -> ScheduledBatch:
    """What the program answers to a batch."""
    return msgspec.json.decode(line, type=ScheduledBatch)


class KarpenterScheduler:
    """The program at work. A context manager.

    All that passes, catalogues and batches in, claims out, is also written to files of a folder, if one is given.
    """

    def __init__(self, program: Path, dump: Path | None = None) -> None:
        self._dump = dump
        if dump is not None:
            dump.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> KarpenterScheduler:
        known = {name: [as_written(item) for item in types] for name, types in catalogues().items()}
        self._send(_line({"catalogues": known}))
        return self

    def schedule(self, batch: Batch) -> ScheduledBatch:
        """Karpenter's claims for a batch."""
        self._send(batch_line(batch))
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        self._keep("claims.jsonl", answer)
        return read_answer(answer)

    def _keep(self, name: str, line: bytes) -> None:
        if self._dump is not None:
            with (self._dump / name).open("ab") as file:
                file.write(line)

    def _send(self, line: bytes) -> None:
        self._keep("batches.jsonl", line)
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


def _line(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
