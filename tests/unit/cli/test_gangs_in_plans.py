"""`shiplap plan` on files whose pods say that they are a gang."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod


def members(total: int = 3) -> list[dict[str, Any]]:
    found = [pod(f"train-{number}", "1500m") for number in range(3)]
    for item in found:
        item["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": "train"}
        item["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    return found


def arguments(folder: Path, nodes: int, *objects: dict[str, Any]) -> list[str]:
    pool = json.loads(json.dumps(POOL))
    pool["spec"]["limits"] = {"nodes": str(nodes)}
    (folder / "pool.json").write_text(listed(pool))
    (folder / "state.json").write_text(listed(*objects))
    (folder / "catalog.json").write_text(json.dumps(CATALOG))
    given = ("-f", str(folder / "state.json"), "--manifests", str(folder / "pool.json"))
    return ["plan", *given, "--catalog", str(folder / "catalog.json")]


def test_a_gang_in_files_has_all_or_nothing(tmp_path: Path, shiplap: Shiplap) -> None:
    whole = shiplap(*arguments(tmp_path, 9, *members()))
    assert "web/train: 3 of 3 members have a place" in whole
    assert "as an install with `gangs: {mode: whole}` plans them" in whole
    short = " ".join(shiplap(*arguments(tmp_path, 0, *members()), code=1).split())
    assert "nothing is launched for gang web/train: 0 of 3 members would have a place" in short
    assert "web/train: 0 of 3 members have a place, no new node" in short


def test_the_document_lists_gangs_that_wait(tmp_path: Path, shiplap: Shiplap) -> None:
    answer = shiplap.json(*arguments(tmp_path, 9, *members(total=4)), code=1)
    (gang,) = answer["gangs"]["waiting"]
    assert (gang["namespace"], gang["name"], gang["minimum"], gang["waiting"]) == ("web", "train", 4, 3)
    assert "3 of 4 members exist" in gang["problem"]
    assert answer["nodeClaims"] == []


def test_files_without_gangs_say_nothing_of_them(tmp_path: Path, shiplap: Shiplap) -> None:
    assert "Gangs" not in shiplap(*arguments(tmp_path, 9, pod("web", "1")))
    assert "gangs" not in shiplap.json(*arguments(tmp_path, 9, pod("web", "1")))
