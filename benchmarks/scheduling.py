"""The planner's speed on the pods of Karpenter's public benchmark, and on real types with existing nodes.

The diverse rows are the published workload with its spread and affinity constraints. A fifth of the pods keep off each
other's nodes, so the least number of nodes is a fifth of the pods; all pods have to be placed. The plain rows are
the same pods without constraints. Every run starts from typed objects and nothing is kept between runs; the last column
relates the time to decoding the same pods from JSON with msgspec.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from decoding import PodList, median_s, pod_list
from karpenter_workload import DrawnPod, verified
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from shiplap.api.types import EC2NodeClass, Manifests, NodePool
from shiplap.instances import embedded
from shiplap.instances.resolve import instance_types
from shiplap.instances.setting import CapacitySetting
from shiplap.instances.types import InstanceType
from shiplap.kubernetes.objects import Node, Pod
from shiplap.scheduling.plan import Plan
from shiplap.scheduling.planner import plan
from shiplap.scheduling.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from tests.conformance.catalogues import incrementing_types

_POOL = msgspec.convert(
    {
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": {"testing/cluster": "unspecified"}},
                "spec": {"nodeClassRef": {"name": "default"}},
            },
            "limits": {"cpu": "10000000", "memory": "10000000Gi"},
        },
    },
    NodePool,
)
_ON_DEMAND = msgspec.convert(
    {
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"name": "default"},
                    "requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                    ],
                }
            },
        },
    },
    NodePool,
)


def decoded(drawn: Sequence[DrawnPod], *, plain: bool = True) -> tuple[tuple[Pod, ...], float]:
    """The pods in one namespace, as the published benchmark has them, and the seconds it takes to decode them."""
    raw = pod_list(list(drawn), plain=plain)
    decoder = msgspec.json.Decoder(PodList)
    pods = decoder.decode(raw).items
    replace = msgspec.structs.replace
    settled = tuple(replace(pod, metadata=replace(pod.metadata, namespace="default")) for pod in pods)
    return settled, median_s(lambda: decoder.decode(raw), 5)


def snapshot(
    pods: Sequence[Pod], types: Sequence[InstanceType], pool: NodePool = _POOL, nodes: Sequence[Node] = ()
) -> Snapshot:
    return Snapshot(
        cluster="benchmark",
        now=0.0,
        view=ClusterView(tuple(pods), tuple(nodes)),
        manifests=Manifests(node_pools=(pool,)),
        catalogs=(NodeClassCatalog("default", tuple(types)),),
        settings=SchedulingSettings(explore=False),
    )


def real_types() -> tuple[InstanceType, ...]:
    node_class = msgspec.convert({"metadata": {"name": "default"}, "spec": {"amiFamily": "AL2023"}}, EC2NodeClass)
    catalog = embedded.load("us-east-1")
    return instance_types(catalog, node_class, CapacitySetting(), resolved=None, learned=(), unavailable=())


def distinct_sizes(drawn: Sequence[DrawnPod]) -> list[DrawnPod]:
    """The same pods with a size of their own each."""
    return [
        DrawnPod(pod.kind, pod.label, pod.selector, pod.cpu_m + place % 997, pod.memory_mi + place // 31)
        for place, pod in enumerate(drawn)
    ]


def full_nodes(number: int, pods_each: int) -> tuple[list[Node], list[Pod]]:
    """Nodes of 16 vCPU with bound pods that leave room for a few more."""
    nodes = []
    bound = []
    for place in range(number):
        name = f"node-{place:05d}"
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"us-east-1{'abc'[place % 3]}"}
        nodes.append(
            msgspec.convert(
                {
                    "metadata": {"name": name, "labels": labels},
                    "status": {
                        "allocatable": amounts,
                        "capacity": amounts,
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                },
                Node,
            )
        )
        for pod in range(pods_each):
            requests = {"cpu": f"{400 + 10 * (pod % 12)}m", "memory": "1Gi"}
            bound.append(
                msgspec.convert(
                    {
                        "metadata": {"name": f"bound-{place}-{pod}", "namespace": "default", "uid": f"b{place}-{pod}"},
                        "spec": {"nodeName": name, "containers": [{"name": "c", "resources": {"requests": requests}}]},
                        "status": {"phase": "Running"},
                    },
                    Pod,
                )
            )
    return nodes, bound


def cases() -> list[tuple[str, Callable[[], tuple[Snapshot, float]]]]:
    fake = incrementing_types(400)

    def plain(number: int) -> tuple[Snapshot, float]:
        pods, decode_s = decoded(verified(number))
        return snapshot(pods, fake), decode_s

    def diverse(number: int) -> tuple[Snapshot, float]:
        pods, decode_s = decoded(verified(number), plain=False)
        return snapshot(pods, fake), decode_s

    def distinct() -> tuple[Snapshot, float]:
        pods, decode_s = decoded(distinct_sizes(verified(10_000)))
        return snapshot(pods, fake), decode_s

    def real(number: int) -> tuple[Snapshot, float]:
        pods, decode_s = decoded(verified(number))
        return snapshot(pods, real_types(), _ON_DEMAND), decode_s

    def existing(pending: int, nodes: int, pods_each: int) -> tuple[Snapshot, float]:
        pods, decode_s = decoded(verified(20_000)[:pending])
        known, bound = full_nodes(nodes, pods_each)
        return snapshot((*pods, *bound), real_types(), _ON_DEMAND, known), decode_s

    sizes = (1, 100, 1000, 10_000, 20_000)
    return [
        *((f"{size:,} diverse pods, 400 types", lambda size=size: diverse(size)) for size in sizes),
        *((f"{size:,} plain pods, 400 types", lambda size=size: plain(size)) for size in sizes),
        ("10,000 pods, every size different", distinct),
        ("1 pod, real types", lambda: real(1)),
        ("10,000 pods, real types", lambda: real(10_000)),
        ("1 pod, real types, 1,000 nodes with 30,000 pods", lambda: existing(1, 1000, 30)),
        ("10,000 pods, real types, 2,000 nodes with 40,000 pods", lambda: existing(10_000, 2000, 20)),
    ]


def main() -> None:
    table = Table(
        "case",
        "classes",
        "nodes",
        "least",
        "left",
        "USD/h",
        "plan ms",
        "pods/s",
        "x decoding",
        title="snapshot to plan, medians",
    )
    for name, build in cases():
        world, decode_s = build()

        def solve(world: Snapshot = world) -> Plan:
            return plan(world)

        result = solve()
        if "diverse" in name:
            assert not result.unschedulable, f"{name}: {len(result.unschedulable)} pods left out"
        took = median_s(solve, 5)
        table.add_row(
            name,
            str(result.stats.classes),
            str(len(result.node_claims)),
            str(max(1, result.stats.pods // 5)) if "diverse" in name else "",
            str(len(result.unschedulable)),
            f"{result.hourly:.2f}",
            f"{took * 1000:.1f}",
            f"{result.stats.pods / took:,.0f}",
            f"{took / decode_s:.1f}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
