"""A pod for which no node can be launched gets a Kubernetes event that says why, in numbers."""

from __future__ import annotations

from shiplap.errors import ClusterDenied
from shiplap.flows.pod_events import MOST_PODS
from tests.integration.flows.stage import Stage


def told(stage: Stage) -> dict[str, str]:
    return {item["involvedObject"]["name"]: item["message"] for item in stage.server.list("events").items}


def test_an_unschedulable_pod_is_told_the_nearest_miss_once() -> None:
    stage = Stage()
    stage.add_pods(1, memory="1Ti", prefix="giant")
    stage.add_pods(2)
    report = stage.schedule()
    assert (report.unschedulable, len(report.launched) > 0) == (1, True)
    assert set(told(stage)) == {"giant-000"}
    assert "memory short by" in told(stage)["giant-000"]
    stage.schedule()
    assert len(stage.server.list("events").items) == 1


def test_an_event_names_its_pod_so_that_kubectl_describe_shows_it() -> None:
    stage = Stage()
    stage.add_pods(1, memory="1Ti", prefix="giant")
    stage.schedule()
    (event,) = stage.server.list("events").items
    known = {name: event["involvedObject"].get(name) for name in ("kind", "apiVersion", "namespace", "name", "uid")}
    assert known == {
        "kind": "Pod",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "giant-000",
        "uid": "uid-giant-000",
    }
    assert (event["type"], event["reportingComponent"]) == ("Warning", "shiplap")


def test_where_too_many_wait_all_have_their_turn() -> None:
    stage = Stage()
    stage.add_pods(MOST_PODS + 20, memory="1Ti", prefix="giant")
    stage.schedule()
    assert len(told(stage)) == MOST_PODS
    for _ in range(3):
        stage.clock.advance(60)
        stage.schedule()
    assert len(told(stage)) == MOST_PODS + 20


def test_being_refused_to_tell_fails_nothing() -> None:
    stage = Stage()
    stage.add_pods(1, memory="1Ti", prefix="giant")
    stage.add_pods(1)
    stage.faults.on("before", "cluster.publish", ClusterDenied("events are forbidden", status=403))
    report = stage.schedule()
    assert (report.unfinished, len(report.launched)) == ("", 1)
    assert stage.meter.counts["PodEventsNotPublished"] == 1
    assert told(stage) == {}
