"""The fault `flap`."""

from __future__ import annotations

from functools import partial

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, is_ready
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.nodes.seen_nodes import RETRY_S, seen_node

_FLAP_EVERY_S = (40.0, 150.0)
_FLAP_S = (5.0, 90.0)
_NOT_READY = {"key": labels.NOT_READY_TAINT, "effect": "NoSchedule"}


class FlapFault(FaultKind):
    """The share `amount` of the Nodes that are there becomes not Ready for up to 90 seconds, again and again."""

    name = "flap"

    def begin(self, number: int, fault: Fault) -> None:
        """Draw the Nodes."""
        chance = self.faults.random_of(number)
        until = self.faults.loop.now() + fault.minutes * 60
        for name, cluster in sorted(self.world.clusters.items()):
            for node in sorted(cluster.informer.nodes):
                if chance.random() < fault.amount:
                    unready = partial(self._become_unready, number, name, node, until)
                    self.faults.loop.after(chance.uniform(0, 60), unready)

    def _become_unready(self, number: int, cluster: str, node: str, until: float) -> None:
        chance, loop = self.faults.random_of(number), self.faults.loop
        seen = seen_node(self.world.clusters[cluster], node)
        if seen is None or loop.now() >= until:
            return
        if is_ready(seen.status) and not self.faults.is_api_down:
            self.took_effect()
            self._say_ready(cluster, seen, ready=False)
            loop.after(chance.uniform(*_FLAP_S), partial(self._become_ready, cluster, seen.spec.provider_id, node))
        loop.after(chance.uniform(*_FLAP_EVERY_S), partial(self._become_unready, number, cluster, node, until))

    def _become_ready(self, cluster: str, provider_id: str, node: str) -> None:
        if self.faults.is_api_down:
            self.faults.loop.after(RETRY_S, partial(self._become_ready, cluster, provider_id, node))
            return
        seen = seen_node(self.world.clusters[cluster], node)
        alive = {item.provider_id for item in self.world.compute.alive()}
        if seen is not None and seen.spec.provider_id == provider_id and provider_id in alive:
            self._say_ready(cluster, seen, ready=True)

    def _say_ready(self, cluster: str, node: Node, *, ready: bool) -> None:
        """As the kubelet and the node lifecycle controller do: the condition, and the taint that follows it."""
        server, name = self.world.clusters[cluster].server, node.metadata.name
        reason = "KubeletReady" if ready else "KubeletNotReady"
        said = condition("Ready", "True" if ready else "False", rfc3339(self.faults.loop.now()), reason, "")
        server.patch("nodes", name, {"status": {"conditions": [said]}}, strategic=True, subresource="status")
        taints = server.get("nodes", name)["spec"].get("taints", [])
        left = [taint for taint in taints if taint["key"] != labels.NOT_READY_TAINT]
        server.patch("nodes", name, {"spec": {"taints": left if ready else [*left, _NOT_READY]}})
