"""The judge of requests, told of writes that no function makes: a client deletes what is over before it could."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shiplap_lab.judge.gangs_rules import GangJudge
from shiplap_lab.judge.judge import Judge
from shiplap_lab.judge.promises import Promise


class Told:
    """What a judge of gangs says."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def now(self) -> float:
        return 1000.0

    def found(self, _promise: Promise, what: str) -> None:
        self.said.append(what)


def template() -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": "worker", "uid": "t"}, "template": {"spec": {"containers": [container]}}}


def request(cluster: str, *held: str) -> dict[str, Any]:
    """A request in which these conditions are True."""
    sets = [{"podTemplateRef": {"name": "worker"}, "count": 2}]
    status = {"conditions": [{"type": kind, "status": "True"} for kind in held]}
    meta = {"name": "train", "uid": f"uid-{cluster}"}
    return {"metadata": meta, "spec": {"podSets": sets, "provisioningClassName": "any"}, "status": status}


@pytest.mark.parametrize("over", ["Failed", "CapacityRevoked"])
def test_whoever_answers_a_request_that_is_over_is_found(over: str) -> None:
    told = Told()
    judge = GangJudge(cast("Judge", told), {}, 0.0)
    for cluster in ("blue", "green"):
        judge.object_written(cluster, "ADDED", "podtemplates", template())
        judge.object_written(cluster, "ADDED", "provisioningrequests", request(cluster, "Accepted"))
        judge.object_written(cluster, "MODIFIED", "provisioningrequests", request(cluster, over))
        judge.object_written(cluster, "MODIFIED", "provisioningrequests", request(cluster, over))
    assert told.said == []
    judge.object_written("blue", "MODIFIED", "provisioningrequests", request("blue", over, "Accepted"))
    assert told.said == ["blue/train was over, and its status has changed"]
    judge.object_written("green", "DELETED", "provisioningrequests", request("green"))
    assert len(told.said) == 1
