"""`shiplap migrate convert --from-aws` against AWS's answers as moto gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from shiplap.aws import session
from shiplap_cli.commands.migrate import aws_groups
from shiplap_cli.main import run
from tests.commands import Shiplap

REGION = "us-east-1"
ROLE = "arn:aws:iam::123456789012:role/node"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    session.session.cache_clear()
    with mock_aws():
        yield
    session.session.cache_clear()


@pytest.fixture
def account(aws: None) -> str:
    ec2, eks = boto3.client("ec2", REGION), boto3.client("eks", REGION)
    subnets = [item["SubnetId"] for item in ec2.describe_subnets()["Subnets"][:2]]
    eks.create_cluster(name="prod", roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets})
    eks.create_nodegroup(
        clusterName="prod",
        nodegroupName="core",
        nodeRole=ROLE,
        subnets=subnets,
        instanceTypes=["m5.large"],
        scalingConfig={"minSize": 1, "maxSize": 3, "desiredSize": 2},
    )
    image = ec2.describe_images()["Images"][0]["ImageId"]
    template = ec2.create_launch_template(
        LaunchTemplateName="web", LaunchTemplateData={"ImageId": image, "InstanceType": "c5.large"}
    )["LaunchTemplate"]["LaunchTemplateId"]
    boto3.client("autoscaling", REGION).create_auto_scaling_group(
        AutoScalingGroupName="web",
        MinSize=0,
        MaxSize=5,
        LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
        VPCZoneIdentifier=",".join(subnets),
        Tags=[
            {"Key": "k8s.io/cluster-autoscaler/prod", "Value": "owned"},
            {"Key": "kubernetes.io/cluster/prod", "Value": "owned"},
        ],
    )
    return image


def migrated(shiplap: Shiplap) -> Any:
    return shiplap.json("migrate", "convert", "--from-aws", "--cluster", "prod", "--region", REGION, code=1)


def test_the_groups_of_a_cluster(account: str, shiplap: Shiplap) -> None:
    found = migrated(shiplap)
    pools = {item["metadata"]["name"]: item for item in found["manifests"] if item["kind"] == "NodePool"}
    assert sorted(pools) == ["core-shiplap", "web-shiplap"]
    types = {name: pool["spec"]["template"]["spec"]["requirements"][0]["values"] for name, pool in pools.items()}
    assert types == {"core-shiplap": ["m5.large"], "web-shiplap": ["c5.large"]}
    classes = {item["metadata"]["name"]: item for item in found["manifests"] if item["kind"] == "EC2NodeClass"}
    assert classes["web"]["spec"]["amiSelectorTerms"] == [{"id": account}]


def test_a_cluster_without_groups(aws: None, shiplap: Shiplap) -> None:
    subnets = [item["SubnetId"] for item in boto3.client("ec2", REGION).describe_subnets()["Subnets"][:2]]
    eks = boto3.client("eks", REGION)
    eks.create_cluster(name="prod", roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets})
    assert "has neither node groups nor" in shiplap.error(
        "migrate", "convert", "--from-aws", "--cluster", "prod", "--region", REGION
    )


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "ListNodegroups")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (refusal("ResourceNotFoundException"), "EKS knows no cluster 'prod'"),
        (refusal("AccessDeniedException"), "AWS refused ListNodegroups"),
        (EndpointConnectionError(endpoint_url="https://eks"), "AWS cannot be asked"),
    ],
)
def test_aws_refuses(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(service: str, region: str) -> Any:
        raise error

    monkeypatch.setattr(aws_groups, "aws_client", refuse)
    assert run(["migrate", "convert", "--from-aws", "--cluster", "prod", "--region", REGION]) == 2
    assert said in capsys.readouterr().err
