"""`shiplap plan --aws`: types, prices, AMIs and subnets are asked for, and what AWS refuses is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiplap.aws.pricing.catalog_source import Ec2CatalogSource
from shiplap.errors import AwsError
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap_cli.main import run
from shiplap_lab.catalogue import embedded
from tests.integration.account_with_class import node_class_of_account
from tests.integration.contracts.in_process_aws import REGION, aws_in_process
from tests.unit.cli.planned_files import POOL, pod
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS as NODE_CLASS


class Asked:
    """Counts the fetches of the catalogue, and holds the error that the next fetch meets."""

    def __init__(self) -> None:
        self.times = 0
        self.refusal: AwsError | None = None

    def fetch(self, previous: Catalog | None) -> Catalog:
        self.times += 1
        if self.refusal is not None:
            raise self.refusal
        import time  # noqa: PLC0415 - the cache is judged by the clock of the machine

        found = embedded.load(REGION)
        return Catalog(
            region=REGION, types=found.types, zones=found.zones, zone_ids=found.zone_ids, refreshed_at=time.time()
        )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Asked]:
    made = Asked()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Ec2CatalogSource, "fetch", made.fetch)
    with aws_in_process():
        yield made


def files(folder: Path, *classes: dict[str, Any]) -> list[str]:
    (folder / "state.json").write_text(json.dumps(pod("a", "1")))
    (folder / "pools.json").write_text(json.dumps({"kind": "List", "items": [POOL, *classes]}))
    state, pools = str(folder / "state.json"), str(folder / "pools.json")
    return ["plan", "--cluster-state", state, "--manifests", pools, "--region", REGION]


def test_zones_are_those_of_the_subnets_and_types_are_asked_for_once_an_hour(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = files(tmp_path, node_class_of_account())
    for _ in range(2):
        assert run([*command, "--aws", "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found.get("notes") is None
        assert found["nodeClaims"][0]["launch"]["zone"] == f"{REGION}b"
        assert "notes" not in found
    assert asked.times == 1
    (kept,) = (tmp_path / "cache" / "shiplap").iterdir()
    kept.write_bytes(b"broken")
    assert run([*command, "--aws", "-o", "json"]) == 0
    capsys.readouterr()
    assert asked.times == 2


def test_a_class_that_is_not_ready_launches_nothing(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = node_class_of_account()
    broken["spec"]["subnetSelectorTerms"] = [{"tags": {"no": "such"}}]
    assert run([*files(tmp_path, broken), "--aws", "-o", "json"]) == 1
    assert "subnetSelectorTerms" in json.loads(capsys.readouterr().out)["unschedulable"][0]["message"]


def test_an_alias_without_the_version_of_the_cluster_is_said(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*files(tmp_path, NODE_CLASS), "--aws", "-o", "json"]) == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert "every zone counts" in note
    assert "Kubernetes version" in note


def test_a_refusal_is_one_line_with_a_hint(asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked.refusal = AwsError("could not describe instance types: UnauthorizedOperation", code="UnauthorizedOperation")
    assert run([*files(tmp_path, NODE_CLASS), "--aws"]) == 2
    said = capsys.readouterr().err
    assert "UnauthorizedOperation; see whether `aws sts get-caller-identity` is answered, or plan with --no-aws" in said
    assert said.count("\n") == 1


def test_a_cache_that_cannot_be_written_costs_time_only(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert run([*files(tmp_path, node_class_of_account()), "--aws", "-o", "json"]) == 0
    capsys.readouterr()
