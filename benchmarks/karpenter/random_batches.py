"""Batches of pending pods that two schedulers get alike: drawn by a seed, and the fixed ones.

A batch is plain Kubernetes JSON, which either side decodes with its own types. Its instance types are what a catalogue
says to both: EC2's in us-east-1 at on-demand prices, all of them verified, or the fake types of Karpenter's benchmark.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count, islice
from typing import Any

import msgspec

from benchmarks.planning.decoding import PodList, constraints
from benchmarks.shared.karpenter_workload import CPUS_M, MEMORY_MI, DrawnPod, verified
from benchmarks.shared.packing_cases import estimated_types, real_types
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Pod
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from tests.conformance.catalogues import incrementing_types

MOST_PODS = 2000
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ARCH, GPU = "kubernetes.io/arch", "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DEDICATED = {"key": "dedicated", "value": "jobs", "effect": "NoSchedule"}
DAEMONS = {"aws-node": ("50m", "64Mi"), "kube-proxy": ("100m", "64Mi"), "ebs-csi-node": ("30m", "120Mi")}

Json = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """Pods that wait for nodes of these NodePools; `catalogue` is a key of `catalogues()`."""

    name: str
    catalogue: str
    node_pools: Sequence[Json]
    pods: Sequence[Json]
    daemon_sets: Sequence[Json] = field(default=())

    @property
    def types(self) -> tuple[InstanceType, ...]:
        """The instance types that can be launched."""
        return catalogues()[self.catalogue]

    @cached_property
    def typed_pods(self) -> tuple[Pod, ...]:
        """The pods in our types."""
        return msgspec.json.decode(msgspec.json.encode({"items": self.pods}), type=PodList).items

    @cached_property
    def typed_pools(self) -> tuple[NodePool, ...]:
        """The NodePools in our types."""
        return tuple(msgspec.convert(pool, NodePool) for pool in self.node_pools)

    @cached_property
    def typed_daemon_sets(self) -> tuple[DaemonSet, ...]:
        """The DaemonSets in our types."""
        return msgspec.convert(list(self.daemon_sets), tuple[DaemonSet, ...])

    def for_karpenter(self) -> Json:
        """Return the input of Karpenter's scheduler: DaemonSets as the pods that they would have."""
        daemon_pods = [
            {"metadata": daemon["metadata"], "spec": daemon["spec"]["template"]["spec"]} for daemon in self.daemon_sets
        ]
        return {
            "catalogue": self.catalogue,
            "nodePools": self.node_pools,
            "pods": self.pods,
            "daemonPods": daemon_pods,
        }

    def snapshot(self, improve_s: float) -> Snapshot:
        """Return the input of our planner."""
        return Snapshot(
            cluster="comparison",
            now=0.0,
            view=ClusterView(pods=self.typed_pods, daemon_sets=self.typed_daemon_sets),
            manifests=Manifests(node_pools=self.typed_pools),
            catalogs=(NodeClassCatalog(NODE_CLASS["name"], self.types),),
            settings=SchedulingSettings(explore=False, improve_s=improve_s),
        )


@lru_cache(maxsize=1)
def catalogues() -> dict[str, tuple[InstanceType, ...]]:
    """Instance types by name of the catalogue. Verified: neither side keeps a reserve for wrong estimates."""
    return {"fake": incrementing_types(400), "ec2": _bought(real_types())}


@lru_cache(maxsize=1)
def estimated_catalogues() -> dict[str, tuple[InstanceType, ...]]:
    """The same catalogues at prices that do not depend on a file of prices."""
    return {**catalogues(), "ec2": _bought(estimated_types())}


