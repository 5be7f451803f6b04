"""A simulated cluster: scheduler, kubelets and controllers over one API server's store, driven step by step.

A step does what is due at a moment and nothing else, so that a simulation in virtual time and the real-time runner of
`shiplap dev` use the same cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event, Thread

from shiplap.ports import Clock
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.controllers import DaemonSetController, ReplicaController
from shiplap_lab.cluster_simulator.kube_scheduler import Scheduler
from shiplap_lab.cluster_simulator.kubelet import Delays, Kubelets
from shiplap_lab.cluster_simulator.machines import Hardware, Machine

_STEP_S = 0.05


class SimulatedCluster:
    """One cluster. `machines` lists its EC2 instances, ended ones included or left out.

    `recreate_pods`: pods of ReplicaSets and StatefulSets come back when they are deleted.
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
        self.server = server
        self._machines = machines
        self._kubelets = Kubelets(server, hardware, delays=delays, joins=joins, version=version)
        self._daemon_sets = DaemonSetController(server)
        self._replicas = ReplicaController(server) if recreate_pods else None
        self._scheduler = Scheduler(server)

    def step(self, now: float) -> None:
        """What is due at `now` (epoch seconds), in a fixed order: nodes, daemons, replacements, scheduling."""
        self._kubelets.step(now, self._machines())
        self._daemon_sets.step()
        if self._replicas is not None:
            self._replicas.step()
        self._scheduler.step(now)


class Runner:
    """Steps clusters in a thread, every 50 ms of real time.

    Attributes:
        failure: the error that ended the thread, None while all is well.
    """

    def __init__(self, clusters: Sequence[SimulatedCluster], clock: Clock, *, step_s: float = _STEP_S) -> None:
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
