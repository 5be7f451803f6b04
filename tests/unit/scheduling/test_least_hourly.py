"""No packing costs less than the bound, and packings that it rules out are not made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as drawn_from
from hypothesis import settings

from benchmarks.karpenter.random_batches import drawn
from shiplap.kubernetes.objects import Node, Pod
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing import strategies
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.packing.least_hourly import least_hourly
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.packing.strategies import Batch, best_packing
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.conformance.catalogues import fake_type
from tests.conformance.given import snapshot_of
from tests.property.drawn_snapshots import snapshots
from tests.property.drawn_topologies import clusters
from tests.thoroughness import draws

_TYPES = (fake_type("only", cpu="4100m", memory="9Gi", pods="50", price=1.0),)


def _bound_and_packing(snapshot: Snapshot) -> tuple[float, Packing]:
    compiled = compile_snapshot(snapshot)
    batch = Batch.of(snapshot, compiled)
    return least_hourly(compiled, batch.classes), best_packing(batch)


def _bound(batch: list[Pod], *nodes: Node) -> float:
    return _bound_and_packing(snapshot_of(batch, nodes, types=_TYPES))[0]


@settings(max_examples=draws(40), deadline=None)
@drawn_from(snapshot=snapshots())
def test_no_packing_of_drawn_pods_costs_less(snapshot: Snapshot) -> None:
    least, packing = _bound_and_packing(snapshot)
    assert packing.unplaced or least <= packing.hourly


@settings(max_examples=draws(40), deadline=None)
@drawn_from(snapshot=clusters())
def test_nor_does_one_of_pods_with_topology_constraints(snapshot: Snapshot) -> None:
    least, packing = _bound_and_packing(snapshot)
    assert packing.unplaced or least <= packing.hourly


def test_nodes_of_one_type_are_bought_whole() -> None:
    assert _bound(pods(6, cpu="1")) == pytest.approx(2.0, rel=1e-5)


def test_pods_that_keep_off_each_other_need_a_node_each() -> None:
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}}
    assert _bound(pods(6, cpu="100m", labels={"app": "db"}, spec=apart)) == pytest.approx(6, rel=1e-5)


def test_room_on_nodes_that_exist_costs_nothing() -> None:
    assert _bound(pods(6, cpu="1"), node("old", cpu="2", memory="8Gi")) == pytest.approx(1.0, rel=1e-5)
    assert _bound(pods(6, cpu="1"), node("old", cpu="64", memory="256Gi")) == 0


def test_a_batch_that_costs_hardly_more_is_not_placed_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = []
    pack_once = strategies.pack_once

    def noted(batch: Batch, ordered: Any, way: Any) -> Packing:
        ways.append(way)
        return pack_once(batch, ordered, way)

    monkeypatch.setattr(strategies, "pack_once", noted)
    close, far = (batch for batch in drawn(21, 918273) if batch.name.startswith(("918273-3:", "918273-17:")))
    for batch, expected in ((close, 1), (far, 6)):
        ways.clear()
        snapshot = batch.snapshot(0.0)
        best_packing(Batch.of(snapshot, compile_snapshot(snapshot)))
        assert len(ways) == expected
