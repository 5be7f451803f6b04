"""The fault `daemon-set`."""

from __future__ import annotations

from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class DaemonSetFault(FaultKind):
    """A DaemonSet that requests `amount` millicores is on every node; later launches have to count it."""

    name = "daemon-set"
    amount = Between(50, 400)

    def begin(self, number: int, fault: Fault) -> None:
        """Create it."""
        name = _daemon_set_name(number)
        requests = {"cpu": f"{fault.amount:.0f}m", "memory": "100Mi"}
        container = {"name": "main", "image": "example/daemon:v1", "resources": {"requests": requests}}
        labelled = {"app": name}
        body = {
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {
                "selector": {"matchLabels": labelled},
                "template": {
                    "metadata": {"labels": labelled},
                    "spec": {
                        "priorityClassName": "system-node-critical",
                        "priority": 2_000_001_000,
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [container],
                    },
                },
            },
        }
        for cluster in self.world.clusters.values():
            cluster.server.create("daemonsets", body, "kube-system")

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - its number is enough
        """Delete it, and its pods with it."""
        name = _daemon_set_name(number)
        for cluster in self.world.clusters.values():
            cluster.server.delete("daemonsets", name, "kube-system")
            for pod in cluster.server.list("pods").items:
                meta = pod["metadata"]
                if meta.get("labels", {}).get("app") == name:
                    self.faults.effects[self.name] += bool(pod["spec"].get("nodeName"))
                    cluster.server.delete("pods", meta["name"], meta["namespace"], grace_s=0)


def _daemon_set_name(number: int) -> str:
    return f"late-{number}"
