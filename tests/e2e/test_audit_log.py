"""Tests a real audit log of a real kube-scheduler's writes: the audit function reads the same as the watch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial

import pytest
from msgspec import Raw

from shiplap.cluster.watcher import KindWatch, Tracker
from shiplap.flows.audit.audit import RecentPods, audit, read_delivery, unscheduled_pod_in
from shiplap.flows.watch.watch import hints_of
from tests import audit_log
from tests.builders.pods import pod_object
from tests.e2e import programs
from tests.e2e.api import RealApi, api_of
from tests.e2e.client import real_client
from tests.e2e.control_plane import ADMINISTRATOR, ControlPlane, wait_until
from tests.integration.flows.stage import CLUSTER, Stage

pod = partial(pod_object, cpu="100m")

pytestmark = [pytest.mark.e2e, pytest.mark.long]

WAITING = ("plain", "picky", "large")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With a scheduler, one small node, and nothing that runs pods."""
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(f"no control plane: {missing}")
    with ControlPlane(tmp_path_factory.mktemp("audited"), controllers=(), nodes=False) as running:
        yield running


@pytest.fixture(scope="module")
def lines(plane: ControlPlane) -> list[str]:
    """The audit log after the scheduler has looked at pods of every sort."""
    with api_of(plane) as api:
        api.make_default_account("default")
        size = {"cpu": "1", "memory": "1Gi", "pods": "10"}
        api.create("nodes", {"metadata": {"name": "n1"}, "status": {"capacity": size, "allocatable": size}})
        api.patch("nodes", "n1", {"spec": {"taints": None}})
        api.create("pods", pod("fits", cpu="500m"))
        wait_until(lambda: api.get("pods", "fits")["spec"].get("nodeName"), "the pod that fits is bound")
        api.create("pods", pod("plain", cpu="600m"))
        api.create("pods", pod("large", cpu="64"))
        api.create("pods", pod("picky", nodeSelector={"disk": "fast"}))
        api.create("pods", pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}
        daemon = pod("daemon", cpu="64")
        daemon["metadata"]["ownerReferences"] = [owner]
        api.create("pods", daemon)
        names = (*WAITING, "daemon")
        wait_until(lambda: all(is_judged(api, name) for name in names), "the scheduler has judged them")
        time.sleep(1)  # the log is written in the background
    return plane.audit_log.read_text().splitlines()


def is_judged(api: RealApi, name: str) -> bool:
    return bool(api.get("pods", name)["status"].get("conditions"))


def test_the_audit_log_tells_of_the_same_pods_as_the_watch(plane: ControlPlane, lines: list[str]) -> None:
    stage = Stage()
    told = audit(
        read_delivery(audit_log.delivery(*lines, cluster=CLUSTER)),
        stage.settings.claim_rules,
        stage.context,
        RecentPods(),
    )
    assert told == len(WAITING)
    (heard,) = stage.bus.events

    tracker = Tracker()
    for seen in KindWatch(real_client(plane, ADMINISTRATOR), "pods").poll(1.0):
        tracker.see(seen)
    (watched,) = hints_of(CLUSTER, tracker.take(), stage.clock.now())

    assert sorted(heard.detail["pods"]) == sorted(watched.detail["pods"])
    assert {name for _, name, _ in heard.detail["pods"]} == set(WAITING)
    assert (heard.detail_type, heard.detail["reason"]) == (watched.detail_type, watched.detail["reason"])


def test_a_real_record_that_was_cut_still_names_its_pod(lines: list[str]) -> None:
    records = [line for line in lines if json.loads(line)["verb"] == "patch" and "/pods/plain/status" in line]
    assert records
    (event,) = audit_log.events([records[0][: len(records[0]) // 2]])
    waiting = unscheduled_pod_in(Raw(json.dumps(event).encode()), Stage().settings.claim_rules)
    assert waiting is not None
    assert (waiting.pod.namespace, waiting.pod.name) == ("default", "plain")
