"""A short campaign, the bundled scenarios, and what makes a run worth believing: it can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation.campaign import run_seed

pytestmark = pytest.mark.thorough


def mixed(placement: str, *, kinds: tuple[str, ...] = ()) -> Play:
    """The campaign's scenario, its pods steered in one way and the watch imitated, whatever the seed."""
    play = load("mixed")
    kinds = kinds or play.scenario.chaos_kinds
    changed = replace(play.scenario, placement=placement, watched=0.0, chaos_kinds=kinds)
    return replace(play, scenario=changed)


@pytest.mark.parametrize("seed", range(25))
def test_every_promise_is_kept_whatever_goes_wrong(seed: int) -> None:
    outcome = run_seed(load("mixed"), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.launched
    assert outcome.faults


@pytest.mark.parametrize(
    ("placement", "seed"),
    [
        ("none", 92),
        ("none", 333),
        ("none", 1418),
        ("none", 1709),
        ("none", 1728),
        ("none", 1925),
        ("nominate", 65),
        ("nominate", 452),
        ("none", 588),
        ("nominate", 1578),
    ],
)
def test_seeds_that_broke_a_promise_once_keep_them_all(placement: str, seed: int) -> None:
    """Each seed failed once, for one of these causes.

    1418: instances that had ended counted as capacity of their pool, and a replacement as a further node. Limits count
    neither.
    1709, 1925: without steering, kube-scheduler gives a new node to the pods that have waited longest. If their own
    nodes never join, later pods lose one node after the other; such nodes count only for pods that are steered.
    1728: a pod used capacity on a node that it was not launched for, and spot took that node back. Its next node makes
    up for the loss.
    65: a disruption decision ignored launches on their way and began a replacement above the pool's limit. The
    judge looks at limits at every launch, not only when a claim is written.
    452, 1578: a Node whose instance had ended, and a Node without a claim, counted in disruption budgets.
    588: an estimate became more careful after siblings reported, so a claim in flight no longer held all its pods, and
    one of them was planned again. That is no decision on stale data.
    """
    outcome = run_seed(mixed(placement), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


@pytest.mark.parametrize("seed", [2, 6, 10, 12, 14, 15, 36])
def test_old_news_and_quotas_cost_no_pod_more_nodes_than_other_faults_do(seed: int) -> None:
    """A node that was to go stayed open for a minute: pods that came then took the place of those that had to leave."""
    outcome = run_seed(mixed("none", kinds=load("lagging").scenario.chaos_kinds), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


@pytest.mark.parametrize(("name", "seed"), [("mixed", 69), ("upgrade", 10), ("upgrade", 32)])
def test_instances_that_end_slowly_hold_no_budget_and_break_none(name: str, seed: int) -> None:
    outcome = run_seed(mixed("none") if name == "mixed" else load(name), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


@pytest.mark.parametrize("seed", [2, 12, 14, 15])
def test_every_promise_is_kept_when_strays_quotas_and_a_late_index_come_on_top(seed: int) -> None:
    kinds = (*load("mixed").scenario.chaos_kinds, "stray", "quota", "index-lag")
    outcome = run_seed(mixed("none", kinds=kinds), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_pods_whose_nodes_are_lost_twice_get_no_node_too_many() -> None:
    """Four nodes were launched for two pods: an interruption was not heard of, and then an instance ended."""
    outcome = run_seed(load("mixed"), 3_000_180)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_an_eviction_that_ends_after_its_nodes_claim_is_no_breach() -> None:
    """The faults of seed 418800034, which failed: evictions took a minute, and EC2 ended the node meanwhile."""
    faults = (
        Fault("late-join", 2.33, 1.35, "*", 302),
        Fault("slow", 17.91, 7.91, "cluster.evict", 55),
        Fault("terminate", 19.92, 0.0, "*", 3),
    )
    outcome = run_seed(mixed("none"), 418800034, faults=faults)
    assert outcome.violations == ()
    assert min(outcome.effects["slow"], outcome.effects["terminate"]) > 0


def test_a_draining_node_that_waits_for_its_users_is_no_unrest() -> None:
    """A pod that must not be disrupted came to it before it was cordoned."""
    outcome = run_seed(mixed("none"), 25)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_no_node_is_given_more_pods_than_it_holds_while_pods_are_bound_by_slow_calls() -> None:
    """Nominations were refused, so that kube-scheduler kept no room, and calls that bind took half a minute."""
    play = load("ceilings")
    bound = replace(play, scenario=replace(play.scenario, placement="bind"))
    outcome = run_seed(bound, 50300003)
    assert outcome.violations == ()
    assert outcome.metrics["PodsBound"] > 0
    assert outcome.effects["slow"] > 0


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    play = load("mixed")
    assert run_seed(play, 3).trace == run_seed(play, 3).trace
    assert run_seed(play, 3).trace != run_seed(play, 4).trace


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    code = "from shiplap_lab.simulation.campaign import run_seed; from shiplap_lab.scenarios.scenario import load; "
    code += "print(run_seed(load('mixed'), 5).trace)"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    assert told.stdout.strip() == run_seed(load("mixed"), 5).trace
