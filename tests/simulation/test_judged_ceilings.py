"""The judge of hourly ceilings: what runs is added up by cluster and account, and a pod may say that it waits."""

from __future__ import annotations

from typing import Any

from shiplap.manifests.nodeclaim import ClaimState
from shiplap_lab.judge.promises import Promise
from tests.simulation.test_promises import Play

LAUNCHED = ClaimState.LAUNCHED
TOLD = "ceiling reached: account, $0.20 per hour: $0.20 in use, a node takes $0.10"


def _event(uid: str, message: str) -> dict[str, Any]:
    return {"metadata": {"name": uid}, "involvedObject": {"kind": "Pod", "uid": uid}, "message": message}


def test_a_launch_above_a_ceiling_breaks_the_promise() -> None:
    for cluster, broken in (("", True), ("other", False)):
        play = Play()
        play.judge.hourly_ceilings = {cluster: 0.2}
        play.node("a", until=LAUNCHED)
        play.node("b", until=LAUNCHED)
        assert play.told == []
        play.node("c", until=LAUNCHED)
        assert play.told == ([Promise.CEILINGS] if broken else [])


def test_a_pod_may_wait_that_names_a_ceiling_which_is_in_use() -> None:
    play = Play()
    play.judge.hourly_ceilings = {"": 0.2}
    play.judge.object_written("demo", "ADDED", "events", _event("uid-1", TOLD))
    assert not play.judge.may_wait("demo", "uid-1")
    play.node("a", until=LAUNCHED)
    assert play.judge.may_wait("demo", "uid-1")
    assert not play.judge.may_wait("demo", "uid-2")
    play.judge.object_written("demo", "MODIFIED", "events", _event("uid-1", "no instance type has room"))
    assert not play.judge.may_wait("demo", "uid-1")
