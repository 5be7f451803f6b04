"""Records what a simulated run writes to table `state` and asks of EC2, as operations of the model."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from shiplap.ports import FleetOverride, FleetRequest, Instance
from shiplap_lab.judge import raw_json
from shiplap_lab.judge.raw_json import ClaimItem
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.virtual_time.fault_injector import Invocation
from tests.model.spin import FOLDER

STATES = (
    "Absent",
    "Planned",
    "Launching",
    "Launched",
    "Registered",
    "Initialized",
    "Disrupting",
    "Draining",
    "Terminating",
    "Gone",
    "Failed",
)
"""In the order of their numbers in effects.pml."""

OPERATIONS = (
    "none",
    "commit",
    "lease",
    "wait",
    "assign",
    "fail",
    "written",
    "create_fleet",
    "answer",
    "start",
    "register",
    "initialize",
    "disrupt",
    "drain",
    "give_up",
    "terminate",
    "terminate_garbage",
    "finish",
    "adopt",
    "touch",
    "stray",
    "restore",
    "holds",
    "moves",
    "moved",
    "restore_epoch",
    "lose",
    "rests",
)
"""In the order of their numbers in recorded.pml."""

_WAITING = ("Planned", "Launching")
_ENTERED = {
    "Launching": "lease",
    "Launched": "assign",
    "Registered": "register",
    "Initialized": "initialize",
    "Disrupting": "disrupt",
    "Draining": "drain",
    "Terminating": "give_up",
    "Gone": "finish",
    "Failed": "fail",
}
_MAKERS = {
    "commit": ("schedule", "disrupt"),
    "lease": ("schedule", "disrupt"),
    "assign": ("schedule", "disrupt"),
    "create_fleet": ("schedule", "disrupt"),
    "register": ("lifecycle",),
    "terminate": ("lifecycle",),
    "terminate_garbage": ("lifecycle",),
    "adopt": ("lifecycle",),
    "moves": ("schedule", "disrupt"),
}
"""The functions that may make an operation; any may make the others."""

READS = frozenset(
    {
        "state.read",
        "state.epoch",
        "state.claim",
        "state.claims",
        "state.claim_of_instance",
        "state.commands",
        "compute.resolve",
        "compute.inspect",
        "compute.instances",
        "compute.launched",
        "compute.instance",
        "compute.ended",
        "compute.images",
        "compute.dry_run",
    }
)
MODELLED = frozenset(
    {"state.commit", "state.advance", "state.advance_all", "state.adopt", "compute.launch", "compute.terminate"}
)
BESIDE = frozenset(
    {
        "state.advance_command",
        "state.mark_unavailable",
        "state.relieve",
        "state.take_reserved",
        "state.reserve_addresses",
        "state.mark_missed",
        "state.mark_refused",
        "state.mark_futile",
        "state.mark_proven",
        "compute.name",
        "compute.sweep_templates",
    }
)
"""What is written beside claims: no promise of the model is about it."""
SIZES = ("claim", "instance", "launch", "cluster")
"""What is numbered within a run, in the order in which `replay` is told how many there are."""


class Operation(msgspec.Struct, frozen=True):
    """An operation of recorded.pml with its numbers, and the invocation that made it."""

    name: str
    first: int
    second: int = 0
    owner: int = 0
    maker: str = ""


class RecordedRun:
    """The operations of one run. `unknown` says what it did that the model lacks."""

    def __init__(self, simulation: Simulation) -> None:
        self.operations: list[Operation] = []
        self._faults = simulation.faults
        self._owners = {name: number for number, name in enumerate(simulation.installs)}
        self._claims: dict[tuple[str, str, str], ClaimItem] = {}
        self._numbers: dict[str, dict[Any, int]] = {"claim": {}, "instance": {}, "launch": {}, "cluster": {}}
        self._simulation = simulation
        self._read: dict[tuple[str, str, str], int] = {}
        self._open: tuple[str, int] = ("", 0)
        self._begun: dict[int, int] = {}
        self._answered_in: dict[int, tuple[str, int]] = {}
        self.unknown: list[str] = []
        simulation.faults.on_point.append(self._passed)
        simulation.compute.on_request.append(self._requested)
        simulation.compute.on_launch.append(self._started)
        simulation.compute.on_terminate.append(self._terminated)
        for name, install in simulation.installs.items():
            install.state.on_claim.append(partial(self._written, name))
            install.state.on_epoch.append(partial(self._epoch_read, name))
            install.state.on_commit.append(partial(self._committed, name))
            install.state.on_restore.append(partial(self._restored, name))

    def size(self, kind: str) -> int:
        """Return the number of claims, instances, launches or clusters."""
        return len(self._numbers[kind])

    def _number(self, kind: str, key: Any) -> int:
        return self._numbers[kind].setdefault(key, len(self._numbers[kind]))

    def _moment(self) -> tuple[str, int]:
        """The effect that is under way: all that one transaction writes has the same."""
        current = self._faults.current
        return ("", 0) if current is None else (current.name, current.points)

    def _add(self, name: str, first: int, second: int = 0, install: str = "") -> None:
        maker = self._moment()[0]
        allowed = _MAKERS.get(name, ())
        if allowed and maker.partition("-")[0] not in allowed:
            self._unknown(f"{name} by {maker or 'nobody'}")
        self.operations.append(Operation(name, first, second, self._owners.get(install, 0), maker))

    def _unknown(self, what: str) -> None:
        self.unknown.append(what)

    def _passed(self, invocation: Invocation, effect: str) -> None:
        self.end_transaction()
        name = effect.rpartition(" ")[2]
        if name.startswith(("state.", "compute.")) and name not in READS | MODELLED | BESIDE:
            self._unknown(name)

    def end_transaction(self) -> None:
        """A write to claims that waited is over: all of their launch that wait must have been in it."""
        for token, owner in sorted(self._begun.items()):
            self.operations.append(Operation("written", token, 0, owner))
        self._begun.clear()

    def _written(self, install: str, stored: str | bytes) -> None:
        if self._moment() != self._open:
            self.end_transaction()
            self._open = self._moment()
        claim = raw_json.CLAIMS.decode(raw_json.plain(stored))
        key = (install, claim.cluster, claim.name)
        before = self._claims.get(key)
        self._claims[key] = claim
        number, token = self._number("claim", key), self._number("launch", (install, claim.token))
        name = operation_of(before, claim)
        if name == "commit":
            self._add(name, number, token, install)
            return
        if name == "adopt":
            self._add(name, number, self._number("instance", claim.instance_id), install)
            if claim.state == "Initialized":
                self._add("initialize", number, 0, install)
            return
        if name == "":
            self._unknown(f"{before.state if before else 'Absent'} becomes {claim.state}")
            return
        instance = self._number("instance", claim.instance_id) if name == "assign" else 0
        self._add(name, number, instance, install)
        if before is not None and before.state in _WAITING:
            self._begun[token] = self._owners[install]

    def _epoch_read(self, install: str, cluster: str, epoch: int) -> None:
        self._read[self._moment()[0], install, cluster] = epoch

    def _committed(self, install: str, cluster: str, stored: int) -> None:
        """A transaction of a commit is over: its invocation has read an epoch, and the table has one now."""
        maker, number = self._moment()[0], self._number("cluster", (install, cluster))
        read = self._read.get((maker, install, cluster))
        if read is None:
            self._unknown(f"a commit by {maker or 'nobody'}, who has not read the epoch")
            return
        self._add("moves", number, read, install)
        self._add("moved", number, stored, install)
        self._read[maker, install, cluster] = stored

    def end(self) -> None:
        """The run has come to rest: whatever has ended by itself is lost, and all must be settled."""
        self.end_transaction()
        alive = {instance.id for instance in self._simulation.compute.alive()}
        for name, number in sorted(self._numbers["instance"].items()):
            if name not in alive:
                self._add("lose", number)
        self._add("rests", 0)

    def _restored(self, install: str, claims: Sequence[str | bytes], _commands: Sequence[str | bytes]) -> None:
        self.end_transaction()
        again = {}
        for stored in claims:
            claim = raw_json.CLAIMS.decode(raw_json.plain(stored))
            again[install, claim.cluster, claim.name] = claim
        for key in [key for key in self._claims if key[0] == install and key not in again]:
            self._add("restore", self._number("claim", key), 0, install)
            del self._claims[key]
        for key, claim in again.items():
            self._claims[key] = claim
            number = self._number("claim", key)
            self._add("restore", number, STATES.index(claim.state), install)
            if claim.instance_id:
                self._add("holds", number, self._number("instance", claim.instance_id), install)
        epochs = self._simulation.installs[install].state.epochs()
        for of, cluster in [key for key in self._numbers["cluster"] if key[0] == install]:
            self._add("restore_epoch", self._number("cluster", (of, cluster)), epochs.get(cluster, 0), install)

    def _requested(self, install: str, body: bytes) -> None:
        self.end_transaction()
        self._add("create_fleet", self._number("launch", (install, msgspec.json.decode(body)["token"])), 0, install)

    def _started(self, instance: Instance, request: FleetRequest, override: FleetOverride) -> None:
        token = self._number("launch", (instance.install, request.token))
        if self._answered_in.get(token) != self._moment():
            self._answered_in[token] = self._moment()
            self._add("answer", token, 0, instance.install)
        self._add("start", self._number("instance", instance.id), token, instance.install)

    def _terminated(self, install: str, instances: Sequence[str]) -> None:
        self.end_transaction()
        for name in instances:
            known = name in self._numbers["instance"]
            number = self._number("instance", name)
            if not known:
                self._add("stray", number, self._number("launch", ("", name)), install)
            holders = [key for key, claim in self._claims.items() if claim.instance_id == name and key[0] == install]
            if holders:
                self._add("terminate", self._number("claim", holders[0]), number, install)
            else:
                self._add("terminate_garbage", number, 0, install)


def operation_of(before: ClaimItem | None, after: ClaimItem) -> str:
    """The operation that writes one item over another; empty if the model has none."""
    old = before.state if before is not None else "Absent"
    if old == "Absent" and after.state == "Planned":
        return "commit"
    if old in ("Absent", "Failed") and after.state in ("Registered", "Initialized"):
        return "adopt"
    if old == "Absent" or old in ("Gone", "Failed"):
        return ""
    if old == after.state:
        return "wait" if old == "Launching" else "touch"
    return _ENTERED.get(after.state, "")


def record(scenario: str, seed: int) -> RecordedRun:
    """Play a seed and record it."""
    recorded, outcome = played(scenario, seed)
    assert not outcome.violations, outcome.violations
    return recorded


def played(scenario: str, seed: int) -> tuple[RecordedRun, RunOutcome]:
    """The same, whatever the judge of the simulation says."""
    play = load(scenario)
    simulation = Simulation(play, seed, draw_faults(play.scenario, seed), play.scenario.hours)
    recorded = RecordedRun(simulation)
    outcome = simulation.play()
    recorded.end_transaction()
    if outcome.settled_at >= 0:
        recorded.end()
    return recorded, outcome


def replay(operations: Sequence[Operation], claims: int, instances: int, launches: int, clusters: int = 1) -> str:
    """Make the operations in the model. Returns what Spin says against one, with the operation; empty if all pass."""
    with tempfile.TemporaryDirectory(prefix="spin-") as made:
        folder = Path(made)
        for name in ("effects.pml", "recorded.pml"):
            shutil.copy(FOLDER / name, folder)
        (folder / "operations.pml").write_text(_source(operations, claims, instances, launches, clusters))
        done = subprocess.run(
            ["spin", "-u10000000", "recorded.pml"],  # noqa: S607 - found by `need_spin`
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    said = done.stdout + done.stderr
    if f"all of {len(operations)} operations" in said:
        return ""
    at = next((int(line.rpartition("= ")[2]) for line in said.splitlines() if line.strip().startswith("at = ")), -1)
    refused = operations[at] if 0 <= at < len(operations) else None
    lines = [line for line in said.splitlines() if "rror" in line] or said.splitlines()[-5:]
    return f"{refused}: {' '.join(lines)}"


def _source(operations: Sequence[Operation], claims: int, instances: int, launches: int, clusters: int) -> str:
    # EC2's answers are kept by launch, its instances by number: one bound serves both.
    most = max(instances, launches, 1)
    columns = {
        "operation": [OPERATIONS.index(item.name) for item in operations],
        "first": [item.first for item in operations],
        "second": [item.second for item in operations],
        "install_of": [item.owner for item in operations],
    }
    arrays = "".join(
        f"short {name}[{max(1, len(numbers))}] = {{{','.join(map(str, numbers)) or '0'}}};\n"
        for name, numbers in columns.items()
    )
    return (
        f"#define CLAIMS {max(claims, 1)}\n#define INSTANCES {most}\n#define LAUNCHES {most}\n"
        f"#define CLUSTERS {max(clusters, 1)}\n"
        f"#define LENGTH {len(operations)}\n{arrays}"
    )
