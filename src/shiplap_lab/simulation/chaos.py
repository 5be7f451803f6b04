"""The chances of a seed: its faults, its placement, its waves."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, pi, sin
from random import Random

from shiplap.flows.lifecycle.pod_placement import BIND, NOMINATE, NONE
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kinds import FAULTS, KINDS
from shiplap_lab.scenarios.scenario import Scenario, Wave

ANY = "any"
"""The value of `placement` that leaves the choice to the seed."""


def draw_faults(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The scenario's own faults and `chaos` more, in the order of their moments."""
    chance = Random(f"{seed}:faults")  # noqa: S311 - chance that can be repeated is what is wanted
    possible = [kind.name for kind in FAULTS if scenario.live_manifests or not kind.is_of_manifests]
    kinds = scenario.chaos_kinds or possible
    begin, last = scenario.chaos_hours * 60 or scenario.chaos_minutes, scenario.chaos_minutes
    drawn = [KINDS[chance.choice(kinds)].drawn(chance, begin, last) for _ in range(scenario.chaos)]
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
