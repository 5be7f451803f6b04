"""Sleep in a run of the simulation: rehearsals before it, annotations, somebody who wakes the clusters, its judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import cast

import msgspec
from msgspec.structs import replace

from shiplap.instances.readiness.joins import JoinHistory
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.shiplap_annotations import SLEEP
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_state, with_rehearsals
from shiplap.settings import ClusterSettings
from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge.sleep_judge import SleepRule
from shiplap_lab.policies.policy_plays import PolicyRun, PolicyWorld
from shiplap_lab.policies.sleep_fakes import FakeSleep
from shiplap_lab.policies.sleep_scenario import Night, night_of, sleep_of
from shiplap_lab.scenarios.scenario import Scenario

_WEEK_S, _SEEN_EVERY_S = 7 * 24 * 3600, 600


class SleepRun(PolicyRun):
    """One run of a scenario in which something sleeps, or nothing."""

    def __init__(self, scenario: Scenario, seed: int, faults: Sequence[Fault]) -> None:
        self._sleep = sleep_of(scenario)
        self._night: Night = night_of(self._sleep, seed, faults)
        self.rests = self._sleep is None  # what sleeps changes with time alone

    def manifests(self, written: Manifests) -> Manifests:
        """With the annotations of the night."""
        pools = []
        for pool in written.node_pools:
            hours = self._night.hours.get(pool.metadata.name)
            noted = pool.metadata.annotations | ({SLEEP: hours} if hours else {})
            pools.append(replace(pool, metadata=replace(pool.metadata, annotations=noted)))
        return replace(written, node_pools=tuple(pools))

    def begin(self, world: PolicyWorld) -> None:
        """Let the functions have seen the windows of the week before, and tell the judge what sleeps."""
        self._world = world
        clusters = [cluster for cluster, _ in self._stores()]
        every = sorted({pool.metadata.name for cluster in clusters for pool in cluster.manifests.node_pools})
        night = {"rehearsed": self._night.rehearsed, "hours": self._night.hours, "all": every}
        sleep = None if self._sleep is None else msgspec.to_builtins(self._sleep) | night
        self._rule = SleepRule(sleep, world.now, world.apart_s)
        world.judge.leaving_rules["Asleep"] = self._rule
        if sleep is not None:
            world.judge.waiting_rules.append(self._rule.lets_wait)
        if self._night.rehearsed:
            for cluster, store in self._stores():
                _rehearse(cluster, store, int(world.now()))

    def moments(self) -> tuple[tuple[float, Callable[[], None]], ...]:
        """Somebody wakes all clusters in some nights."""
        return ((self._night.woken_at_s, self._wake),) if self._night.woken_at_s < inf else ()

    def unmet(self) -> str:
        """Nodes that were to leave count, whether or not they did: what cannot be read afterwards keeps them."""
        if not self._night.must_sleep or self._rule.left:
            return ""
        if any(store.read(cluster.name).taken for cluster, store in self._stores()):
            return ""
        return "windows were rehearsed, and no node was to leave for sleep"

    def _stores(self) -> Iterator[tuple[ClusterSettings, FakeSleep]]:
        for install in self._world.installs:
            store = cast("FakeSleep", install.policy_ports["sleep"]["sleep"])
            yield from ((cluster, store) for cluster in install.settings.clusters)

    def _wake(self) -> None:
        now = self._world.now()
        for cluster, store in self._stores():
            store.wake(cluster.name, int(now), 0)
        self._rule.sleep = {**self._rule.sleep, "wokenAt": now}
        self._world.record("woken")


def _rehearse(cluster: ClusterSettings, store: FakeSleep, now: int) -> None:
    """Note what was a rehearsal in the week before."""
    sleep, pools, notes = cluster.policy(SleepSettings), cluster.manifests.node_pools, SleepNotes()
    for at in range(now - _WEEK_S, now, _SEEN_EVERY_S):
        if sleep is not None and sleep_state(sleep, pools, JoinHistory(), notes, at).scopes:
            notes = with_rehearsals(sleep, pools, notes, at)
    store.save(cluster.name, notes, now)


def run(scenario: Scenario, seed: int, faults: Sequence[Fault]) -> PolicyRun:
    """Return what sleep does in a run."""
    return SleepRun(scenario, seed, faults)
