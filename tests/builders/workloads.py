"""Workloads as clients send them, and a cluster whose controllers make their pods step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shiplap_lab.api_server.server import ApiServer, ListOptions
from shiplap_lab.api_server.stored_workloads import admitted
from shiplap_lab.cluster_simulator.booted_user_data import NodeRegistration
from shiplap_lab.cluster_simulator.machines import Delays, Machine, NodeResources
from shiplap_lab.cluster_simulator.simulated_cluster import PolledCluster
from shiplap_lab.fakes.signals import FakeClock

GIB = 2**30
KINDS = {
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "replicationcontrollers": "ReplicationController",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
}


def workload_object(
    name: str = "web",
    replicas: int | None = 3,
    *,
    plural: str = "deployments",
    image: str = "pause",
    cpu: str = "1",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Deployment, or another kind with a selector; `spec` adds fields."""
    labels = labels or {"app": name}
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}
    is_old = plural == "replicationcontrollers"
    return {
        "apiVersion": "v1" if is_old else "apps/v1",
        "kind": KINDS[plural],
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": labels if is_old else {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            **spec,
        },
    }


def job_object(name: str = "work", *command: str, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    """A Job whose pods run a command."""
    container = {"name": "main", "image": "busybox", "command": list(command)}
    template = {"spec": {"containers": [container], "restartPolicy": policy}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def cron_job_object(name: str, *command: str, schedule: str, **spec: Any) -> dict[str, Any]:
    """A CronJob whose Jobs run a command."""
    template = {"spec": job_object(name, *command)["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


def hardware(machine: Machine, told: NodeRegistration) -> NodeResources:
    """Eight CPUs and room for 110 pods, whatever the machine."""
    resources = {"cpu": 8000, "memory": 16 * GIB, "pods": 110}
    return NodeResources(resources, resources)


class WorkloadWorld:
    """A cluster with some nodes of eight CPUs; `step` lets a second pass and everybody look."""

    def __init__(self, nodes: int = 2, joins: Callable[[Machine], float | None] | None = None) -> None:
        self.clock = FakeClock()
        self.server = ApiServer(self.clock)
        self.machines = [self.machine(number) for number in range(nodes)]
        self.cluster = PolledCluster(self.server, hardware, lambda: self.machines, delays=Delays(0.0, 0.0), joins=joins)
        if nodes:
            self.settle()

    def machine(self, number: int) -> Machine:
        """A machine that has just been launched."""
        return Machine(
            f"i-{number}", "m5.large", "eu-west-1a", "ami-1", self.clock.now(), private_dns=f"ip-10-0-0-{number}"
        )

    def create(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """Store an object as the API server does for a client."""
        return self.server.create(plural, body, admit=admitted)

    def change(self, plural: str, name: str, **spec: Any) -> dict[str, Any]:
        """Change fields of a spec as a client's merge patch does."""
        return self.server.patch(plural, name, {"spec": spec}, admit=admitted)

    def step(self, seconds: float = 1.0) -> None:
        self.cluster.step(self.clock.advance(seconds))

    def settle(self, most: int = 200) -> int:
        """Step until nothing changes any more; returns how many steps that took."""
        for number in range(most):
            before = self.server.resource_version
            self.step()
            self.step()
            if before == self.server.resource_version:
                return number
        raise AssertionError("the cluster never comes to rest")

    def names(self, plural: str = "pods", selector: str = "") -> list[str]:
        return [item["metadata"]["name"] for item in self.server.list(plural, ListOptions("", selector)).items]

    def status(self, plural: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.get(plural, name).get("status") or {}
        return found

    def condition(self, plural: str, name: str, kind: str) -> tuple[str, str]:
        """Status and reason of a condition; empty ones where there is none."""
        found = [each for each in self.status(plural, name).get("conditions", []) if each["type"] == kind]
        return (found[0]["status"], found[0].get("reason", "")) if found else ("", "")
