"""Pods come and go, pools change, time passes: disruption keeps its promises whatever the order.

Decisions are carried out at once. Budgets are never exceeded, protected pods never moved, every moved pod has a home
that holds it, and a cluster on which nothing happens comes to rest.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from shiplap.disruption.commands import Decision, Reason
from shiplap.disruption.decide import decide
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.custom_resources import NodePool
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.builders.pools import rule as requirement
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.disruptions import pdb
from tests.living_cluster import LivingCluster

TYPES = (
    fake_type("small", cpu="2", memory="4Gi", pods="10", price=1.0, offerings=(("on-demand", Z1), ("on-demand", Z2))),
    fake_type("medium", cpu="4", memory="8Gi", pods="20", price=1.9, offerings=(("on-demand", Z1), ("on-demand", Z2))),
    fake_type("large", cpu="16", memory="32Gi", pods="50", price=7.0, offerings=(("on-demand", Z1),)),
)
GUARDED = {"app": "guarded"}
MOST_DECISIONS = 12
"""Within how many decisions, beside one per node, a cluster must have come to rest: a budget may allow only one."""


MOST_FIXED = 4
"""Nodes that the static pool may have at any moment: at most one more than it wants."""


def pools(budget: str, label: str, replicas: int = 0, expire_after: str = "Never") -> list[NodePool]:
    ordered = requirement("node.kubernetes.io/instance-type", "In", "medium", "*")
    fixed = pool(
        "fixed",
        budgets=[{"nodes": "2"}],
        labels={"generation": label},
        taints=[taint("fixed")],
        replicas=replicas,
        expire_after=expire_after,
    )
    return [
        pool("plain", budgets=[{"nodes": budget}], labels={"generation": label}, expire_after=expire_after),
        pool("zonal", requirement("topology.kubernetes.io/zone", "In", Z2), budgets=[{"nodes": "1"}], weight=1),
        pool("tiered", ordered, budgets=[{"nodes": budget}], labels={"generation": label}, taints=[taint("tiered")]),
        replace(fixed, spec=replace(fixed.spec, limits={"nodes": MOST_FIXED})),
    ]


def taint(name: str) -> dict[str, str]:
    return {"key": "only", "value": name, "effect": "NoSchedule"}


def only(name: str) -> dict[str, Any]:
    """The part of a pod that keeps it on nodes of one pool."""
    return {"selector": {labels.NODE_POOL: name}, "tolerations": [{"key": "only", "value": name}]}


class Disruption(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = LivingCluster(pools("50%", "a"), TYPES)
        self.cluster.budgets = (pdb("guard", 0, **GUARDED),)
        self.number = 0

    @rule(count=st.integers(1, 8), cpu=st.sampled_from(["100m", "900m", "3"]), kind=st.integers(0, 7))
    def pods_come(self, count: int, cpu: str, kind: int) -> None:
        meta = {
            4: {"annotations": {labels.DO_NOT_DISRUPT: "true"}},
            5: {"labels": GUARDED},
        }.get(kind, {})
        where = {3: {"selector": {labels.ZONE: Z2}}, 6: only("tiered"), 7: only("fixed")}.get(kind, {})
        names = range(self.number, self.number + count)
        self.number += count
        self.cluster.create(pod(f"p{name}", cpu=cpu, metadata=meta, **where) for name in names)
        self.cluster.schedule()

    @precondition(lambda self: self.cluster.pods)
    @rule(data=st.data())
    def pods_go(self, data: st.DataObject) -> None:
        self.cluster.delete(data.draw(st.sets(st.sampled_from(sorted(self.cluster.pods)))))

    @rule(seconds=st.integers(1, 100_000))
    def time_passes(self, seconds: int) -> None:
        self.cluster.now += seconds

    @rule(
        budget=st.sampled_from(["0", "1", "50%", "100%", "broken"]),
        generation=st.sampled_from("ab"),
        replicas=st.integers(0, 3),
        expire_after=st.sampled_from(["Never", "12h"]),
    )
    def pools_change(self, budget: str, generation: str, replicas: int, expire_after: str) -> None:
        self.cluster.pools = tuple(pools(budget, generation, replicas, expire_after))
        self.cluster.schedule()

    @rule(available=st.booleans())
    def the_preferred_type_sells_out_and_comes_back(self, *, available: bool) -> None:
        item = self.cluster.types["medium"]
        offerings = tuple(replace(offering, available=available) for offering in item.offerings)
        self.cluster.types["medium"] = replace(item, offerings=offerings)
        self.cluster.schedule()

    @rule()
    def disruption_decides(self) -> None:
        self._carry_out()

    @rule()
    def nothing_happens_for_long(self) -> None:
        for _ in range(MOST_DECISIONS + len(self.cluster.nodes)):
            if not self._carry_out().commands:
                self._static_pools_have_what_they_want()
                return
        raise AssertionError("the cluster does not come to rest")

    def _static_pools_have_what_they_want(self) -> None:
        wanted = next(item for item in self.cluster.pools if item.metadata.name == "fixed")
        assert sum(claim.plan.node_pool == "fixed" for claim in self.cluster.claims.values()) == wanted.spec.replicas

    def _carry_out(self) -> Decision:
        before = {key: pod.spec.node_name for key, pod in self.cluster.pods.items()}
        held = Counter(claim.plan.node_pool for claim in self.cluster.claims.values())
        hourly = self.cluster.hourly
        decided = decide(self.cluster.disruption_snapshot())
        for item in self.cluster.pools:
            gone = sum(
                self.cluster.claims[name].plan.node_pool == item.metadata.name
                for command in decided.commands
                if command.reason is not Reason.SCALED_DOWN
                for name in command.nodes
            )
            assert gone <= _allowed(item, held[item.metadata.name])
        new = sum(claim.node_pool == "fixed" for command in decided.commands for claim in command.replacements)
        assert not new or held["fixed"] + new <= MOST_FIXED
        static = {name for name, claim in self.cluster.claims.items() if claim.plan.node_pool == "fixed"}
        cut = {n for command in decided.commands if command.reason is Reason.SCALED_DOWN for n in command.nodes}
        for command in decided.commands:
            self.cluster.carry_out(command)
        self.cluster.schedule()
        for key, node in before.items():
            pod = self.cluster.pods[key]
            assert not node or node in static or pod.spec.node_name in self.cluster.nodes
            assert node == pod.spec.node_name or node in cut or not node or not _protected(pod)
        if decided.commands and all(command.reason in _SAVING for command in decided.commands):
            assert self.cluster.hourly < hourly
        return decided

    @invariant()
    def nodes_hold_their_pods(self) -> None:
        used: Counter[str] = Counter()
        for item in self.cluster.pods.values():
            used[item.spec.node_name] += parse_amount("cpu", item.spec.containers[0].resources.requests["cpu"])
        for name, node in self.cluster.nodes.items():
            assert used[name] <= parse_amount("cpu", node.status.allocatable["cpu"])


_SAVING = (Reason.EMPTY, Reason.UNDERUTILIZED)


def _allowed(item: NodePool, total: int) -> int:
    written = item.spec.disruption.budgets[0].nodes
    if written == "broken":
        return 0
    return -(-int(written[:-1]) * total // 100) if written.endswith("%") else int(written)


def _protected(item: Pod) -> bool:
    return labels.DO_NOT_DISRUPT in item.metadata.annotations or item.metadata.labels == GUARDED


TestDisruption = Disruption.TestCase
