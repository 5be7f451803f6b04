"""Pods drawn to cost a decision as much as they can: many constraints, over many labels, that hardly two pods share.

A user who may create pods may write all of this; the API server accepts it. One seed is one batch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.related_objects import PersistentVolumeClaim, StorageClass
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, incrementing_types

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
TYPE, ARCH = "node.kubernetes.io/instance-type", "kubernetes.io/arch"
ZONES = (Z1, Z2, Z3)
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
TAINTS = [{"key": f"team-{number}", "value": "x", "effect": "NoSchedule"} for number in range(3)]
SOFT_TAINT = {"key": "old", "value": "x", "effect": "PreferNoSchedule"}


def drawn(seed: int, pods: int = 1000) -> Snapshot:
    """A batch of `pods` pods, the cluster and the NodePools it meets."""
    return _Batch(random.Random(f"adversarial {seed}"), pods).snapshot()  # noqa: S311 - repeatable chance


class _Batch:
    """Draws one batch; the shares of every kind of constraint are drawn first, so that batches differ."""

    def __init__(self, chance: random.Random, pods: int) -> None:
        self._chance = chance
        self._pods = pods
        self._kinds = chance.choice((4, 16, 64, 250, pods))
        self._labels = chance.choice((1, 3, 20, pods))
        self._own_keys = chance.random() < 0.4
        self._racks = tuple(f"example.com/rack-{number}" for number in range(chance.choice((0, 1, 4, 12))))
        self._odds = {
            part: chance.choice((0.0, 0.2, 0.7, 1.0))
            for part in ("soft", "hard", "near", "away", "liked", "shunned", "wanted", "terms", "selector", "volume")
        }
        self._most = {
            part: chance.choice((1, 2, 8, 32, 64)) for part in ("soft", "liked", "shunned", "wanted", "terms")
        }
        self._most["hard"] = chance.choice((1, 2, 3, 6))
        self._storage: list[StorageClass | PersistentVolumeClaim] = [
            case.storage_class(f"class-{number}", *topologies)
            for number, topologies in enumerate(
                ((), ({ZONE: (Z1,)},), ({ZONE: (Z2, Z3)},), tuple({ZONE: (zone,)} for zone in ZONES))
            )
        ]

    def snapshot(self) -> Snapshot:
        chance = self._chance
        specs = [self._kind(number) for number in range(self._kinds)]
        waiting = [self._pod(place, specs[place % self._kinds]) for place in range(self._pods)]
        nodes, bound = self._running(specs)
        pools = [self._pool(number) for number in range(chance.choice((1, 2, 6)))]
        return Snapshot(
            cluster="adversarial",
            now=case.NOW,
            view=ClusterView(
                (*waiting, *bound),
                tuple(nodes),
                storage_classes=tuple(item for item in self._storage if isinstance(item, StorageClass)),
                persistent_volume_claims=tuple(
                    item for item in self._storage if isinstance(item, PersistentVolumeClaim)
                ),
            ),
            manifests=Manifests(node_pools=tuple(pools)),
            catalogs=(NodeClassCatalog("default", incrementing_types(40)),),
            settings=SchedulingSettings(improve_s=chance.choice((0.0, 0.1))),
        )

    def _pod(self, place: int, kind: dict[str, Any]) -> Pod:
        spec = dict(kind["spec"])
        if kind["volume"] is not None:
            claim = f"data-{place}"
            self._storage.append(case.pvc(claim, storage_class=f"class-{kind['volume']}"))
            spec |= case.claim_volumes(claim)
        return pod(
            f"p{place}",
            cpu=kind["cpu"],
            memory=kind["memory"],
            selector=kind["selector"],
            tolerations=kind["tolerations"],
            metadata={"labels": kind["labels"]},
            spec=spec,
        )

    def _kind(self, number: int) -> dict[str, Any]:
        chance, odds = self._chance, self._odds

        def some(part: str) -> int:
            return chance.randint(1, self._most.get(part, 2)) if chance.random() < odds[part] else 0

        required = [self._node_term() for _ in range(some("terms"))]
        preferred = [{"weight": chance.randint(1, 100), "preference": self._node_term()} for _ in range(some("wanted"))]
        node: dict[str, Any] = {PREFERRED: preferred}
        if required:
            node[REQUIRED] = {"nodeSelectorTerms": required}
        spreads = {self._key(number, at): "DoNotSchedule" for at in range(some("hard"))}
        spreads |= {
            key: "ScheduleAnyway" for at in range(some("soft")) if (key := self._key(number, at)) not in spreads
        }
        affinity = {
            "nodeAffinity": node,
            "podAffinity": {
                REQUIRED: self._terms(number, some("near")),
                PREFERRED: self._weighed(number, some("liked")),
            },
            "podAntiAffinity": {
                REQUIRED: self._terms(number, some("away")),
                PREFERRED: self._weighed(number, some("shunned")),
            },
        }
        return {
            "cpu": chance.choice(("50m", "250m", "1", "3")),
            "memory": chance.choice(("64Mi", "1Gi", "5Gi")),
            "selector": chance.choice(({ZONE: chance.choice(ZONES)}, {KIND: "spot"})) if some("selector") else {},
            "tolerations": chance.choice(([], [{"operator": "Exists"}], [{"key": "team-0", "operator": "Exists"}])),
            "labels": {"app": f"a{number % self._labels}", "tier": f"t{chance.randrange(3)}"},
            "volume": chance.randrange(4) if some("volume") else None,
            "spec": {
                "affinity": affinity,
                "topologySpreadConstraints": [
                    {
                        "topologyKey": key,
                        "maxSkew": chance.choice((1, 1, 2, 5)),
                        "whenUnsatisfiable": how,
                        "labelSelector": self._selector(number),
                        "nodeAffinityPolicy": chance.choice(("Honor", "Ignore")),
                        "nodeTaintsPolicy": chance.choice(("Honor", "Ignore")),
                    }
                    for key, how in spreads.items()
                ],
            },
        }

    def _key(self, number: int, at: int) -> str:
        if self._own_keys and self._chance.random() < 0.8:
            return f"example.com/key-{number}-{at}"
        return self._chance.choice((ZONE, ZONE, HOST, KIND, TYPE, ARCH, *self._racks))

    def _selector(self, number: int) -> dict[str, Any]:
        chance = self._chance
        if chance.random() < 0.2:
            return {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        if chance.random() < 0.2:
            return {"matchLabels": {"tier": f"t{chance.randrange(3)}"}}
        own = number if chance.random() < 0.7 else chance.randrange(self._kinds)
        return {"matchLabels": {"app": f"a{own % self._labels}"}}

    def _terms(self, number: int, many: int) -> list[dict[str, Any]]:
        return [{"topologyKey": self._key(number, at), "labelSelector": self._selector(number)} for at in range(many)]

    def _weighed(self, number: int, many: int) -> list[dict[str, Any]]:
        return [{"weight": self._chance.randint(1, 100), "podAffinityTerm": term} for term in self._terms(number, many)]

    def _node_term(self) -> dict[str, Any]:
        chance = self._chance
        rules = [
            rule(ZONE, "In", *chance.sample(ZONES, chance.randint(1, 2))),
            rule(TYPE, "NotIn", *(f"fake-it-{chance.randrange(40)}" for _ in range(3))),
            rule(KIND, "In", chance.choice(("spot", "on-demand", "nothing"))),
            rule("integer", "Gt", str(chance.randrange(30))),
            rule(f"example.com/none-{chance.randrange(50)}", chance.choice(("Exists", "DoesNotExist"))),
        ]
        return {"matchExpressions": chance.sample(rules, chance.randint(1, 3))}

    def _pool(self, number: int) -> NodePool:
        chance = self._chance
        racks = [rule(key, "In", *(f"r{at}" for at in range(chance.choice((2, 3, 8))))) for key in self._racks]
        zones = [rule(ZONE, "In", *chance.sample(ZONES, 2))] if chance.random() < 0.3 else []
        taints = chance.choice(([], [], [TAINTS[number % 3]], [SOFT_TAINT]))
        limits = chance.choice(({}, {}, {"cpu": "500"}, {"nodes": "20"}, {"memory": "300Gi"}))
        return pool(f"pool-{number}", *racks, *zones, taints=taints, limits=limits, weight=chance.choice((0, 10)))

    def _running(self, specs: Sequence[dict[str, Any]]) -> tuple[list[Node], list[Pod]]:
        chance = self._chance
        nodes, bound = [], []
        for place in range(chance.choice((0, 10, 100))):
            labels = {ZONE: chance.choice(ZONES), KIND: "spot", **dict.fromkeys(self._racks[:2], "r0")}
            taints = chance.choice(([], [], [TAINTS[0]], [SOFT_TAINT]))
            nodes.append(node(f"n{place}", cpu="8", memory="16Gi", labels=labels, taints=taints))
            for number in range(chance.randrange(3)):
                kind = chance.choice(specs)
                bound.append(
                    pod(
                        f"b{place}-{number}",
                        cpu="1",
                        node=f"n{place}",
                        metadata={"labels": kind["labels"]},
                        spec={"affinity": {"podAntiAffinity": kind["spec"]["affinity"]["podAntiAffinity"]}},
                    )
                )
        return nodes, bound
