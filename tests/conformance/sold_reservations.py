"""Types with reservations, and pods that stay apart."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from tests.conformance.catalogues import Z1, Z2, fake_type

ON_DEMAND_ONLY = (("on-demand", Z1), ("on-demand", Z2))


APART: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": labels.HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
                ]
            }
        }
    },
}
"""Each pod of these on a node of its own."""


def held(name: str, left: int, *, price: float = 0.00001, zone: str = Z1, kind: str = "default") -> Offering:
    return Offering(zone, "reserved", price, reservation_id=name, reservation_capacity=left, reservation_type=kind)


def sold(name: str, *reserved: Offering, cpu: str = "4") -> InstanceType:
    plain = fake_type(name, offerings=ON_DEMAND_ONLY, cpu=cpu, memory=f"{2 * int(cpu)}Gi", pods="50")
    return msgspec.structs.replace(plain, offerings=(*plain.offerings, *reserved))