def _bought(types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
    offerings = {
        item.name: tuple(offering for offering in item.offerings if offering.capacity_type == "on-demand")
        for item in types
    }
    replace = msgspec.structs.replace
    return tuple(replace(item, offerings=offerings[item.name], verified=True, careful={}) for item in types)


def drawn(number: int, seed: int, least_pods: int = 0) -> list[Batch]:
    """The first batches of so many pods or more. Each has a generator of its own: it can be drawn again alone."""
    batches = (_Drawing(f"{seed}-{place}").batch() for place in count())
    return list(islice((batch for batch in batches if len(batch.pods) >= least_pods), number))


def fixed(*, large: bool = False) -> list[Batch]:
    """Pods of Karpenter's benchmark on EC2's types and on its fake ones, and a made-up trace of GPU jobs.

    `large` adds the benchmark as Karpenter plays it.
    """
    return [
        *([Batch("10,000 diverse, fake types", "fake", [_pool("default", [])], _published(10_000))] if large else []),
        Batch("100 diverse, EC2 types", "ec2", [_pool("default", _GENERAL)], _published(100), _daemon_sets()),
        Batch("50 diverse, fake types", "fake", [_pool("default", [])], _published(50)),
        Batch("200 GPU jobs, EC2 types", "ec2", [_pool("default", _ANY)], _gpu_jobs(200), _daemon_sets()),
    ]


def _rule(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


_NITRO = _rule("karpenter.k8s.aws/instance-hypervisor", "In", "nitro")
_GENERAL = [
    _rule("karpenter.sh/capacity-type", "In", "on-demand"),
    _rule(ARCH, "In", "amd64"),
    _rule("karpenter.k8s.aws/instance-category", "In", "c", "m", "r"),
    _rule("karpenter.k8s.aws/instance-generation", "Gt", "2"),
    _NITRO,
]
"""The NodePool of Karpenter's getting-started guide, without bare metal."""
_ANY = [_rule("karpenter.sh/capacity-type", "In", "on-demand"), _rule(ARCH, "In", "amd64", "arm64"), _NITRO]


def _pool(name: str, rules: Sequence[Json], taints: Sequence[Json] = (), weight: int = 0) -> Json:
    labels = {"team": name}
    spec = {
        "nodeClassRef": NODE_CLASS,
        "requirements": list(rules),
        **({"taints": list(taints)} if taints else {}),
        "expireAfter": "Never",
    }
    pool: Json = {"metadata": {"name": name}, "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}}}
    if weight:
        pool["spec"]["weight"] = weight
    return pool


def _pod(number: int, labels: Json, requests: Json, spec: Json) -> Json:
    name = f"pod-{number:05d}"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{number:05d}", "labels": labels},
        "spec": {
            "containers": [{"name": "app", "resources": {"requests": requests, "limits": _limits(requests)}}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def _limits(requests: Json) -> Json:
    """Extended resources have to have limits."""
    return {key: value for key, value in requests.items() if key == GPU}


def _published(number: int) -> list[Json]:
    return [_published_pod(place, pod) for place, pod in enumerate(verified(number))]


def _published_pod(number: int, drawn_pod: DrawnPod) -> Json:
    key = {"a": "my-affininity", "x": "app"}.get(drawn_pod.kind, "my-label")
    requests = {"cpu": f"{drawn_pod.cpu_m}m", "memory": f"{drawn_pod.memory_mi}Mi"}
    return _pod(number, {key: drawn_pod.label or "nginx"}, requests, constraints(drawn_pod))


def _gpu_jobs(number: int, seed: int = 7) -> list[Json]:
    """Jobs of whole GPUs: most ask for one, some for a node's; cpu and memory grow with the GPUs."""
    source = random.Random(seed)
    pods = []
    for place in range(number):
        gpus = source.choices((1, 2, 4, 8), (70, 12, 10, 8))[0]
        requests = {
            "cpu": f"{gpus * source.choice((2000, 3000, 4000, 6000))}m",
            "memory": f"{gpus * source.choice((8, 12, 15, 24))}Gi",
            GPU: str(gpus),
        }
        pods.append(_pod(place, {"app": f"job-{gpus}"}, requests, {}))
    return pods


def _daemon_sets() -> list[Json]:
    return [
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
        for name, (cpu, memory) in DAEMONS.items()
    ]


class _Drawing:
    """One batch: Deployments whose pods are alike, some with constraints, on one to two NodePools."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._source = random.Random(seed)

    def batch(self) -> Batch:
        source = self._source
        number = max(1, round(math.exp(source.uniform(0, math.log(MOST_PODS)))))
        catalogue = source.choice(("fake", "ec2"))
        real = catalogue == "ec2"
        spread, daemons = source.random() < 0.5, source.random() < 0.5
        gpus, tainted, arm = real and source.random() < 0.3, source.random() < 0.3, real and source.random() < 0.3
        rules = _ANY if gpus or arm else _GENERAL if real else []
        pools = [_pool("default", rules)]
        if tainted:
            pools.append(_pool("jobs", rules, [DEDICATED], source.choice((0, 10))))
        pods: list[Json] = []
        while len(pods) < number:
            pods += self._deployment(number, len(pods), spread=spread, gpus=gpus, tainted=tainted, arm=arm)
        traits = {"spread": spread, "GPUs": gpus, "DaemonSets": daemons, "taints": tainted, "arm64": arm}
        name = ", ".join(
            [f"{self._seed}: {number} pods", catalogue, *(word for word, drawn in traits.items() if drawn)]
        )
        return Batch(name, catalogue, pools, pods, _daemon_sets() if daemons else ())

    def _deployment(self, number: int, first: int, *, spread: bool, gpus: bool, tainted: bool, arm: bool) -> list[Json]:
        source = self._source
        app = f"app-{first:05d}"
        replicas = min(number - first, max(1, round(math.exp(source.uniform(0, math.log(max(2.0, number / 3)))))))
        requests, spec = self._requests(gpus=gpus), self._constraints(app, replicas) if spread else {}
        if tainted and source.random() < 0.4:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Equal", "value": "jobs", "effect": "NoSchedule"}]
            if source.random() < 0.5:
                spec["nodeSelector"] = {"team": "jobs"}
        if arm and GPU not in requests and source.random() < 0.5:
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), ARCH: source.choice(("amd64", "arm64"))}
        return [_pod(first + place, {"app": app}, requests, spec) for place in range(replicas)]

    def _requests(self, *, gpus: bool) -> Json:
        source = self._source
        if gpus and source.random() < 0.3:
            count = source.choices((1, 2, 4, 8), (70, 15, 10, 5))[0]
            return {"cpu": f"{2000 * count}m", "memory": f"{12 * count}Gi", GPU: str(count)}
        if source.random() < 0.5:
            return {"cpu": f"{source.choice(CPUS_M)}m", "memory": f"{source.choice(MEMORY_MI)}Mi"}
        cpu_m = 10 * round(math.exp(source.uniform(math.log(5), math.log(800))))
        memory = min(cpu_m * source.choice((0.5, 1, 2, 4, 8)), 65536)
        return {"cpu": f"{cpu_m}m", "memory": f"{max(64, round(memory * 1.024))}Mi"}

    def _constraints(self, app: str, replicas: int) -> Json:
        kind = self._source.choice(("none", "none", "zone", "host", "both", "together", "apart"))
        selector = {"matchLabels": {"app": app}}

        def rule(key: str, skew: int) -> Json:
            common = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            return {**common, "labelSelector": selector}

        zone, host = rule(ZONE, 1), rule(HOST, max(1, replicas // self._source.choice((3, 8, 20))))
        if kind in ("zone", "host", "both"):
            return {"topologySpreadConstraints": {"zone": [zone], "host": [host], "both": [zone, host]}[kind]}
        if kind == "together":
            return {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": selector}]}}}
        if kind == "apart" and replicas <= 60:
            return {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOST, "labelSelector": selector}]}}}
        return {}
