"""One install in the simulation: its functions, its state, its access to the shared account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from msgspec.structs import replace

from shiplap.flows.context import FlowContext
from shiplap.flows.function_install import WarmMemory, counted_errors
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.ports import Clock, Instance
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.fakes.compute import FakeHealth
from shiplap_lab.fakes.identities import FakeKeptIdentities, FakeNodeIdentities
from shiplap_lab.fakes.signals import FakeDeadLetters, FakeMeter
from shiplap_lab.fakes.state import FakeJoins
from shiplap_lab.fakes.stores import (
    FakeCapacity,
    FakeCatalog,
    FakeDryRuns,
    FakeManifests,
    FakeMemory,
    FakeRecorder,
    FakeStatus,
)
from shiplap_lab.policies.policy_plays import fake_ports, ports_of
from shiplap_lab.virtual_time.checked_fakes import CheckedCluster, CheckedCompute, CheckedState, QueueTimers, RoutingBus
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.functions import SimulatedFunctions
from shiplap_lab.virtual_time.lasting_watches import CheckedSnapshots, ClusterWithWatches
from shiplap_lab.virtual_time.supply import MovingCatalogSource
from shiplap_lab.virtual_time.trace import Trace
from shiplap_lab.virtual_time.virtual_threads import VirtualThreads

MakeState = Callable[[FaultInjector, Clock], CheckedState]


class SimulationContext(NamedTuple):
    """Shared by all installs: the event loop, the faults, the trace, the catalogue and the meter.

    `make_state` makes the table `state` of one install. With `threads`, the watch function runs and keeps snapshots.
    """

    loop: EventLoop
    faults: FaultInjector
    trace: Trace
    sold: Catalog
    meter: FakeMeter
    make_state: MakeState = CheckedState
    threads: VirtualThreads | None = None


class SimulatedInstall:
    """An install with its own tables, queues and functions; clusters and EC2 are shared."""

    def __init__(self, settings: Settings, stage: SimulationContext, compute: CheckedCompute) -> None:
        loop, faults, trace, sold, _, make_state, threads = stage
        self.settings = settings
        self.stage = stage
        self._containers = 0
        self.compute = compute
        self.state = make_state(faults, loop.clock)
        self.capacity = FakeCapacity(faults)
        self.policy_ports = fake_ports(faults)
        self.memory = FakeMemory(faults)
        self.status = FakeStatus(faults)
        self.catalog = FakeCatalog(sold, faults)
        self.source = MovingCatalogSource(sold, lambda: _factors(faults))
        self.dead_letters = FakeDeadLetters(faults)
        self.snapshots = CheckedSnapshots(faults) if threads is not None else None
        self.recorders: dict[str, FakeRecorder] = {}
        self.contexts: dict[str, FlowContext] = {}
        self.access: dict[str, CheckedCluster] = {}
        self.functions = SimulatedFunctions(
            loop,
            faults,
            trace,
            clusters=len(settings.clusters),
            start_container=self._start_container,
            watched=[cluster.name for cluster in settings.clusters] if threads is not None else (),
        )

        self.bus = RoutingBus(faults, self.functions.route)
        self.timers = QueueTimers(faults, self.functions.remind)

    def _start_container(self) -> SimulatedContainer:
        self._containers += 1
        return SimulatedContainer(self, ContainerClock(self.stage.faults, self._containers))

    def connect(self, clusters: Mapping[str, SimulatedCluster[Instance]]) -> None:
        """Give the functions access to these clusters."""
        loop, faults, _, _, meter, _, threads = self.stage
        joins, dry_runs, manifests = FakeJoins(faults), FakeDryRuns(faults), FakeManifests(faults)
        policies = {cluster.name: cluster.policies_on for cluster in self.settings.clusters}
        for name, cluster in clusters.items():
            self.recorders[name] = FakeRecorder(faults)
            self.access[name] = (
                CheckedCluster(cluster.server, faults)
                if threads is None
                else ClusterWithWatches(cluster.server, faults, threads)
            )
            self.contexts[name] = FlowContext(
                clock=loop.clock,
                cluster=self.access[name],
                compute=self.compute,
                state=self.state,
                capacity=self.capacity,
                catalog=self.catalog,
                source=self.source,
                bus=self.bus,
                timers=self.timers,
                recorder=self.recorders[name],
                meter=meter,
                health=FakeHealth(faults),
                joins=joins,
                status=self.status,
                dry_runs=dry_runs,
                manifests=manifests,
                snapshots=self.snapshots,
                policies=policies[name],
                policy_ports=ports_of(self.policy_ports, policies[name]),
            )


def _factors(faults: FaultInjector) -> list[tuple[str, float]]:
    return [factor for kind in faults.at_work for factor in kind.price_factors()]


class ProbesInTurn:
    """Runs probes one after the other: threads would make runs differ."""

    def submit(self, name: str, probe: Callable[[], None]) -> None:  # noqa: ARG002 - of threads
        """Run a probe to its end."""
        probe()


class ContainerClock:
    """The clock of one container: active faults set it some time before or after the clock of AWS."""

    def __init__(self, faults: FaultInjector, container: int) -> None:
        self._faults, self._container = faults, container

    def now(self) -> float:
        return self._faults.now_in(self._container)


class SimulatedContainer:
    """A FunctionInstall in one simulated Lambda container: the ports are the install's, the memory is its own."""

    memory_mib = 1769
    optional = None

    def __init__(self, install: SimulatedInstall, clock: ContainerClock) -> None:
        self._install = install
        self._loop = install.stage.loop
        self.settings = self.served = install.settings
        self.clock = clock
        self.meter = install.stage.meter
        self.state, self.memory, self.status = install.state, install.memory, install.status
        self.dead_letters = install.dead_letters
        self.warm = WarmMemory()
        self.executor = ProbesInTurn()

    def context(self, cluster: ClusterSettings) -> FlowContext:
        return replace(self._install.contexts[cluster.name], clock=self.clock)

    def catalog_store(self, region: str) -> FakeCatalog:  # noqa: ARG002 - there is one region
        return self._install.catalog

    def catalog_source(self, region: str) -> MovingCatalogSource:  # noqa: ARG002 - as above
        return self._install.source

    def node_identities(self, region: str) -> FakeNodeIdentities:  # noqa: ARG002 - as above
        return FakeNodeIdentities()

    def kept_identities(self, region: str) -> FakeKeptIdentities:  # noqa: ARG002 - as above
        return FakeKeptIdentities()

    def pause(self, seconds: float) -> None:
        self._install.stage.faults.wait(seconds)

    def reporting(self, request_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - nobody reads the log
        return counted_errors(self.meter)
