"""`shiplap disrupt -f` keeps the nodes of gangs that run, whether or not a gang waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.disrupted_files import Files
from tests.unit.cli.disrupted_files import disrupted_node as node
from tests.unit.cli.disrupted_files import disrupted_pod as pod

KUEUE = {"labels": {"kueue.x-k8s.io/pod-group-name": "train"}}
PLUGINS = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}


def members(total: int = 2, **fields: Any) -> list[dict[str, Any]]:
    given = fields or KUEUE
    found = [pod(f"m-{name}", node=name, **given) for name in "ab"]
    for item in found:
        item["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    return found


def pod_group(minimum: int) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "shop"}
    spec = {"minMember": minimum}
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("objects", "kept"),
    [
        (members(), {"a", "b"}),
        (members(1), set()),
        ([*members(**PLUGINS), pod_group(2)], {"a", "b"}),
        ([*members(**PLUGINS), pod_group(1)], set()),
        (members(**PLUGINS), set()),
    ],
)
def test_a_gang_that_runs_is_not_torn_although_none_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objects: list[dict[str, Any]], kept: set[str]
) -> None:
    answer = Files(tmp_path, capsys).disrupt(node("a"), node("b"), *objects)
    assert {name for command in answer["commands"] for name in command["nodes"]}.isdisjoint(kept)
    why = {item["node"]: item["reason"] for item in answer["blocked"] if "gang" in item["reason"]}
    assert set(why) == kept
    assert all("runs members of gang shop/train, which needs 2 together" in reason for reason in why.values())
    assert bool(answer["commands"]) != bool(kept)
