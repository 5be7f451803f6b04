"""The fault `startup-taint`."""

from __future__ import annotations

from functools import partial

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes.objects import Node
from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.fault_world import FaultWorld, FaultyCluster, Seen
from shiplap_lab.faults.nodes.seen_nodes import RETRY_S

_STARTUP_S = 6.0
"""When the controller of a startup taint takes it away, in seconds after the taint has appeared."""


class StartupTaintFault(FaultKind):
    """The controller that takes the startup taints of NodePools away takes `amount` seconds longer."""

    name = "startup-taint"
    amount = Between(30, 300)

    def connect(self, world: FaultWorld) -> None:
        """Play that controller, with or without faults."""
        super().connect(world)
        for name, cluster in sorted(world.clusters.items()):
            pools = world.manifests[name].node_pools
            startup = {(taint.key, taint.effect) for pool in pools for taint in pool.spec.template.spec.startup_taints}
            if startup:
                cluster.informer.listeners.append(partial(self._changed, cluster, startup, set[str]()))

    def _changed(
        self,
        cluster: FaultyCluster,
        startup: set[tuple[str, str]],
        seen: set[str],
        plural: str,
        key: str,
        _before: Seen | None,
        after: Seen | None,
    ) -> None:
        if plural != "nodes" or not isinstance(after, Node) or after.metadata.uid in seen:
            return
        if any((taint.key, taint.effect) in startup for taint in after.spec.taints):
            seen.add(after.metadata.uid)
            late = self.faults.amount_of(self.name)
            self.faults.loop.after(_STARTUP_S + late, partial(self._remove, cluster, startup, key))

    def _remove(self, cluster: FaultyCluster, startup: set[tuple[str, str]], node: str) -> None:
        if self.faults.is_api_down:
            self.faults.loop.after(RETRY_S, partial(self._remove, cluster, startup, node))
            return
        try:
            taints = cluster.server.get("nodes", node)["spec"].get("taints", [])
        except ObjectNotFound:
            return
        left = [taint for taint in taints if (taint["key"], taint["effect"]) not in startup]
        cluster.server.patch("nodes", node, {"spec": {"taints": left}})
