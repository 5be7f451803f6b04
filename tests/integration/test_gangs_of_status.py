"""`shiplap status` counts gangs that wait and booked requests, by the newest decision of each cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from shiplap.aws.bucket import BucketRecorder, BucketStatus
from shiplap.flows.catalog.inspect import inspect
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus
from shiplap.policies.gangs.gang import KnownGangs, RequestState
from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.policy_settings import chosen
from shiplap.scheduling.planner import plan
from shiplap_cli.commands.status import status as command
from shiplap_lab.fakes.stores import FakeStatus
from tests.integration.contracts.in_process_aws import aws_in_process
from tests.integration.flows.stage import Stage, catalog
from tests.integration.status_install import BUCKET, NOW, READY, StatusInstall, status_of
from tests.unit.gangs.gang_cases import gang, snapshot

UNTIL = NOW + 300


@pytest.fixture
def install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusInstall]:
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    monkeypatch.delenv("SHIPLAP_BUCKET", raising=False)
    with aws_in_process():
        yield StatusInstall(capsys)


def decided(install: StatusInstall, cluster: str, nodes: int, *states: RequestState, ago_s: float = 60.0) -> str:
    """Record a decision on two gangs of four pods, of which so many pods get nodes."""
    waiting = [*gang("first", priority=9), *gang("later")]
    made = snapshot(*waiting, nodes=nodes, known=KnownGangs(requests=states or None))
    made = replace(made, cluster=cluster, now=NOW - ago_s, install="blue")
    return BucketRecorder(install.s3, BUCKET).record(made, plan(made))


def holds(install: StatusInstall, *clusters: str, features: Sequence[str] = ("gangs",)) -> None:
    install.holds(*(status_of(name, READY) for name in clusters))
    known = tuple(ClusterStatus(name, "eu-west-1", NOW, (READY,), (), tuple(features)) for name in clusters)
    BucketStatus(install.s3, BUCKET).save(InstallStatus(known))


def test_gangs_that_wait_and_booked_requests_are_counted_with_their_next_times(install: StatusInstall) -> None:
    holds(install, "blue", "green")
    states = (
        RequestState("ml", "tune", "whose capacity is booked", booked_until=UNTIL),
        RequestState("ml", "past", "whose capacity is booked", booked_until=NOW - 3600),
        RequestState("ml", "none", "which is not provisioned yet"),
    )
    decided(install, "blue", 1, ago_s=120.0)
    decided(install, "blue", 3, *states)
    decided(install, "green", 5)
    said = {each["cluster"]: each for each in install.document()["standings"]}
    assert said["blue"]["counts"] == {"gangsWaiting": 2, "requestsWaiting": 0, "requestsBooked": 1}
    assert said["green"]["counts"] == {"gangsWaiting": 2, "requestsWaiting": 0, "requestsBooked": 0}
    page = " ".join(install.says("--bucket", BUCKET).split())
    assert "gangs of blue, by the decision of 2023-11-14T22:12:20Z" in page
    assert "short by at least 1 node in all under the limit of NodePool default" in page
    assert "it is planned again every minute" in page
    assert "ProvisioningRequest ml/tune: booked until 2023-11-14T22:18:20Z" in page


@pytest.mark.parametrize("features", [(), ("sleep",), ("unknown",)])
def test_where_gangs_are_off_no_decision_is_read(install: StatusInstall, features: Sequence[str]) -> None:
    holds(install, "blue", features=features)
    decided(install, "blue", 3)
    assert "standings" not in install.document()


def test_an_old_decision_says_nothing_of_now(install: StatusInstall) -> None:
    holds(install, "blue")
    decided(install, "blue", 3, ago_s=7200.0)
    assert "standings" not in install.document()


def test_a_decision_that_cannot_be_read_hides_no_other_cluster(install: StatusInstall) -> None:
    holds(install, "blue", "green")
    odd = decided(install, "blue", 3)
    install.s3.put_object(Bucket=BUCKET, Key=f"records/{odd}", Body=b"odd")
    decided(install, "green", 3)
    document = install.document()
    assert [each["cluster"] for each in document["standings"]] == ["green"]
    assert [line for line in document["unseen"] if "the newest decision on blue" in line]


def test_the_functions_write_which_features_are_on() -> None:
    stage = Stage()
    context = replace(stage.context, status=FakeStatus())
    assert inspect(stage.settings, catalog(), context).features == ()
    gangs = replace(stage.settings, policies=chosen(GangSettings(WHOLE)))
    assert inspect(gangs, catalog(), context).features == ("gangs",)
