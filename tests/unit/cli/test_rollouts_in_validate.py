"""`shiplap validate` warns of rollouts that NodePools ask for and a cluster does not have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Shiplap
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters whose NodePools ask for rollouts; only that of green is on."""
    annotations = {"shiplap.dev/rollout": "stay", "shiplap.dev/rollout-within": "10m"}
    for name in ("blue", "green"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pool.json").write_text(json.dumps(changed(NODE_POOL, "metadata.annotations", annotations)))
        (tmp_path / name / "class.json").write_text(json.dumps(EC2_NODE_CLASS))
    clusters = ["{name: blue, manifests: blue}", "{name: green, manifests: green, rollouts: {mode: annotated}}"]
    (tmp_path / "shiplap.yaml").write_text("region: eu-west-1\nclusters:\n" + "".join(f"- {c}\n" for c in clusters))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_annotations_without_effect_are_warned_of(folder: Path, shiplap: Shiplap) -> None:
    found = [(item["file"], item["field"], item["reason"]) for item in shiplap.json("validate")["warnings"]]
    reason = "has no effect: `rollouts` of cluster 'blue' is off"
    assert found == [
        ("blue/pool.json", "metadata.annotations[shiplap.dev/rollout]", reason),
        ("blue/pool.json", "metadata.annotations[shiplap.dev/rollout-within]", reason),
    ]
    shiplap("validate", "--strict", code=1)
    text = (folder / "shiplap.yaml").read_text()
    (folder / "shiplap.yaml").write_text(
        text.replace("manifests: blue", "manifests: blue, rollouts: {mode: annotated}")
    )
    assert shiplap.json("validate", "--strict")["warnings"] == []
