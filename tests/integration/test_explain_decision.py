"""`shiplap explain decision`: records of files, of S3 and by id, of this version and others, with other manifests."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap import __version__
from shiplap.aws import session
from shiplap.aws.bucket import BucketRecorder
from shiplap.disruption.decide import decide
from shiplap.records import disruption_record as disruptions
from shiplap.records.disruption_record import DisruptionRecord
from shiplap.records.scheduling_record import SchedulingRecord, encode
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap_cli.inputs.disruption_inputs import disruption_snapshot
from shiplap_cli.inputs.loaded_inputs import load_inputs
from shiplap_cli.main import run
from shiplap_cli.options import Sources
from tests.builders.nodes import node_object
from tests.integration.contracts.in_process_aws import aws_in_process
from tests.unit.cli.planned_files import CATALOG, POOL, pod


class Says:
    """The command's output, as text or as the document."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        assert run(["explain", "decision", *map(str, arguments)]) == code
        printed = self._capsys.readouterr()
        assert printed.err.count("\n") == (1 if code == 2 else 0)
        return printed.err if code == 2 else " ".join(printed.out.split())

    def document(self, *arguments: object, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self(*arguments, "-o", "json", code=code)))


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Says:
    return Says(capsys)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    node = node_object(
        "empty",
        "8",
        "8Gi",
        "10",
        pool="default",
        instance_type="large",
        zone="z1",
        capacity_type="on-demand",
        labels={"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"},
        ready=True,
        metadata={"creationTimestamp": "2026-01-01T00:00:00Z"},
        providerID="aws:///z1/i-1",
        taints=[{"key": "other", "effect": "NoSchedule"}],
    )
    objects = [pod("a", "1"), pod("b", "7"), pod("huge", "70"), node]
    (tmp_path / "state.json").write_text(json.dumps({"kind": "List", "items": objects}))
    (tmp_path / "pools.json").write_text(json.dumps(POOL))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    return Sources(
        cluster_state=[tmp_path / "state.json"],
        manifests=[tmp_path / "pools.json"],
        catalog=tmp_path / "catalog.json",
        now="2026-01-31T12:00:00Z",
    )


@pytest.fixture
def snapshot(sources: Sources) -> Snapshot:
    return load_inputs(sources).snapshot


@pytest.fixture
def record(snapshot: Snapshot, tmp_path: Path) -> Path:
    file = tmp_path / "record"
    file.write_bytes(encode(SchedulingRecord(snapshot, plan(snapshot))))
    return file


def test_the_same_version_decides_the_same(says: Says, record: Path) -> None:
    found = says.document(record)
    assert found == {
        "record": str(record),
        "kind": "schedule",
        "cluster": "files",
        "at": "2026-01-31T12:00:00Z",
        "epoch": 0,
        "recordedBy": __version__,
        "replayedBy": __version__,
        "same": True,
        "hourly": {"recorded": 0.5, "again": 0.5},
        "difference": {"recorded": [], "again": []},
    }
    assert "The same decision, byte for byte." in says(record)


def test_with_other_manifests_the_difference_is_shown(says: Says, record: Path, tmp_path: Path) -> None:
    changed = json.loads(json.dumps(POOL))
    changed["spec"]["limits"] = {"cpu": "2"}
    (tmp_path / "new.json").write_text(json.dumps(changed))
    found = says.document(record, "--with", tmp_path / "new.json", code=1)
    assert not found["same"]
    assert found["hourly"]["again"] < found["hourly"]["recorded"]
    assert any("web/b has no place" in line for line in found["difference"]["again"])
    page = says(record, "--with", tmp_path / "new.json", code=1)
    assert "+ web/b has no place" in page
    assert "- launch large on-demand in z1 of pool default at $0.4000/h for web/b" in page
    same = says.document(record, "--with", tmp_path / "pools.json")
    assert same["same"]


