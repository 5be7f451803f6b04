"""The bundled scenarios are readable, and a wrong one is refused with its file and the reason."""

from pathlib import Path

import pytest

from shiplap.errors import InvalidInput
from shiplap_lab.dev import dev_scenario


def test_the_promised_scenarios_are_bundled() -> None:
    assert set(dev_scenario.names()) >= {
        "flex-first",
        "bottlerocket-four-amis",
        "trino-r5a",
        "prefix-delegation",
        "autoscaler-neighbour",
        "scale-from-zero",
        "spot-interruption",
        "consolidation",
    }


@pytest.mark.parametrize("name", dev_scenario.names())
def test_every_bundled_scenario_loads_and_expects_something(name: str) -> None:
    folder = dev_scenario.folder_of(name)
    loaded = dev_scenario.load(folder)
    assert any(step.expect for step in loaded.steps)
    assert all((folder / cluster.manifests).is_dir() for cluster in loaded.clusters)


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"bundled are .*flex-first"):
        dev_scenario.folder_of("no-such")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("about: x\nclusters: []\nsteps: [{say: hi, cluster: nowhere}]", "no cluster 'nowhere'"),
        ("about: x\nclusters: []\nsteps: []\nspeed: 3", "unknown field `speed`"),
        (
            "about: x\nclusters: [{name: c, manifests: m}]\n"
            "steps: [{say: hi, cluster: c, interruptions: [{pods: web, kind: meteor}]}]",
            "'meteor' is none of spot, rebalance",
        ),
        ("about: [", "scenario.yaml"),
        ("", "expected one document, found 0"),
        ("[" * 100_000, "nested more than"),
        ("about: x\nabout: y", "written twice"),
    ],
)
def test_a_wrong_scenario_names_file_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "scenario.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=reason) as refusal:
        dev_scenario.load(dev_scenario.folder_of(str(tmp_path)))
    assert "scenario.yaml" in str(refusal.value)
