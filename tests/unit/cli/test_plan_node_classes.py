"""`shiplap plan` with EC2NodeClasses that cannot be launched from: other pools go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiplap_cli.main import run
from tests.builders.pods import pod_object
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed


def planned(folder: Path, capsys: pytest.CaptureFixture[str], *manifests: dict[str, Any]) -> dict[str, Any]:
    (folder / "state.json").write_text(json.dumps(pod_object("web", "1")))
    (folder / "manifests").mkdir()
    for number, manifest in enumerate(manifests):
        (folder / "manifests" / f"{number}.json").write_text(json.dumps(manifest))
    run(["plan", "--cluster-state", str(folder / "state.json"), "--manifests", str(folder / "manifests"), "-o", "json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    return dict(json.loads(printed.out))


BROKEN, SOUND = (
    changed(changed(EC2_NODE_CLASS, "metadata.name", name), "spec.kubelet", {"maxPods": most})
    for name, most in (("broken", "100 / (vcpus - 2)"), ("sound", "min(max_pods, 20)"))
)
FIRST, SECOND = (
    changed(
        changed(changed(NODE_POOL, "metadata.name", name), "spec.weight", weight),
        "spec.template.spec.nodeClassRef.name",
        of,
    )
    for name, weight, of in (("first", 100, "broken"), ("second", 1, "sound"))
)


def test_the_pools_of_other_classes_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(tmp_path, capsys, BROKEN, SOUND, FIRST, SECOND)
    assert [claim["nodePool"] for claim in found["nodeClaims"]] == ["second"]


def test_without_any_the_pod_is_told_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(tmp_path, capsys, BROKEN, FIRST)
    (left,) = found["unschedulable"]
    assert "division by zero" in left["message"]
