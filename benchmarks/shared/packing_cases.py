"""Pods, catalogues and prices of the price benchmark, as snapshots for the planner and as a problem for the bounds."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.planning.decoding import PodList, constraints
from benchmarks.planning.scheduling import distinct_sizes
from benchmarks.shared.karpenter_workload import DrawnPod, verified
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.objects import DaemonSet, Pod
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests, NodePool
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.search.bin_packing import BinPackingProblem
from shiplap_lab.catalogue import embedded
from tests.conformance.catalogues import incrementing_types

PRICES = Path(__file__).parents[3] / "shared" / "data" / "on-demand-prices.json"
MIB = 2**20

_DAEMONS = {"aws-node": ("50m", "0"), "kube-proxy": ("100m", "0"), "ebs-csi-node": ("30m", "120Mi")}
"""What the DaemonSets of a plain EKS cluster ask for."""


@dataclass(frozen=True)
class Case:
    """`drawn` pods on `types`; `daemons` says whether nodes carry the usual DaemonSets."""

    name: str
    bar: str
    drawn: tuple[DrawnPod, ...]
    types: tuple[InstanceType, ...]
    on_demand: bool

    def snapshot(self, improve_s: float = 0.0) -> Snapshot:
        """Return the planner's input."""
        return Snapshot(
            cluster="benchmark",
            now=0.0,
            view=ClusterView(pods=drawn_pods(self.drawn), daemon_sets=daemon_sets() if self.on_demand else ()),
            manifests=Manifests(node_pools=(_pool(on_demand=self.on_demand),)),
            catalogs=(NodeClassCatalog("default", self.types),),
            settings=SchedulingSettings(explore=False, improve_s=improve_s),
        )

    def problem(self) -> BinPackingProblem:
        """All pods as if zones and spreading did not matter, at most one anti-affine pod per node."""
        template = compile_snapshot(self.snapshot()).templates[0]
        table = template.table
        offered = table.offered(template.requirements, template.given)
        price = np.where(offered.suits, offered.price, np.inf)[table.row_type]
        counts = Counter((pod.cpu_m, pod.memory_mi, pod.kind == "x") for pod in self.drawn)
        keys = sorted(counts)
        sizes = np.array([(cpu, memory * MIB, 1) for cpu, memory, _ in keys], np.int64)
        alone = np.array([[key[2] for key in keys]], np.bool_)
        return BinPackingProblem(
            sizes=sizes,
            counts=np.array([counts[key] for key in keys], np.int64),
            net=template.net[:, :3],
            price=price,
            suits=np.ones((len(keys), len(price)), np.bool_),
            caps=np.ones(1, np.int64) if alone.any() else np.zeros(0, np.int64),
            capped=alone if alone.any() else np.zeros((0, len(keys)), np.bool_),
            owners=alone if alone.any() else np.zeros((0, len(keys)), np.bool_),
            clash=np.zeros((len(keys), len(keys)), np.bool_),
        )


def cases(numbers: Sequence[int] = (1000, 10_000)) -> list[Case]:
    """The rows of the table."""
    fake, real = incrementing_types(400), real_types()
    result = []
    for number in numbers:
        drawn = verified(number)
        plain = [DrawnPod("g", "", "", pod.cpu_m, pod.memory_mi) for pod in drawn]
        result += [
            Case(f"{number:,} diverse, fake", "diverse", tuple(drawn), fake, on_demand=False),
            Case(f"{number:,} diverse, real", "diverse", tuple(drawn), real, on_demand=True),
            Case(f"{number:,} unconstrained, real", "plain", tuple(plain), real, on_demand=True),
            Case(f"{number:,} every size different", "plain", tuple(distinct_sizes(plain)), real, on_demand=True),
            Case(f"{number:,} coarse, real", "coarse", tuple(coarse(number)), real, on_demand=True),
        ]
    return result


def coarse(number: int, seed: int = 11) -> list[DrawnPod]:
    """Pods of 8 to 32 vCPU and 2 to 8 GiB for each: what a batch or training job asks for, a made-up mixture."""
    source = random.Random(seed)
    cpus, weights = (8, 10, 12, 14, 16, 20, 24, 28, 31, 32), (25, 6, 14, 6, 20, 6, 9, 4, 6, 4)
    pods = []
    for _ in range(number):
        cpu = source.choices(cpus, weights)[0]
        pods.append(DrawnPod("g", "", "", cpu * 1000, cpu * 1024 * source.choice((2, 3, 4, 6, 8))))
    return pods


@lru_cache(maxsize=1)
def real_types() -> tuple[InstanceType, ...]:
    """EC2's types in us-east-1 at on-demand prices where they are known, else at estimated ones."""
    types, known = estimated_types(), known_prices()
    if not known:
        return types
    replace = msgspec.structs.replace
    return tuple(
        replace(
            item,
            offerings=tuple(
                replace(offering, price=known[item.name])
                for offering in item.offerings
                if offering.capacity_type == "on-demand"
            ),
        )
        for item in types
        if item.name in known
    )


@lru_cache(maxsize=1)
def estimated_types() -> tuple[InstanceType, ...]:
    """EC2's types in us-east-1 at estimated prices, the same on every machine."""
    node_class = msgspec.convert({"metadata": {"name": "default"}, "spec": {"amiFamily": "AL2023"}}, EC2NodeClass)
    catalog = embedded.load("us-east-1")
    return instance_types(catalog, node_class, CapacitySetting(), resolved=None, learned=(), unavailable=())


@lru_cache(maxsize=1)
def known_prices() -> dict[str, float]:
    """On-demand prices of us-east-1 by type, empty when the file is not there."""
    if not PRICES.is_file():
        return {}
    found: dict[str, float] = json.loads(PRICES.read_text())["prices"]["us-east-1"]
    return found


def _pool(*, on_demand: bool) -> NodePool:
    """For real types the NodePool that Karpenter's getting-started guide creates, without bare metal."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
        {"key": "karpenter.k8s.aws/instance-hypervisor", "operator": "In", "values": ["nitro"]},
    ]
    template = {"spec": {"nodeClassRef": {"name": "default"}, "requirements": requirements if on_demand else []}}
    return msgspec.convert({"metadata": {"name": "default"}, "spec": {"template": template}}, NodePool)


def drawn_pods(drawn: Sequence[DrawnPod]) -> tuple[Pod, ...]:
    """These pods as typed objects."""
    items = [_pod(number, pod) for number, pod in enumerate(drawn)]
    return msgspec.json.decode(msgspec.json.encode({"items": items}), type=PodList).items


def _pod(number: int, drawn: DrawnPod) -> dict[str, Any]:
    key = {"a": "my-affininity", "x": "app"}.get(drawn.kind, "my-label")
    requests = {"cpu": f"{drawn.cpu_m}m", "memory": f"{drawn.memory_mi}Mi"}
    return {
        "metadata": {
            "name": f"pod-{number:05d}",
            "namespace": "default",
            "uid": f"uid-{number:05d}",
            "labels": {key: drawn.label or "nginx"},
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": requests}}], **constraints(drawn)},
    }


def daemon_sets() -> tuple[DaemonSet, ...]:
    """Return the DaemonSets of a plain EKS cluster."""
    manifests = [
        {
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {
                "template": {
                    "spec": {
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [{"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
                    }
                }
            },
        }
        for name, (cpu, memory) in _DAEMONS.items()
    ]
    return msgspec.convert(manifests, tuple[DaemonSet, ...])
