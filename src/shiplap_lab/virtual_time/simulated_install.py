"""One install in the simulation: its functions, its state, its access to the shared account, its invariant checker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from shiplap.flows.context import FlowContext
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.fakes.bucket import FakeCatalog, FakeMemory, FakeRecorder
from shiplap_lab.fakes.capacity_table import FakeCapacity
from shiplap_lab.fakes.clock import FakeMeter
from shiplap_lab.fakes.dead_letters import FakeDeadLetters
from shiplap_lab.fakes.health import FakeHealth
from shiplap_lab.fakes.join_log import FakeJoins
from shiplap_lab.virtual_time.checked_fakes import CheckedCluster, CheckedCompute, CheckedState, QueueTimers, RoutingBus
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.functions import SimulatedFunctions
from shiplap_lab.virtual_time.invariants import InvariantChecker
from shiplap_lab.virtual_time.supply import FixedCatalogSource
from shiplap_lab.virtual_time.trace import Trace


class SimulationContext(NamedTuple):
    """Shared by all installs: the event loop, the faults, the trace, the catalogue and the meter."""

    loop: EventLoop
    faults: FaultInjector
    trace: Trace
    sold: Catalog
    meter: FakeMeter


class SimulatedInstall:
    """An install with its own tables, queues and functions; clusters and EC2 are shared."""

    def __init__(
        self, settings: Settings, stage: SimulationContext, compute: CheckedCompute, checker: InvariantChecker
    ) -> None:
        self._stage = stage
        self.compute = compute
        self.checker = checker
        self.state = CheckedState(stage.faults, checker, stage.loop.clock)
        self.dead_letters = FakeDeadLetters(stage.faults)
        self.recorders: dict[str, FakeRecorder] = {}
        self.functions = SimulatedFunctions(
            settings,
            stage.loop,
            stage.faults,
            stage.trace,
            state=self.state,
            memory=FakeMemory(stage.faults),
            dead_letters=self.dead_letters,
        )

    def connect(self, clusters: Mapping[str, SimulatedCluster[Instance]]) -> None:
        """Give the functions access to these clusters."""
        loop, faults, _, sold, meter = self._stage
        capacity, joins = FakeCapacity(faults), FakeJoins(faults)
        for name, cluster in clusters.items():
            self.recorders[name] = FakeRecorder(faults)
            self.functions.contexts[name] = FlowContext(
                clock=loop.clock,
                cluster=CheckedCluster(cluster.server, faults, self.checker),
                compute=self.compute,
                state=self.state,
                capacity=capacity,
                catalog=FakeCatalog(sold, faults),
                source=FixedCatalogSource(sold),
                bus=RoutingBus(faults, self.functions.route),
                timers=QueueTimers(faults, self.functions.remind),
                recorder=self.recorders[name],
                meter=meter,
                health=FakeHealth(faults),
                joins=joins,
            )


def settings_of(cluster: ClusterSettings, names: tuple[str, ...], install: str) -> Settings:
    """The settings of an install for clusters that are alike but for their names."""
    return Settings(tuple(replace(cluster, name=name, install=install) for name in names))
