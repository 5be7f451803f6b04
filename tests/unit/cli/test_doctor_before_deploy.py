"""`shiplap doctor --before-deploy` on an account that is ready, and on the same with one thing wrong at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, SubnetSelectorTerm
from shiplap_cli.commands.doctor import check_results, doctor, prerequisites
from shiplap_cli.commands.doctor.check_results import CheckResult
from shiplap_cli.commands.doctor.prerequisites import NodeRole, PlannedCluster, PlannedInstall, read_planned_install
from shiplap_cli.main import run
from tests.commands import Shiplap
from tests.unit.cli.doctored_aws import CLUSTER, NOW, TO_INTERNET, TO_NAT, Answer, Aws, denied, healthy, missing

INSTALL = Path(__file__).parents[2] / "infra" / "install" / "shiplap.yaml"
ROLE = NodeRole("default", "path/nodes", "", "linux")
INSIDE = PlannedCluster(
    name="production",
    in_eks=True,
    access_entry=True,
    audit=False,
    kubeconfig_secret=False,
    zonal_shift=False,
    live_manifests=False,
    subnets=("subnet-1",),
    security_groups=("sg-functions",),
    node_roles=(ROLE,),
    node_classes=(),
)
PLAN = PlannedInstall(
    name="shiplap",
    region="eu-west-1",
    account="123456789012",
    clusters=(INSIDE,),
    volume_keys=(),
    spot=True,
    qualifier="hnb659fds",
    permissions_boundary="",
)
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ENDPOINTS = ("ec2", "eks", "sqs", "events", "ssm", "s3", "dynamodb")


def rule(**changes: Any) -> dict[str, Any]:
    """Return a rule of the ports and sources that a security group admits."""
    base = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "UserIdGroupPairs": [], "IpRanges": []}
    return base | changes


FROM_FUNCTIONS = rule(UserIdGroupPairs=[{"GroupId": "sg-functions"}])


def admitting(*rules: dict[str, Any]) -> dict[str, Answer]:
    groups = [{"GroupId": "sg-cluster", "IpPermissions": list(rules)}, {"GroupId": "sg-more"}]
    return {"ec2.describe_security_groups": {"SecurityGroups": groups}}


def ready() -> dict[str, Answer]:
    """An account in which the install can be deployed."""
    config = {**CLUSTER["resourcesVpcConfig"], "clusterSecurityGroupId": "sg-cluster", "securityGroupIds": ["sg-more"]}  # type: ignore[dict-item]
    caller = healthy()["sts.get_caller_identity"] | {"Account": "123456789012"}
    own = ("service-quotas.get_service_quota", "ec2.describe_instances", "ec2.describe_launch_templates")
    return {
        **{name: healthy()[name] for name in (*own, "lambda.get_account_settings")},
        **admitting(FROM_FUNCTIONS),
        "sts.get_caller_identity": caller,
        "ssm.get_parameter": {"Parameter": {"Value": "21"}},
        "events.list_rules": {"Rules": [{"Name": "one"}]},
        "ec2.get_ebs_encryption_by_default": {"EbsEncryptionByDefault": False},
        "iam.get_role": {"Role": {}},
        "ec2.describe_subnets": {"Subnets": [{"SubnetId": "subnet-1", "VpcId": "vpc-1", "CidrBlock": "10.0.1.0/24"}]},
        "ec2.describe_route_tables": {"RouteTables": [TO_NAT]},
        "ec2.describe_vpc_endpoints": {"VpcEndpoints": []},
        "eks.describe_cluster": {"cluster": CLUSTER | {"resourcesVpcConfig": config}},
        "eks.describe_access_entry": {"accessEntry": {"type": "EC2_LINUX"}},
        "iam.get_instance_profile": {"InstanceProfile": {"Roles": [{"Arn": "arn:aws:iam::1:role/held"}]}},
    }


@pytest.fixture
def aws() -> Aws:
    made = Aws()
    made.answers = ready()
    return made


def found(aws: Aws, plan: PlannedInstall = PLAN) -> list[CheckResult]:
    return list(check_results.run_checks(prerequisites.prerequisite_checks(aws.client, plan, NOW)))


def wrong(aws: Aws, plan: PlannedInstall = PLAN) -> list[CheckResult]:
    return [item for item in found(aws, plan) if item.verdict != "ok"]


def changed(**changes: Any) -> PlannedInstall:
    """The plan with its cluster changed."""
    return replace(PLAN, clusters=(replace(INSIDE, **changes),))


def test_an_account_that_is_ready_is_all_ok(aws: Aws) -> None:
    seen = found(aws)

    assert {item.verdict for item in seen} == {"ok"}
    assert {item.check for item in seen} == {
        "credentials",
        "clock",
        "bootstrap",
        "quotas",
        "volumes",
        "service-linked roles",
        "network",
        "cluster",
        "endpoint",
        "access",
        "ingress",
        "node role",
    }


def no_entity(operation: str) -> Exception:
    error = missing(operation)
    error.response["Error"]["Code"] = "NoSuchEntity"
    return error


def not_found(code: str) -> Exception:
    error = missing("any")
    error.response["Error"]["Code"] = code
    return error


ENCRYPTED = {
    "ec2.get_ebs_encryption_by_default": {"EbsEncryptionByDefault": True},
    "ec2.get_ebs_default_kms_key_id": {"KmsKeyId": KEY},
    "kms.describe_key": {"KeyMetadata": {"Arn": KEY, "KeyId": KEY.rpartition("/")[2], "KeyManager": "CUSTOMER"}},
}


@pytest.mark.parametrize(
    ("answers", "check", "verdict", "says", "mend"),
    [
        (
            {"sts.get_caller_identity": healthy()["sts.get_caller_identity"]},
            "credentials",
            "failed",
            "account 1, not of 123456789012",
            "`account`",
        ),
        (
            {"ssm.get_parameter": not_found("ParameterNotFound"), "ssm.get_parameters_by_path": {"Parameters": []}},
            "bootstrap",
            "failed",
            "not bootstrapped",
            "bootstrap",
        ),
        ({"ssm.get_parameter": {"Parameter": {"Value": "5"}}}, "bootstrap", "failed", "version 5, 6", "bootstrap"),
        (
            {"events.list_rules": {"Rules": [{"Name": str(number)} for number in range(95)]}},
            "quotas",
            "failed",
            "95 of 100 are used",
            "L-244521F2",
        ),
        (
            {"lambda.get_account_settings": {"AccountLimit": {"ConcurrentExecutions": 10}}},
            "quotas",
            "warning",
            "10 in the account",
            "L-B99A9384",
        ),
        (ENCRYPTED, "volumes", "failed", "shiplap.yaml does not name", f"volumeKeys: [{KEY}]"),
        (
            {"ec2.describe_route_tables": {"RouteTables": [TO_INTERNET]}},
            "network",
            "failed",
            "no endpoints for ec2, eks, sqs, events, ssm, s3, dynamodb",
            "make VPC endpoints",
        ),
        (
            {
                "ec2.describe_subnets": {
                    "Subnets": [
                        {"SubnetId": "a", "VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24"},
                        {"SubnetId": "b", "VpcId": "vpc-2", "CidrBlock": "10.1.0.0/24"},
                    ]
                }
            },
            "network",
            "failed",
            "several VPCs",
            "one VPC",
        ),
        (
            {"eks.describe_cluster": {"cluster": CLUSTER | {"accessConfig": {"authenticationMode": "CONFIG_MAP"}}}},
            "access",
            "failed",
            "CONFIG_MAP",
            "authenticationMode=API_AND_CONFIG_MAP",
        ),
        (
            admitting(),
            "ingress",
            "failed",
            "sg-cluster does not admit the functions' sg-functions",
            "--group-id sg-cluster --protocol tcp --port 443 --source-group sg-functions",
        ),
        (
            admitting(FROM_FUNCTIONS | {"FromPort": 80, "ToPort": 442}),
            "ingress",
            "failed",
            "443",
            "443",
        ),
        (admitting(rule(IpRanges=[{"CidrIp": "10.0.2.0/24"}])), "ingress", "failed", "443", "443"),
        (
            {"eks.describe_access_entry": {"accessEntry": {"type": "STANDARD"}}},
            "node role",
            "failed",
            "STANDARD, its nodes need EC2_LINUX",
            "--principal-arn arn:aws:iam::123456789012:role/path/nodes --type EC2_LINUX",
        ),
        ({"eks.describe_access_entry": missing("D")}, "node role", "warning", "aws-auth", "create-access-entry"),
    ],
)
def test_what_is_missing_is_found_with_what_to_do(
    aws: Aws, answers: dict[str, Answer], check: str, verdict: str, says: str, mend: str
) -> None:
    aws.answers |= answers
    if "eks.describe_cluster" in answers:
        aws.answers["eks.describe_cluster"]["cluster"]["resourcesVpcConfig"] = ready()["eks.describe_cluster"][
            "cluster"
        ]["resourcesVpcConfig"]
    seen = [item for item in wrong(aws) if item.check == check]

    assert [item.verdict for item in seen] == [verdict]
    assert says in seen[0].says
    assert mend in seen[0].fix
    assert "\n" not in seen[0].says + seen[0].fix
    assert {item.check for item in wrong(aws)} <= {check, "endpoint"}


@pytest.mark.parametrize(
    "rules",
    [
        [rule(IpProtocol="-1", UserIdGroupPairs=[{"GroupId": "sg-functions"}]) | {"FromPort": 0, "ToPort": 0}],
        [rule(FromPort=0, ToPort=65535, IpRanges=[{"CidrIp": "10.0.0.0/8"}])],
        [rule(IpRanges=[{"CidrIp": "10.0.1.0/25"}]), FROM_FUNCTIONS],
    ],
)
def test_any_rule_that_admits_the_functions_will_do(aws: Aws, rules: list[dict[str, Any]]) -> None:
    aws.answers |= admitting(*rules)

    assert wrong(aws) == []


@pytest.mark.parametrize(("groups", "told"), [(["sg-more"], "sg-more does not admit"), ([], "names no security group")])
def test_a_cluster_without_a_security_group_of_its_own(aws: Aws, groups: list[str], told: str) -> None:
    found = ready()["eks.describe_cluster"]["cluster"]
    del found["resourcesVpcConfig"]["clusterSecurityGroupId"]
    found["resourcesVpcConfig"]["securityGroupIds"] = groups
    aws.answers |= admitting() | {"eks.describe_cluster": {"cluster": found}}
    (item,) = wrong(aws)

    assert (item.check, item.verdict) == ("ingress", "failed" if groups else "unknown")
    assert told in item.says


def test_a_key_that_is_named_in_any_way_is_enough(aws: Aws) -> None:
    aws.answers |= ENCRYPTED
    for name in (KEY, KEY.rpartition("/")[2]):
        assert wrong(aws, replace(PLAN, volume_keys=(name,))) == []
    aws.answers["ec2.get_ebs_default_kms_key_id"] = {"KmsKeyId": "alias/aws/ebs"}
    assert wrong(aws) == []


def test_a_collector_with_a_secret_needs_a_way_to_both(aws: Aws) -> None:
    aws.answers["ec2.describe_route_tables"] = {"RouteTables": []}
    made = [{"ServiceName": f"com.amazonaws.eu-west-1.{name}"} for name in ENDPOINTS]
    aws.answers["ec2.describe_vpc_endpoints"] = {"VpcEndpoints": made}
    plan = replace(PLAN, collector="https://collector.example/v1/metrics", metrics_secret=True)

    secret, collector = wrong(aws, plan)

    assert (secret.verdict, secret.says) == ("failed", "no way out, and no endpoints for secretsmanager")
    assert collector.verdict == "warning"
    assert "no way out to https://collector.example/v1/metrics" in collector.says
    assert "NAT" in collector.fix


def test_a_collector_is_no_matter_where_there_is_a_way_out(aws: Aws) -> None:
    plan = replace(PLAN, collector="https://collector.example/v1/metrics", metrics_secret=True)
    assert wrong(aws, plan) == []


def test_roles_of_ec2_are_needed_for_what_is_launched(aws: Aws) -> None:
    aws.answers["iam.get_role"] = no_entity("GetRole")
    spot, fleet = wrong(aws)
    assert (spot.verdict, spot.subject) == ("failed", "AWSServiceRoleForEC2Spot")
    assert "spot.amazonaws.com" in spot.fix
    assert (fleet.verdict, fleet.subject) == ("warning", "AWSServiceRoleForEC2Fleet")
    without = replace(PLAN, spot=False)
    assert [item.subject for item in wrong(aws, without)] == ["AWSServiceRoleForEC2Fleet"]
    unread = replace(changed(live_manifests=True), spot=False)
    spot, fleet = wrong(aws, unread)
    assert (spot.verdict, spot.subject) == ("warning", "AWSServiceRoleForEC2Spot")
    assert "NodePools in production may allow spot" in spot.says


def ipv6(*blocks: str) -> dict[str, Answer]:
    """A cluster whose pods have IPv6 addresses; its subnet has blocks in these states."""
    cluster = ready()["eks.describe_cluster"]["cluster"] | {"kubernetesNetworkConfig": {"ipFamily": "ipv6"}}
    block = [{"Ipv6CidrBlock": "2001:db8::/64", "Ipv6CidrBlockState": {"State": state}} for state in blocks]
    subnet = ready()["ec2.describe_subnets"]["Subnets"][0]
    subnet |= {"AvailabilityZone": "eu-west-1a", "AvailableIpAddressCount": 9, "Ipv6CidrBlockAssociationSet": block}
    return {
        "eks.describe_cluster": {"cluster": cluster},
        "ec2.describe_subnets": {"Subnets": [subnet]},
        "iam.simulate_principal_policy": {"EvaluationResults": [{"EvalDecision": "allowed"}]},
    }


NODE_CLASS = EC2NodeClass(
    metadata=ObjectMeta("default"), spec=EC2NodeClassSpec(subnet_selector_terms=(SubnetSelectorTerm(id="subnet-1"),))
)


@pytest.mark.parametrize(
    ("states", "has"),
    [((), False), (("disassociated",), False), (("failed",), False), (("failed", "associated"), True)],
)
def test_nodes_of_an_ipv6_cluster_need_a_block_of_addresses(aws: Aws, states: tuple[str, ...], *, has: bool) -> None:
    aws.answers |= ipv6(*states)
    seen = [item for item in found(aws, changed(node_classes=(NODE_CLASS,))) if item.check == "IPv6"]

    assert [(item.subject, item.verdict) for item in seen] == [
        ("production/default", "ok" if has else "failed"),
        ("production/nodes", "ok"),
    ]
    assert has or "subnet-1 have no IPv6 addresses" in seen[0].says


def test_a_role_of_ones_own_that_may_not_assign_addresses_is_named(aws: Aws) -> None:
    asked: list[dict[str, Any]] = []

    def simulate(**request: Any) -> dict[str, Any]:
        asked.append(request)
        return {"EvaluationResults": [{"EvalDecision": "implicitDeny"}]}

    aws.answers |= ipv6("associated") | {"iam.simulate_principal_policy": simulate}
    (item,) = wrong(aws)

    assert (item.check, item.subject, item.verdict) == ("IPv6", "production/nodes", "warning")
    assert "ec2:AssignIpv6Addresses" in item.fix
    arn = "arn:aws:iam::123456789012:role/path/nodes"
    assert asked == [{"PolicySourceArn": arn, "ActionNames": ["ec2:AssignIpv6Addresses"]}]


def test_nothing_is_said_of_ipv6_where_pods_have_ipv4(aws: Aws) -> None:
    assert [item for item in found(aws, changed(node_classes=(NODE_CLASS,))) if item.check == "IPv6"] == []


def test_endpoints_are_asked_for_where_they_are_used(aws: Aws) -> None:
    aws.answers["ec2.describe_route_tables"] = {"RouteTables": [TO_INTERNET | {"RouteTableId": "rtb-1"}]}
    made = [{"ServiceName": f"com.amazonaws.eu-west-1.{name}"} for name in ENDPOINTS]
    aws.answers["ec2.describe_vpc_endpoints"] = {"VpcEndpoints": made}
    assert wrong(aws) == []
    (item,) = wrong(aws, changed(kubeconfig_secret=True, zonal_shift=True))
    assert item.says == "no way out, and no endpoints for secretsmanager, arc-zonal-shift"
    made[0]["PrivateDnsEnabled"] = False  # type: ignore[assignment]
    made[-1] |= {"VpcEndpointType": "Gateway", "RouteTableIds": ["rtb-2"]}  # type: ignore[dict-item]
    (item,) = wrong(aws)
    assert item.says == "no way out, and no endpoints for ec2, dynamodb"


def test_a_cluster_outside_of_eks_is_not_asked_for(aws: Aws) -> None:
    assert {item.check for item in found(aws, changed(in_eks=False))}.isdisjoint({"cluster", "ingress", "node role"})


def test_functions_outside_of_a_vpc_need_a_public_endpoint(aws: Aws) -> None:
    private = ready()["eks.describe_cluster"]["cluster"]
    private["resourcesVpcConfig"] |= {"endpointPublicAccess": False}
    aws.answers["eks.describe_cluster"] = {"cluster": private}
    (item,) = wrong(aws, changed(subnets=(), security_groups=()))

    assert (item.check, item.verdict) == ("endpoint", "failed")
    assert "`vpc`" in item.fix


def test_the_role_that_an_instance_profile_holds_is_looked_at(aws: Aws) -> None:
    asked: list[str] = []

    def entry(*, clusterName: str, principalArn: str) -> dict[str, Any]:  # noqa: N803 - EKS's names
        asked.append(principalArn)
        return {"accessEntry": {"type": "EC2_WINDOWS"}}

    aws.answers["eks.describe_access_entry"] = entry
    plan = changed(node_roles=(NodeRole("windows", "", "held", "windows"),))

    assert wrong(aws, plan) == []
    assert asked == ["arn:aws:iam::1:role/held"]


def test_a_quota_that_was_never_raised_is_the_default_of_aws(aws: Aws) -> None:
    unset = not_found("NoSuchResourceException")
    aws.answers["service-quotas.get_service_quota"] = unset
    aws.answers["service-quotas.get_aws_default_service_quota"] = {"Quota": {"Value": 2.0}}

    assert {item.says for item in wrong(aws)} == {"2 of 2", "1 of 2 are used, up to 10 more are needed"}


@pytest.mark.parametrize("operation", [*ready(), *ENCRYPTED])
def test_each_permission_that_is_missing_is_a_finding(aws: Aws, operation: str) -> None:
    service, _, name = operation.partition(".")
    action = f"{service}:{''.join(part.capitalize() for part in name.split('_'))}"
    plan = PLAN
    if operation in ENCRYPTED:
        aws.answers |= ENCRYPTED
    if operation == "iam.get_instance_profile":
        plan = changed(node_roles=(NodeRole("default", "", "held", "linux"),))
    checks = {item.check for item in found(aws, plan)}
    aws.answers[operation] = denied("X", action)

    refused = [item for item in found(aws, plan) if item.verdict == "unknown"]
    assert refused
    assert all(action in item.says and action in item.fix for item in refused)
    assert checks - {item.check for item in found(aws, plan)} <= {"clock", "endpoint", "access"}


def test_an_install_is_read_as_the_app_reads_it() -> None:
    plan = read_planned_install(INSTALL)

    assert (plan.region, plan.account) == ("eu-west-1", "")
    edge, production = plan.clusters
    assert (edge.name, edge.in_eks, production.in_eks) == ("edge", False, True)
    assert production.audit
    assert production.subnets == ("subnet-00000001", "subnet-00000002")
    assert production.node_roles == (), "the stack makes this one"
    assert edge.node_roles == (NodeRole("default", "edge-nodes", "", "linux"),)
    assert "alias/nodes" in plan.volume_keys
    assert not plan.spot
    assert (plan.name, plan.qualifier, plan.permissions_boundary) == ("shiplap", "hnb659fds", "")


def test_a_mistake_in_shiplap_yaml_is_told_before_anything_is_asked(tmp_path: Path, shiplap: Shiplap) -> None:
    path = tmp_path / "shiplap.yaml"
    path.write_text("region: nowhere\nclusters: []\n")
    with pytest.raises((InvalidManifests, InvalidInput)):
        read_planned_install(path)

    told = shiplap.errors("doctor", "--before-deploy", "--settings", str(path))
    assert any("shiplap.yaml:1: region" in line for line in told)
    assert any("shiplap.yaml:2: clusters" in line for line in told)


def test_the_command_looks_at_the_account_of_shiplap_yaml(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    regions: list[str] = []

    def clients(region: str = "") -> Any:
        regions.append(region)
        return aws.client

    monkeypatch.setattr(doctor, "clients", clients)
    monkeypatch.setattr(doctor.time, "time", lambda: NOW)
    code = run(["doctor", "--before-deploy", "--settings", str(INSTALL)])
    said = capsys.readouterr().out

    assert code == 1, said
    assert regions == ["eu-west-1"]
    assert "--source-group sg-00000001" in " ".join(said.split()), "the group of shiplap.yaml"


def test_a_folder_in_which_the_cdk_finds_no_app_is_named(tmp_path: Path) -> None:
    (result,) = prerequisites.app(tmp_path)
    assert (str(result.verdict), result.fix) == ("warning", "`shiplap init` writes it")
    (tmp_path / "cdk.json").write_text("{}")
    assert list(prerequisites.app(tmp_path)) == []
