"""Nodes and clusters to draw."""

from __future__ import annotations

from random import Random
from typing import Any

from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState, PendingPicture, PodPicture

GIB = 2**30
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>]]>&lt;\u202e\x00"

_TYPES = {
    "web": (("m5.large", 1930, 7, 0.096), ("m5.2xlarge", 7910, 29, 0.384), ("c7i-flex.2xlarge", 7910, 14, 0.339)),
    "batch": (
        ("c6i.4xlarge", 15890, 28, 0.68),
        ("c7i-flex.2xlarge", 7910, 14, 0.339),
        ("m6i.8xlarge", 31850, 118, 1.5),
    ),
    "trino": (("r6i.4xlarge", 15890, 120, 1.008), ("r6i.8xlarge", 31850, 240, 2.016)),
    "": (("m5.large", 1930, 7, 0.096),),
}
_RARE = (NodePictureState.STARTING, NodePictureState.LEAVING, NodePictureState.NOT_READY)


def drawn_node(millicores: int = 8000, gib: int = 32, *pods: PodPicture, **fields: Any) -> NodePicture:
    """A node of NodePool `web`; its pods use what it does not say to be used."""
    used = sum((pod.amounts for pod in pods), Amounts())
    known = {"name": "n", "pool": "web", "allocatable": Amounts(millicores, gib * GIB, 58), "used": used, "pods": pods}
    return NodePicture(**known | fields)


def cluster(
    nodes: int, *, pods_per_node: int = 15, seed: int = 1, planning: bool = False, name: str = "svc"
) -> ClusterPicture:
    """A cluster of so many nodes; `planning` makes the last third of them new; pods are called after `name`."""
    chance = Random(seed)  # noqa: S311 - repeatable chance
    drawn = [
        _node(chance, number, pods_per_node, name, new=planning and number >= nodes * 2 // 3) for number in range(nodes)
    ]
    known = tuple(sorted(drawn, key=lambda node: node.name))
    reason = "r5a.8xlarge in pool trino: memory short by 6846Mi: 246400Mi needed, 239554Mi allocatable"
    waiting = [
        PendingPicture(
            namespace="ml",
            name=f"{name}-{place}",
            millicores=64_000,
            memory_bytes=240 * GIB,
            age_s=4000.0 - 60 * place,
            reason=reason if place < 5 else "pool batch has reached its limit of 400 cpu",
        )
        for place in range(8)
    ]
    bound = 0.94 * sum(node.hourly for node in known if node.pool)
    return ClusterPicture(cluster="prod", taken_at=1.77e9, nodes=known, pending=tuple(waiting), bound_hourly=bound)


def _node(chance: Random, number: int, pods_per_node: int, name: str, *, new: bool) -> NodePicture:
    pool = chance.choice(("web", "web", "batch", "batch", "trino")) if number % 17 else ""
    kind, millicores, gib, price = chance.choice(_TYPES[pool])
    spot = bool(pool) and chance.random() < 0.4
    room = Amounts(millicores, gib * GIB, 58)
    pods: list[PodPicture] = []
    used = Amounts(150, 300 * 2**20, 3)
    for place in range(chance.randrange(pods_per_node // 2, pods_per_node * 3 // 2 + 1)):
        cpu, memory = chance.choice((100, 250, 500, 1000, 2000)), chance.choice((128, 512, 1024, 4096)) * 2**20
        if used.millicores + cpu <= millicores and used.memory_bytes + memory <= gib * GIB:
            pods.append(PodPicture("shop", f"{name}-{number}-{place}", cpu, memory, fresh=new))
            used += Amounts(cpu, memory, 1)
    rare = chance.choice(_RARE) if pool and chance.random() < 0.1 else NodePictureState.READY
    return NodePicture(
        name=f"ip-10-0-{number // 250}-{number % 250}.ec2.internal",
        pool=pool,
        tier=chance.choice((0, 0, 0, 1, 2)) if pool == "batch" else 0,
        instance_type=kind,
        zone=f"us-east-1{chance.choice('abc')}",
        capacity_type="spot" if spot else "on-demand",
        hourly=round(price * (0.35 if spot else 1.0), 4),
        list_hourly=price,
        state=NodePictureState.PLANNED if new and pool else rare,
        note="SpotInterruption" if rare is NodePictureState.LEAVING else "",
        allocatable=room,
        used=used,
        pods=tuple(pods),
        created_at=1.76e9,
    )
