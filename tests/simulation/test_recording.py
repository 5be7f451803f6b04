"""A run as a report sees it: watching changes nothing, the numbers are those of the run, records stay small."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from shiplap.drawing.picture import NodePictureState
from shiplap_cli.main import run as command
from shiplap_cli.render.html_simulation import simulation_report
from shiplap_lab.judge.promises import Violation
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation import recording
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.recording import merged, run_with_timeline
from shiplap_lab.simulation.run import RunOutcome
from shiplap_lab.simulation.timeline import Timeline


@pytest.fixture(scope="module")
def storm() -> tuple[RunOutcome, Timeline]:
    play = load("spot-storm")
    return run_with_timeline(play, 7, draw_faults(play.scenario, 7))


def test_watching_changes_nothing(storm: tuple[RunOutcome, Timeline]) -> None:
    assert storm[0] == run_seed(load("spot-storm"), 7)


def test_the_numbers_are_those_of_the_run(storm: tuple[RunOutcome, Timeline]) -> None:
    outcome, timeline = storm
    samples = timeline.samples
    assert max(sum(sample.nodes.values()) for sample in samples) == outcome.most_nodes
    area = sum(one.hourly * (other.at_s - one.at_s) / 3600 for one, other in pairwise(samples))
    assert area == pytest.approx(outcome.spent, rel=0.03)
    assert all(sample.list_hourly >= sample.hourly for sample in samples)
    assert timeline.ends_s == outcome.ended_at
    kinds = [event.kind for event in timeline.happenings]
    assert kinds.count("launched") == outcome.launched
    assert kinds.count("instance ended") == outcome.ended
    assert [event.at_s for event in timeline.happenings] == sorted(event.at_s for event in timeline.happenings)


def test_no_moment_at_rest_is_cheaper_than_the_bound(storm: tuple[RunOutcome, Timeline]) -> None:
    _, timeline = storm
    at_rest = [sample for sample in timeline.samples if not sample.pending and sample.bound_hourly]
    assert at_rest
    assert all(sample.bound_hourly is not None and sample.bound_hourly <= sample.hourly for sample in at_rest)


def test_frames_show_nodes_pods_and_what_waits(storm: tuple[RunOutcome, Timeline]) -> None:
    outcome, timeline = storm
    last = timeline.frames[-1].picture
    assert len(last.nodes) == outcome.launched - outcome.ended
    assert sum(len(node.pods) for node in last.nodes) == last.used.pods > 0
    assert last.hourly == pytest.approx(timeline.samples[-1].hourly)
    states = {node.state for frame in timeline.frames for node in frame.picture.nodes}
    assert {NodePictureState.STARTING, NodePictureState.READY} <= states
    assert any(frame.picture.pending for frame in timeline.frames)


def test_long_runs_make_records_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MOST_SAMPLES", 20)
    monkeypatch.setattr(recording, "_MOST_FRAMES", 8)
    _, timeline = run_with_timeline(load("flash-crowd"), 1, (), hours=1.0)
    assert 10 <= len(timeline.samples) <= 21
    assert 4 <= len(timeline.frames) <= 9
    gaps = [other.at_s - one.at_s for one, other in pairwise(timeline.samples[:-1])]
    assert max(gaps) == pytest.approx(min(gaps))


def test_two_clusters_are_one_picture_with_their_names() -> None:
    play = load("two-clusters")
    _, timeline = run_with_timeline(play, 3, ())
    names = play.scenario.cluster_names
    pools = {pool for frame in timeline.frames for pool in frame.picture.pools if pool}
    assert {pool.split("/")[0] for pool in pools} == set(names)
    assert {pool for sample in timeline.samples for pool in sample.nodes} == pools
    both = merged([timeline.frames[-1].picture] * 2)
    assert len(both.nodes) == 2 * len(timeline.frames[-1].picture.nodes)


def test_a_broken_promise_stands_first_on_the_page(storm: tuple[RunOutcome, Timeline]) -> None:
    outcome, timeline = storm
    seen = Violation("nothing misses twice", "claim <x> misses", 61.0)
    broken = replace(outcome, violations=(seen,), settled_at=-1.0)
    made = simulation_report(broken, timeline)
    assert "Broken after 1 min: nothing misses twice." in made
    assert "claim &lt;x&gt; misses" in made
    assert "never came to rest" in made
    assert "Every invariant held" in simulation_report(outcome, timeline)


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "run.html"
    assert command(["lab", "simulate", "flex-drought", "--seed", "2", "--html", str(page), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    made = page.read_text()
    assert answer["trace"] in made
    assert "Simulation of flex-drought" in made
    for more in (["--seeds", "2"], ["--mutant", "list"]):
        assert command(["lab", "simulate", "flex-drought", *more, "--html", str(page)]) == 2
        assert "--html" in capsys.readouterr().err
