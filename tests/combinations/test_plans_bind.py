"""Plans beside kube-scheduler's own filters: its program judges a few clusters, and its verdicts can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import TopologySpreadConstraint
from shiplap.kubernetes.related_objects import ReplicaSet
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, Unschedulable
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.combinations.drawn_clusters import drawn
from tests.combinations.kube_scheduler import KubeScheduler, SchedulerVerdict, build, scheduler_laws
from tests.combinations.laws import Decided
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.e2e.programs import ProgramsMissing
from tests.rules import HOST, ZONE

SEED, COUNT = 20261128, 40
MENDED = [
    *((3, 206), (3, 100), (880044, 92), (880044, 351), (880044, 592)),
    *((55667702, 57), (55667702, 1749), (88120051, 888), (88120051, 1832), (88120051, 1948)),
]
"""Drawn clusters with plans that once had a pod which bound nowhere."""
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
WEB: dict[str, Any] = {"labels": {"app": "web"}}


pytestmark = pytest.mark.thorough  # on a new machine, Go compiles kube-scheduler first


@pytest.fixture(scope="module")
def scheduler() -> Iterator[KubeScheduler]:
    try:
        program = build()
    except ProgramsMissing as missing:
        pytest.skip(f"no kube-scheduler: {missing}")
    with KubeScheduler(program) as running:
        yield running


def placed(*homes: tuple[str, str], left_out: str = "") -> Plan:
    """A plan that puts pods on nodes that exist."""
    by_node: dict[str, list[PodReference]] = {}
    for name, home in homes:
        by_node.setdefault(home, []).append(PodReference("default", name, f"uid-{name}"))
    left = [Unschedulable(PodReference("default", left_out, f"uid-{left_out}"), "")] if left_out else []
    places = tuple(Placement(node, tuple(pods)) for node, pods in by_node.items())
    return Plan(existing_nodes=places, unschedulable=tuple(left))


def judged(scheduler: KubeScheduler, snapshot: Snapshot, made: Plan) -> SchedulerVerdict:
    return scheduler.judge(snapshot, made, Random(1))  # noqa: S311 - a draw for a test


def two_zones(*pods: Any, **fields: Any) -> Snapshot:
    nodes = [node("a", cpu="2", labels={ZONE: Z1}), node("b", cpu="2", labels={ZONE: Z2})]
    return case.snapshot_of(pods, nodes, **{"types": [fake_type("small", pods="20")], **fields})


def names(verdict: SchedulerVerdict) -> set[str]:
    return {item.pod for item in verdict.unbound}


def test_plans_of_drawn_clusters(scheduler: KubeScheduler) -> None:
    for law in scheduler_laws(scheduler):
        broken = {}
        for number in range(COUNT):
            cluster = drawn(SEED, number)
            if problem := law.broken_by(Decided(cluster.snapshot), cluster.rng(law.name)):
                broken[cluster.name] = problem
        assert law.known or not broken


@pytest.mark.parametrize(("seed", "number"), MENDED)
def test_the_pods_of_a_plan_that_did_not_bind_do(scheduler: KubeScheduler, seed: int, number: int) -> None:
    law = scheduler_laws(scheduler)[0]
    cluster = drawn(seed, number)
    assert law.broken_by(Decided(cluster.snapshot), cluster.rng(law.name)) == ""


def test_a_pod_that_a_limit_left_out_fits_no_node_that_a_ceiling_allows(scheduler: KubeScheduler) -> None:
    """Nodes that the ceiling refused had filled the limit, which was named as the reason."""
    cluster = drawn(3, 198)
    assert [law.broken_by(Decided(cluster.snapshot), cluster.rng(law.name)) for law in scheduler_laws(scheduler)] == [
        "",
        "",
    ]


def test_a_known_defect_still_breaks_its_law(scheduler: KubeScheduler) -> None:
    """If this fails, the defect has been mended: remove its mark from the law."""
    for law in scheduler_laws(scheduler):
        if law.known is not None:
            cluster = drawn(law.known.seed, law.known.number)
            assert law.broken_by(Decided(cluster.snapshot), cluster.rng(law.name)), law.known


def test_a_sound_plan_binds(scheduler: KubeScheduler) -> None:
    spread = pods(4, "web", cpu="500m", metadata=WEB, spec=SPREAD)
    snapshot = two_zones(*spread)
    made = placed(("web-0", "a"), ("web-1", "a"), ("web-2", "b"), ("web-3", "b"))
    assert judged(scheduler, snapshot, made) == SchedulerVerdict()


def test_more_pods_than_a_node_holds_bind_nowhere(scheduler: KubeScheduler) -> None:
    snapshot = two_zones(*pods(3, "web", cpu="1500m"))
    verdict = judged(scheduler, snapshot, placed(("web-0", "a"), ("web-1", "a"), ("web-2", "b")))
    assert sorted(item.order for item in verdict.unbound) == [0, 1, 2]
    assert "Insufficient cpu" in verdict.unbound[0].reason


def test_an_uneven_spread_binds_nowhere(scheduler: KubeScheduler) -> None:
    spread = pods(3, "web", cpu="100m", metadata=WEB, spec=SPREAD, selector={ZONE: Z1})
    full = [pod("old", cpu="100m", node="b")]
    ignoring = [msgspec.structs.replace(each, spec=_regardless_of_selectors(each.spec)) for each in spread]
    verdict = judged(scheduler, two_zones(*ignoring, *full), placed(*((f"web-{n}", "a") for n in range(3))))
    assert len({item.pod for item in verdict.unbound if item.order == 0}) == 2


def _regardless_of_selectors(spec: Any) -> Any:
    rules = [msgspec.structs.replace(rule, node_affinity_policy="Ignore") for rule in spec.topology_spread_constraints]
    return msgspec.structs.replace(spec, topology_spread_constraints=tuple(rules))


def test_default_constraints_spread_the_pods_of_a_replica_set(scheduler: KubeScheduler) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    spread = pods(3, "web", cpu="100m", metadata={**WEB, "ownerReferences": [owner]})
    full = pod("old", cpu="2", node="b")
    owners = [case.controller(ReplicaSet, "web", app="web")]
    rule = TopologySpreadConstraint(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule")
    made = placed(*((f"web-{number}", "a") for number in range(3)))
    unbound = {}
    for rules in ((), (rule,)):
        snapshot = case.given(*spread, full, nodes=two_zones().view.nodes, around=owners, default_spread=rules).snapshot
        unbound[rules] = len({item.pod for item in judged(scheduler, snapshot, made).unbound if item.order == 0})
    assert unbound == {(): 0, (rule,): 2}


def test_a_pod_follows_one_whose_leaving_node_must_not_be_disrupted(scheduler: KubeScheduler) -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    snapshot = two_zones(pod("first", metadata=WEB, node="old"), pod("follower", spec=near))
    old = node("old", cpu="2", labels={ZONE: Z2})
    old = replace(old, metadata=replace(old.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    leaving = replace(snapshot, view=replace(snapshot.view, nodes=(*snapshot.view.nodes, old)))
    assert judged(scheduler, leaving, placed(("follower", "b"))) == SchedulerVerdict()
    assert names(judged(scheduler, leaving, placed(("follower", "b"), left_out="first"))) == {"default/follower"}


def test_a_follower_that_comes_first_binds_later(scheduler: KubeScheduler) -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    snapshot = two_zones(pod("first", metadata=WEB), pod("follower", priority=10, spec=near))
    assert judged(scheduler, snapshot, placed(("first", "a"), ("follower", "a"))) == SchedulerVerdict()


def test_pods_of_daemon_sets_take_their_part(scheduler: KubeScheduler) -> None:
    agent = case.daemon_set("agent", cpu="1")
    snapshot = two_zones(*pods(2, "web", cpu="1"), daemon_sets=[agent])
    assert judged(scheduler, snapshot, placed(("web-0", "a"), ("web-1", "b"))) == SchedulerVerdict()
    assert names(judged(scheduler, snapshot, placed(("web-0", "a"), ("web-1", "a")))) == set()  # b has room
    assert names(
        judged(
            scheduler,
            two_zones(*pods(3, "web", cpu="1"), daemon_sets=[agent]),
            placed(("web-0", "a"), ("web-1", "b"), ("web-2", "b")),
        )
    )


def test_a_volume_that_is_made_for_one_pod_keeps_the_others_in_its_zone(scheduler: KubeScheduler) -> None:
    storage = [case.pvc("data", storage_class="ebs"), case.storage_class("ebs")]
    waiting = pods(2, "web", cpu="100m", spec=case.claim_volumes("data"), metadata=WEB)
    held = case.given(*waiting, nodes=two_zones().view.nodes, storage=storage).snapshot
    assert judged(scheduler, held, placed(("web-0", "a"), ("web-1", "a"))) == SchedulerVerdict()
    crowded = case.given(
        *(pod(f"web-{n}", cpu="1500m", spec=case.claim_volumes("data")) for n in range(2)),
        nodes=two_zones().view.nodes,
        storage=storage,
    ).snapshot
    assert names(judged(scheduler, crowded, placed(("web-0", "a"), ("web-1", "b"))))


def test_a_pod_that_fits_a_node_that_could_be_launched_is_named(scheduler: KubeScheduler) -> None:
    snapshot = two_zones(pod("web-0", cpu="3"))
    assert {item.pod for item in judged(scheduler, snapshot, placed(left_out="web-0")).fitting} == {"default/web-0"}
    full = two_zones(pod("web-0", cpu="3"), pools=[pool(limits={"cpu": "1"})])
    assert judged(scheduler, full, placed(left_out="web-0")).fitting == ()
    huge = two_zones(pod("web-0", cpu="30"))
    assert judged(scheduler, huge, placed(left_out="web-0")).fitting == ()


def test_a_cluster_that_cannot_be_read_gets_an_error_and_the_next_a_verdict(scheduler: KubeScheduler) -> None:
    assert "cannot unmarshal" in scheduler.answer(b'{"nodes": 3}').error
    odd = case.snapshot_of([pod("web-0")], [node("a", cpu="two")], types=())
    with pytest.raises(InvalidInput, match="quantities must match"):
        judged(scheduler, odd, placed(("web-0", "a")))
    snapshot = two_zones(pod("web-0"))
    assert judged(scheduler, snapshot, plan(snapshot)) == SchedulerVerdict()
