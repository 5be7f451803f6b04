"""Bundled scenarios are played as they are, and what is wrong with one is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap_cli.main import run as shiplap
from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import FOLDER, Play, Rhythm, load, names
from shiplap_lab.simulation.campaign import first_failure, run_seed, with_fewest_faults
from shiplap_lab.simulation.chaos import waves_of_rhythms
from shiplap_lab.simulation.mutants import MUTANTS, planted
from shiplap_lab.simulation.run import RunOutcome, Simulation

pytestmark = pytest.mark.thorough

QUICK = (
    "api-down",
    "broken-ami",
    "ceilings",
    "commitments",
    "edges",
    "hostile-neighbour",
    "lagging",
    "races",
    "spot-risk",
    "strays",
    "two-clusters",
    "two-installs",
    "unheard",
    "upgrade",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_bundled_scenario_keeps_every_promise(name: str) -> None:
    outcome = run_seed(load(name), 0)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.spent == pytest.approx(outcome.ledger + outcome.unclaimed, abs=1e-5)  # each is rounded


@pytest.mark.parametrize("name", names())
def test_all_bundled_scenarios_can_be_read(name: str) -> None:
    assert load(name).scenario.about


@pytest.mark.parametrize("name", ["autoscaler-neighbour", "consolidation", "scale-from-zero", "spot-interruption"])
def test_the_steps_of_shiplap_dev_are_played_in_virtual_time(name: str) -> None:
    outcome = run_seed(load(name), 0)
    assert outcome.violations == ()
    said = [msgspec.json.decode(line)["say"] for line in outcome.lines if '"what":"step"' in line]
    assert said == [step.say for step in load(name).scenario.steps]


def test_outages_and_memory_of_steps_are_played_too() -> None:
    play = load("flex-first")
    outcome = run_seed(play, 0)
    assert outcome.violations == ()
    steps = tuple(replace(step, outages=(), memory=()) for step in play.scenario.steps)
    without = run_seed(replace(play, scenario=replace(play.scenario, steps=steps)), 0)
    assert without.violations[0].promise == "every step brings about what it expects"
    assert without.violations[0].detail.startswith("two pools: the fallback pool takes over")


def test_an_outage_keeps_pods_waiting_and_no_longer() -> None:
    outcome = run_seed(load("broken-ami"), 0)
    assert outcome.longest_pending > 20 * 60
    assert outcome.launched <= 12  # a few tries of a few nodes each, not one after the other for twenty minutes


def test_a_planted_defect_is_found_and_shrunk_to_what_it_takes() -> None:
    play = load("mixed")
    with planted("books a wrong price"):
        outcome = run_seed(play, 1)
        assert outcome.violations[0].promise == "money spent equals the ledger"
        assert with_fewest_faults(play, outcome).faults == ()
    assert run_seed(play, 1).violations == ()


def test_shrinking_keeps_the_fault_that_matters() -> None:
    play = load("mixed")
    faults = (Fault("lose", 0, 1, "*", 0.5), Fault("never-join", 0, 300, "*", 1.0), Fault("delay", 2, 1, "*", 5))
    outcome = run_seed(play, 1, faults=faults)
    with planted("never gives up"):
        outcome = run_seed(play, 1, faults=faults)
        assert outcome.violations
        assert [fault.kind for fault in with_fewest_faults(play, outcome).faults] == ["never-join"]


@pytest.mark.parametrize(
    "mutant",
    [
        "drops the client token",
        "adopts nothing",
        "garbage too soon",
        "does not learn",
        "forgets missed pods",
        "knows no install",
    ],
)
def test_the_campaign_finds_planted_defects(mutant: str) -> None:
    assert 0 < first_failure(mutant, range(6)).seeds <= 6


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_planted_defects_are_mistakes_and_no_crashes(mutant: str) -> None:
    """One that no longer fits what it is planted in breaks down at once, and would seem to be found."""
    with planted(mutant):
        outcome = run_seed(load(MUTANTS[mutant].scenarios[0]), 0)
    assert "no flow breaks down" not in [item.promise for item in outcome.violations]


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_planted_defects_leave_nothing_behind(mutant: str) -> None:
    before = {(owner, name): owner.__dict__.get(name) for owner, name, _ in MUTANTS[mutant].patches()}
    with planted(mutant):
        assert any(owner.__dict__.get(name) is not known for (owner, name), known in before.items())
    assert {(owner, name): owner.__dict__.get(name) for owner, name in before} == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("chaos: 12", "chaos: many"), "Expected `int`"),
        (("group: web, replicas: 8", "group: nobody, replicas: 8"), "no group 'nobody'"),
        (("[lose, double", "[nodes-deleted, double"), "nodes-deleted needs liveManifests"),
        (("chaos: 12", "chaos: 12\nfaults: [{kind: own-nodeclaim}]"), "own-nodeclaim needs liveManifests"),
        (("kind: Scenario", "kind: Play"), "found 0"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((FOLDER / "mixed.yaml").read_text().replace(*change))
    with pytest.raises(InvalidInput, match=said):
        load(str(path))


def test_what_is_wrong_with_its_manifests_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((FOLDER / "mixed.yaml").read_text().replace("operator: In", "operator: Inn", 1))
    with pytest.raises(InvalidManifests):
        load(str(path))


def test_there_is_no_such_scenario_and_no_such_defect() -> None:
    with pytest.raises(InvalidInput, match="bundled are"):
        load("nowhere")
    with pytest.raises(InvalidInput, match="known are"), planted("nothing"):
        pass


def test_the_command_prints_the_outcome_and_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    assert shiplap(["lab", "simulate", "mixed", "--seed", "2", "--trace", str(trace), "-o", "json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["kept"]
    assert told["seed"] == 2
    lines = [msgspec.json.decode(line) for line in trace.read_bytes().splitlines()]
    assert {"fault", "launched", "settled"} <= {line["what"] for line in lines}
    assert shiplap(["lab", "simulate", "mixed", "--seed", "2"]) == 0
    assert "invariants all held" in " ".join(capsys.readouterr().out.split())


def test_the_command_fails_when_a_promise_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    planted_there = ["lab", "simulate", "mixed", "--seed", "1", "--mutant", "books a wrong price"]
    assert shiplap(planted_there) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "BROKEN" in told
    assert "invariants 2 broken" in told
    assert shiplap([*planted_there, "--seeds", "2", "--processes", "1", "--no-shrink"]) == 1
    assert "2 failed" in capsys.readouterr().out


def test_some_seeds_are_a_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    assert shiplap(["lab", "simulate", "mixed", "--seeds", "3", "--processes", "1", "-o", "json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["seeds"], told["failed"]) == (3, [])


def test_a_play_is_made_of_what_the_file_says() -> None:
    play = load("two-clusters")
    assert isinstance(play, Play)
    assert play.scenario.cluster_names == ("left", "right")
    assert {pool.metadata.name for pool in play.manifests["left"].node_pools} == {"flex", "spot"}


def test_instances_that_no_claim_remembers_are_ended() -> None:
    outcome = run_seed(load("strays"), 2, faults=(Fault("stray", 3, 0, "*", 2),))
    assert outcome.violations == ()
    strays = [fact["instance"] for fact in map(msgspec.json.decode, outcome.lines) if fact["what"] == "stray"]
    ended = {fact["instance"] for fact in map(msgspec.json.decode, outcome.lines) if fact["what"] == "instance ended"}
    assert len(strays) == 2
    assert ended >= set(strays)
    assert outcome.unclaimed > 0
    assert outcome.spent == pytest.approx(outcome.ledger + outcome.unclaimed, abs=1e-5)  # each is rounded


def test_two_installs_for_one_cluster_both_launch_and_only_their_own_ends() -> None:
    play = load("two-installs")
    simulation = Simulation(play, 1, (), play.scenario.hours)
    outcome = simulation.play()
    assert outcome.violations == ()
    launched = {
        name: {item.id for item in simulation.instances.values() if item.install == name}
        for name in play.scenario.installs
    }
    first, second = launched.values()
    assert first
    assert second
    written = simulation.installs[play.scenario.installs[0]].state.written
    assert {claim.instance_id for claim in written.values()} <= first | {""}
    assert outcome.metrics["InstancesOfOtherInstalls"] > 0


def test_functions_die_together_when_the_alias_is_moved_and_the_other_version_goes_on() -> None:
    outcome = run_seed(load("upgrade"), 1)
    assert outcome.violations == ()
    told = [msgspec.json.decode(line) for line in outcome.lines]
    died = [fact["t"] for fact in told if fact["what"] == "died"]
    moved = [
        60 * end for fault in outcome.faults if fault.kind == "upgrade" for end in (fault.at, fault.at + fault.minutes)
    ]
    assert any(0 <= moment - end < 5 for moment in died for end in moved)


def test_a_used_up_quota_sends_pods_to_the_other_capacity_type() -> None:
    def types(faults: tuple[Fault, ...]) -> set[str]:
        outcome = run_seed(load("lagging"), 1, faults=faults)
        facts = [msgspec.json.decode(line) for line in outcome.lines]
        return {fact["type"].partition(".")[0] for fact in facts if fact["what"] == "launched" and fact["t"] < 300}

    assert {"c7i-flex", "m7i-flex"} & types(())
    assert not {"c7i-flex", "m7i-flex"} & types((Fault("quota", 0, 30, "on-demand", 0),))


def test_an_index_that_lags_delays_nothing_for_good() -> None:
    outcome = run_seed(load("lagging"), 1, faults=(Fault("index-lag", 0, 20, "*", 120),))
    assert outcome.violations == ()
    assert outcome.settled_at >= 0


def test_pods_that_wait_longer_than_a_scenario_allows_are_told_of() -> None:
    play = load("broken-ami")
    impatient = replace(play, scenario=replace(play.scenario, patience_minutes=5))
    outcome = run_seed(impatient, 0)
    assert outcome.violations[0].promise == "no pod waits longer than stated"


def test_a_rhythm_follows_the_day_and_rests_at_weekends() -> None:
    rhythm = Rhythm("web", low=10, high=110, weekend=0.5, step_minutes=60)
    scenario = replace(load("month").scenario, rhythms=(rhythm,))
    replicas = {wave.at / 60: wave.replicas for wave in waves_of_rhythms(scenario, 1, 168)}
    assert replicas[13.0] == 110
    assert replicas[5 * 24 + 13.0] == 60
    assert min(replicas.values()) == 10
    assert list(waves_of_rhythms(scenario, 1, 24)) == [
        wave for wave in waves_of_rhythms(scenario, 1, 168) if wave.at < 24 * 60
    ]


def _effects(outcome: RunOutcome) -> list[dict[str, Any]]:
    """Return the events with their times; without invocations, of which idle ones are left out."""
    events = [msgspec.json.decode(line) for line in outcome.lines]
    return [
        {name: fact for name, fact in event.items() if name != "invocation"}
        for event in events
        if event["what"] not in ("invoked", "ended")
    ]


def test_two_days_without_their_idle_minutes_have_the_same_effects() -> None:
    play = load("month")
    fewer = [
        replace(item, low=item.low // 3, high=item.high // 4, step_minutes=180.0) for item in play.scenario.rhythms
    ]
    play = replace(play, scenario=replace(play.scenario, rhythms=tuple(fewer)))
    short, long = (Simulation(play, 5, (), 48.0, skips_idle=skips).play() for skips in (True, False))
    assert short.violations == long.violations == ()
    assert short.launched > 10 < short.ended
    assert _effects(short) == _effects(long)
    assert (short.spent, short.longest_pending) == (long.spent, long.longest_pending)
    assert (short.settled_at, short.ended_at) == (long.settled_at, long.ended_at)
    assert short.steps < long.steps / 3


def test_two_sets_of_manifests_are_played_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = (FOLDER / "strays.yaml").read_text().split("---\n")[1:]
    dear = tmp_path / "dear.yaml"
    dear.write_text(
        "---\n".join(documents).replace("[c7i-flex, m7i-flex]", "[r6i]").replace("[c7i, m6i, r6i]", "[r6i]")
    )
    assert shiplap(["lab", "simulate", "strays", "--seed", "1", "--compare", str(dear), "-o", "json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    own, other = told["own"], told["other"]
    assert own["kept"]
    assert other["kept"]
    assert own["hours"] == other["hours"] > 0
    assert other["dollars"] > own["dollars"] > own["boundDollars"] > 0
    assert own["podHoursPending"] > 0
    assert own["trace"] == run_seed(load("strays"), 1).trace
    page = tmp_path / "both.html"
    assert shiplap(["lab", "simulate", "strays", "--seed", "1", "--compare", str(dear), "--html", str(page)]) == 0
    assert "dollars" in capsys.readouterr().out
    drawn = page.read_text()
    assert drawn.index("With its own manifests") < drawn.index("With the others")
    assert drawn.count("Every invariant held") == drawn.count('<div class="charts">') == 2
    assert f"{other['dollars'] - own['dollars']:+.4g}" in drawn


def test_a_rhythm_of_nobody_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((FOLDER / "month.yaml").read_text().replace("{group: api, low", "{group: nobody, low"))
    with pytest.raises(InvalidInput, match="no group 'nobody'"):
        load(str(path))
