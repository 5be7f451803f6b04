"""Tests the requests of shiplap.yaml in a Region that meets them, that lacks them, or that does not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore
import pytest

from shiplap import regions
from shiplap.errors import InvalidManifests
from shiplap_cdk.install_document import read
from shiplap_cdk.region_differences import GAPS, LEFT_OUT, Feature, gap

NODES = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{ssmParameter: "PARAMETER"}]
  amiFamily: AL2023
  role: nodes
  subnetSelectorTerms: [{tags: {cluster: blue}}]
  securityGroupSelectorTerms: [{tags: {cluster: blue}}]
  blockDeviceMappings:
    - {deviceName: /dev/xvda, ebs: {volumeSize: 20Gi, kmsKeyID: "KEY"}}
"""
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"


def arn(partition: str, region: str, resource: str) -> str:
    return f"arn:{partition}:{resource.partition(' ')[0]}:{region}:123456789012:{resource.partition(' ')[2]}"


def install(folder: Path, region: str, cluster: dict[str, Any] | None = None, **fields: Any) -> Path:
    """The file, one field a line."""
    clusters = [{"name": "blue", "manifests": "nodes.yaml", **(cluster or {})}]
    document = {"region": region, "clusters": clusters, **fields}
    if not (folder / "nodes.yaml").exists():
        (folder / "nodes.yaml").write_text(NODES.replace("PARAMETER", "/golden").replace("KEY", KEY_ID))
    path = folder / "shiplap.yaml"
    path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in document.items()))
    return path


def refused(path: Path) -> list[str]:
    with pytest.raises(InvalidManifests) as found:
        read(path)
    return [str(problem) for problem in found.value.problems]


@pytest.mark.parametrize("region", ["eu-west-9", "eu-west-1a", "nowhere", "us-gov-north-1", "EU-WEST-1", "aws-global"])
def test_a_region_that_does_not_exist_is_refused_in_one_line(region: str, tmp_path: Path) -> None:
    (line,) = refused(install(tmp_path, region, snapStart=True))

    assert line.startswith(f"{tmp_path}/shiplap.yaml:1: region: {region!r} is not a Region")
    assert botocore.__version__ in line
    assert ", the nearest are eu-west-1, eu-west-2, eu-west-3; " in line or region != "eu-west-9"
    assert "\n" not in line


@pytest.mark.parametrize("region", ["us-gov-east-1", "cn-northwest-1", "eusc-de-east-1", "us-iso-east-1", "ap-east-2"])
def test_every_region_of_every_partition_is_taken(region: str, tmp_path: Path) -> None:
    assert read(install(tmp_path, region)).document.region == region


@pytest.mark.parametrize(
    ("region", "fields", "field", "source"),
    [
        ("us-gov-west-1", {"snapStart": True}, "snapStart", "govcloud-us"),
        ("cn-north-1", {"snapStart": True}, "snapStart", "docs.amazonaws.cn"),
        ("ap-southeast-6", {"snapStart": True}, "snapStart", "snapstart.html"),
        ("eusc-de-east-1", {"snapStart": True}, "snapStart", "snapstart.html"),
        ("cn-northwest-1", {"tracing": True}, "tracing", "docs.amazonaws.cn"),
    ],
)
def test_what_is_asked_for_and_missing_is_refused_with_its_source(
    region: str, fields: dict[str, Any], field: str, source: str, tmp_path: Path
) -> None:
    (line,) = refused(install(tmp_path, region, **fields))

    assert line.startswith(f"{tmp_path}/shiplap.yaml:3: {field}: {region} lacks ")
    assert source in line
    assert line.endswith(": leave it out")


@pytest.mark.parametrize(
    ("region", "fields"),
    [
        ("us-gov-west-1", {"tracing": True}),
        ("eu-west-1", {"tracing": True, "snapStart": True}),
    ],
)
def test_what_a_region_has_is_taken(region: str, fields: dict[str, Any], tmp_path: Path) -> None:
    assert read(install(tmp_path, region, **fields)).document.region == region


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    lines = refused(install(tmp_path, "cn-north-1", snapStart=True, tracing=True))

    assert [line.split(": ")[1] for line in lines] == ["snapStart", "tracing"]


