"""Equal snapshots give equal plans, byte for byte, in whatever order the cluster lists its objects."""

from __future__ import annotations

import random

import msgspec
import pytest

from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import incrementing_types
from tests.conformance.given import daemon_set, given, in_flight


def rich_snapshot() -> Snapshot:
    zone = "topology.kubernetes.io/zone"
    first = given(*pods(3, "early", cpu="1"), types=incrementing_types(8))
    outcome = given(
        *pods(30, "a", cpu="700m", memory="1Gi"),
        *pods(20, "b", cpu="700m", memory="1Gi", selector={zone: "test-zone-2"}),
        *pods(
            10, "c", memory="3Gi", requires=[[rule(zone, "In", "test-zone-1", "test-zone-3")], [rule("x", "Exists")]]
        ),
        *pods(3, "early", cpu="1"),
        pod("huge", cpu="100"),
        pod("bound", cpu="1", node="n1"),
        pools=[pool("p1", limits={"cpu": "20"}, weight=3), pool("p2"), pool("p3", limits={"nodes": "2"}, weight=9)],
        nodes=[node(f"n{n}", labels={zone: f"test-zone-{n}"}) for n in range(1, 4)],
        daemon_sets=[daemon_set("d1", cpu="100m"), daemon_set("d2", memory="100Mi", selector={zone: "test-zone-1"})],
        claims=[in_flight(claim) for claim in first.claims],
        types=incrementing_types(8),
    )
    return outcome.snapshot


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_lists_does_not_matter(seed: int) -> None:
    snapshot = rich_snapshot()
    shuffle = random.Random(seed)  # noqa: S311 - a shuffle for a test

    def mixed(items: tuple) -> tuple:  # type: ignore[type-arg]
        copy = list(items)
        shuffle.shuffle(copy)
        return tuple(copy)

    replace = msgspec.structs.replace
    other = replace(
        snapshot,
        view=replace(
            snapshot.view,
            pods=mixed(snapshot.view.pods),
            nodes=mixed(snapshot.view.nodes),
            daemon_sets=mixed(snapshot.view.daemon_sets),
        ),
        claims=mixed(snapshot.claims),
        manifests=replace(snapshot.manifests, node_pools=mixed(snapshot.manifests.node_pools)),
        catalogs=tuple(replace(catalog, instance_types=mixed(catalog.instance_types)) for catalog in snapshot.catalogs),
    )
    assert msgspec.json.encode(plan(other)) == msgspec.json.encode(plan(snapshot))


def test_a_recorded_snapshot_gives_the_same_plan_again() -> None:
    snapshot = rich_snapshot()
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)
    assert plan(decoded) == plan(snapshot)


def test_names_depend_on_content_and_epoch_and_are_labels() -> None:
    waiting = pods(8, cpu="3", ports=[80])
    first, again, later = given(*waiting), given(*waiting), given(*waiting, epoch=8)
    names = [claim.name for claim in first.claims]
    assert names == [claim.name for claim in again.claims]
    assert len(set(names)) == 8
    assert not set(names) & {claim.name for claim in later.claims}
    long = given(pod(), pools=[pool("a" * 60 + ".b")]).claim.name
    assert len(long) <= 63
    assert long.replace("-", "").isalnum()
    assert long == long.lower()


def test_a_name_that_exists_is_not_given_again() -> None:
    claim = given(pod()).claim
    taken = in_flight(claim, state=ClaimState.DRAINING)
    assert given(pod(), claims=[taken]).claim.name != claim.name
