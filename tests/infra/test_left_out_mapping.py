"""The context by which an event source mapping that was deleted by hand leaves the stack, before it is made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap.errors import InvalidInput
from shiplap_cdk.install_document import read
from shiplap_cdk.stack_values import WITHOUT_MAPPING
from shiplap_cdk.synthesis import build
from tests.infra.synthesised import INSTALL

MAPPING = "AWS::Lambda::EventSourceMapping"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """An install of two networks, the second in a nested stack."""
    clusters: list[dict[str, Any]] = [
        {"name": "plain", "manifests": str(INSTALL.parent / "manifests" / "edge")},
        {
            "name": "inside",
            "manifests": str(INSTALL.parent / "manifests" / "edge"),
            "vpc": {"name": "blue", "subnets": ["subnet-00000001"], "securityGroups": ["sg-00000001"]},
        },
    ]
    file = tmp_path / "shiplap.yaml"
    file.write_bytes(msgspec.json.encode({"region": "eu-west-1", "clusters": clusters}))
    return file


def templates(settings: Path, **context: str) -> dict[str, dict[str, Any]]:
    folder = settings.parent / f"{'-'.join(context.values())}.out"
    build(read(settings), local=True, outdir=str(folder), context=context).synth()
    return {path.name: json.loads(path.read_text())["Resources"] for path in folder.glob("*.template.json")}


def logical_ids(made: dict[str, dict[str, Any]], *, mappings: bool) -> set[tuple[str, str]]:
    return {
        (file, name)
        for file, resources in made.items()
        for name, item in resources.items()
        if (item["Type"] == MAPPING) is mappings
    }


def test_one_mapping_is_left_out_also_of_a_nested_stack_and_nothing_else(settings: Path) -> None:
    whole = templates(settings)
    for function in ("shiplap-schedule", "shiplap-lifecycle-blue"):
        without = templates(settings, **{WITHOUT_MAPPING: function})
        assert logical_ids(without, mappings=False) == logical_ids(whole, mappings=False)
        ((file, name),) = logical_ids(whole, mappings=True) - logical_ids(without, mappings=True)
        alias = json.dumps(whole[file][name]["Properties"]["FunctionName"])
        assert function.removeprefix("shiplap-").partition("-")[0] in alias.lower()
        assert ("Network" in file.removeprefix("Shiplap")) is function.endswith("-blue")


@pytest.mark.parametrize("function", ["shiplap-watch", "schedule", "shiplap-lifecycle-green"])
def test_a_function_that_no_queue_feeds_is_refused_with_those_that_one_feeds(settings: Path, function: str) -> None:
    with pytest.raises(InvalidInput, match="queues feed shiplap-interrupt, shiplap-lifecycle, shiplap-lifecycle-blue"):
        templates(settings, **{WITHOUT_MAPPING: function})