@pytest.mark.parametrize(
    ("field", "resource"),
    [
        ("kubeconfigSecret", "secretsmanager secret:kubeconfig-AbCdEf"),
        ("volumeKeys", f"kms key/{KEY_ID}"),
        ("imageParameters", "ssm parameter/golden"),
    ],
)
@pytest.mark.parametrize(("partition", "region"), [("aws", "us-gov-west-1"), ("aws-cn", "eu-west-1")])
def test_an_arn_of_another_partition_is_refused(
    field: str, resource: str, partition: str, region: str, tmp_path: Path
) -> None:
    def cluster(partition: str) -> dict[str, Any]:
        named = arn(partition, region, resource)
        is_one = field == "kubeconfigSecret"
        manifests = {"manifests": "cluster"} if field == "imageParameters" else {}
        endpoint = {"endpoint": "https://10.0.0.1"} if is_one else {}
        return {field: named if is_one else [named], **manifests, **endpoint}

    (line,) = refused(install(tmp_path, region, cluster(partition)))
    own = regions.partition_of(region)

    assert line.startswith(f"{tmp_path}/shiplap.yaml:2: clusters[0].{field}: 'arn:{partition}:")
    assert line.endswith(f"name one that begins with arn:{own}:")
    assert read(install(tmp_path, region, cluster(own)))


def test_an_alarm_topic_and_headers_of_another_partition_are_refused(tmp_path: Path) -> None:
    topic = arn("aws", "cn-north-1", "sns alarms")
    headers = arn("aws", "cn-north-1", "secretsmanager secret:otlp-AbCdEf")
    otlp = {"endpoint": "https://collector.example.com", "headersSecret": headers}
    lines = refused(install(tmp_path, "cn-north-1", alarmTopic=topic, otlp=otlp))

    assert [line.split(": ")[1] for line in lines] == ["alarmTopic", "otlp.headersSecret"]


def test_manifests_that_name_another_partition_are_refused_where_they_are_written(tmp_path: Path) -> None:
    key, parameter = arn("aws", "eu-west-1", f"kms key/{KEY_ID}"), arn("aws", "eu-west-1", "ssm parameter/golden")
    (tmp_path / "nodes.yaml").write_text(NODES.replace("PARAMETER", parameter).replace("KEY", key))
    lines = refused(install(tmp_path, "eusc-de-east-1"))

    assert [line.split(": ")[:3:2] for line in lines] == [
        [f"{tmp_path}/nodes.yaml:5", "spec.amiSelectorTerms[0].ssmParameter"],
        [f"{tmp_path}/nodes.yaml:11", "spec.blockDeviceMappings[0].ebs.kmsKeyID"],
    ]
    assert all("arn:aws-eusc:" in line for line in lines)


def test_what_govcloud_and_china_lack_is_what_their_pages_list() -> None:
    def lacking(region: str) -> set[Feature]:
        return {feature for feature in Feature if gap(region, feature)}

    both = {Feature.MAPPING_TAGS, Feature.RECURSIVE_LOOP, Feature.SNAP_START}
    assert lacking("us-gov-west-1") == lacking("us-gov-east-1") == both | {Feature.SAVINGS_PLANS_API}
    assert lacking("cn-north-1") == lacking("cn-northwest-1") == both | {Feature.TRACING}
    assert lacking("eu-west-1") == lacking("us-east-1") == set()


def test_each_row_of_the_table_has_places_that_exist_and_a_source() -> None:
    partitions = {regions.partition_of(name) for name in ("us-gov-east-1", "cn-north-1", "us-iso-east-1")}
    partitions |= {regions.partition_of(name) for name in ("us-isob-east-1", "eu-isoe-west-1", "us-isof-south-1")}
    partitions |= {"aws-eusc"}
    for row in GAPS:
        assert row.source
        assert all(place in partitions or regions.exists(place) for place in row.places), row
    assert {row.feature for row in GAPS} == set(Feature)
    assert set(Feature) > set(LEFT_OUT)
