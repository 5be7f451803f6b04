"""Instance types with offerings for requests of fleets."""

from __future__ import annotations

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import requirement

ZONES = ("a", "b")


def kind(name: str, price: float, spot: float | None = None, **capacity: int) -> InstanceType:
    offerings = [Offering(zone, labels.ON_DEMAND, price, zone_id=f"id-{zone}") for zone in ZONES]
    if spot is not None:
        offerings += [Offering(zone, labels.SPOT, spot, zone_id=f"id-{zone}") for zone in ZONES]
    family = requirement("karpenter.k8s.aws/instance-family", "In", (name.partition(".")[0],))
    return InstanceType(
        name=name,
        requirements=(family,),
        capacity={"cpu": 2000, "memory": 8000, "pods": 29, **capacity},
        overhead={"cpu": 100, "memory": 1000},
        offerings=tuple(offerings),
        ami="ami-1",
        kubelet_hash="k",
    )
