"""A zone that was sold out sells again: pods return to it, replacement first."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from shiplap.flows.lifecycle.lifecycle import LifecycleReport
from shiplap.flows.messages import NodeSeen, Timer
from shiplap.kubernetes import labels
from shiplap.manifests.shiplap_annotations import ZONE_BALANCE
from tests.builders.pools import family_pool
from tests.conformance.zone_spreads import spread
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.leaving import evicted
from tests.integration.flows.stage import ZONES

PODS = 6


class Unbalanced(Disrupted):
    """Six pods, of which each fills a node, spread over two zones while the third is sold out."""

    def __init__(self, most: str) -> None:
        super().__init__()
        (usual,) = self.settings.manifests.node_pools
        small = family_pool("default", ("m6i",), sizes=("large",))
        annotations = {ZONE_BALANCE: most} if most else {}
        metadata, spec = (
            replace(small.metadata, annotations=annotations),
            replace(small.spec, disruption=usual.spec.disruption),
        )
        pool = replace(small, metadata=metadata, spec=spec)
        self.settings = replace(self.settings, manifests=replace(self.settings.manifests, node_pools=(pool,)))
        self.made = 0
        for name in self.types:
            self.compute.capacity[name, ZONES[2], "on-demand"] = 0
        for _ in range(PODS):
            self.make_pod()

    def make_pod(self) -> None:
        self.made += 1
        pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        container = {"name": "main", "resources": {"requests": {"cpu": "1200m", "memory": "2Gi"}}}
        metadata = {"name": f"web-{self.made:02d}", "uid": f"uid-{self.made:02d}", "labels": {"app": "web"}}
        spec = {"containers": [container], "topologySpreadConstraints": [spread()]}
        status = {"phase": "Pending", "conditions": [pending]}
        self.server.create("pods", {"metadata": metadata, "spec": spec, "status": status})

    def attend(self, *hints: NodeSeen | Timer) -> LifecycleReport:
        """As of any stage; controllers make a pod for each that was evicted."""
        report = super().attend(*hints)
        for name in evicted(self):
            self.server.delete("pods", name, grace_s=0)
            self.make_pod()
        return report

    def zones(self) -> Counter[str]:
        """The pods that run, by zone."""
        marks = {name: item["metadata"]["labels"] for name, item in self.objects("nodes").items()}
        placed = (item["spec"].get("nodeName") for item in self.objects("pods").values())
        return Counter(marks[name][labels.ZONE] for name in placed if name)


@pytest.mark.parametrize(("most", "last"), [("10", [2, 2, 2]), ("", [3, 3])])
def test_pods_return_to_a_zone_that_sells_again(most: str, last: list[int]) -> None:
    stage = Unbalanced(most)
    stage.minutes(8)
    assert sorted(stage.zones().values()) == [3, 3]
    stage.compute.capacity.clear()
    launched = len(stage.compute.launches)
    stage.minutes(100)
    assert sorted(stage.zones().values()) == last
    before = len(stage.compute.launches)
    assert (before == launched) is (not most)
    stage.minutes(60)
    assert len(stage.compute.launches) == before, "balanced once and for all"
