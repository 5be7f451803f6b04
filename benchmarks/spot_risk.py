"""What preferring calm spot offerings does to interruptions and dollars, over months of a drawn spot market.

The planner is the real one, with EC2's types and their on-demand prices; the market is drawn by its seed
(`spot_market`). A fleet of nodes loses some to spot and some to scaling every day; all pods without a node are planned
every six hours, launched as the flows do (the same lists, splits and shares), and EC2 fills the launch in one of three
ways. Three arms meet the same market: the list as it is, `prefer`, and `prefer` with the evidence of each offering
given to another one. The first third of the time teaches and does not count. Dollars are those of instance time, of
moves (`moveCost` for each pod of an interrupted node) and of three minutes of its successor. What is counted is what is
to be expected of the market's rates: chance decides what is learned, not what is reported. Bars: interruptions per
node-hour -30 % at no more dollars; with exchanged evidence at most +0.5 % of dollars. Arguments: seeds, the first
seed, days, nodes.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable

import msgspec
from packing_cases import real_types
from rich.console import Console
from rich.table import Table
from spot_market import FILLINGS, MONTH_HOURS, ZONES, SpotMarket, SpotPool

from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.planning.planned_launches import ClaimOrigin, fleet_options, launches, records_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import LaunchedInstance
from shiplap.ports import DecisionState
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from shiplap.spot_risk.risk_evidence import ORIGIN_S, EvidenceChange, hours_by_part
from shiplap.spot_risk.safer_offerings import BOOT_S, SpotRiskInputs, SpotRiskSettings
from shiplap_lab.fakes.stores import FakeSpotEvidence

STEP_HOURS = 6.0
SCALED_PER_DAY = 0.12
MOVE_COST = 0.025
FAMILIES = ("c5", "c5a", "c6a", "c6i", "c7a", "c7i", "m5", "m5a", "m6a", "m6i", "m7a", "m7i", "r5", "r6a", "r6i", "r7i")
SIZES = ("large", "xlarge", "2xlarge", "4xlarge")


class Figures(msgspec.Struct):
    """What one arm came to."""

    interruptions: float = 0.0
    node_hours: float = 0.0
    dollars: float = 0.0
    largest_share: float = 0.0

    @property
    def per_node_hour(self) -> float:
        return self.interruptions / self.node_hours

    @property
    def per_hour(self) -> float:
        return self.dollars / self.node_hours


class RunningNode(msgspec.Struct):
    """A node, the pool of the market that it is from, and its pods."""

    name: str
    pool: SpotPool
    pods: list[Pod]


def pool_of_spot() -> NodePool:
    rules = [
        {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
        {"key": labels.ARCH, "operator": "In", "values": ["amd64"]},
    ]
    spec = {"template": {"spec": {"nodeClassRef": {"name": "default"}, "requirements": rules}}}
    return msgspec.convert({"metadata": {"name": "spot"}, "spec": spec}, NodePool)


class Fleet:
    """One arm in one market."""

    def __init__(self, seed: int, filling: str, mode: str, *, exchanged: bool, nodes: int) -> None:
        wanted = {f"{family}.{size}" for family in FAMILIES for size in SIZES}
        self.types = [item for item in real_types() if item.name in wanted]
        self.market = SpotMarket(self.types, seed, filling)
        self.chance = random.Random(f"fleet {seed}")
        self.mode, self.evidence = SpotRiskSettings(mode), FakeSpotEvidence()
        self.exchanged = self._exchange(seed) if exchanged else {}
        self.running: list[RunningNode] = []
        self.number, self.pods_made, self.figures = 0, 0, Figures()
        self.pending = [self._pod() for _ in range(nodes * 5)]

    def _exchange(self, seed: int) -> dict[str, str]:
        keys = sorted(self.market.pools)
        others = list(keys)
        random.Random(f"exchange {seed}").shuffle(others)
        return dict(zip(keys, others, strict=True))

    def _pod(self) -> Pod:
        self.pods_made += 1
        cpu, memory = self.chance.choice(((400, 900), (700, 2500), (900, 1800), (1500, 6000)))
        return msgspec.convert(
            {
                "metadata": {"name": f"p{self.pods_made}", "uid": f"p{self.pods_made}"},
                "spec": {
                    "containers": [
                        {"name": "m", "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}}
                    ]
                },
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            },
            Pod,
        )

    def play(self, days: int) -> Figures:
        for step in range(int(days * 24 / STEP_HOURS)):
            if step == int(days * 8 / STEP_HOURS):
                self.figures = Figures()
            self.launch()
            self.live()
        return self.figures

    def launch(self) -> None:
        """Plan all pending pods and launch their nodes."""
        if not self.pending:
            return
        now = ORIGIN_S + self.market.now * 3600
        on_sale = tuple(msgspec.structs.replace(item, offerings=self.market.offerings(item)) for item in self.types)
        risk = SpotRiskInputs(self.mode, MOVE_COST, self.evidence.read(now)) if self.mode.is_on else None
        snapshot = Snapshot(
            cluster="c",
            now=now,
            view=ClusterView(pods=tuple(self.pending), nodes=tuple(map(_node, self.running))),
            manifests=Manifests(node_pools=(pool_of_spot(),)),
            catalogs=(NodeClassCatalog("default", on_sale),),
            settings=SchedulingSettings(explore=False),
            epoch=self.number,
            spot_risk=risk,
        )
        decided = plan(snapshot)
        by_uid = {pod.metadata.uid: pod for pod in self.pending}
        by_name = {item.name: item for item in on_sale}
        market = OfferingMarket(DecisionState(0))
        claims = records_of(decided.node_claims, ClaimOrigin(cluster="c", owner="o", at=now, lease_s=60.0))
        for group in launches(claims):
            options = fleet_options(group[0], by_name, ZONES, preferred=market.preferred(group))
            assert options.capacity_type == "spot", options.capacity_type
            chosen = self.market.fill([f"{override.instance_type}/{override.zone}" for override in options.overrides])
            for claim in group:
                self.number += 1
                pods = [by_uid.pop(reference.uid) for reference in claim.plan.pods]
                self.running.append(RunningNode(f"n{self.number}", chosen, pods))
            instance = LaunchedInstance("i", chosen.instance_type, chosen.zone, "spot")
            market.count_launched([msgspec.structs.replace(claim, instance=instance) for claim in group])
        assert not by_uid, decided.unschedulable[:1]
        self.pending = []

    def live(self) -> None:
        """Hours pass: nodes are paid for, some are interrupted, some are scaled in and others take their place."""
        self.market.pass_hours(STEP_HOURS)
        now = ORIGIN_S + self.market.now * 3600
        hours: Counter[str] = Counter()
        kept = []
        for node in self.running:
            hours[node.pool.key] += 1
            self.figures.node_hours += STEP_HOURS
            expected = self.market.rate(node.pool) * STEP_HOURS
            self.figures.interruptions += expected
            self.figures.dollars += node.pool.price * STEP_HOURS
            self.figures.dollars += expected * (MOVE_COST * len(node.pods) + node.pool.price * BOOT_S / 3600)
            lost = self.chance.random() < 1 - math.exp(-self.market.rate(node.pool) * STEP_HOURS)
            scaled = self.chance.random() < SCALED_PER_DAY * STEP_HOURS / 24
            recommended = self.chance.random() < (0.6 if lost else 0.02 * self.market.rate(node.pool) * MONTH_HOURS)
            if recommended:
                self.note(node.pool.key, now, rebalances=1)
            if lost:
                self.note(node.pool.key, now, node=node.name, interruptions=1)
                self.pending += node.pods
            elif scaled:
                self.pending += [self._pod() for _ in node.pods]
            else:
                kept.append(node)
        for key, count in sorted(hours.items()):
            parts = hours_by_part(now - STEP_HOURS * 3600, now)
            self.note(key, now, node=f"{key}{now}", node_hours=tuple(part * count for part in parts))
        self.running = kept
        self.figures.largest_share = max(self.figures.largest_share, max(hours.values()) / sum(hours.values()))

    def note(self, key: str, now: float, **what: object) -> None:
        """Evidence about an offering, or with exchanged evidence about another one."""
        name, _, zone = self.exchanged.get(key, key).partition("/")
        self.evidence.add([EvidenceChange(zone_id=ZONES[zone], instance_type=name, at=now, **what)])  # type: ignore[arg-type]


def _node(node: RunningNode) -> Node:
    """A node without room: only what the plan counts of it matters."""
    own = {
        labels.NODE_POOL: "spot",
        labels.CAPACITY_TYPE: "spot",
        labels.INSTANCE_TYPE: node.pool.instance_type,
        labels.ZONE: node.pool.zone,
    }
    spec = {"taints": [{"key": "full", "effect": "NoSchedule"}]}
    return msgspec.convert({"metadata": {"name": node.name, "labels": own}, "spec": spec}, Node)


def main(seeds: int = 3, first: int = 0, days: int = 90, nodes: int = 60) -> None:
    """Print interruptions and dollars of `prefer` beside the list as it is, for each way of filling a fleet."""
    table = Table("EC2 fills", "as is, %/month", "interruptions", "dollars", "exchanged: dollars", "CPU s")
    for filling in FILLINGS:
        began = time.process_time()
        as_is, preferred, exchanged = (
            _together(
                Fleet(seed, filling, mode, exchanged=exchanged, nodes=nodes).play(days)
                for seed in range(first, first + seeds)
            )
            for mode, exchanged in (("off", False), ("prefer", False), ("prefer", True))
        )
        row = (
            filling,
            f"{as_is.per_node_hour * MONTH_HOURS:.1%}",
            f"{preferred.per_node_hour / as_is.per_node_hour - 1:+.0%}",
            f"{preferred.per_hour / as_is.per_hour - 1:+.2%}",
            f"{exchanged.per_hour / as_is.per_hour - 1:+.2%}",
            f"{time.process_time() - began:.0f}",
        )
        print(*row, sep=" | ", flush=True)
        table.add_row(*row)
    Console(width=110).print(table)


def _together(played: Iterable[Figures]) -> Figures:
    total = Figures()
    for item in played:
        total.interruptions += item.interruptions
        total.node_hours += item.node_hours
        total.dollars += item.dollars
    return total


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
