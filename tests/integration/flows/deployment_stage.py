"""A stage on which Deployments run and nodes leave, second by second: controllers, kube-scheduler and kubelets act.

Pods take 20 seconds to be Ready and 30 to end. Endpoints are counted each second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.disruption.decide import decide
from shiplap.errors import ClusterUnreachable
from shiplap.policies.policy_settings import PolicySettings, chosen
from shiplap.ports import Instance
from shiplap_lab.cluster_simulator.event_queue import SteppedEvents
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from tests.builders.workloads import workload_object
from tests.integration.flows.disrupted import Disrupted, decided_on

STARTS_S, ENDS_S = 20.0, 30.0


class DeploymentStage(Disrupted):
    """Deployments on nodes. `missing` counts the seconds in which a Deployment had no ready endpoint, by its name.

    It is a NodeSource: machines join after 30 seconds and are ready five seconds later.
    """

    pod_start_s = STARTS_S
    node_gone_s = 5.0

    def __init__(self, settings: PolicySettings | None, *, budget: str = "100%", **disruption: object) -> None:
        super().__init__(budget=budget, **disruption)
        if settings is not None:
            self.settings = replace(self.settings, policies=chosen(settings))
            self.with_policies()
        self.missing: Counter[str] = Counter()
        self.old: set[str] = set()
        self._queue = SteppedEvents()
        self._queue.advance(self.clock.now())
        self.simulated = SimulatedCluster[Instance]("", self.server, self._queue, self, workloads=True)
        self._running: dict[str, Instance] = {}
        self._ready: frozenset[str] = frozenset()
        self._served: set[str] = set()

    # What machines do

    def join_s(self, machine: Instance) -> float:
        return 30.0

    def ready_s(self, machine: Instance) -> float:
        return 5.0

    def pod_end_s(self, uid: str) -> float:
        return ENDS_S

    def node_object(self, instance: Instance, now: float = 0.0, *, ready: bool = False) -> dict[str, Any]:
        return super().node_object(instance, ready=ready)

    # What users do

    def deploy(
        self, name: str, replicas: int = 1, *, annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Create a Deployment whose pod template has annotations."""
        of_template = spec.pop("template_spec", {})
        body = workload_object(name, replicas, cpu=spec.pop("cpu", "900m"), **spec)
        body["spec"]["template"]["spec"] |= of_template
        body["spec"]["template"]["metadata"]["annotations"] = dict(annotations or {})
        self.server.create("deployments", body)

    def guard(self, name: str, **spec: Any) -> None:
        """Create a PodDisruptionBudget of a Deployment."""
        selector = {"matchLabels": {"app": name}}
        metadata = {"name": name, "namespace": "default"}
        self.server.create("poddisruptionbudgets", {"metadata": metadata, "spec": {"selector": selector, **spec}})

    def limit(self, grace: str) -> None:
        """Give nodes a terminationGracePeriod."""
        (pool,) = self.settings.manifests.node_pools
        template = pool.spec.template
        template = replace(template, spec=replace(template.spec, termination_grace_period=grace))
        pool = replace(pool, spec=replace(pool.spec, template=template))
        self.settings = replace(self.settings, manifests=replace(self.settings.manifests, node_pools=(pool,)))

    def drift(self) -> None:
        """Change what nodes are made with, so that all have drifted."""
        (known,) = self.settings.manifests.node_classes
        number = str(len(known.spec.tags or {}))
        spec = replace(known.spec, tags={**(known.spec.tags or {}), number: "new"})
        manifests = replace(self.settings.manifests, node_classes=(replace(known, spec=spec),))
        self.settings = replace(self.settings, manifests=manifests)

    # What time does

    def seconds(self, number: int) -> None:
        """Let time pass: what is due happens, and functions are invoked as they are when deployed."""
        for _ in range(number):
            self.clock.advance(1)
            self._step_machines()
            if int(self.clock.now()) % 60 == 0:
                self.dies(self.disrupt)
                self.dies(self.sweep)
            if self.pending() and int(self.clock.now()) % 10 == 0:
                self.dies(self.schedule)
            self.dies(self._attend_nodes)
            self.dies(self.attend_timers)
            self._count_endpoints()

    def settle(self, most_minutes: int = 60) -> int:
        """Let minutes pass until all is quiet for two of them; return how many it took."""
        quiet = 0
        for minute in range(most_minutes):
            self.seconds(60)
            quiet = quiet + 1 if self._is_at_rest() else 0
            if quiet == 3:
                return minute + 1
        raise AssertionError(self.summary())

    def dies(self, act: Callable[[], object]) -> bool:
        """As of any stage; an invocation that the API server does not answer fails, and the next one comes."""
        try:
            return super().dies(act)
        except ClusterUnreachable:
            return False

    def _is_at_rest(self) -> bool:
        """True if nothing is under way. A crash that meets who looks is none of a function: one looks again."""
        found: list[bool] = []
        self.dies(lambda: found.append(self.quiet() and not self.state.commands(self.name)))
        return found == [True]

    def _step_machines(self) -> None:
        alive = {instance.id: instance for instance in self.compute.alive()}
        for name in sorted(self._running.keys() - alive.keys()):
            self.simulated.kubelets.end(self._running.pop(name))
        for name in sorted(alive.keys() - self._running.keys()):
            self._running[name] = alive[name]
            self.simulated.kubelets.boot(alive[name], since=self.clock.now())
        for _ in range(4):  # controllers see each other's writes within the second
            self._queue.advance(self.clock.now())
            self.simulated.step()

    def _attend_nodes(self) -> None:
        ready = frozenset(
            f"{item['metadata']['name']} {condition['status']}"
            for item in self.server.list("nodes").items
            for condition in item["status"]["conditions"]
        )
        if ready != self._ready:
            self._ready = ready
            self.attend()

    def _count_endpoints(self) -> None:
        served = Counter(
            item["metadata"]["labels"]["app"]
            for item in self.server.list("pods").items
            if not item["metadata"].get("deletionTimestamp") and _is_ready(item)
        )
        for name in self.objects("deployments"):
            if served[name]:
                self._served.add(name)
            elif name in self._served:
                self.missing[name] += 1

    # What can be asserted

    def nodes_of(self, name: str) -> set[str]:
        """Return the nodes that pods of a Deployment run on."""
        pods = self.server.list("pods").items
        return {pod["spec"].get("nodeName", "") for pod in pods if pod["metadata"]["labels"]["app"] == name}

    def kept(self) -> str:
        """Return why nodes are not disrupted, by the decision that would be made now."""
        return "; ".join(item.reason for item in decide(decided_on(self)).blocked)

    def told(self, reason: str) -> list[str]:  # type: ignore[override]
        """Return the messages of Events with a reason, sorted."""
        return sorted(item["message"] for item in self.server.list("events").items if item["reason"] == reason)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = msgspec.convert(pod["status"].get("conditions", []), list[dict[str, Any]])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
