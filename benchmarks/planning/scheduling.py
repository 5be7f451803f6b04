"""The planner's speed on the pods of Karpenter's public benchmark, and on real types with existing nodes.

The diverse rows are the published workload with its spread and affinity constraints. A fifth of the pods keep off each
other's nodes, so the least number of nodes is a fifth of the pods; all pods have to be placed. The plain rows are
the same pods without constraints. The pool's limits are ten times the published ones: a claim is charged with the
largest type it may become, and 20,000 of those would exceed them. Every run starts from typed objects and nothing is
kept between runs; `x decoding` relates the time to decoding the same pods from JSON with msgspec, `peak` is the memory
held while planning, beside the snapshot. Raw JSON keeps the pods' namespaces, so that its constraints bind less.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.planning.decoding import PodList, median_s, peak_bytes, pod_list, unseen
from benchmarks.shared.figures import keep
from benchmarks.shared.karpenter_workload import DrawnPod, verified
from shiplap.garbage_collection import garbage_collection_paused
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.kubernetes.reading import Reader
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests, NodePool
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.planner import plan
from shiplap_lab.catalogue import embedded
from tests.conformance.catalogues import incrementing_types

_POOL = msgspec.convert(
    {
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "metadata": {"labels": {"testing/cluster": "unspecified"}},
                "spec": {"nodeClassRef": {"name": "default"}},
            },
            "limits": {"cpu": "100000000", "memory": "100000000Gi"},
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


_CHUNK = 10_000
"""Pods whose JSON is built at a time."""


def decoded(drawn: Sequence[DrawnPod], *, plain: bool = True) -> tuple[tuple[Pod, ...], float]:
    """The pods in one namespace, as the published benchmark has them, and the seconds it takes to decode them."""
    decoder = msgspec.json.Decoder(PodList)
    settled: list[Pod] = []
    decode_s = 0.0
    for first in range(0, len(drawn), _CHUNK):
        some = list(drawn[first : first + _CHUNK])
        raw = pod_list(some, plain=plain, first=first)
        settled += map(_settled, decoder.decode(raw).items)
        if not first:
            decode_s = median_s(lambda: decoder.decode(raw), 5) * len(drawn) / len(some)  # noqa: B023 - called at once
    return tuple(settled), decode_s


def _settled(pod: Pod) -> Pod:
    replace = msgspec.structs.replace
    return replace(pod, metadata=replace(pod.metadata, namespace="default"))


def snapshot(
    pods: Sequence[Pod],
    types: Sequence[InstanceType],
    pools: Sequence[NodePool] | NodePool = _POOL,
    nodes: Sequence[Node] = (),
    daemons: Sequence[DaemonSet] = (),
) -> Snapshot:
    return Snapshot(
        cluster="benchmark",
        now=0.0,
        view=ClusterView(tuple(pods), tuple(nodes), tuple(daemons)),
        manifests=Manifests(node_pools=(pools,) if isinstance(pools, NodePool) else tuple(pools)),
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


def preference_pods(number: int) -> tuple[Pod, ...]:
    """The published preference workload: equal pods that would like one zone, and to keep apart."""
    app = {"labelSelector": {"matchLabels": {"app": "nginx"}}}
    zone = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-1"]}]}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    affinity = {
        "nodeAffinity": {preferred: [{"weight": 1, "preference": zone}]},
        "podAntiAffinity": {
            preferred: [
                {"weight": 10, "podAffinityTerm": {"topologyKey": "topology.kubernetes.io/zone", **app}},
                {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", **app}},
            ]
        },
    }
    requests = {"cpu": "100m", "memory": "4096Mi"}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    objects = [
        {
            "metadata": {
                "name": f"p{place}",
                "namespace": "default",
                "uid": f"u{place:06d}",
                "labels": {"app": "nginx"},
            },
            "spec": {"affinity": affinity, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Pending", "conditions": [unscheduled]},
        }
        for place in range(number)
    ]
    return tuple(msgspec.convert(objects, list[Pod]))


def many_pools(number: int) -> list[NodePool]:
    """Pools of different weight; each second one is tainted."""
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    pools = []
    for place in range(number):
        plain = msgspec.to_builtins(_ON_DEMAND)
        plain["metadata"]["name"] = f"pool-{place:02d}"
        plain["spec"]["weight"] = place
        plain["spec"]["template"]["spec"]["taints"] = [taint] if place % 2 else []
        pools.append(msgspec.convert(plain, NodePool))
    return pools


def daemon_sets(number: int) -> list[DaemonSet]:
    container = {"name": "c", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}
    spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    return [
        msgspec.convert({"metadata": {"name": f"d{place}"}, "spec": {"template": {"spec": spec}}}, DaemonSet)
        for place in range(number)
    ]


class Case(msgspec.Struct, frozen=True):
    """One line of the table; `bar_s` is None where none is set. `diverse`: a fifth of the pods need a node each."""

    name: str
    build: Callable[[], tuple[Snapshot, float]]
    bar_s: float | None = None
    diverse: bool = False


def cases() -> list[Case]:
    fake = incrementing_types(400)

    def of(drawn: Sequence[DrawnPod], *, plain: bool) -> tuple[Snapshot, float]:
        pods, decode_s = decoded(drawn, plain=plain)
        return snapshot(pods, fake), decode_s

    def preferences() -> tuple[Snapshot, float]:
        pods = preference_pods(4000)
        raw = msgspec.json.encode({"items": pods})
        return snapshot(pods, fake), median_s(lambda: msgspec.json.decode(raw, type=PodList), 5)

    def existing(pending: int, nodes: int, pods_each: int, pools: int = 0) -> tuple[Snapshot, float]:
        pods, decode_s = decoded(verified(20_000)[:pending], plain=not pools)
        known, bound = full_nodes(nodes, pods_each)
        chosen = many_pools(pools) if pools else [_ON_DEMAND]
        daemons = daemon_sets(5) if pools else []
        return snapshot((*pods, *bound), real_types(), chosen, known, daemons), decode_s

    bars = {1: 0.002, 10_000: 0.1, 20_000: 0.11, 50_000: 0.25, 100_000: 0.5}
    return [
        *(
            Case(f"{size:,} diverse pods", lambda size=size: of(verified(size), plain=False), bars.get(size), True)
            for size in sorted({100, 1000, *bars})
        ),
        *(Case(f"{size:,} plain pods", lambda size=size: of(verified(size), plain=True)) for size in (1000, 10_000)),
        Case(
            "10,000 diverse pods, all sizes distinct",
            lambda: of(distinct_sizes(verified(10_000)), plain=False),
            0.4,
            True,
        ),
        Case("4,000 preference pods", preferences, 0.1),
        Case("1 pod, real types, 1,000 nodes with 30,000 pods", lambda: existing(1, 1000, 30), 0.3),
        Case("10,000 diverse pods, 50 pools, daemons, 2,000 nodes", lambda: existing(10_000, 2000, 20, pools=50), 0.5),
        Case("10,000 plain pods, real types, 2,000 nodes", lambda: existing(10_000, 2000, 20)),
    ]


def main() -> None:
    """Print the table; arguments are parts of names of the cases to run."""
    wanted = sys.argv[1:]
    table = Table(
        "case",
        "classes",
        "nodes",
        "least",
        "left",
        "USD/h",
        "plan ms",
        "bar ms",
        "pods/s",
        "x decoding",
        "peak MiB",
        title="snapshot to plan, medians",
    )
    for case in cases():
        if wanted and not any(part in case.name for part in wanted):
            continue
        world, decode_s = case.build()

        def solve(world: Snapshot = world) -> Plan:
            return plan(unseen(world))

        result = solve()
        if case.diverse:
            assert not result.unschedulable, f"{case.name}: {len(result.unschedulable)} pods left out"
        took = median_s(solve, 5)
        table.add_row(
            case.name,
            str(result.stats.classes),
            str(len(result.node_claims)),
            str(max(1, result.stats.pods // 5)) if case.diverse else "",
            str(len(result.unschedulable)),
            f"{result.hourly:.2f}",
            f"{took * 1000:.1f}",
            f"{case.bar_s * 1000:.0f}" if case.bar_s else "",
            f"{result.stats.pods / took:,.0f}",
            f"{took / decode_s:.1f}",
            f"{peak_bytes(solve) / 2**20:.0f}",
        )
        keep(f"plan, {case.name}", took * 1000, "ms", bar=case.bar_s * 1000 if case.bar_s else None)
        if case.name.startswith("1 pod, real"):
            compiled_s = median_s(lambda: compile_snapshot(unseen(world)), 5)  # noqa: B023 - called at once
            table.add_row(
                "  of it after the input is built", "", "", "", "", "", f"{(took - compiled_s) * 1000:.1f}", "50"
            )
    if not wanted or "raw" in wanted:
        types, reader = incrementing_types(400), Reader(Pod)
        in_many = pod_list(list(verified(10_000)))
        in_one = re.sub(rb'"namespace":"[^"]*"', b'"namespace":"default"', in_many)
        for name, raw, bar in (("one namespace", in_one, "150"), ("20 namespaces", in_many, "250")):

            def read_and_plan(raw: bytes = raw) -> Plan:
                with garbage_collection_paused():  # as in the flow that reads and plans
                    return plan(unseen(snapshot(reader.page(raw).items, types)))

            took = median_s(read_and_plan, 5)
            keep(f"raw JSON to plan, 10,000 diverse pods, {name}", took * 1000, "ms", bar=float(bar))
            table.add_row(f"10,000 diverse pods from raw JSON, {name}", "", "", "", "", "", f"{took * 1000:.1f}", bar)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
