"""The campaign `unkind`: its invariants hold, each kind of its faults takes effect, and a rare kind is a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.ports import Instance
from shiplap.settings import ClusterSettings
from shiplap_cli.main import run as shiplap
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation import campaign
from shiplap_lab.simulation.campaign import FaultEffect, KeptResults, effects_of_faults, rare_faults, run_seed
from shiplap_lab.simulation.run import RunOutcome
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.simulated_machines import SimulatedMachines
from shiplap_lab.virtual_time.supply import REGION, SimulatedHardware, catalog
from shiplap_lab.virtual_time.trace import Trace

pytestmark = pytest.mark.thorough

AMOUNTS = {
    "never-ready": 0.3,
    "flap": 0.8,
    "startup-taint": 120,
    "late-warning": 0.9,
    "twice": 5,
    "clock-skew": 90,
    "cold-start": 4,
    "ends-at-once": 0.5,
    "long-pending": 120,
    "subnets": 0.9,
    "uneven": 0.9,
    "slow-end": 200,
    "daemon-set": 200,
}
"""An amount of each kind that needs one; all others take 1."""


@pytest.mark.parametrize("seed", range(8))
def test_every_invariant_holds_in_an_unkind_world(seed: int) -> None:
    outcome = run_seed(load("unkind"), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.effects


@pytest.mark.parametrize("seed", [927574268, 927574291])
def test_nodes_that_have_less_than_others_of_their_type_repeat_no_miss_that_nobody_could_know(seed: int) -> None:
    """Two nodes of a type that had been enough were planned before the first had less; a pod that had missed memory got
    a node of another type that had a little less CPU than its type has.
    """
    outcome = run_seed(load("unkind"), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_nodes_that_flap_while_a_replacement_is_awaited_cost_no_further_nodes() -> None:
    """Seed 492432569 failed: others took the replacement's room, and nodes for the pods to be moved were launched anew
    whenever one was not Ready.
    """
    outcome = run_seed(load("unkind"), 492432569)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_a_replacement_that_never_becomes_ready_costs_no_further_nodes() -> None:
    """The faults of seed 936619096, which failed: the pods of a node that waited for it were planned for as well."""
    faults = (
        Fault("never-ready", 1.89, 3.26, amount=0.28),
        Fault("clock-skew", 5.45, 4.49, amount=90),
        Fault("pdb-zero", 7.08, 4.38),
        Fault("clock-skew", 14.88, 4.61, amount=29),
        Fault("long-pending", 15.54, 1.27, amount=87),
        Fault("clock-skew", 17.52, 5.52, amount=65),
        Fault("slow-end", 17.96, 5.98, amount=257),
    )
    outcome = run_seed(load("unkind"), 936_619_096, faults=faults)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.effects["never-ready"] > 0


def test_a_pod_that_its_budget_keeps_on_a_draining_node_costs_few_nodes_though_all_are_tainted() -> None:
    """A fault of seed 412907000 of `long-taints` as it was then, without limits: a pod had a node every minute."""
    play = load("long-taints")
    unlimited = {
        cluster: replace(
            item, node_pools=tuple(replace(pool, spec=replace(pool.spec, limits={})) for pool in item.node_pools)
        )
        for cluster, item in play.manifests.items()
    }
    outcome = run_seed(replace(play, manifests=unlimited), 412907000, faults=(Fault("taint", 170.69, 67.22),))
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.effects["taint"]


@pytest.mark.parametrize(
    ("name", "seed"), [("crowds", 8812), ("long-taints", 8813), ("long-refusals", 8812), ("blocked-drains", 8813)]
)
def test_every_invariant_holds_in_crowds_and_when_trouble_lasts_for_hours(name: str, seed: int) -> None:
    outcome = run_seed(load(name), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.effects


@pytest.mark.parametrize("seed", [1, 2, 3, 5136, 107_137_002])
def test_every_invariant_holds_after_tables_were_restored(seed: int) -> None:
    """Two of them failed: claims that had failed by the restored table had instances, and a pod was not steered."""
    outcome = run_seed(load("restored"), seed)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


@pytest.mark.parametrize("kind", load("unkind").scenario.chaos_kinds)
def test_each_kind_of_fault_takes_effect_and_breaks_no_invariant(kind: str) -> None:
    at = 4 if kind in ("ami-drift", "flap", "late-warning") else 0  # nodes must be there
    fault = msgspec.convert({"kind": kind, "at": at, "minutes": 30, "amount": AMOUNTS.get(kind, 1)}, Fault)
    evicting = (Fault("interrupt", 11, 3),) if kind == "pdb-zero" else ()
    outcome = run_seed(load("unkind"), 1, faults=(fault, *evicting))
    assert outcome.violations == ()
    assert outcome.effects[kind] > 0
    usual = {"snapshot", "preemption"}  # decisions read snapshots, and a DaemonSet's pods matter more than others
    assert set(outcome.effects) - usual == {kind, *(item.kind for item in evicting)}


@pytest.mark.parametrize("seed", [8001, 8002])
def test_every_invariant_holds_where_pods_may_not_be_everywhere(seed: int) -> None:
    """8002: a node that was nominated by preemption became wrong for its pod, whose spread had changed."""
    play = load("constrained")
    outcome = run_seed(play, seed, faults=(Fault("late-device", 6, 8, amount=120), Fault("interrupt", 12, 2)))
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert {*play.scenario.constraints, "late-device"} - {"pod-affinity"} <= outcome.effects.keys()


def test_a_constraint_that_hardly_ever_keeps_a_pod_off_a_node_fails_a_campaign() -> None:
    play = load("constrained")
    kinds = (*play.scenario.chaos_kinds, *play.scenario.constraints)
    effects = [FaultEffect(kind, 9, 2 if kind == "spread" else 3) for kind in kinds]
    assert rare_faults(play, effects, 50) == ("spread",)
    assert FaultEffect("preemption") in effects_of_faults(play, ())


def test_a_machine_that_has_less_than_its_like_has_less_of_everything_and_no_more_cores() -> None:
    sold, scenario = catalog(), load("unkind")
    settings = ClusterSettings(name="demo", region=REGION, manifests=scenario.manifests["demo"])
    loop = EventLoop(FakeClock())
    faults = FaultInjector(loop, Trace(loop.now, loop.now()), 1)
    machines = SimulatedMachines(faults, {"demo": SimulatedHardware(sold, settings, (), 1)}, 1)
    usual, less = (instance(name) for name in ("i-1", "i-2"))
    machines.join_s(usual)
    faults.active[0] = Fault("uneven", amount=1.0)
    machines.join_s(less)
    (capacity, allocatable), (had, left) = machines.resources(usual), machines.resources(less)
    assert had["cpu"] == capacity["cpu"]
    assert all(left[name] < amount for name, amount in allocatable.items())
    assert faults.effects["uneven"] == 1


def instance(name: str) -> Instance:
    return Instance(
        id=name,
        instance_type="m6i.large",
        zone="eu-west-1a",
        capacity_type="spot",
        ami="ami-1",
        state="running",
        launched_at=0.0,
        cluster="demo",
        claim="",
        node_pool="spot",
    )


def test_timers_that_lambda_drops_for_recursion_are_made_up_for() -> None:
    """A drain that budgets hold up sends itself a message every five seconds."""
    faults = (Fault("pdb-zero", 3, 20), Fault("interrupt", 6, 10, amount=0.9), Fault("recursion", 0, 60))
    outcome = run_seed(load("unkind"), 1, faults=faults)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.effects["recursion"] > 0


def test_nodes_that_never_become_ready_are_replaced() -> None:
    outcome = run_seed(load("unkind"), 1, faults=(Fault("never-ready", 0, 4, amount=0.4),))
    facts = [msgspec.json.decode(line) for line in outcome.lines]
    sick = {fact["instance"] for fact in facts if fact["what"] == "will not be ready"}
    assert sick
    assert sick <= {fact["instance"] for fact in facts if fact["what"] == "instance ended"}


def test_host_names_of_ended_instances_are_given_again() -> None:
    outcome = run_seed(load("unkind"), 1, faults=(Fault("address-again", 0, 30),))
    joined = [fact["node"] for fact in map(msgspec.json.decode, outcome.lines) if fact["what"] == "node joined"]
    assert len(set(joined)) < len(joined)


def test_the_outcome_of_a_campaign_says_how_often_each_kind_took_effect() -> None:
    play = load("unkind")
    none = run_seed(play, 1, faults=(), hours=0.05)
    effects = effects_of_faults(play, [replace(none, effects={"flap": 3}), replace(none, effects={"flap": 1})])
    assert FaultEffect("flap", 4, 2) in effects
    assert FaultEffect("twice", 0, 0) in effects


def test_a_kind_that_hardly_ever_takes_effect_fails_a_campaign_of_enough_seeds() -> None:
    play = load("unkind")
    kinds = play.scenario.chaos_kinds
    effects = [FaultEffect(kind, 9, 3) for kind in kinds[1:]] + [FaultEffect(kinds[0], 9, 2), FaultEffect("stray")]
    assert rare_faults(play, effects, 50) == (kinds[0],)
    assert rare_faults(play, effects, 49) == ()
    assert rare_faults(load("month"), effects, 50) == ()
    named = replace(load("month"), scenario=replace(load("month").scenario, faults=(Fault("stray", 1),)))
    assert rare_faults(named, effects, 50) == ("stray",)


def test_the_command_fails_for_a_rare_kind(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(campaign, "SEEDS_OF_A_CAMPAIGN", 2)
    assert shiplap(["lab", "simulate", "unkind", "--seeds", "2", "--hours", "0.05", "--processes", "1"]) == 1
    assert "TOO RARE" in capsys.readouterr().out


def test_a_campaign_that_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "outcomes.jsonl"
    command = ["lab", "simulate", "unkind", "--hours", "0.05", "--processes", "1", "--results", str(file), "-o", "json"]
    assert shiplap([*command, "--seed", "5", "--seeds", "2"]) == 0
    first = capsys.readouterr().out
    file.write_bytes(file.read_bytes() + b'{"played": "interrup')
    played: list[int] = []

    def remember(play: Play, seed: int, **given: Any) -> RunOutcome:
        played.append(seed)
        return run_seed(play, seed, **given)

    monkeypatch.setattr(campaign, "run_seed", remember)
    assert shiplap([*command, "--seed", "5", "--seeds", "2"]) == 0
    assert capsys.readouterr().out == first
    assert played == []
    file.write_bytes(file.read_bytes() + b"\n")
    assert shiplap([*command, "--seed", "6", "--seeds", "2"]) == 0
    assert played == [7]


@pytest.mark.parametrize(("mutant", "hours"), [("never resumes", None), ("", 0.1)])
def test_outcomes_of_another_campaign_do_not_count(tmp_path: Path, mutant: str, hours: float | None) -> None:
    file, outcome = tmp_path / "outcomes.jsonl", run_seed(load("unkind"), 1, faults=(), hours=0.05)
    KeptResults(file, "unkind").keep(outcome)
    assert KeptResults(file, "unkind").outcomes == {1: outcome}
    assert KeptResults(file, "unkind", mutant, hours).outcomes == {}
    assert KeptResults(file, "mixed").outcomes == {}


def test_results_are_kept_of_many_seeds_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shiplap(["lab", "simulate", "unkind", "--results", str(tmp_path / "outcomes.jsonl")]) == 2
    assert "--results" in capsys.readouterr().err
