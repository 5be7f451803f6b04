"""Bundled scenarios are played as they are, and what is wrong with one is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from shiplap.cli.main import run as shiplap
from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.simulation.campaign import first_failure, run, shrunk
from shiplap.simulation.mutants import MUTANTS, planted
from shiplap.simulation.scenario import FOLDER, Fault, Play, load, names

QUICK = ("api-down", "broken-ami", "hostile-neighbour", "races", "two-clusters")


@pytest.mark.parametrize("name", QUICK)
def test_a_bundled_scenario_keeps_every_promise(name: str) -> None:
    outcome = run(load(name), 0)
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    assert outcome.spent == pytest.approx(outcome.ledger + outcome.unclaimed)


@pytest.mark.parametrize("name", names())
def test_all_bundled_scenarios_can_be_read(name: str) -> None:
    assert load(name).scenario.about


def test_an_outage_keeps_pods_waiting_and_no_longer() -> None:
    outcome = run(load("broken-ami"), 0)
    assert outcome.longest_pending > 20 * 60
    assert outcome.launched <= 12  # a few tries of a few nodes each, not one after the other for twenty minutes


def test_a_planted_defect_is_found_and_shrunk_to_what_it_takes() -> None:
    play = load("mixed")
    with planted("books a wrong price"):
        outcome = run(play, 1)
        assert outcome.violations[0].promise == "money spent equals the ledger"
        assert shrunk(play, outcome).faults == ()
    assert run(play, 1).violations == ()


def test_shrinking_keeps_the_fault_that_matters() -> None:
    play = load("mixed")
    faults = (Fault("lose", 0, 1, "*", 0.5), Fault("never-join", 0, 300, "*", 1.0), Fault("delay", 2, 1, "*", 5))
    outcome = run(play, 1, faults=faults)
    with planted("never gives up"):
        outcome = run(play, 1, faults=faults)
        assert outcome.violations
        assert [fault.kind for fault in shrunk(play, outcome).faults] == ["never-join"]


@pytest.mark.parametrize(
    "mutant", ["drops the client token", "adopts nothing", "terminates before writing", "ends before empty"]
)
def test_the_campaign_finds_planted_defects(mutant: str) -> None:
    assert 0 < first_failure(("mixed", "races"), range(6), mutant, lambda _: None) <= 6


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_planted_defects_leave_nothing_behind(mutant: str) -> None:
    before = {(owner, name): owner.__dict__.get(name) for owner, name, _ in MUTANTS[mutant]()}
    with planted(mutant):
        assert any(owner.__dict__.get(name) is not known for (owner, name), known in before.items())
    assert {(owner, name): owner.__dict__.get(name) for owner, name in before} == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("chaos: 12", "chaos: many"), "Expected `int`"),
        (("group: web, replicas: 8", "group: nobody, replicas: 8"), "no group 'nobody'"),
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
    assert shiplap(["simulate", "mixed", "--seed", "2", "--trace", str(trace), "-o", "json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["kept"]
    assert told["seed"] == 2
    lines = [msgspec.json.decode(line) for line in trace.read_bytes().splitlines()]
    assert {"fault", "launched", "settled"} <= {line["what"] for line in lines}


def test_the_command_fails_when_a_promise_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    planted_there = ["simulate", "mixed", "--seed", "1", "--mutant", "books a wrong price"]
    assert shiplap(planted_there) == 1
    assert "BROKEN" in capsys.readouterr().out
    assert shiplap([*planted_there, "--seeds", "2", "--processes", "1", "--no-shrink"]) == 1
    assert "2 failed" in capsys.readouterr().out


def test_some_seeds_are_a_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    assert shiplap(["simulate", "mixed", "--seeds", "3", "--processes", "1", "-o", "json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["seeds"], told["failed"]) == (3, [])


def test_a_play_is_made_of_what_the_file_says() -> None:
    play = load("two-clusters")
    assert isinstance(play, Play)
    assert play.scenario.clusters == ("left", "right")
    assert {pool.metadata.name for pool in play.manifests.node_pools} == {"flex", "spot"}
