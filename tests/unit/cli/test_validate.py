"""The command `shiplap validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiplap_cli.main import run
from tests.commands import Shiplap
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed


def written(folder: Path, *objects: object) -> str:
    file = folder / "nodes.json"
    file.write_text("\n".join(map(json.dumps, objects)))
    return str(file)


def test_valid_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", written(tmp_path, NODE_POOL, EC2_NODE_CLASS, {"apiVersion": "v1", "kind": "Pod"})]) == 0
    shown = capsys.readouterr()
    assert shown.out == "2 manifests valid; passed over 1 object of other kinds\n"
    assert shown.err == ""


def test_valid_manifests_as_json(tmp_path: Path, shiplap: Shiplap) -> None:
    assert shiplap.json("validate", written(tmp_path, NODE_POOL)) == {
        "valid": True,
        "documents": 1,
        "problems": [],
        "warnings": [],
        "skipped": [],
    }


def test_problems_as_json(tmp_path: Path, shiplap: Shiplap) -> None:
    file = written(tmp_path, changed(NODE_POOL, "spec.weight", 0), changed(EC2_NODE_CLASS, "spec.rule", "x"))
    answer = shiplap.json("validate", file, code=2)
    assert (answer["valid"], answer["documents"]) == (False, 2)
    assert answer["problems"] == [
        {
            "file": file,
            "line": 1,
            "document": "NodePool/default",
            "field": "spec.weight",
            "reason": "must be from 1 to 100, is 0",
            "refusedBy": "api-server",
        },
        {
            "file": file,
            "line": 2,
            "document": "EC2NodeClass/default",
            "field": "spec.rule",
            "reason": "unknown field, did you mean role?",
            "refusedBy": "api-server",
        },
    ]


def test_problems_as_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = {"kubernetes.io/hostname": "a"}
    file = written(tmp_path, changed(NODE_POOL, "spec.template.metadata.labels", labels))
    assert run(["validate", file]) == 2
    shown = capsys.readouterr()
    assert " ".join(shown.out.split()) == (
        f"{file}:1: NodePool/default: spec.template.metadata.labels[kubernetes.io/hostname]: "
        "the label kubernetes.io/hostname is set by the system and cannot be asked for"
    )
    assert shown.err == "shiplap: 1 problem in 1 manifest\n"


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read: No such file or directory"), ("a: [", "not YAML")]
)
def test_a_file_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, message: str
) -> None:
    file = tmp_path / "nodes.yaml"
    if content is not None:
        file.write_text(content)
    assert run(["validate", str(file)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert message in shown.err


def test_a_file_that_cannot_be_read_as_json(tmp_path: Path, shiplap: Shiplap) -> None:
    assert (
        shiplap.json("validate", str(tmp_path / "absent"), code=2)["problems"][0]["reason"]
        == "cannot be read: No such file or directory"
    )
