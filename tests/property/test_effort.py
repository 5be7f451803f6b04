"""Tests the cost of a decision beside its result: no garbage to collect, and steps that grow no faster than its pods.

Steps are counted, not timed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

import pytest
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.explain import unschedulable
from shiplap.scheduling.explain.unschedulable import Explainer
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing import pack
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import plan, solve
from tests.adversarial import drawn
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import incrementing_types
from tests.thoroughness import sampled

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@contextmanager
def collector(*, on: bool) -> Iterator[None]:
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        yield
    finally:
        (gc.enable if before else gc.disable)()


def snapshot(pods: list[Pod], supply: NodePool | None = None) -> Snapshot:
    return case.snapshot_of(pods, pools=[supply or pool(limits={})], types=incrementing_types(40))


def mixed(number: int) -> list[Pod]:
    """Pods of five kinds in many sizes, as in a cluster with as many workloads as its size asks for."""
    pods = []
    for place in range(number):
        app = {"matchLabels": {"app": f"a{place % 7}"}}
        spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app}
        apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST, "labelSelector": app}]}
        spec = (
            {},
            {"topologySpreadConstraints": [{**spread, "topologyKey": ZONE}]},
            {"topologySpreadConstraints": [{**spread, "topologyKey": HOST}]},
            {"affinity": {"podAntiAffinity": apart}},
            {"nodeSelector": {ZONE: "test-zone-1"}},
        )[place % 5]
        pods.append(
            pod(
                f"p{place}",
                cpu=f"{100 + place * 37 % 1900}m",
                memory=f"{100 + place * 53 % 3900}Mi",
                spec=spec,
                metadata={"labels": {"app": f"a{place % 7}"}},
            )
        )
    return pods


def steps(world: Snapshot) -> int:
    """Calls of functions, Python's and C's, that one decision makes."""
    return calls(lambda: plan(world))


def calls(work: Callable[[], object]) -> int:
    number = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return number


def test_steps_grow_no_faster_than_pods() -> None:
    few, many = snapshot(mixed(500)), snapshot(mixed(2000))
    assert not plan(many).unschedulable
    assert steps(many) <= 4 * steps(few)


def test_steps_do_not_grow_with_pods_that_are_alike_but_for_reading_them() -> None:
    few, many = (snapshot(pods(number, cpu="1")) for number in (500, 2000))
    assert steps(many) - steps(few) <= 40 * 1500


def wishing(pods: int, constraints: int) -> list[Pod]:
    """Pods with ScheduleAnyway constraints over labels that no other pod names and no node has."""
    return [
        pod(
            f"p{place}",
            cpu="1",
            metadata={"labels": {"app": f"a{place}"}},
            spec={
                "topologySpreadConstraints": [
                    {
                        "topologyKey": f"example.com/key-{place}-{number}",
                        "maxSkew": 1,
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": f"a{place}"}},
                    }
                    for number in range(constraints)
                ]
            },
        )
        for place in range(pods)
    ]


@pytest.mark.parametrize("pods", [16, 64])
def test_steps_grow_no_faster_than_preferred_constraints(pods: int) -> None:
    """One is given up at a time, but none that leaves no domain is tried with."""
    few, many = snapshot(wishing(pods, 16)), snapshot(wishing(pods, 64))
    assert not plan(many).unschedulable
    assert steps(many) <= 5 * steps(few)
    _, packing = solve(many)
    assert sum(packing.attempt_budget.failures.values()) <= pods


@pytest.mark.parametrize("seed", sampled(range(1, 9), 3))
def test_attempts_of_adversarial_pods_are_bounded(seed: int) -> None:
    world, packing = solve(drawn(seed, 100))
    for item in world.classes:
        preferring, requiring = (packing.attempt_budget.failures.get((item.index, soft), 0) for soft in (True, False))
        assert preferring <= BOUNDS.preferring_attempts
        assert requiring <= pack.MOST_REQUIRING + 2 * len(item.terms)
    number = len(world.classes)
    assert sum(packing.attempt_budget.failures.values()) <= (
        BOUNDS.all_preferring_attempts
        + pack.ALL_REQUIRING
        + (pack.LEAST_PREFERRING + pack.LEAST_REQUIRING) * number
        + sum(2 * len(item.terms) for item in world.classes)
    )


def test_a_decision_leaves_nothing_to_collect() -> None:
    world = snapshot(mixed(200))
    plan(world)
    with collector(on=False):
        gc.collect()
        plan(world)
        assert gc.collect() == 0


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_runs_afterwards_if_it_ran_before(on: bool) -> None:
    with collector(on=on):
        plan(snapshot(mixed(5)))
        assert gc.isenabled() is on


def test_the_collector_runs_again_after_a_decision_that_fails() -> None:
    malformed = pool(limits={"cpu": "plenty"})
    with collector(on=True):
        with pytest.raises(InvalidInput):
            plan(snapshot([pod()], malformed))
        assert gc.isenabled()


def test_a_class_whose_attempts_ran_out_is_told_so() -> None:
    told = 0
    for seed in (4, 12, 17):
        world, packing = solve(drawn(seed, 60))
        explainer = Explainer(world, packing)
        for item in world.classes:
            if packing.unplaced.get(item.index):
                message, _ = explainer.unschedulable(item)
                stopped = item.index in packing.attempt_budget.spent and not item.problem
                assert ("the search stopped after" in message) == stopped
                told += stopped
    assert told


def test_an_explanation_tells_of_few_constraints_and_counts_the_others() -> None:
    """Every pod keeps away from all others by a term of its own, so that each is kept off by all of them."""
    pods = []
    for place in range(60):
        others = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["shared", f"a{place}"]}]}
        apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": others}]}
        spec = {"affinity": {"podAntiAffinity": apart}}
        pods.append(pod(f"p{place}", cpu="1", metadata={"labels": {"app": "shared"}}, spec=spec))
    left_out = plan(snapshot(pods)).unschedulable
    assert left_out
    for entry in left_out:
        assert entry.message.count("affinity of other pods over") + entry.message.count("anti-affinity over") == 20
        assert "40 more constraints" in entry.message


def left_out(compiled: CompiledSnapshot, packing: Packing) -> list[PodClass]:
    """The classes of which pods are left out, of which there are some."""
    left = [item for item in compiled.classes if packing.unplaced.get(item.index)]
    assert left
    return left


def explaining(world: Snapshot) -> tuple[Explainer, int]:
    """An explainer that told everybody who is left out why, and the calls of functions that took."""
    compiled, packing = solve(world)
    explainer = Explainer(compiled, packing)
    left = left_out(compiled, packing)
    return explainer, calls(lambda: [explainer.unschedulable(item) for item in left])


def shunning(number: int) -> list[Pod]:
    """Pods that keep away from all others, in their zone and over a label that no other pod names."""
    everybody = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    pods = []
    for place in range(number):
        away = [{"topologyKey": key, "labelSelector": everybody} for key in (ZONE, f"example.com/key-{place}")]
        spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": away}}}
        pods.append(pod(f"p{place}", cpu="1", metadata={"labels": {"app": f"a{place}"}}, spec=spec))
    return pods


def test_explanations_grow_no_faster_than_pods_left_out() -> None:
    """Each of them is kept off by all others, over as many labels."""
    (_, few), (_, many) = (explaining(snapshot(shunning(number))) for number in (50, 200))
    assert many <= 5 * few


@cache
def solved(seed: int) -> tuple[CompiledSnapshot, Packing]:
    return solve(drawn(seed, 60))


@pytest.mark.parametrize("most", [0, 200])
def test_explanations_ask_about_few_domains(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(unschedulable, "BOUNDS", replace(BOUNDS, explained_domains=most))
    asked = []
    for seed in sampled(range(1, 13), 4):
        compiled, packing = solved(seed)
        explainer, left = Explainer(compiled, packing), left_out(compiled, packing)
        for item in left:
            explainer.unschedulable(item)
        assert explainer.asked <= max(unschedulable.FEWEST_DOMAINS * len(packing.unplaced), most)
        asked.append(explainer.asked)
    assert any(asked)


def test_levels_that_reach_no_domain_cost_no_attempt() -> None:
    """Nodes may have these labels, but none with what the pods prefer; what they prefer otherwise is kept."""
    racks = [f"example.com/rack-{at}" for at in range(4)]
    nowhere = {"matchExpressions": [{"key": "example.com/no", "operator": "Exists"}]}
    preferred = [{"weight": 1, "preference": nowhere}]
    pods = []
    for place in range(20):
        own = {"matchLabels": {"app": f"a{place}"}}
        wish = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": own}
        spec = {
            "topologySpreadConstraints": [{**wish, "topologyKey": rack} for rack in racks],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        }
        pods.append(pod(f"p{place}", cpu="1", metadata={"labels": {"app": f"a{place}"}}, spec=spec))
    supply = pool("pool", *(rule(rack, "In", "r0", "r1", "r2") for rack in racks), limits={})
    _, packing = solve(snapshot(pods, supply))
    assert not packing.unplaced
    assert max(packing.attempt_budget.failures.values(), default=0) <= 1
