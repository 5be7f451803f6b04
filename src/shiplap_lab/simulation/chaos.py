"""Faults drawn from a seed: their kind, moment, duration and severity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import ceil, inf, pi, sin
from random import Random

import msgspec

from shiplap.flows.lifecycle.pod_placement import BIND, NOMINATE, NONE
from shiplap_lab.scenarios.scenario import (
    FAULT_KINDS,
    OBJECT_FAULT_KINDS,
    Fault,
    FaultKind,
    Scenario,
    ScenarioSleep,
    Wave,
)

ANY = "any"
"""The value of `placement` that leaves the choice to the seed."""

_QUEUES = ("provisioning", "lifecycle", "interruption", "*")
_FUNCTIONS = ("schedule", "schedule", "lifecycle", "lifecycle", "interrupt", "disrupt")
_EFFECTS = (
    "state.*",
    "state.advance",
    "state.advance_all",
    "state.commit",
    "capacity.*",
    "cluster.*",
    "cluster.patch_node",
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
    "cluster.patch_node",
)
_OFFERINGS = ("*", "c7i-flex.*", "*/eu-west-1a/*", "*/*/spot", "m6i.*", "*/eu-west-1b/*")


def draw_faults(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The scenario's own faults and `chaos` more, in the order of their moments."""
    chance = Random(f"{seed}:faults")  # noqa: S311 - chance that can be repeated is what is wanted
    possible = FAULT_KINDS if scenario.live_manifests else [k for k in FAULT_KINDS if k not in OBJECT_FAULT_KINDS]
    kinds = scenario.chaos_kinds or possible
    begin, last = scenario.chaos_hours * 60 or scenario.chaos_minutes, scenario.chaos_minutes
    drawn = [_fault(chance.choice(kinds), chance, begin, last) for _ in range(scenario.chaos)]
    return tuple(sorted((*scenario.faults, *drawn), key=lambda fault: (fault.at, fault.kind, fault.target)))


def placement(scenario: Scenario, seed: int) -> str:
    """Return the placement of pods: the scenario's own; for `any`, the product's default in half of all runs."""
    if scenario.placement != ANY:
        return scenario.placement
    chance = Random(f"{seed}:placement")  # noqa: S311 - repeatable chance
    return chance.choice((NOMINATE, NOMINATE, NONE, BIND))


def is_watched(scenario: Scenario, seed: int) -> bool:
    """True if the watch function itself runs; else the simulation imitates it."""
    return Random(f"{seed}:watch").random() < scenario.watched  # noqa: S311 - repeatable chance


class Night(msgspec.Struct, frozen=True):
    """One seed's draw for a scenario's sleep: whether windows were rehearsed before, and which annotations there are.

    Somebody wakes the clusters `woken_at_s` after the beginning, or never: inf. If it `must_sleep`, a node is to leave.
    """

    rehearsed: bool = False
    hours: dict[str, str] = {}
    woken_at_s: float = inf
    must_sleep: bool = False


_MOST_DOWN_MINUTES = 20.0
"""An API server that is longer away can leave no time to sleep: nodes do not leave for the rest of a window."""


def night_of(sleep: ScenarioSleep | None, seed: int, faults: Iterable[Fault] = ()) -> Night:
    """Return the night that this seed draws, and whether its faults leave time to sleep."""
    if sleep is None:
        return Night()
    chance = Random(f"{seed}:night")  # noqa: S311 - repeatable chance
    rehearsed, narrowed, woken = (chance.random() < share for share in (sleep.rehearsed, sleep.narrowed, sleep.woken))
    woken_at_s = round(60 * (sleep.woken_from + chance.uniform(0, 30)))
    has_time = not any(fault.kind == "api-down" and fault.minutes > _MOST_DOWN_MINUTES for fault in faults)
    must_sleep = sleep.must_sleep and rehearsed and not woken and has_time
    return Night(rehearsed, sleep.hours if narrowed else {}, woken_at_s if woken else inf, must_sleep)


