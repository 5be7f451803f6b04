"""A simulated cluster: scheduler, kubelets and controllers over one API server's store.

The simulation drives it in virtual time. `PolledCluster` and `Runner` drive it in real time for `shiplap lab dev`, by
lists of the machines that EC2 runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Generic

from shiplap.kubernetes.objects import Pod
from shiplap.ports import Clock
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.controllers import DaemonSetController, ReplicaController
from shiplap_lab.cluster_simulator.event_queue import EventQueue, SteppedEvents
from shiplap_lab.cluster_simulator.informer import Informer, Kept
from shiplap_lab.cluster_simulator.kube_scheduler import Scheduler
from shiplap_lab.cluster_simulator.kubelet import Kubelets, M, NodeSource
from shiplap_lab.cluster_simulator.machines import BootedMachines, Delays, Hardware, Machine
from shiplap_lab.cluster_simulator.workloads.workload_controllers import WorkloadControllers, daemon_pod_labels

_STEP_S = 0.05


class SimulatedCluster(Generic[M]):
    """One cluster. Its controllers look for changes at each `step`; machines act when their events are due.

    While `is_down` the API server answers nobody. `most` and `scheduling_events` are for the Scheduler. With
    `workloads`, Deployments and other stored workloads have controllers, too.
    """

    def __init__(
        self,
        name: str,
        server: ApiServer,
        events: EventQueue,
        nodes: NodeSource[M],
        *,
        is_down: Callable[[], bool] = lambda: False,
        most: int = 0,
        scheduling_events: bool = True,
        recreate_pods: bool = True,
        workloads: bool = False,
    ) -> None:
        self.name = name
        self.server = server
        self.informer = Informer(server, self._changed)
        self.kubelets = Kubelets(server, self.informer, events, nodes, is_down)
        self._workloads = WorkloadControllers(server) if workloads else None
        self.replicas = ReplicaController(
            server, self.informer, adopts=lambda uid: recreate_pods and not self._is_stored(uid)
        )
        marks = daemon_pod_labels if workloads else lambda _daemon_set: {}
        self._daemon_sets = DaemonSetController(server, self.informer, marks)
        self.scheduler = Scheduler(server, most=most, events=scheduling_events)
        self._events, self._is_down = events, is_down
        self._waiting: dict[str, Pod] = {}
        self._at_rest = ""

    def step(self) -> None:
        """Controllers, kube-scheduler and kubelets do what is to do, in a fixed order."""
        if self._is_down():
            return
        if self.is_resting:
            return
        version = self.server.resource_version
        self.informer.refresh()
        self._daemon_sets.step()
        if self._workloads is not None:
            self._workloads.step()
        self.replicas.step()
        with self.server.at_once():  # whoever reads pods sees all that wait, however fast this machine is
            self.scheduler.step(self._events.now())
        self.informer.refresh()
        self.kubelets.step()
        # After a step that wrote nothing, the same step on the same objects writes nothing again.
        self._at_rest = version if self.server.resource_version == version else ""

    @property
    def is_resting(self) -> bool:
        """True if the next step does nothing."""
        settled = self._workloads is None or self._workloads.is_settled
        return settled and self.server.resource_version == self._at_rest and self.replicas.is_settled

    def pending(self) -> list[Pod]:
        """Pods without a node, as of the last look."""
        return [pod for _, pod in sorted(self._waiting.items())]

    def pending_uids(self) -> list[str]:
        """Of the same pods, in any order."""
        return [pod.metadata.uid for pod in self._waiting.values()]

    def _is_stored(self, uid: str) -> bool:
        return self._workloads is not None and self._workloads.has_had(uid)

    def _changed(self, plural: str, key: str, before: Kept | None, after: Kept | None) -> None:  # noqa: ARG002
        if plural != "pods":
            return
        if isinstance(after, Pod) and not after.spec.node_name:
            self._waiting[key] = after
        else:
            self._waiting.pop(key, None)


class PolledCluster:
    """A SimulatedCluster whose machines are read from lists. `machines` may hold the ended ones or leave them out.

    `recreate_pods`: pods of ReplicaSets and StatefulSets that are not stored come back when they are deleted.
    """

    def __init__(
        self,
        server: ApiServer,
        hardware: Hardware,
        machines: Callable[[], Sequence[Machine]],
        *,
        delays: Delays = Delays(),  # noqa: B008 - frozen
        joins: Callable[[Machine], float | None] | None = None,
        recreate_pods: bool = True,
        version: str = "v1.34.0",
    ) -> None:
        self._events = SteppedEvents()
        self._machines = machines
        self._running: dict[str, Machine] = {}
        nodes = BootedMachines(hardware, delays, joins, version)
        self._cluster = SimulatedCluster("", server, self._events, nodes, recreate_pods=recreate_pods, workloads=True)

    @property
    def broken(self) -> dict[str, str]:
        """Return why machines could not boot, by instance id."""
        return self._cluster.kubelets.broken

    def step(self, now: float, *, controllers: bool = True) -> None:
        """Do what is due at `now` (epoch seconds) and nothing else; without `controllers` only kubelets act."""
        running = {machine.id: machine for machine in self._machines() if machine.running}
        for name in sorted(self._running.keys() - running.keys()):
            self._cluster.kubelets.end(self._running.pop(name))
        for name in sorted(running.keys() - self._running.keys()):
            self._running[name] = running[name]
            self._cluster.kubelets.boot(running[name], since=running[name].launched_at)
        self._events.advance(now)
        for name, machine in sorted(running.items()):
            if machine.reboots > self._running[name].reboots:
                self._running[name] = machine
                self._cluster.kubelets.reboot(machine)
        if controllers:
            self._cluster.step()
        else:
            self._cluster.informer.refresh()
            self._cluster.kubelets.step()
        self._events.advance(now)


class Runner:
    """Steps clusters in a thread, every 50 ms of real time.

    Attributes:
        failure: the error that ended the thread, None while all is well.
    """

    def __init__(self, clusters: Sequence[PolledCluster], clock: Clock, *, step_s: float = _STEP_S) -> None:
        self.failure: Exception | None = None
        self._clusters = clusters
        self._clock = clock
        self._step_s = step_s
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="simulated-clusters", daemon=True)

    def start(self) -> Runner:
        """Begin; returns itself."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the current step. Raises the error that a step ended with, if any."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        while not self._stopping.wait(self._step_s):
            try:
                for cluster in self._clusters:
                    cluster.step(self._clock.now())
            except Exception as error:  # noqa: BLE001 - kept for `stop` and whoever looks: a thread has no caller
                self.failure = error
                return
