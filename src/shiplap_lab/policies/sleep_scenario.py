"""Sleep in scenarios: what is written, and what a seed draws of it."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from random import Random

import msgspec

from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Scenario, ScenarioPart


class ScenarioSleep(ScenarioPart, frozen=True):
    """The sleep settings of every cluster, as in shiplap.yaml, and the shares for what the seed draws.

    In a share `rehearsed` of all seeds the functions have seen the windows of the week before. In a share `narrowed`
    NodePools have these annotations `hours`. In a share `woken` somebody wakes all clusters, up to half an hour after
    the minute `woken_from`. Where nobody does after a rehearsal, a node has to be about to leave if `must_sleep`,
    unless an API server is away for long.
    """

    node_pools: tuple[str, ...]
    most_nodes: int
    windows: tuple[WindowSettings, ...]
    rehearsed: float = 0.0
    hours: dict[str, str] = msgspec.field(default_factory=dict)
    narrowed: float = 0.0
    woken: float = 0.0
    woken_from: float = 0.0
    must_sleep: bool = False

    @property
    def settings(self) -> SleepSettings:
        """For a cluster's settings."""
        return SleepSettings(self.node_pools, self.most_nodes, self.windows)


class _Written(msgspec.Struct, frozen=True):
    """The part of a scenario that sleep adds: errors name its field."""

    sleep: ScenarioSleep | None = None


def sleep_of(scenario: Scenario) -> ScenarioSleep | None:
    """Return the sleep of a scenario; None where nothing sleeps. Raises msgspec.ValidationError."""
    return msgspec.convert({"sleep": scenario.sleep}, _Written).sleep


def check(scenario: Scenario) -> None:
    """Raise msgspec.ValidationError if what is written of sleep cannot be read."""
    sleep_of(scenario)


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
