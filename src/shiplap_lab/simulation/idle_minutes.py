"""Leaves out the minutes of a run in which nothing happens, so that a month takes no longer than what happens in it.

A minute is idle if everything that begins in it repeats, has done nothing the last time, and sees what it saw then:
nothing was written since, no message, task or fault is under way, and no moment lies in it at which time alone changes
what to disrupt. The next event that does not repeat ends the rest. Inspections of EC2NodeClasses see nothing that is
written, and find the same unless there has been a fault since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiplap.ports import Instance
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.simulated_install import SimulatedInstall

_MOST_S = 900.0
"""The longest rest without a sweep, in seconds: no claim, pod or message waits meanwhile."""


class IdleMinutes:
    """Of one run. `skip` is called between events, while nothing is pending or unfinished."""

    def __init__(
        self,
        loop: EventLoop,
        faults: FaultInjector,
        clusters: Mapping[str, SimulatedCluster[Instance]],
        installs: Sequence[SimulatedInstall],
    ) -> None:
        self._loop, self._faults, self._clusters, self._installs = loop, faults, clusters, installs
        self._seen: tuple[object, ...] = ()
        self._since = self._disturbed_at = loop.now()

    def look(self) -> None:
        """See whether anything has been written, and whether a fault lasts."""
        if self._faults.active:
            self._disturbed_at = self._loop.now()
        seen = (
            self._faults.writes,
            *(cluster.server.resource_version for cluster in self._clusters.values()),
            *(install.memory.changes for install in self._installs),
        )
        if seen != self._seen:
            self._seen, self._since = seen, self._loop.now()

    def skip(self, latest: float) -> None:
        """Leave out what is idle from now on, until a moment at the latest, epoch seconds."""
        if not self._loop.all_routines_since(self._since, others=self._disturbed_at) or not self._all_rests():
            return
        decided = (
            install.functions.decided_until(cluster.name)
            for install in self._installs
            for cluster in install.settings.clusters
        )
        self._loop.skip_routines(min(latest, self._loop.now() + _MOST_S, *decided))

    def _all_rests(self) -> bool:
        return (
            not self._faults.active
            and not self._loop.is_waiting
            and all(install.functions.is_resting for install in self._installs)
            and all(cluster.is_resting for cluster in self._clusters.values())
        )
