"""Faults drawn from a seed: what goes wrong, when, for how long and how badly."""

from __future__ import annotations

from random import Random

from shiplap.simulation.scenario import FAULT_KINDS, Fault, FaultKind, Scenario

_QUEUES = ("provisioning", "lifecycle", "interruption", "*")
_FUNCTIONS = ("schedule", "schedule", "lifecycle", "lifecycle", "interrupt", "disrupt")
_EFFECTS = (
    "state.*",
    "state.advance",
    "state.advance_all",
    "state.commit",
    "capacity.*",
    "cluster.*",
    "cluster.register_node",
    "cluster.evict",
    "compute.*",
    "compute.launch",
    "compute.terminate",
    "bus.publish",
    "timers.remind",
    "joins.*",
    "memory.*",
    "recorder.record",
)
_WRITES = ("state.advance", "state.advance_all", "state.commit", "state.*", "compute.terminate", "cluster.register_node")
_OFFERINGS = ("*", "c7i-flex.*", "*/eu-west-1a/*", "*/*/spot", "m6i.*", "*/eu-west-1b/*")


def draw(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The scenario's own faults and `chaos` more, in the order of their moments."""
    chance = Random(f"{seed}:faults")  # noqa: S311 - chance that can be repeated is what is wanted
    kinds = scenario.chaos_kinds or FAULT_KINDS
    drawn = [_fault(chance.choice(kinds), chance, scenario.chaos_minutes) for _ in range(scenario.chaos)]  # type: ignore[arg-type]
    return tuple(sorted((*scenario.faults, *drawn), key=lambda fault: (fault.at, fault.kind, fault.target)))


def _fault(kind: FaultKind, chance: Random, within: float) -> Fault:
    at, minutes = round(chance.uniform(0, within), 2), round(chance.uniform(0.5, within / 2), 2)
    likely = round(chance.uniform(0.1, 0.9), 2)
    if kind in ("lose", "double"):
        return Fault(kind, at, minutes, chance.choice(_QUEUES), likely)
    if kind == "delay":
        return Fault(kind, at, minutes, chance.choice(_QUEUES), round(chance.uniform(1, 300)))
    if kind == "crash":
        return Fault(kind, at, 0.0, chance.choice(_FUNCTIONS), chance.randrange(0, 60))
    if kind == "refuse":
        return Fault(kind, at, minutes, chance.choice(_EFFECTS), likely)
    if kind == "answer-lost":
        return Fault(kind, at, minutes, chance.choice(_WRITES), likely)
    if kind == "slow":
        return Fault(kind, at, minutes, chance.choice(_EFFECTS), round(chance.uniform(1, 90)))
    if kind == "no-capacity":
        return Fault(kind, at, minutes, chance.choice(_OFFERINGS), chance.choice((0, 0, 1, 2)))
    if kind == "describe-lag":
        return Fault(kind, at, minutes, "*", round(chance.uniform(5, 60)))
    if kind == "terminate":
        return Fault(kind, at, 0.0, "*", chance.randrange(1, 4))
    if kind == "late-join":
        return Fault(kind, at, minutes, "*", round(chance.uniform(30, 400)))
    return Fault(kind, at, minutes, "*", 1.0 if kind in ("api-down", "taint") else likely)
