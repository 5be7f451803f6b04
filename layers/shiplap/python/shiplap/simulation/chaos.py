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
_WRITES = (
    "state.advance",
    "state.advance_all",
    "state.commit",
    "state.*",
    "compute.terminate",
    "cluster.register_node",
)
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
    target, amount = "*", likely
    match kind:
        case "lose" | "double":
            target = chance.choice(_QUEUES)
        case "delay":
            target, amount = chance.choice(_QUEUES), round(chance.uniform(1, 300))
        case "crash":
            target, amount = chance.choice(_FUNCTIONS), chance.randrange(0, 60)
        case "refuse":
            target = chance.choice(_EFFECTS)
        case "answer-lost":
            target = chance.choice(_WRITES)
        case "slow":
            target, amount = chance.choice(_EFFECTS), round(chance.uniform(1, 90))
        case "no-capacity":
            target, amount = chance.choice(_OFFERINGS), chance.choice((0, 0, 1, 2))
        case "describe-lag":
            amount = round(chance.uniform(5, 60))
        case "terminate":
            amount = chance.randrange(1, 4)
        case "late-join":
            amount = round(chance.uniform(30, 400))
        case "api-down" | "taint":
            amount = 1.0
    return Fault(kind, at, 0.0 if kind in ("crash", "terminate") else minutes, target, amount)
