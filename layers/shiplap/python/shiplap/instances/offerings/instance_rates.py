"""Prices of instances in millionths of a dollar per hour, also of those for which AWS tells no price."""

from __future__ import annotations

from math import ceil

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.labels import ON_DEMAND
from shiplap.kubernetes.quantity import CPU
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.shiplap_annotations import MICROS

UNKNOWN_PRICE_PERCENT = 120
"""What an instance of unknown price counts at, in per cent of the estimate."""

ESTIMATE_MICROS_PER_VCPU = 50_000
"""The estimate for an instance type without any known price: about what a vCPU of the m family costs on demand."""


class Rate(msgspec.Struct, frozen=True):
    """The price of an instance, in millionths of a dollar per hour; `known` is false where it is an estimate."""

    micros: int
    known: bool = True


def micros_of(hourly: float) -> int:
    """A price in USD per hour as millionths of a dollar per hour, rounded up; what floating point adds is no price."""
    return ceil(round(hourly * MICROS, 3))


def rate_of(claim: NodeClaim, estimate: float = 0.0) -> Rate:
    """The recorded price of a claim's instance; without one, its estimate and a fifth more.

    `estimate` is USD per hour of an instance of the same type, 0 if there is none: then its vCPUs are counted.
    """
    if claim.hourly > 0:
        return Rate(micros_of(claim.hourly))
    return unknown_rate(estimate, claim.plan.allocatable.get(CPU, 0) or claim.plan.requests.get(CPU, 0))


def unknown_rate(estimate: float, vcpu_thousandths: int) -> Rate:
    """The rate of an instance without a price; `estimate` in USD per hour, 0 if there is none."""
    vcpus = max(ceil(vcpu_thousandths / 1000), 1)
    micros = micros_of(estimate) or vcpus * ESTIMATE_MICROS_PER_VCPU
    return Rate(ceil(micros * UNKNOWN_PRICE_PERCENT / 100), known=False)


def unknown_rate_of(instance_type: InstanceType) -> Rate:
    """The rate of an instance of a type, in an offering without a price."""
    on_demand = (offering.price for offering in instance_type.offerings if offering.capacity_type == ON_DEMAND)
    return unknown_rate(max(on_demand, default=0.0), instance_type.capacity.get(CPU, 0))
