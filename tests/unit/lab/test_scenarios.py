"""The bundled scenarios are readable, and a wrong one is refused with its file and the reason."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap_lab.dev.local_region import LocalRegion
from shiplap_lab.scenarios.scenario import ScenarioSavingsPlan, load, names
from shiplap_lab.simulation.run import Simulation


def test_the_promised_scenarios_are_bundled() -> None:
    assert set(names()) >= {
        "flex-first",
        "bottlerocket-four-amis",
        "trino-r5a",
        "prefix-delegation",
        "autoscaler-neighbour",
        "scale-from-zero",
        "spot-interruption",
        "consolidation",
    }


@pytest.mark.parametrize("name", names())
def test_every_bundled_scenario_loads_and_something_happens_in_it(name: str) -> None:
    play = load(name)
    assert play.name == name
    assert any(step.expect for step in play.scenario.steps) or play.scenario.waves or play.scenario.rhythms
    assert all(play.manifests[cluster].node_pools for cluster in play.scenario.cluster_names)


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"bundled are .*flex-first"):
        load("no-such")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("about: x\nclusters: []\nsteps: [{say: hi, cluster: nowhere}]", "no cluster 'nowhere'"),
        ("about: x\nclusters: []\nsteps: []\nspeed: 3", "unknown field `speed`"),
        (
            "about: x\nclusters: [{name: c, manifests: m}]\n"
            "steps: [{say: hi, cluster: c, interruptions: [{pods: web, kind: meteor}]}]",
            "Invalid enum value 'meteor'",
        ),
        ("about: [", "scenario.yaml"),
        ("", "expected one document of kind Scenario, found 0"),
        ("[" * 100_000, "nested more than"),
        ("about: x\nabout: y", "written twice"),
    ],
)
def test_a_wrong_scenario_names_file_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "scenario.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=reason) as refusal:
        load(str(tmp_path))
    assert "scenario.yaml" in str(refusal.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("reserved_instances", {"m6i.large": 1}), ("savings_plans", (ScenarioSavingsPlan(0.1, 28.0),))],
)
def test_commitments_are_not_left_out_in_silence_where_they_cannot_be_played(field: str, value: Any) -> None:
    play = load("flex-first")
    with_commitments = replace(play, scenario=replace(play.scenario, **{field: value}))
    with pytest.raises(InvalidInput, match=r"`shiplap lab dev` cannot play `(reservedInstances|savingsPlans)`"):
        LocalRegion(with_commitments, lambda _: None)


def test_a_player_says_which_part_of_a_scenario_it_cannot_play() -> None:
    with pytest.raises(InvalidInput, match=r"`shiplap lab dev` cannot play `waves`: .*lab simulate flex-drought"):
        LocalRegion(load("flex-drought"), lambda _: None)
    with pytest.raises(InvalidInput, match=r"`shiplap lab simulate` cannot play `images`: .*lab dev --scenario bot"):
        Simulation(load("bottlerocket-four-amis"), 0, (), 0.1)
    with pytest.raises(InvalidInput, match=r"cannot check `podCapacity` of .*shiplap lab dev --scenario prefix"):
        Simulation(load("prefix-delegation"), 0, (), 0.1)
