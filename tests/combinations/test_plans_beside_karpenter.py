"""Our plans beside Karpenter's: whether the laws notice what they are there for, and a few drawn clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from shiplap.manifests.custom_resources import Manifests, RequirementSpec
from shiplap.scheduling.model.snapshot import Snapshot
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.combinations import kube_scheduler
from tests.combinations.beside_karpenter import (
    UNKNOWN,
    as_batch,
    decided_by,
    drawn_for_karpenter,
    exceeds_limits,
    karpenter_laws,
    uses_no_fewer_zones,
)
from tests.combinations.drawn_clusters import OPTIONS, with_options
from tests.combinations.kube_scheduler import KubeScheduler
from tests.combinations.laws import Decided, Law, leaves_no_more_pods, left_out, zones_of
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2
from tests.e2e.programs import ProgramsMissing
from tests.karpenter import karpenter_scheduler
from tests.karpenter.karpenter_scheduler import KarpenterScheduler, LaunchedOffering, OpenedClaim, ScheduledBatch
from tests.rules import ZONE

SEED, COUNT = 20261128, 40
SPREAD = {
    "topologySpreadConstraints": [
        {
            "topologyKey": ZONE,
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


@pytest.fixture(scope="module")
def laws() -> Iterator[tuple[Law, ...]]:
    """The laws with both programs at work, which Go compiles first on a new machine: 390 seconds of processor time."""
    try:
        programs = karpenter_scheduler.build(), kube_scheduler.build()
    except ProgramsMissing as missing:
        pytest.skip(str(missing))
    with KarpenterScheduler(programs[0], {}) as karpenter, KubeScheduler(programs[1]) as judge:
        yield karpenter_laws(karpenter, judge)


def two_spread_pods() -> Snapshot:
    """Pods that a constraint spreads, and what waits for them."""
    draft = with_options(SEED, 1, []).snapshot
    waiting = pods(2, "web", cpu="500m", metadata={"labels": {"app": "web"}}, spec=SPREAD)
    return case.snapshot_of(waiting, (), pools=[pool("pool-0", limits={})], types=draft.catalogs[0].instance_types)


def opened(zone: str, *pods: str) -> OpenedClaim:
    pinned = RequirementSpec(ZONE, "In", (zone,))
    return OpenedClaim("pool-0", (pinned,), ("c.large",), LaunchedOffering("c.large", zone, "spot", 0.036), pods)


def test_fewer_zones_than_karpenters_are_noticed() -> None:
    snapshot = two_spread_pods()
    apart = decided_by(ScheduledBatch((opened(Z1, "web-0"), opened(Z2, "web-1")), {}), snapshot)
    together = decided_by(ScheduledBatch((opened(Z1, "web-0", "web-1"),), {}), snapshot)
    assert zones_of(apart, ("default", "web")) == {Z1: 1, Z2: 1}
    assert uses_no_fewer_zones(apart, together) == f"web: {{'{Z1}': 1, '{Z2}': 1}} of Karpenter are {{'{Z1}': 2}}"
    assert uses_no_fewer_zones(together, apart) == ""
    assert uses_no_fewer_zones(apart, Decided(snapshot)) == ""


def test_more_pods_left_out_than_karpenters_are_noticed() -> None:
    snapshot = two_spread_pods()
    every = decided_by(ScheduledBatch((opened(Z1, "web-0"), opened(Z2, "web-1")), {}), snapshot)
    one = decided_by(ScheduledBatch((opened(Z1, "web-0"),), {"web-1": "no room"}), snapshot)
    assert "left out by priority [0] became [1]" in leaves_no_more_pods(every, one)
    assert leaves_no_more_pods(one, every) == ""


def test_clusters_are_drawn_without_what_karpenter_does_not_know() -> None:
    assert OPTIONS.keys() > UNKNOWN
    options = {name for number in range(300) for name in drawn_for_karpenter(SEED, number).options}
    assert options == OPTIONS.keys() - UNKNOWN


def test_a_cluster_is_written_with_the_pods_of_daemon_sets_and_the_uids_of_pods() -> None:
    snapshot = with_options(SEED, 1, ["daemon_set"]).snapshot
    batch = as_batch(snapshot)
    assert [daemon["metadata"]["name"] for daemon in batch["daemonPods"]] == ["agent"]
    assert [pod["metadata"]["uid"] for pod in batch["pods"]] == [pod.metadata.uid for pod in snapshot.view.pods]
    assert [item["name"] for item in batch["types"]] == [item.name for item in snapshot.catalogs[0].instance_types]


def test_limits_that_a_plan_exceeds_are_noticed() -> None:
    snapshot = two_spread_pods()
    [pool_0] = snapshot.manifests.node_pools
    plan = decided_by(ScheduledBatch((opened(Z1, "web-0"), opened(Z2, "web-1")), {}), snapshot).plan

    def limited(**limits: str) -> Snapshot:
        return replace(snapshot, manifests=Manifests(node_pools=(pool("pool-0", limits=limits),)))

    assert pool_0.spec.limits == {}
    assert not exceeds_limits(snapshot, plan)
    assert not exceeds_limits(limited(nodes="2", cpu="4"), plan)
    assert exceeds_limits(limited(nodes="1"), plan)
    assert exceeds_limits(limited(cpu="3999m"), plan)


@pytest.mark.thorough
def test_plans_of_drawn_clusters_beside_karpenters(laws: tuple[Law, ...]) -> None:
    for law in laws:
        verdicts = {}
        for number in range(COUNT):
            cluster = drawn_for_karpenter(SEED, number)
            verdicts[cluster.name] = law.broken_by(Decided(cluster.snapshot), cluster.rng(law.name))
        assert {name: text for name, text in verdicts.items() if text} == {}
        assert sum(text is None for text in verdicts.values()) < COUNT / 2, "too few of Karpenter's plans can be judged"


@pytest.mark.thorough
def test_a_plan_is_not_sound_if_a_node_of_another_type_makes_one_more_domain(laws: tuple[Law, ...]) -> None:
    """Pods that require each other spread over two zones, of which Karpenter's program knows the first term's alone."""
    cluster = drawn_for_karpenter(24680, 666)
    assert laws[0].broken_by(Decided(cluster.snapshot), cluster.rng(laws[0].name)) is None


@pytest.mark.parametrize(
    ("seed", "number", "most"),
    [
        (91, 63, 1),
        (91, 432, 1),
        (91, 578, 7),
        (91, 602, 2),
        (91, 737, 0),
        (777, 1388, 2),
        (70707, 48, 2),
        (70707, 294, 8),
        (70707, 328, 1),
    ],
)
def test_clusters_of_which_one_order_alone_left_out_more_pods(seed: int, number: int, most: int) -> None:
    """Pods that require each other and start where a limit leaves no room for all, and those for few types."""
    assert len(left_out(Decided(drawn_for_karpenter(seed, number).snapshot).plan)) <= most
