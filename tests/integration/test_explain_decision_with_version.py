"""`shiplap explain decision --with-version`: another version decides, in its own process, wherever it is installed."""

from __future__ import annotations

import json
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import shiplap
from shiplap import __version__
from shiplap.records.scheduling_record import SchedulingRecord, encode
from shiplap.scheduling.planner import plan
from shiplap_cli.inputs.loaded_inputs import load_inputs
from shiplap_cli.main import run
from shiplap_cli.options import Sources
from tests.unit.cli.planned_files import CATALOG, POOL, pod

OTHER = """
import msgspec, zlib

class Found:
    problem = ""
    def __init__(self, document):
        self.record = msgspec.msgpack.decode(zlib.decompress(document))

def read(document, source):
    return Found(document)

def decided_again(record):
    decided = record["plan"] | {"hourly": 0.25}
    for claim in decided["nodeClaims"]:
        claim["launch"]["instanceType"], claim["launch"]["price"] = "newer.large", 0.25
    return msgspec.msgpack.encode(decided)
"""
"""A version whose every launch is of another type."""


@pytest.fixture
def record(tmp_path: Path) -> Path:
    (tmp_path / "state.json").write_text(json.dumps(pod("a", "1")))
    (tmp_path / "pool.json").write_text(json.dumps(POOL))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    sources = Sources(
        cluster_state=[tmp_path / "state.json"],
        manifests=[tmp_path / "pool.json"],
        catalog=tmp_path / "catalog.json",
        now="2026-01-31T12:00:00Z",
    )
    snapshot = load_inputs(sources).snapshot
    path = tmp_path / "record.bin"
    path.write_bytes(encode(SchedulingRecord(snapshot, plan(snapshot))))
    return path


def version(folder: Path, records: str = OTHER, number: str = "9.9.9") -> Path:
    """A source tree of another version, as little of it as is asked for."""
    package = folder / "other" / "shiplap"
    (package / "records").mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{number}"\n')
    (package / "records" / "__init__.py").write_text("")
    if records:
        (package / "records" / "disruption_record.py").write_text(records)
    return package.parent


def replayed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int) -> dict[str, Any]:
    assert run(["explain", "decision", *map(str, arguments), "-o", "json"]) == code
    printed = capsys.readouterr()
    assert printed.err == ""
    return dict(json.loads(printed.out))


def test_this_version_by_its_tree_or_its_interpreter_decides_the_same(
    record: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replayed(capsys, record, "--with-version", Path(shiplap.__file__).parents[1], code=0)
    assert (found["same"], found["replayedBy"]) == (True, __version__)
    assert replayed(capsys, record, "--with-version", sys.executable, code=0)["same"]


@pytest.mark.parametrize("packed", [False, True])
def test_another_version_that_decides_otherwise(
    packed: bool, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = version(tmp_path)
    if packed:  # the library layer of an install
        archive = tmp_path / "layer.zip"
        with zipfile.ZipFile(archive, "w") as opened:
            for path in sorted(where.rglob("*.py")):
                opened.write(path, Path("python") / path.relative_to(where))
        where = archive
    found = replayed(capsys, record, "--with-version", where, code=1)
    assert (found["recordedBy"], found["replayedBy"], found["same"]) == (__version__, "9.9.9", False)
    assert found["hourly"] == {"recorded": 0.1, "again": 0.25}
    (again,) = found["difference"]["again"]
    assert again.startswith("launch newer.large on-demand in z1 of pool default")
    assert run(["explain", "decision", str(record), "--with-version", str(where)]) == 1
    page = " ".join(capsys.readouterr().out.split())
    assert f"Recorded by {__version__}, decided again by 9.9.9" in page


def test_a_decision_that_this_version_cannot_read_is_compared_by_its_outline(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = version(
        tmp_path,
        OTHER.replace("    return msgspec.m", '    decided["nodeClaims"][0]["pods"] = [7]\n    return msgspec.m'),
    )
    found = replayed(capsys, record, "--with-version", where, code=1)
    assert found["difference"]["outlines"]
    assert found["difference"]["again"] == ["launch newer.large on-demand in z1 of pool default at $0.2500/h for 1 pod"]
    assert run(["explain", "decision", str(record), "--with-version", str(where)]) == 1
    assert "only their outlines are compared" in capsys.readouterr().out


def test_a_record_of_a_version_that_this_one_cannot_read(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the version that wrote it can decide it again; without that, what is plain in it is shown."""
    plain = msgspec.msgpack.decode(zlib.decompress(record.read_bytes()))
    plain["snapshot"]["manifests"] = 7
    plain["version"] = "9.9.9"
    record.write_bytes(zlib.compress(msgspec.msgpack.encode(plain)))
    alone = replayed(capsys, record, code=1)
    assert "written by version 9.9.9" in alone["problem"]
    assert alone["outline"]["claims"][0]["instanceType"] == "small"
    by_its_own = replayed(capsys, record, "--with-version", version(tmp_path), code=1)
    assert by_its_own["hourly"] == {"recorded": 0.1, "again": 0.25}


def test_a_version_that_cannot_decide_says_so(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = replayed(capsys, record, "--with-version", version(tmp_path, "", "0.0.1"), code=1)
    assert found["problem"].startswith("version 0.0.1 of ")
    assert "cannot decide on records" in found["problem"]
    assert found["outline"]["claims"]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nowhere", "there is no such file or folder"),
        ("record.bin", "is no virtual environment, interpreter"),
        ("empty", "holds no package shiplap"),
        ("broken", "fails: RuntimeError: no"),
        ("silent", "gives no answer that can be read"),
        ("unrunnable", "cannot be run"),
    ],
)
def test_what_is_no_version(
    where: str, said: str, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    if where == "broken":
        (version(tmp_path, "raise RuntimeError('no')").rename(tmp_path / where))
    for name, script in (("silent", "#!/bin/sh\n"), ("unrunnable", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    assert run(["explain", "decision", str(record), "--with-version", str(tmp_path / where)]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


def test_a_version_that_never_ends(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiplap_cli.installs.other_version._TIMEOUT_S", 0.01)
    assert run(["explain", "decision", str(record), "--with-version", str(version(tmp_path))]) == 2
    assert "has not decided within 0 s" in capsys.readouterr().err