def test_a_pool_of_a_class_that_was_not_recorded_launches_nothing(says: Says, record: Path, tmp_path: Path) -> None:
    changed = json.loads(json.dumps(POOL))
    changed["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "other"
    (tmp_path / "new.json").write_text(json.dumps(changed))
    page = says(record, "--with", tmp_path / "new.json", code=1)
    assert "its instance types were not looked at when this was recorded" in page


def test_a_decision_to_disrupt(says: Says, sources: Sources, tmp_path: Path) -> None:
    looked_at = disruption_snapshot(load_inputs(sources))
    decision = decide(looked_at)
    assert decision.commands
    file = tmp_path / "disruption"
    file.write_bytes(disruptions.encode(DisruptionRecord(looked_at, decision)))
    found = says.document(file)
    assert (found["kind"], found["same"]) == ("disrupt", True)
    changed = json.loads(json.dumps(POOL))
    changed["spec"]["disruption"] = {"consolidateAfter": "Never", "consolidationPolicy": "WhenEmpty"}
    (tmp_path / "new.json").write_text(json.dumps(changed))
    page = says(file, "--with", tmp_path / "new.json", code=1)
    assert "- remove empty (Empty)" in page
    assert "+ remove empty (Expired)" in page


def stored(document: bytes, **changes: Any) -> bytes:
    """A record as another version might have written it."""
    loose = msgspec.msgpack.decode(zlib.decompress(document))
    return zlib.compress(msgspec.msgpack.encode({**loose, **changes}))


def test_a_record_of_another_version_that_can_be_read(says: Says, record: Path, snapshot: Snapshot) -> None:
    document = record.read_bytes()
    record.write_bytes(stored(document, version="9.9"))
    assert says.document(record)["recordedBy"] == "9.9"
    other = msgspec.to_builtins(plan(snapshot)) | {"hourly": 7.0}
    record.write_bytes(stored(document, version="9.9", plan=other))
    page = says(record, code=1)
    assert f"Recorded by 9.9, decided again by {__version__}" in page
    assert "The same nodes and pods" in page


def test_a_record_of_another_version_that_cannot_be_read(says: Says, record: Path, snapshot: Snapshot) -> None:
    looked_at = msgspec.to_builtins(snapshot) | {"catalogs": "elsewhere"}
    record.write_bytes(stored(record.read_bytes(), version="9.9", snapshot=looked_at))
    page = says(record, code=1)
    assert "small on-demand in z1" in page
    assert f"it was written by version 9.9 and {__version__} cannot read it" in page
    found = says.document(record, code=1)
    assert found["outline"]["at"] == "2026-01-31T12:00:00Z"
    assert [claim["instanceType"] for claim in found["outline"]["claims"]] == ["large", "small"]
    assert (found["outline"]["unschedulable"], found["outline"]["pods"]) == (1, 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"rubbish", "not a recorded decision"),
        (zlib.compress(b"\x81\xa1a\x01"), "it holds no snapshot with a plan or commands"),
        (zlib.compress(msgspec.msgpack.encode({"plan": 1, "snapshot": "x"})), "it holds no snapshot"),
    ],
)
def test_what_is_no_record(says: Says, tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert words in says(tmp_path / "file", code=2)


def test_odd_parts_of_a_record_are_left_out(says: Says, tmp_path: Path) -> None:
    odd = {
        "snapshot": {"now": "noon", "epoch": "one", "view": []},
        "plan": {"nodeClaims": [1, {"launch": {"price": "x"}}]},
    }
    (tmp_path / "file").write_bytes(zlib.compress(msgspec.msgpack.encode(odd)))
    found = says.document(tmp_path / "file", code=1)
    assert (found["outline"]["epoch"], len(found["outline"]["claims"])) == (0, 2)
    assert "a version that did not say which" in found["problem"]


def test_records_of_an_install(says: Says, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHIPLAP_BUCKET", raising=False)
    with aws_in_process():
        s3 = session.client("s3")
        s3.create_bucket(Bucket="install", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        name = BucketRecorder(s3, "install").record(snapshot, plan(snapshot))
        assert says.document(name, "--bucket", "install")["same"]
        assert says.document(f"records/{name}", "--bucket", "install")["same"]
        tail = name.rpartition("/")[2]
        assert says.document(tail, "--bucket", "install")["same"]
        assert "no record in s3://install/records/ ends so" in says(
            "142502-17-3fb2c1d0aa51", "--bucket", "install", code=2
        )
        assert "could not list s3://elsewhere/records/" in says(tail, "--bucket", "elsewhere", code=2)
        other = BucketRecorder(s3, "install")
        s3.put_object(Bucket="install", Key=f"records/other/2026-01-31/{tail}", Body=other.document(name))
        assert "name one in full" in says(tail, "--bucket", "install", code=2)
        assert says.document(f"s3://install/records/{name}")["same"]
        assert "aws s3 ls s3://install/records/" in says("a/b/c", "--bucket", "install", code=2)
        assert "there is no stack 'Shiplap'" in says("a/b/c", code=2)


def test_a_copy_of_a_large_record_is_completed_from_its_install(says: Says, snapshot: Snapshot, tmp_path: Path) -> None:
    with aws_in_process():
        s3 = session.client("s3")
        s3.create_bucket(Bucket="install", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        recorder = BucketRecorder(s3, "install")
        recorder.least_bytes = 0
        name = recorder.record(snapshot, plan(snapshot))
        copy = tmp_path / "copy"
        copy.write_bytes(recorder.stored(name))
        assert says.document(copy, "--bucket", "install")["same"]
        assert says.document(name, "--bucket", "install")["same"]
        (chunk, _) = s3.list_objects_v2(Bucket="install", Prefix="chunks/")["Contents"]
        s3.delete_object(Bucket="install", Key=chunk["Key"])
        assert f"s3://install/{chunk['Key']} is gone" in says(copy, "--bucket", "install", code=2)


def test_what_names_no_record(says: Says, tmp_path: Path) -> None:
    for name in ("no-such-file", tmp_path, tmp_path / "absent" / "file"):
        assert "is neither a file nor an id of a record" in says(name, code=2)
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "locked").write_bytes(b"")
    assert "not a recorded decision" in says(tmp_path / "locked", code=2)
