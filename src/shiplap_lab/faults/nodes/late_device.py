"""The fault `late-device`."""

from __future__ import annotations

from functools import partial
from random import Random

from shiplap.kubernetes.objects import Node, ObjectMeta, is_ready
from shiplap_lab.faults.drawn_amounts import Between
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.fault_world import FaultWorld, FaultyCluster, Seen
from shiplap_lab.faults.nodes.seen_nodes import RETRY_S, seen_node

_DEVICE_S = (5.0, 20.0)
"""When a device plugin reports, in seconds after its node is Ready."""


class LateDeviceFault(FaultKind):
    """Device plugins report their resources `amount` seconds later."""

    name = "late-device"
    amount = Between(20, 200)

    def connect(self, world: FaultWorld) -> None:
        """Play the device plugin of each node, with or without faults."""
        super().connect(world)
        for _, cluster in sorted(world.clusters.items()) if world.devices else ():
            cluster.informer.listeners.append(partial(self._changed, cluster, set[str]()))

    def _changed(
        self,
        cluster: FaultyCluster,
        seen: set[str],
        plural: str,
        _key: str,
        _before: Seen | None,
        after: Seen | None,
    ) -> None:
        if plural != "nodes" or not isinstance(after, Node) or after.metadata.uid in seen or not is_ready(after.status):
            return
        seen.add(after.metadata.uid)
        late = self.faults.amount_of(self.name)
        chance = Random(f"{after.spec.provider_id}:device")  # noqa: S311 - repeatable chance
        self.faults.loop.after(chance.uniform(*_DEVICE_S) + late, partial(self._report, cluster, after.metadata))

    def _report(self, cluster: FaultyCluster, node: ObjectMeta) -> None:
        if self.faults.is_api_down:
            self.faults.loop.after(RETRY_S, partial(self._report, cluster, node))
            return
        seen = seen_node(cluster, node.name)
        if seen is not None and seen.metadata.uid == node.uid:
            reported = {name: str(number) for name, number in self.world.devices.items()}
            status = {"status": {"capacity": reported, "allocatable": reported}}
            cluster.server.patch("nodes", node.name, status, subresource="status")
