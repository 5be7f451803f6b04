"""The Lambda entry points, with fakes in the place of AWS: records in, partial batch responses and metrics out."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from shiplap.errors import (
    AwsThrottled,
    ClusterDenied,
    ClustersNotServed,
    ClusterUnreachable,
    InvalidInput,
    StoreError,
    StoreThrottled,
)
from shiplap.flows.claim_events import pods_pending
from shiplap.flows.context import FlowContext
from shiplap.flows.disrupt import entry as disrupt_entry
from shiplap.flows.disrupt.disruption_round import DisruptionReport
from shiplap.flows.install import Install
from shiplap.flows.live_settings import ManifestState
from shiplap.flows.messages import MANIFESTS_CHANGED, UNSCHEDULABLE
from shiplap.flows.schedule import entry as schedule_entry
from shiplap.flows.watch import entry as watch_entry
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import CapacityBuffer, CapacityBufferSpec
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.fakes.stores import FakeCatalog
from tests import audit_log
from tests.integration.flows.loaded_functions import NAMES, Context, Load, Source, load, records, sweep
from tests.integration.flows.stage import CLUSTER, Stage, catalog

__all__ = ["load"]


class RefusedSource:
    def fetch(self, previous: object) -> Any:
        raise AwsThrottled("slow down", code="RequestLimitExceeded")


def metrics_in(output: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in output.splitlines():
        document = json.loads(line)
        if "_aws" in document:
            found |= document
    return found


def test_schedule_launches_and_returns_nothing_to_repeat(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.add_pods(1)
    module, install = load("schedule", stage)
    assert module.handle(records(sweep(), "{broken", sweep("red")), Context()) == {"batchItemFailures": []}
    assert len(stage.compute.launches) == 1
    assert stage.claims()[0].launch.owner == "request-1"
    assert [body for body, _ in install.letters.letters] == ["{broken"]
    output = capsys.readouterr().out
    found = metrics_in(output)
    assert (found["MalformedMessages"], found["UnknownClusters"], found["install"]) == ([1.0], [1.0], "platform")
    launched = next(line for line in map(json.loads, output.splitlines()) if line.get("message") == "launched")
    claim = stage.claims()[0]
    assert (launched["cluster"], launched["claim"]) == (CLUSTER, claim.name)
    assert (launched["instance_id"], launched["request_id"]) == (claim.instance_id, "request-1")


def test_node_claims_that_users_write_are_read_by_sweeps_and_after_edits(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that wait are planned for without these requests."""
    module, _ = load("schedule", Stage())
    read: list[str] = []

    def note(state: ManifestState, settings: ClusterSettings, *_: object) -> ManifestState:
        read.append(settings.name)
        return state

    monkeypatch.setattr(schedule_entry, "with_standalone_claims", note)
    for reason, reads in ((UNSCHEDULABLE, 0), (MANIFESTS_CHANGED, 1), ("", 2)):
        hint = pods_pending(CLUSTER, (), reason, 1.0, event_id=reason)
        body = {"source": hint.source, "detail-type": hint.detail_type, "detail": hint.detail}
        module.handle(records(json.dumps(body) if reason else sweep()), Context())
        assert len(read) == reads


def test_schedule_keeps_the_messages_of_a_cluster_out_of_reach(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "cluster.view", ClusterUnreachable("no route to host"))
    module, _ = load("schedule", stage)
    answer = module.handle(records(sweep(), sweep("red")), Context())
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert stage.compute.launches == []
    output = capsys.readouterr().out
    assert metrics_in(output)["ClusterUnreachable"] == [1.0]
    assert "no route to host" in output