def waves_of_rhythms(scenario: Scenario, seed: int, hours: float) -> Iterator[Wave]:
    """The waves that a scenario's rhythms make of the first `hours`."""
    for rhythm in scenario.rhythms:
        chance = Random(f"{seed}:rhythm:{rhythm.group}")  # noqa: S311 - repeatable chance
        last = -1
        for step in range(ceil(hours * 60 / rhythm.step_minutes)):
            minute = step * rhythm.step_minutes
            hour, day = minute / 60 % 24, int(minute // 1440) % 7
            rise = max(0.0, sin(pi * ((hour - rhythm.peak_hour + 6) % 24) / 12)) * (rhythm.weekend if day > 4 else 1.0)
            drift = 1 + chance.uniform(-rhythm.noise, rhythm.noise)
            replicas = round((rhythm.low + (rhythm.high - rhythm.low) * rise) * drift)
            if replicas != last:
                yield Wave(rhythm.group, replicas, at=minute)
            last = replicas


_AMOUNTS: dict[str, Callable[[Random], float]] = {
    "delay": lambda chance: round(chance.uniform(1, 300)),
    "crash": lambda chance: chance.randrange(0, 60),
    "slow": lambda chance: round(chance.uniform(1, 90)),
    "throttle": lambda chance: round(chance.uniform(0.5, 1), 2),
    "no-capacity": lambda chance: chance.choice((0, 0, 1, 2)),
    "describe-lag": lambda chance: round(chance.uniform(5, 60)),
    "terminate": lambda chance: chance.randrange(1, 4),
    "stray": lambda chance: chance.randrange(1, 3),
    "quota": lambda chance: chance.randrange(0, 3),
    "index-lag": lambda chance: round(chance.uniform(10, 120)),
    "late-join": lambda chance: round(chance.uniform(30, 400)),
    "api-down": lambda _: 1.0,
    "taint": lambda _: 1.0,
    "never-ready": lambda chance: round(chance.uniform(0.1, 0.4), 2),
    "startup-taint": lambda chance: round(chance.uniform(30, 300)),
    "twice": lambda chance: round(chance.uniform(0, 30), 1),
    "clock-skew": lambda chance: round(chance.uniform(20, 150)),
    "cold-start": lambda chance: round(chance.uniform(1, 8), 1),
    "long-pending": lambda chance: round(chance.uniform(30, 240)),
    "slow-end": lambda chance: round(chance.uniform(30, 400)),
    "address-again": lambda _: 1.0,
    "ami-drift": lambda _: 1.0,
    "subnets": lambda _: 1.0,
    "pdb-zero": lambda _: 1.0,
    "daemon-set": lambda chance: round(chance.uniform(50, 400)),
    "restore": lambda _: 1.0,
    "watch-gone": lambda _: 1.0,
    "snapshot-corrupt": lambda _: 1.0,
    "snapshot-lost": lambda _: 1.0,
    "late-device": lambda chance: round(chance.uniform(20, 200)),
    "recursion": lambda _: 1.0,
    "reprice": lambda chance: round(chance.choice((0.5, 0.8, 1.2, 1.6)), 2),
    "pools-deleted": lambda _: 1.0,
    "manifests-denied": lambda _: 1.0,
    "karpenter-lease": lambda _: 1.0,
    "invalid-manifest": lambda _: 1.0,
    "edit-and-back": lambda _: 1.0,
    "own-nodeclaim": lambda _: 1.0,
    "nodeclaims-deleted": lambda chance: chance.randrange(1, 4),
    "nodes-deleted": lambda chance: chance.randrange(1, 3),
}
"""The amount of each kind of fault; all other kinds take a probability."""

_TARGETS: dict[str, tuple[str, ...]] = {
    "lose": _QUEUES,
    "double": _QUEUES,
    "delay": _QUEUES,
    "crash": _FUNCTIONS,
    "refuse": _EFFECTS,
    "throttle": ("compute.*", "compute.launch", "compute.terminate", "compute.instances"),
    "answer-lost": _WRITES,
    "slow": _EFFECTS,
    "no-capacity": _OFFERINGS,
    "quota": ("on-demand", "spot"),
    "broken-node": ("*", "left"),
    "twice": ("disrupt", "*"),
    "reprice": ("*", "*/eu-west-1a", "c7i.*", "m6i.*"),
}
_MOMENTARY = ("crash", "terminate", "stray", "nodeclaims-deleted", "nodes-deleted")


def _fault(kind: FaultKind, chance: Random, begin: float, last: float) -> Fault:
    """One that begins within so many minutes, and is over after half of `last` at most."""
    at, minutes = round(chance.uniform(0, begin), 2), round(chance.uniform(0.5, last / 2), 2)
    likely = round(chance.uniform(0.1, 0.9), 2)
    target = chance.choice(_TARGETS[kind]) if kind in _TARGETS else "*"
    amount = _AMOUNTS[kind](chance) if kind in _AMOUNTS else likely
    return Fault(kind, at, 0.0 if kind in _MOMENTARY else minutes, target, amount)
