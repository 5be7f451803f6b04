"""The fake instance-type catalogues that Karpenter's own tests use, in our types.

Prices follow the formula of that fake provider: 0.1 per vCPU, 0.1 per 10⁹ bytes of memory, 1 per GPU resource; spot
costs the same as on-demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.requirements import Requirement, requirement

Z1, Z2, Z3 = "test-zone-1", "test-zone-2", "test-zone-3"
FIVE_OFFERINGS = (("spot", Z1), ("spot", Z2), ("on-demand", Z1), ("on-demand", Z2), ("on-demand", Z3))
OVERHEAD = {"cpu": "100m", "memory": "10Mi"}
GPU_A, GPU_B = "fake.com/vendor-a", "fake.com/vendor-b"


def fake_type(
    name: str,
    *,
    offerings: Sequence[tuple[str, str]] = FIVE_OFFERINGS,
    price: float | None = None,
    unavailable: Sequence[tuple[str, str]] = (),
    arch: str = "amd64",
    os: Sequence[str] = ("linux", "windows", "darwin"),
    extra: Mapping[str, str] | None = None,
    **resources: str,
) -> InstanceType:
    """One fake type; resources by keyword (`cpu="4"`, `memory="4Gi"`, `pods="5"`), `extra` for names with a slash."""
    amounts = {"cpu": "4", "memory": "4Gi", "pods": "5", **resources, **(extra or {})}
    capacity = parse_resources(amounts)
    cost = price if price is not None else fake_price(capacity)
    large = capacity["cpu"] > 4000 and capacity["memory"] > 8 * 2**30
    entries: list[Requirement] = [
        requirement(labels.INSTANCE_TYPE, "In", (name,)),
        requirement(labels.ARCH, "In", (arch,)),
        requirement(labels.OS, "In", tuple(os)),
        requirement(labels.ZONE, "In", sorted({zone for _, zone in offerings})),
        requirement(labels.CAPACITY_TYPE, "In", sorted({kind for kind, _ in offerings})),
        requirement("size", "In", ("large" if large else "small",)),
        requirement("special", "In", ("optional",)) if large else requirement("special", "DoesNotExist"),
        requirement("integer", "In", (str(capacity["cpu"] // 1000),)),
    ]
    return InstanceType(
        name,
        tuple(entries),
        capacity,
        parse_resources(OVERHEAD),
        tuple(Offering(zone, kind, cost, (kind, zone) not in unavailable) for kind, zone in offerings),
        sources=dict.fromkeys(capacity, "catalog"),
    )


def fake_price(capacity: Mapping[str, int]) -> float:
    """USD per hour of a fake type with this capacity (canonical units)."""
    gpus = sum(1.0 for name in capacity if name in (GPU_A, GPU_B))
    return 0.1 * capacity["cpu"] / 1000 + 0.1 * capacity["memory"] / 1e9 + gpus


def default_types() -> tuple[InstanceType, ...]:
    """The catalogue most of Karpenter's unit tests use."""
    return (
        fake_type("default-instance-type"),
        fake_type("small-instance-type", cpu="2", memory="2Gi"),
        fake_type("gpu-vendor-instance-type", extra={GPU_A: "2"}),
        fake_type("gpu-vendor-b-instance-type", extra={GPU_B: "2"}),
        fake_type("arm-instance-type", arch="arm64", cpu="16", memory="128Gi"),
        fake_type("single-pod-instance-type", pods="1"),
    )


def incrementing_types(number: int) -> tuple[InstanceType, ...]:
    """`fake-it-0` … with n cpu, 2n Gi and 10n pods, as Karpenter's benchmark uses 400 of."""
    return tuple(
        fake_type(f"fake-it-{n - 1}", cpu=str(n), memory=f"{2 * n}Gi", pods=str(10 * n)) for n in range(1, number + 1)
    )


def assorted_types() -> tuple[InstanceType, ...]:
    """The product of sizes, zones, capacity types, systems and architectures: 1344 types of one offering each."""
    return tuple(
        fake_type(
            f"{cpu}-cpu-{memory}-mem-{arch}-{os}-{zone}-{kind}",
            cpu=str(cpu),
            memory=f"{memory}Gi",
            offerings=((kind, zone),),
            arch=arch,
            os=(os,),
        )
        for cpu, memory, zone, kind, os, arch in product(
            (1, 2, 4, 8, 16, 32, 64),
            (1, 2, 4, 8, 16, 32, 64, 128),
            (Z1, Z2, Z3),
            ("spot", "on-demand"),
            ("linux", "windows"),
            ("amd64", "arm64"),
        )
    )


def ladder(number: int) -> list[InstanceType]:
    """As many types of one size, sold as spot capacity only, each dearer than the one before."""
    return [
        fake_type(f"t{place:02}", cpu="4", memory="8Gi", pods="20", price=0.1 * (place + 1), offerings=(("spot", Z1),))
        for place in range(number)
    ]
