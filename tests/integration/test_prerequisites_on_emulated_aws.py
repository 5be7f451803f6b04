"""Prerequisites on an emulated account: each is broken, named in one line, and mended as the line says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT
from msgspec.structs import replace

from shiplap.aws import session
from shiplap.errors import InvalidManifests
from shiplap_cdk.install_document import read
from shiplap_cli.commands.doctor import prerequisites
from shiplap_cli.commands.doctor.check_results import Check, CheckResult, run_checks
from shiplap_cli.commands.doctor.prerequisites import PlannedInstall, planned_install_of

pytestmark = pytest.mark.thorough

REGION = "eu-west-1"
GROUP = "/aws/eks/{}/cluster"
NODES = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: shiplap-node-CLUSTER
  subnetSelectorTerms: [{tags: {nodes: "*"}}]
  securityGroupSelectorTerms: [{tags: {nodes: "*"}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
"""


class Account:
    """An account with two EKS clusters, `blue` and `green`, and all that an install of them needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.client = lambda service: boto3.client(service, REGION)
        self._subnets = [item["SubnetId"] for item in self.client("ec2").describe_subnets()["Subnets"]][:2]
        self.client("ec2").create_tags(Resources=self._subnets, Tags=[{"Key": "nodes", "Value": "yes"}])
        for name in ("blue", "green"):
            (folder / f"{name}.yaml").write_text(NODES.replace("CLUSTER", name))
            self.make(name)
        self.bootstrap("hnb659fds")
        for name in ("Spot", "Fleet"):
            self.make_role(name)

    def make_role(self, name: str) -> None:
        """A service-linked role of EC2; moto makes those under another name than AWS."""
        self.client("iam").create_role(RoleName=f"AWSServiceRoleForEC2{name}", AssumeRolePolicyDocument="{}")

    def make(self, cluster: str, *, logged: bool = True, family: str = "ipv4") -> None:
        setup = {"types": ["api", "audit"], "enabled": logged}
        self.client("eks").create_cluster(
            name=cluster,
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/control-plane",
            resourcesVpcConfig={"subnetIds": self._subnets},
            logging={"clusterLogging": [{"types": ["scheduler"], "enabled": True}, setup]},
            kubernetesNetworkConfig={"ipFamily": family},
        )
        if logged:
            self.client("logs").create_log_group(logGroupName=GROUP.format(cluster))

    def remake(self, cluster: str, **settings: Any) -> None:
        self.client("eks").delete_cluster(name=cluster)
        if self.client("logs").describe_log_groups(logGroupNamePrefix=GROUP.format(cluster))["logGroups"]:
            self.client("logs").delete_log_group(logGroupName=GROUP.format(cluster))
        self.make(cluster, **settings)

    def bootstrap(self, qualifier: str) -> None:
        name = f"/cdk-bootstrap/{qualifier}/version"
        self.client("ssm").put_parameter(Name=name, Value="21", Type="String")

    def subscribe(self, cluster: str, *names: str) -> None:
        for name in names:
            arn = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{name}"
            self.client("kinesis").create_stream(StreamName=name, ShardCount=1)
            self.client("logs").put_subscription_filter(
                logGroupName=GROUP.format(cluster), filterName=name, filterPattern="", destinationArn=arn, roleArn=arn
            )

    def add_ipv6(self) -> None:
        ec2 = self.client("ec2")
        for number, subnet in enumerate(self._subnets):
            ec2.associate_subnet_cidr_block(SubnetId=subnet, Ipv6CidrBlock=f"2001:db8:1234:{number:x}::/64")

    def plan(self, **fields: Any) -> PlannedInstall:
        """Return the install for which shiplap.yaml of both clusters asks, with `audit: true` in both."""
        clusters = [{"name": name, "manifests": f"{name}.yaml", "audit": True} for name in ("blue", "green")]
        path = self._folder / "shiplap.yaml"
        path.write_text(json.dumps({"region": REGION, "clusters": clusters, **fields}))
        return planned_install_of(read(path))


_LOOKED_AT = ("bootstrap", "boundary", "service-linked roles", "audit log", "IPv6")
"""Checks whose AWS moto emulates; the others have canned answers in tests/unit/cli."""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    session.session.cache_clear()
    with mock_aws():
        yield Account(tmp_path)
    session.session.cache_clear()


def found(account: Account, plan: PlannedInstall) -> list[CheckResult]:
    checks: list[Check] = [
        check for check in prerequisites.prerequisite_checks(account.client, plan, 0.0) if check.name in _LOOKED_AT
    ]
    return list(run_checks(checks))


def wrong(account: Account, plan: PlannedInstall | None = None) -> list[CheckResult]:
    results = [item for item in found(account, plan or account.plan()) if item.verdict != "ok"]
    assert all("\n" not in item.says + item.fix for item in results)
    return results


def test_an_account_that_is_ready_is_all_ok(account: Account) -> None:
    results = found(account, account.plan())

    assert {item.verdict for item in results} == {"ok"}
    assert [item.subject for item in results if item.check == "audit log"] == ["blue", "green"]


def test_audit_without_logs_of_the_control_plane_is_named_and_the_command_mends_it(account: Account) -> None:
    account.remake("green", logged=False)
    (item,) = wrong(account)

    assert (item.check, item.subject, item.verdict) == ("audit log", "green", "failed")
    words = shlex.split(item.fix.partition(", or")[0])
    assert words[:5] == ["aws", "eks", "update-cluster-config", "--name", "green"]
    account.client("eks").update_cluster_config(name="green", logging=json.loads(words[-1]))
    (item,) = wrong(account)
    assert (item.subject, item.says) == ("green", f"there is no log group {GROUP.format('green')} to subscribe to")
    account.client("logs").create_log_group(logGroupName=GROUP.format("green"))
    assert wrong(account) == []


def test_a_third_subscription_of_a_log_group_is_named_and_the_command_mends_it(account: Account) -> None:
    account.subscribe("blue", "siem", "archive")
    (item,) = wrong(account)

    assert (item.check, item.subject, item.verdict) == ("audit log", "blue", "failed")
    assert "the subscriptions archive, siem, and CloudWatch allows 2" in item.says
    named = re.match(r"aws logs delete-subscription-filter --log-group-name (\S+) --filter-name NAME", item.fix)
    assert named is not None
    account.client("logs").delete_subscription_filter(logGroupName=named[1], filterName="siem")
    assert wrong(account) == []


def test_the_subscription_of_the_install_itself_takes_no_room(account: Account) -> None:
    account.subscribe("blue", "siem", "shiplap")

    assert wrong(account) == []
    (item,) = wrong(account, replace(account.plan(), name="another"))
    assert item.subject == "blue"


def test_a_bootstrap_under_another_qualifier_is_named_and_both_remedies_mend_it(account: Account) -> None:
    account.client("ssm").delete_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    (item,) = wrong(account)
    assert (item.says, item.fix) == ("this account and Region are not bootstrapped", "npx aws-cdk bootstrap")

    account.bootstrap("corp")
    (item,) = wrong(account)
    assert item.says == "is bootstrapped under corp, and shiplap.yaml asks for hnb659fds"
    assert item.fix == "`bootstrapQualifier: corp` in shiplap.yaml, or npx aws-cdk bootstrap"
    assert wrong(account, account.plan(bootstrapQualifier="corp")) == []
    (item,) = wrong(account, account.plan(bootstrapQualifier="team"))
    assert item.fix.endswith("or npx aws-cdk bootstrap --qualifier team")
    account.bootstrap("hnb659fds")
    assert wrong(account) == []


def test_spot_with_manifests_of_the_cluster_needs_the_role(account: Account) -> None:
    account.client("iam").delete_role(RoleName="AWSServiceRoleForEC2Spot")
    assert wrong(account) == [], "the NodePools in files are for on-demand"

    live = account.plan(clusters=[{"name": "blue", "manifests": "cluster"}, {"name": "green", "manifests": "cluster"}])
    (item,) = wrong(account, live)
    assert (item.subject, item.verdict) == ("AWSServiceRoleForEC2Spot", "warning")
    assert "NodePools in blue, green may allow spot" in item.says
    assert item.fix == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    account.make_role("Spot")
    assert wrong(account, live) == []


def test_a_permissions_boundary_that_does_not_exist_is_named(account: Account) -> None:
    plan = account.plan(permissionsBoundary="team/developers")
    (item,) = wrong(account, plan)

    assert (item.check, item.verdict) == ("boundary", "failed")
    assert item.subject == f"arn:aws:iam::{ACCOUNT}:policy/team/developers"
    nothing = {"Effect": "Deny", "Action": "*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [nothing]})
    account.client("iam").create_policy(PolicyName="developers", Path="/team/", PolicyDocument=document)
    assert wrong(account, plan) == []


def test_nodes_of_an_ipv6_cluster_need_subnets_with_such_addresses(account: Account) -> None:
    account.remake("green", family="ipv6")
    (item,) = wrong(account)

    assert (item.check, item.subject, item.verdict) == ("IPv6", "green/default", "failed")
    assert item.says.count("subnet-") == 2
    assert item.fix.startswith("aws ec2 associate-subnet-cidr-block --subnet-id ")
    account.add_ipv6()
    assert wrong(account) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bootstrapQualifier", "elevenchars"),
        ("bootstrapQualifier", "no/slash"),
        ("permissionsBoundary", "arn:aws:iam::123456789012:role/nobody"),
        ("permissionsBoundary", "two words"),
        ("permissionsBoundary", "arn:aws-cn:iam::123456789012:policy/developers"),
    ],
)
def test_names_that_aws_cannot_have_are_refused_with_file_and_line(account: Account, field: str, value: str) -> None:
    with pytest.raises(InvalidManifests, match=rf"shiplap\.yaml:1: {field}: '{re.escape(value)}' "):
        account.plan(**{field: value})
