"""botocore's descriptions, cut to what is called: nothing that is called may be missing or different."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import botocore
import pytest
from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.session import Session

from shiplap_cdk.artifacts.service_models import SERVICES, called, trim

DATA = Path(botocore.__file__).parent / "data"


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    source = tmp_path_factory.mktemp("source") / "calls.py"
    source.write_text(
        "ec2.create_fleet(); ec2.get_paginator('describe_instance_types'); ec2.describe_instances\n"
        "dynamodb.transact_write_items(); s3.put_object(); s3.get_object()\n"
        "sqs.send_message(); eks.describe_cluster()\n"
    )
    return called([source])


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory, operations: dict[str, list[str]]) -> Path:
    data = tmp_path_factory.mktemp("data") / "data"
    data.mkdir()
    for name in ("endpoints.json", "partitions.json", "_retry.json", "sdk-default-configuration.json"):
        shutil.copyfile(DATA / name, data / name)
    for service in (*SERVICES, "kms"):
        shutil.copytree(DATA / service, data / service)
    trim(data, operations)
    return data


def model(data: Path, service: str) -> ServiceModel:
    loader = Loader(extra_search_paths=[str(data)], include_default_search_paths=False)
    return ServiceModel(loader.load_service_model(service, "service-2"), service)


def described(shape: Shape | None, seen: tuple[str, ...] = ()) -> Any:
    """A shape with everything below it; recursion ends at a shape that is open already."""
    if shape is None or shape.name in seen:
        return shape and shape.name
    inside = (*seen, shape.name)
    parts: dict[str, Any] = {}
    if shape.type_name == "structure":
        parts = {name: described(member, inside) for name, member in shape.members.items()}
    elif shape.type_name == "list":
        parts = {"member": described(shape.member, inside)}
    elif shape.type_name == "map":
        parts = {"key": described(shape.key, inside), "value": described(shape.value, inside)}
    return shape.type_name, shape.serialization, shape.metadata, parts


def test_operations_are_found_by_the_names_of_their_methods(operations: dict[str, list[str]]) -> None:
    assert operations["ec2"] == ["CreateFleet", "DescribeInstanceTypes", "DescribeInstances"]
    assert operations["s3"] == ["GetObject", "PutObject"]
    assert operations["pricing"] == []
    assert set(operations) == set(SERVICES)


@pytest.mark.parametrize("service", ["ec2", "dynamodb", "s3", "sqs", "eks"])
def test_what_is_kept_is_unchanged(trimmed: Path, operations: dict[str, list[str]], service: str) -> None:
    cut, whole = model(trimmed, service), model(DATA, service)

    assert list(cut.operation_names) == [name for name in whole.operation_names if name in operations[service]]
    assert cut.metadata == whole.metadata
    for name in operations[service]:
        ours, theirs = cut.operation_model(name), whole.operation_model(name)
        assert described(ours.input_shape) == described(theirs.input_shape)
        assert described(ours.output_shape) == described(theirs.output_shape)
        assert errors(ours) == errors(theirs)
        assert ours.http == theirs.http


def errors(operation: OperationModel) -> list[Any]:
    return [described(shape) for shape in operation.error_shapes]


def test_paginators_of_what_is_kept_stay(trimmed: Path) -> None:
    loader = Loader(extra_search_paths=[str(trimmed)], include_default_search_paths=False)

    assert set(loader.load_service_model("ec2", "paginators-1")["pagination"]) >= {
        "DescribeInstanceTypes",
        "DescribeInstances",
    }


def test_other_services_and_versions_are_gone(trimmed: Path) -> None:
    assert {path.name for path in trimmed.iterdir() if path.is_dir()} == set(SERVICES)
    assert len(list((trimmed / "ec2").iterdir())) == 1


def test_the_description_of_ec2_is_small(trimmed: Path) -> None:
    (folder,) = (trimmed / "ec2").iterdir()

    assert sum(path.stat().st_size for path in folder.iterdir()) < 200_000


def test_endpoints_are_those_of_the_whole_description(trimmed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def urls(data: str) -> dict[str, str]:
        session = Session()
        session.get_component("data_loader").search_paths[:] = [data]
        return {
            f"{service} {region}": session.create_client(
                service, region_name=region, aws_access_key_id="x", aws_secret_access_key="y"
            ).meta.endpoint_url
            for service in SERVICES
            for region in ("eu-west-1", "cn-north-1", "us-gov-west-1")
        }

    assert urls(str(trimmed)) == urls(str(DATA))


def test_partitions_are_kept_by_which_regions_are_placed(trimmed: Path) -> None:
    assert (trimmed / "partitions.json").read_bytes() == (DATA / "partitions.json").read_bytes()