def test_lifecycle_registers_what_joined(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.schedule()
    stage.join()
    module, install = load("lifecycle", stage)
    timer = json.dumps({"cluster": CLUSTER, "claim": stage.claims()[0].name, "step": "join"})
    assert module.handle(records(timer, sweep()), Context()) == {"batchItemFailures": []}
    assert stage.claims()[0].state == "Initialized"
    assert install.letters.letters[0][1] == "queue: Sweep does not belong in this queue"
    capsys.readouterr()


def test_interrupt_handles_each_message_by_itself(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.schedule()
    module, install = load("interrupt", stage)
    warning = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning"}
    ours, strange = (
        json.dumps(warning | {"detail": {"instance-id": name}}) for name in (stage.claims()[0].instance_id, "i-0")
    )
    stage.faults.on("before", "state.claim_of_instance", StoreThrottled("slow down"))
    answer = module.handle(records(strange, "{broken", ours, strange), Context())
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert stage.claims()[0].state == "Draining"
    assert [body for body, _ in install.letters.letters] == ["{broken"]
    found = metrics_in(capsys.readouterr().out)
    counted = ("MalformedMessages", "StoreThrottled", "NodesInterrupted", "InstancesNotOurs")
    assert {name: found.get(name) for name in counted} == {
        "MalformedMessages": [1.0],
        "StoreThrottled": [1.0],
        "NodesInterrupted": None,  # counted by the stage's own meter
        "InstancesNotOurs": [1.0],
    }


def test_disrupt_looks_at_one_cluster(load: Load) -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.play_on()
    stage.server.delete("pods", "web-000", grace_s=0)
    module, install = load("disrupt", stage)
    nothing = {"begun": 0, "done": 0, "undone": 0}
    assert module.handle({"cluster": CLUSTER}, Context()) == nothing
    assert len(install.memories.load(CLUSTER).proposed) == 1
    stage.clock.advance(60)
    assert module.handle({"cluster": CLUSTER}, Context()) == {**nothing, "begun": 1}
    assert [command.method for command in stage.state.commands(CLUSTER)] == ["emptiness"]


def test_disrupt_tells_what_became_of_commands(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = load("disrupt", Stage())
    report = DisruptionReport(begun=("a",), done=("b", "c"), undone=("d", "e", "f"))
    monkeypatch.setattr(disrupt_entry, "disrupt", lambda *_, **__: report)
    assert module.handle({"cluster": CLUSTER}, Context()) == {"begun": 1, "done": 2, "undone": 3}


def test_disrupt_drops_a_cluster_it_does_not_know(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    module, _ = load("disrupt", Stage())
    assert module.handle({"cluster": "gone"}, Context()) == {"begun": 0, "done": 0, "undone": 0}
    assert metrics_in(capsys.readouterr().out)["UnknownClusters"] == [1]


def test_catalog_stores_what_it_fetches(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    module, install = load("catalog", Stage())
    assert module.handle({}, Context()) == {"eu-west-1": len(catalog().types)}
    assert install.catalogs.load() == catalog()
    assert metrics_in(capsys.readouterr().out)["CatalogTypes"] == [len(catalog().types)]


def test_catalog_inspects_every_cluster(load: Load) -> None:
    module, install = load("catalog", Stage())
    module.handle({}, Context())
    (cluster,) = install.statuses.load().clusters
    assert cluster.cluster == CLUSTER
    assert [(pool.name, pool.ready) for pool in cluster.pools] == [("fallback", "True"), ("flex", "True")]


def test_catalog_inspects_alone_with_the_catalogue_there_is(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    module, install = load("catalog", Stage())
    install.catalogs.save(catalog())
    monkeypatch.delattr(Source, "fetch")
    module.handle({"kind": "inspect"}, Context())
    assert install.statuses.load().clusters


def test_catalog_inspects_with_the_catalogue_of_each_region(load: Load) -> None:
    module, install = load("catalog", Stage())
    east = msgspec.structs.replace(install.settings.clusters[0], name="east", region="us-east-1")
    install.settings = Settings((*install.settings.clusters, east))
    stores = {"eu-west-1": FakeCatalog(catalog()), "us-east-1": FakeCatalog(catalog())}
    install.catalog_store = stores.__getitem__  # type: ignore[method-assign]
    install.context = lambda _: install._stage.context  # type: ignore[method-assign]
    assert module.handle({"kind": "inspect"}, Context()) == dict.fromkeys(stores, len(catalog().types))
    assert [cluster.cluster for cluster in install.statuses.load().clusters] == [CLUSTER, "east"]


@pytest.mark.parametrize("event", [{}, {"kind": "inspect"}], ids=["hourly", "inspect"])
def test_a_region_without_a_catalogue_keeps_no_other_from_being_inspected(
    load: Load, monkeypatch: pytest.MonkeyPatch, event: dict[str, str]
) -> None:
    module, install = load("catalog", Stage())
    away = msgspec.structs.replace(install.settings.clusters[0], name="away", region="eu-central-1")
    install.settings = Settings((away, *install.settings.clusters))
    stores = {"eu-west-1": FakeCatalog(catalog()), "eu-central-1": FakeCatalog()}
    sources = {"eu-west-1": Source(), "eu-central-1": RefusedSource()}
    monkeypatch.setattr(install, "catalog_store", stores.__getitem__)
    monkeypatch.setattr(install, "catalog_source", sources.__getitem__)
    monkeypatch.setattr(install, "context", lambda _: install._stage.context)
    before = ClusterStatus("away", "eu-central-1", 1.0)
    install.statuses.save(InstallStatus((before, ClusterStatus("removed", "eu-west-1", 1.0))))
    with pytest.raises((AwsThrottled, StoreError)):
        module.handle(event, Context())
    known, inspected = install.statuses.load().clusters
    assert known == before
    assert (inspected.cluster, inspected.checked_at) == (CLUSTER, install._stage.clock.now())


def test_catalog_counts_and_logs_what_ends_it(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _ = load("catalog", Stage())

    def refuse(_self: Source, _previous: object) -> Any:
        raise AwsThrottled("slow down", code="RequestLimitExceeded")

    monkeypatch.setattr(Source, "fetch", refuse)
    with pytest.raises(AwsThrottled):
        module.handle({}, Context())
    output = capsys.readouterr().out
    assert metrics_in(output)["AwsThrottled"] == [1.0]
    assert "not done: slow down" in output


@pytest.mark.parametrize(("left_s", "lasts_s"), [(900, 840), (845, 840), (65, 60)])
def test_watch_ends_some_seconds_before_its_function_does(
    load: Load, monkeypatch: pytest.MonkeyPatch, left_s: int, lasts_s: int
) -> None:
    stage = Stage()
    module, _ = load("watch", stage)
    watched: list[tuple[list[str], float]] = []

    def watch_all(contexts: dict[str, FlowContext], *, deadline: float, **_: object) -> int:
        watched.append((list(contexts), deadline - stage.clock.now()))
        return 7

    monkeypatch.setattr(watch_entry, "watch_all", watch_all)
    monkeypatch.setattr(Context, "get_remaining_time_in_millis", lambda _: left_s * 1000)
    assert module.handle({"clusters": [CLUSTER]}, Context()) == {"told": 7}
    assert watched == [([CLUSTER], lasts_s)]


@pytest.mark.parametrize("has_buffers", [False, True])
def test_watch_follows_buffers_and_manifests_where_there_are_any(
    load: Load, monkeypatch: pytest.MonkeyPatch, *, has_buffers: bool
) -> None:
    stage = Stage()
    buffers = (CapacityBuffer(ObjectMeta(name="warm"), CapacityBufferSpec()),) if has_buffers else ()
    manifests = msgspec.structs.replace(stage.settings.manifests, capacity_buffers=buffers)
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    module, _ = load("watch", stage)
    told: dict[str, Any] = {}
    monkeypatch.setattr(watch_entry, "watch_all", lambda _, **options: told.update(options))
    module.handle({"clusters": [CLUSTER]}, Context())
    assert (told["live"], told["buffered"]) == ([], [CLUSTER] if has_buffers else [])


@pytest.mark.parametrize("event", [{"cluster": "red"}, {"clusters": ["red"]}])
def test_watch_drops_a_cluster_that_is_not_configured(
    load: Load, capsys: pytest.CaptureFixture[str], event: dict[str, Any]
) -> None:
    module, _ = load("watch", Stage())
    assert module.handle(event, Context()) == {"told": 0}
    assert metrics_in(capsys.readouterr().out)["UnknownClusters"] == [1.0]


def test_watch_fails_visibly_when_the_cluster_refuses(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    module, install = load("watch", stage)
    monkeypatch.setattr(install, "pause", stage.clock.advance)
    for number in range(1, 13):  # both watches, as long as they bear it
        refusal = ClusterDenied("forbidden", status=403)
        stage.faults.on("before", "cluster.list_for_watch", refusal, nth=number)
    with pytest.raises(ClustersNotServed, match=CLUSTER):
        module.handle({"clusters": [CLUSTER]}, Context())
    output = capsys.readouterr().out
    assert metrics_in(output)["ClustersNotServed"] == [1.0]
    assert "watch given up for now: forbidden" in output


def test_an_idle_invocation_writes_no_metrics_but_what_it_counted(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _ = load("lifecycle", Stage())
    assert module.handle(records(), Context()) == {"batchItemFailures": []}
    assert metrics_in(capsys.readouterr().out) == {}


def test_audit_tells_the_bus_which_pods_wait(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    module, _ = load("audit", stage)
    lines = [audit_log.text(audit_log.record()), "garbage"]
    assert module.handle(audit_log.delivery(*lines, cluster=CLUSTER), Context()) == {"told": 1}
    assert [event.detail_type for event in stage.bus.events] == ["PodPending"]
    assert module.handle(audit_log.delivery(*lines, cluster=CLUSTER), Context()) == {"told": 0}
    output = capsys.readouterr().out
    heard = next(line for line in map(json.loads, output.splitlines()) if line.get("message") == "heard")
    assert (heard["cluster"], heard["function"], heard["pods"]) == (CLUSTER, "audit", 1)


def test_one_id_leads_from_the_event_to_the_instance(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """The id of the audit function's event is in each line about the claim, in the claim, and in the instance's tag."""
    stage = Stage()
    stage.add_pods(1)
    module, _ = load("audit", stage)
    module.handle(audit_log.delivery(audit_log.text(audit_log.record()), cluster=CLUSTER), Context())
    (told,) = stage.bus.events
    event = {"source": told.source, "detail-type": told.detail_type, "detail": told.detail}
    schedule, _ = load("schedule", stage)
    schedule.handle(records(json.dumps(event)), Context())
    stage.join()
    lifecycle, _ = load("lifecycle", stage)
    (claim,) = stage.claims()
    lifecycle.handle(records(json.dumps({"cluster": CLUSTER, "claim": claim.name, "step": "join"})), Context())

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    event_id = told.detail["id"]
    about = {line["message"]: line for line in lines if line.get("event_id") == event_id}
    assert {"heard", "decided", "launched", "registered"} <= set(about)
    assert {about[said]["function"] for said in ("heard", "decided", "registered")} == {
        "audit",
        "schedule",
        "lifecycle",
    }
    assert about["decided"]["claims"] == [claim.name]
    assert about["decided"]["record_id"] in stage.recorder.records
    assert about["launched"]["instance_id"] == claim.instance_id
    assert claim.cause.event_id == event_id
    assert [instance.claim for instance in stage.compute.launches] == [claim.name]
    assert all(line["request_id"] == Context.aws_request_id for line in about.values())


def test_audit_drops_what_it_cannot_use(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    module, _ = load("audit", stage)
    strange = audit_log.delivery(audit_log.text(audit_log.record()), cluster="red")
    probe = audit_log.delivery("checking health", kind="CONTROL_MESSAGE", group="")
    for event in ({}, strange, probe):
        assert module.handle(event, Context()) == {"told": 0}
    assert stage.bus.events == []
    output = capsys.readouterr().out
    assert metrics_in(output) | {"MalformedMessages": [1.0], "UnknownClusters": [1.0]} == metrics_in(output)


def test_audit_fails_visibly_when_the_bus_refuses(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """Then Lambda delivers again."""
    stage = Stage()
    module, _ = load("audit", stage)
    event = audit_log.delivery(audit_log.text(audit_log.record()), cluster=CLUSTER)
    stage.faults.on("before", "bus.publish", StoreThrottled("slow down"))
    with pytest.raises(StoreThrottled):
        module.handle(event, Context())
    assert module.handle(event, Context()) == {"told": 1}
    assert metrics_in(capsys.readouterr().out)["StoreThrottled"] == [1.0]


def test_the_widget_draws_claims_and_tells_what_it_cannot_read(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    module, _ = load("widget", stage)
    assert "No nodes." in module.handle({}, Context())
    stage.faults.on("before", "state.claims", StoreThrottled("slow down"))
    assert "It cannot be read: slow down" in module.handle({}, Context())
    assert "cannot be drawn" in capsys.readouterr().out
    assert "### Parameters" in module.handle({"describe": True}, Context())


@pytest.mark.usefixtures("load")
def test_every_port_of_the_real_wiring_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = ClusterSettings(name=CLUSTER, region="eu-west-1", endpoint="http://127.0.0.1:1")
    install = Install("schedule", Settings((settings,)), NAMES)
    context = install.context(settings)
    assert install.context(settings) is context
    made = {
        "cluster": "view",
        "compute": "launch",
        "state": "commit",
        "capacity": "observe",
        "catalog": "load",
        "source": "fetch",
        "bus": "publish",
        "timers": "remind",
        "recorder": "record",
        "clock": "now",
        "meter": "count",
    }
    for port, method in made.items():
        assert callable(getattr(getattr(context, port), method)), port
    assert callable(install.dead_letters.send)
    assert callable(install.state.claim_of_instance)


def test_an_install_without_its_settings_layer_says_so() -> None:
    with pytest.raises(InvalidInput, match="settings layer is missing"):
        Install.of_environment("schedule")


def test_copies_restored_from_one_snapshot_do_not_draw_the_same_pauses(load: Load) -> None:
    module, _ = load("lifecycle", Stage())
    before = random.getstate()
    drawn = set()
    for _ in range(3):
        random.setstate(before)
        module.handle(records(), Context())
        drawn.add(random.random())  # noqa: S311 - as pauses are drawn
    assert len(drawn) == 3
