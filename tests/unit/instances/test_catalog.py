"""The catalogue: DescribeInstanceTypes in, typed records out, stored and built."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.ec2_catalog import Catalog, decode, encode, parse_instance_types
from shiplap_lab.catalogue import embedded
from tests.unit.instances.given_instances import catalog, kind, only

ROOT = Path(__file__).parents[3]


def record(name: str = "m5.large", **changed: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "InstanceType": name,
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "NetworkInfo": {"Ipv4AddressesPerInterface": 10, "MaximumNetworkInterfaces": 3, "Unheard": "of"},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "SupportedVirtualizationTypes": ["hvm"],
    }
    return made | changed


def test_records_are_sorted_and_those_no_node_can_run_on_left_out() -> None:
    found = parse_instance_types(
        [
            record("t1.micro", ProcessorInfo={"SupportedArchitectures": ["i386", "x86_64"]}),
            record("mac2.metal", ProcessorInfo={"SupportedArchitectures": ["arm64_mac"]}),
            record("m1.small", SupportedVirtualizationTypes=["paravirtual"]),
            record("c6g.large", ProcessorInfo={"SupportedArchitectures": ["arm64"]}),
        ]
    )
    assert [each.instance_type for each in found] == ["c6g.large", "t1.micro"]


def test_a_record_that_lacks_its_memory_is_named() -> None:
    broken = record()
    del broken["MemoryInfo"]
    with pytest.raises(InvalidInput, match=r"m5\.large.*MemoryInfo"):
        parse_instance_types([broken])


def test_botocore_records_convert() -> None:
    moto = pytest.importorskip("moto")
    boto3 = pytest.importorskip("boto3")
    with moto.mock_aws():
        client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        answer = client.describe_instance_types(InstanceTypes=["m5.large", "g5.48xlarge", "inf2.xlarge"])
    assert parse_instance_types(answer["InstanceTypes"]) == (kind("g5.48xlarge"), kind("inf2.xlarge"), kind("m5.large"))


def test_stored_and_read_again() -> None:
    small = only("m5.large", "g5.48xlarge")
    assert decode(encode(small)) == small
    assert encode(decode(encode(small))) == encode(small)


@pytest.mark.parametrize("data", [b"", b"nonsense", encode(Catalog(region="r", types=()))[:-4]])
def test_bytes_that_are_no_catalogue(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="bucket"):
        decode(data, "bucket")


def test_the_embedded_catalogue() -> None:
    assert len(catalog().types) > 1200
    assert catalog().zones["m5.large"][:2] == ("us-east-1a", "us-east-1b")
    assert catalog().zone_ids["us-east-1a"].startswith("use1-az")
    assert catalog().prices == {}


def test_other_regions_have_other_zones_and_the_same_types() -> None:
    ireland = embedded.load("eu-west-1")
    assert ireland.region == "eu-west-1"
    assert ireland.zones["m5.large"][0] == "eu-west-1a"
    assert ireland.types == catalog().types


def test_an_unknown_region_lists_the_known() -> None:
    with pytest.raises(InvalidInput, match="eu-west-1"):
        embedded.load("mars-north-1")


def test_a_catalogue_that_was_not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "_FOLDER", tmp_path / "none")
    assert embedded.regions() == ()
    with pytest.raises(InvalidInput, match="make setup"):
        embedded.load()


def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_catalog", ROOT / "tools" / "build_catalog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_building_again_gives_the_same_bytes_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("moto")
    build = builder()
    monkeypatch.setattr(build, "TARGET", tmp_path / "data")
    build.main()
    assert "31 files written" in capsys.readouterr().out
    built = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    assert built[embedded.TYPES_FILE] == encode(Catalog(region="", types=catalog().types, version=catalog().version))
    build.main()
    assert ", 0 files written" in capsys.readouterr().out
