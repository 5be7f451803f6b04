"""`shiplap status` on a bucket, found by its name, its stack or a running `shiplap lab dev`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from shiplap.aws import session
from shiplap.drawing.picture import ClusterPicture, NodePicture
from shiplap.errors import InvalidInput
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap_cli.commands.status import status as command
from shiplap_cli.installs.install_metrics import (
    FailedClaim,
    FunctionMetrics,
    InstallMetrics,
    PoolUsage,
    QueueMetrics,
    pool_usage,
)
from shiplap_cli.main import run
from shiplap_cli.render.html_status import status_report
from shiplap_cli.render.status_page import StatusDocument, metrics_page
from shiplap_lab.dev import dev_session
from tests.builders.claims import running_claim
from tests.integration.contracts.in_process_aws import aws_in_process
from tests.integration.status_install import BROKEN, BUCKET, NOW, READY, UNKNOWN, StatusInstall, status_of


@pytest.fixture
def install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusInstall]:
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    monkeypatch.delenv("SHIPLAP_BUCKET", raising=False)
    with aws_in_process():
        yield StatusInstall(capsys)


def test_reservations_are_named_with_their_next_times(install: StatusInstall) -> None:
    day_s = 86_400.0
    block = CapacityReservation("cr-block", "p5.48xlarge", "a", type="capacity-block")
    held = (
        replace(block, starts_at=NOW - day_s, ends_at=NOW + day_s),
        CapacityReservation("cr-open", "m5.large", "a", starts_at=NOW - day_s),
    )
    upcoming = (
        replace(block, id="cr-later", state="scheduled", starts_at=NOW + day_s, ends_at=NOW + 2 * day_s),
        replace(block, id="cr-never", state="payment-failed", starts_at=NOW + day_s, ends_at=NOW + 2 * day_s),
    )
    known = replace(READY, capacity_reservations=held, upcoming_reservations=upcoming, drain_s=1920)
    install.holds(status_of("blue", known), status_of("green", READY))
    lines = {line.split()[0]: line.split() for line in install.says("--bucket", BUCKET).splitlines() if "cr-" in line}
    assert " ".join(lines["cr-block"][5:]) == "drains 2023-11-15T21:11:20Z, ends 2023-11-15T22:13:20Z"
    assert lines["cr-open"][4:] == ["active"]
    assert " ".join(lines["cr-later"][4:]) == (
        "scheduled starts 2023-11-15T22:13:20Z, drains 2023-11-16T21:11:20Z, ends 2023-11-16T22:13:20Z"
    )
    assert " ".join(lines["cr-never"][4:]) == "payment-failed never starts"
    (blue, green) = install.document()["clusters"]
    assert [each["id"] for each in blue["nodeClasses"][0]["upcomingReservations"]] == ["cr-later", "cr-never"]
    assert "upcomingReservations" not in green["nodeClasses"][0]


def test_the_format(install: StatusInstall) -> None:
    install.holds(status_of("blue", READY, BROKEN))
    document = install.document(code=1)
    assert document["catalogues"] == [
        {
            "region": "eu-west-1",
            "version": "v1",
            "instanceTypes": 0,
            "refreshedAt": "2023-11-14T21:13:20Z",
            "ageSeconds": 3600,
            "onDemandPricesAt": "2023-11-13T21:13:20Z",
            "spotPricesAt": "",
            "problem": "",
        }
    ]
    (blue,) = document["clusters"]
    assert (blue["cluster"], blue["region"], blue["checkedAt"], blue["ageSeconds"]) == (
        "blue",
        "eu-west-1",
        "2023-11-14T22:09:20Z",
        240,
    )
    default, gpu = blue["nodeClasses"]
    assert default["subnets"] == [{"id": "subnet-1", "zone": "a", "zoneID": "id-a", "freeIPs": 7}]
    assert default["instanceTypes"] == 12
    assert gpu["conditions"][-1] == {
        "type": "Ready",
        "status": "False",
        "reason": "SubnetsNotFound",
        "message": "subnetSelectorTerms match no subnet",
    }
    assert blue["pools"][1] == {"name": "b", "nodeClass": "gpu", "ready": "False", "reason": "no subnet"}


def test_the_exit_code_says_whether_all_is_ready(install: StatusInstall) -> None:
    install.holds(status_of("blue", READY))
    install.document()
    install.holds(status_of("blue", UNKNOWN))
    install.document(code=1)


def test_before_the_first_inspection(install: StatusInstall) -> None:
    assert "Nothing is known yet" in install.says("--bucket", BUCKET, code=1)
    assert install.document(code=1) == {"clusters": [], "catalogues": []}


def test_people_see_reasons_warnings_and_ages(install: StatusInstall) -> None:
    install.holds(status_of("blue", READY, BROKEN, UNKNOWN))
    text = install.says("--bucket", BUCKET, code=1)
    assert "Cluster blue (eu-west-1), looked at 4 min ago" in text
    assert "SubnetsReady: SubnetsNotFound: subnetSelectorTerms match no" in text
    assert "warning: ami-1 is deprecated" in text
    assert "RequestLimitExceeded: slow down" in text
    assert "DependenciesNotReady" not in text
    assert "never: estimated" in text
    assert "2023-11-13T21:13:20Z" in text


def test_one_cluster(install: StatusInstall) -> None:
    install.holds(status_of("blue", READY), status_of("green", BROKEN))
    assert [item["cluster"] for item in install.document("--cluster", "blue")["clusters"]] == ["blue"]
    assert "known are blue, green" in install.says("--bucket", BUCKET, "--cluster", "red", code=2)


def test_a_catalogue_that_is_missing_or_old(install: StatusInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    install.holds(status_of("blue", READY), catalogue=False)
    assert "does not exist yet" in install.document()["catalogues"][0]["problem"]
    install.holds(status_of("blue", READY))
    monkeypatch.setattr(command.time, "time", lambda: NOW + 86400)
    assert "not refreshed lately" in install.says("--bucket", BUCKET)


def test_the_bucket_is_an_output_of_the_stack(install: StatusInstall) -> None:
    install.holds(status_of("blue", READY))
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {"Bucket": {"Value": BUCKET}, "Other": {"Value": "x"}},
    }
    formation = session.session().create_client("cloudformation")
    formation.create_stack(StackName="Shiplap", TemplateBody=json.dumps(template))
    formation.create_stack(StackName="Other", TemplateBody=json.dumps({"Resources": template["Resources"]}))
    assert "blue" in install.says()
    assert "has no output Bucket" in install.says("--stack", "Other", code=2)
    assert "there is no stack 'None'" in install.says("--stack", "None", code=2)


def test_a_bucket_that_is_not_there(install: StatusInstall, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--bucket", "missing"]) == 2
    assert "s3://missing/status/clusters.json" in capsys.readouterr().err


Announce = Callable[[str, int], Path]


@pytest.fixture
def announce(tmp_path: Path) -> Announce:
    def announced(name: str, process: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        dev_session.announce_session(folder, {"AWS_REGION": "eu-west-1"}, f"bucket-of-{name}")
        note = msgspec.json.decode((folder / "running.json").read_bytes())
        (folder / "running.json").write_bytes(msgspec.json.encode(note | {"process": process}))
        return tmp_path

    return announced


def test_a_running_dev_is_found_by_the_note_it_leaves(announce: Announce) -> None:
    announce("run-1", 2**22 + 1)  # above Linux's largest process id
    folder = announce("run-2", os.getpid())
    found = dev_session.find_session(folder)
    assert (found.bucket, found.environment) == ("bucket-of-run-2", {"AWS_REGION": "eu-west-1"})


def test_no_dev_runs(tmp_path: Path, announce: Announce) -> None:
    with pytest.raises(InvalidInput, match="no `shiplap lab dev` runs"):
        dev_session.find_session(tmp_path)
    with pytest.raises(InvalidInput):
        dev_session.find_session(announce("run-1", 2**22 + 1))


def test_dev_is_asked_instead_of_an_account(install: StatusInstall, monkeypatch: pytest.MonkeyPatch) -> None:
    install.holds(status_of("blue", READY))
    note = dev_session.DevSession(1, {"AWS_EC2_METADATA_DISABLED": "true"}, BUCKET)
    monkeypatch.setattr(dev_session, "find_session", lambda: note)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "")
    assert "blue" in install.says("--dev")
    assert os.environ["AWS_EC2_METADATA_DISABLED"] == "true"


def test_a_page_shows_conditions_and_says_which_nodes_it_cannot_see(install: StatusInstall, tmp_path: Path) -> None:
    install.holds(status_of("prod", READY, BROKEN))
    install.says("--bucket", BUCKET, "--html", str(tmp_path / "status.html"), code=1)
    made = (tmp_path / "status.html").read_text()
    assert "prod (eu-west-1), looked at" in made
    assert "SubnetsNotFound: subnetSelectorTerms match no subnet" in made
    assert "The nodes of prod cannot be read: " in made


def test_figures_are_written_for_a_collector(install: StatusInstall, tmp_path: Path) -> None:
    install.holds(status_of("prod", READY, BROKEN))
    install.says("--bucket", BUCKET, "--openmetrics", str(tmp_path / "shiplap.prom"), code=1)
    made = (tmp_path / "shiplap.prom").read_text().splitlines()
    ready = [line for line in made if line.startswith("shiplap_node_class_ready{")]
    assert sorted(line.rpartition(" ")[2] for line in ready) == ["0", "1"]
    assert made[-1] == "# EOF"


def test_each_pool_has_its_month_and_its_limits_in_one_unit() -> None:
    web = PoolUsage(
        "prod", "web", 14, 2, 1, 3.0, {"cpu": "99120m", "memory": "512Gi"}, {"cpu": "1000", "memory": "1Ti"}
    )
    batch = PoolUsage("prod", "batch", 1, 0, 0, 0.1, {}, {"cpu": "64"})
    made = status_report(StatusDocument((), ()), InstallMetrics(pool_use=(web, batch)), [], [], NOW)
    said = StringIO()
    Console(width=250, file=said).print(*metrics_page(InstallMetrics(pool_use=(web, batch))))
    for shown in ("cpu 99.12 of 1000, memory 512Gi of 1024Gi", "$2,190", "cpu 0 of 64", "$73.00"):
        assert shown in made
        assert shown in said.getvalue()


def test_limits_of_a_pool_that_nobody_has_looked_at_are_not_none() -> None:
    """A claim of a NodePool that was just applied is there before the status that knows its limits."""
    claims = [running_claim("a", node_pool="new"), running_claim("b", node_pool="old")]
    new, old = pool_usage("prod", claims, None, {("prod", "old"): {}, ("dev", "new"): {"cpu": "4"}})
    assert (new.pool, new.limits, new.limits_in_words) == ("new", None, ("not looked at yet",))
    assert (old.pool, old.limits, old.limits_in_words) == ("old", {}, ())


def test_a_page_draws_what_the_claims_tell() -> None:
    drawn = ClusterPicture(cluster="prod", taken_at=NOW, nodes=(NodePicture(name="ip-1", pool="web", hourly=0.5),))
    vitals = InstallMetrics(
        pool_use=(PoolUsage("prod", "web", 1, 0, 0, 0.5, {"cpu": "2"}, {"cpu": "10"}),),
        failures=(FailedClaim("prod", "web-2", "2023-11-14T22:13:20Z", "no capacity <b>"),),
        queues=(QueueMetrics("provisioning", 1, 0, 2, {"malformed": 2}),),
        functions=(FunctionMetrics("schedule", "7", 60, 0, None),),
        unseen=("lambda may not be asked",),
    )
    made = status_report(StatusDocument((), ()), vitals, [drawn], [], NOW)
    for shown in ("ip-1", "cpu 2 of 10", "no capacity &lt;b&gt;", "malformed: 2", "lambda may not be asked", "$0.500"):
        assert shown in made
