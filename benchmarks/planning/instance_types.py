"""Measures how long it takes to resolve every instance type for one EC2NodeClass, as each scheduling decision does."""

from __future__ import annotations

import time

import msgspec

from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.capacity.learned_capacity import with_observation
from shiplap.instances.catalog.ec2_catalog import decode, encode
from shiplap.instances.catalog.resolved_nodeclass import Ami, ResolvedNodeClass, Subnet
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Observation
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap_lab.catalogue import embedded

GPU, ACCELERATOR = "karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-accelerator-count"
CATALOG = embedded.load()
NODE_CLASS = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(ami_family="AL2023"))


def ami(name: str, arch: str, *more: tuple[str, str, tuple[str, ...]]) -> Ami:
    return Ami(name, name, "2026-01-01T00:00:00Z", requirements=(("kubernetes.io/arch", "In", (arch,)), *more))


RESOLVED = ResolvedNodeClass(
    name="default",
    family="AL2023",
    amis=(
        ami("ami-gpu-amd64", "amd64", (GPU, "Exists", ())),
        ami("ami-gpu-arm64", "arm64", (GPU, "Exists", ())),
        ami("ami-amd64", "amd64", (GPU, "DoesNotExist", ()), (ACCELERATOR, "DoesNotExist", ())),
        ami("ami-arm64", "arm64", (GPU, "DoesNotExist", ()), (ACCELERATOR, "DoesNotExist", ())),
        ami("ami-neuron", "amd64", (ACCELERATOR, "Exists", ())),
    ),
    subnets=tuple(Subnet(f"subnet-{zone}", zone) for zone in sorted(CATALOG.zone_ids)[:3]),
    security_groups=("sg-1",),
    instance_profile="nodes",
)


def resolve(learned: tuple[LearnedCapacity, ...] = ()) -> tuple[InstanceType, ...]:
    return instance_types(CATALOG, NODE_CLASS, CapacitySetting(), resolved=RESOLVED, learned=learned, unavailable=())


def seen(kind: InstanceType) -> LearnedCapacity:
    report = Observation(kind.ami, kind.name, kind.kubelet_hash, kind.capacity, kind.allocatable, 1.0, "demo", "n1")
    return with_observation(None, report)


def timed(label: str, repeats: int, run: object) -> None:
    assert callable(run)
    first = time.perf_counter()
    run()
    first = time.perf_counter() - first
    best = first
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    print(f"{label:<52}{first * 1e3:8.1f} ms first {best * 1e3:8.1f} ms best")


def main() -> None:
    data = encode(CATALOG)
    timed(f"read the catalogue ({len(data) / 1024:.0f} KiB, {len(CATALOG.types)} types)", 5, lambda: decode(data))
    timed("resolve all types, nothing learned", 5, resolve)
    kinds = resolve()
    learned = tuple(seen(kind) for kind in kinds[::7])
    timed(f"resolve all types, {len(learned)} of them learned", 5, lambda: resolve(learned))
    print(f"the types as MessagePack: {len(msgspec.msgpack.encode(kinds)) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
