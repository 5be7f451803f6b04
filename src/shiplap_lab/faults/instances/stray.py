"""The fault `stray`."""

from __future__ import annotations

from shiplap.ports import Instance
from shiplap_lab.faults.drawn_amounts import Whole
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind

_ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")


class StrayFault(FaultKind):
    """`amount` instances with the tags of `target`, a NodePool (`*`: the first), appear that no claim has ever had."""

    name = "stray"
    amount = Whole(1, 3)
    is_momentary = True
    lasts = False

    def begin(self, number: int, fault: Fault) -> None:
        """Add instances of an unknown launch, as after a restore of table `state` from a backup."""
        cluster = min(self.world.clusters)
        known = (pool.metadata.name for pool in self.world.manifests[cluster].node_pools)
        pools = [pool for pool in sorted(known) if fault.target in ("*", pool)]
        for index in range(int(fault.amount) if pools else 0):
            instance = Instance(
                id=f"i-5{number:08x}{index:08x}",
                instance_type="m6i.large",
                zone=_ZONES[index % len(_ZONES)],
                capacity_type="on-demand",
                ami="ami-twin",
                state="running",
                launched_at=self.faults.loop.now(),
                cluster=cluster,
                claim=f"{pools[0]}-forgotten-{number}-{index}",
                node_pool=pools[0],
                private_dns=f"ip-10-9-{number}-{index}.internal",
                launch=f"forgotten-{number}",
                install=self.world.compute.install,
            )
            self.faults.trace.record("stray", instance=instance.id)
            self.took_effect()
            self.world.add(instance)
