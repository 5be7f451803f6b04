"""`shiplap init` against AWS's answers as moto gives them, and what it writes for any surroundings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import jsonschema
import pytest
import yaml
from botocore.exceptions import ClientError, NoCredentialsError
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.eks.models import eks_backends
from msgspec.structs import replace

from shiplap.aws import session
from shiplap.manifests.files.loading import inspect_files
from shiplap_cdk.install_document import read
from shiplap_cli.commands.init import init as module
from shiplap_cli.commands.init.install_files import Choices, FirstInstall, first_install
from shiplap_cli.commands.init.surroundings import (
    ANYWHERE,
    ClusterSurroundings,
    NodeGroup,
    OtherProvisioners,
    VpcSubnet,
    look_around,
)
from shiplap_cli.inputs.manifest_warnings import manifest_warnings
from shiplap_cli.output import yaml_text
from shiplap_lab.catalogue import embedded
from tests.commands import Shiplap
from tests.thoroughness import draws

REGION = "eu-west-1"
ROLE = "arn:aws:iam::123456789012:role/node"
PRIVATE, PUBLIC = VpcSubnet("subnet-00000001", f"{REGION}a"), VpcSubnet("subnet-00000002", f"{REGION}b", is_public=True)
OPEN = ClusterSurroundings(
    region=REGION,
    cluster="prod",
    status="ACTIVE",
    authentication_mode="API",
    is_public=True,
    is_private=True,
    public_cidrs=(ANYWHERE,),
    cluster_subnets=(PRIVATE.id, PUBLIC.id),
    security_group="sg-00000001",
    is_group_tagged=False,
    subnets=(PRIVATE, PUBLIC),
    node_groups=(),
    others=OtherProvisioners(),
)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    session.session.cache_clear()
    with mock_aws():
        yield
    session.session.cache_clear()


def make_cluster(name: str = "prod") -> list[str]:
    """A cluster in the default VPC, whose subnets lead to an internet gateway; the first one made private."""
    ec2, eks = boto3.client("ec2", REGION), boto3.client("eks", REGION)
    subnets = [item["SubnetId"] for item in ec2.describe_subnets()["Subnets"]]
    vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    (main,) = [
        table
        for table in ec2.describe_route_tables()["RouteTables"]
        if any(link.get("Main") for link in table["Associations"])
    ]
    ec2.create_route(RouteTableId=main["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    inside = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=inside, SubnetId=subnets[0])
    eks.create_cluster(name=name, roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets})
    # What EKS answers and moto leaves out.
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    known = eks_backends[ACCOUNT_ID][REGION].clusters[name].resources_vpc_config
    known |= {"vpcId": vpc, "clusterSecurityGroupId": group, "endpointPublicAccess": True}
    eks.create_nodegroup(
        clusterName=name,
        nodegroupName="core",
        nodeRole=ROLE,
        subnets=subnets,
        amiType="BOTTLEROCKET_x86_64",
        scalingConfig={"minSize": 1, "maxSize": 3, "desiredSize": 2},
    )
    return subnets


def seen(name: str = "prod") -> ClusterSurroundings:
    return look_around(lambda service: boto3.client(service, REGION), REGION, name)


def test_from_the_wheel_it_writes_the_cdks_app_and_rbac_and_leaves_what_is_there(
    aws: None, shiplap: Shiplap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_installed", lambda: True)
    make_cluster()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rbac.yaml").write_text("ours")
    page = shiplap("init", "--region", REGION, "--to", tmp_path)

    assert json.loads((tmp_path / "cdk.json").read_text())["app"] == "python -m shiplap_cdk"
    assert (tmp_path / "docs" / "rbac.yaml").read_text() == "ours"
    (kustomization,) = yaml.safe_load_all((tmp_path / "docs" / "kustomization.yaml").read_text())
    assert all((tmp_path / "docs" / name).exists() for name in kustomization["resources"])
    assert f"wrote {tmp_path / 'cdk.json'}" in page
    assert f"wrote {tmp_path / 'docs' / 'rbac.yaml'}" not in page


@pytest.mark.parametrize("installed", [True, False])
def test_beside_a_shiplap_yaml_written_by_hand_it_writes_what_is_missing_and_asks_nobody(
    shiplap: Shiplap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(module, "is_installed", lambda: installed)
    monkeypatch.setattr(module, "look_around", None)
    by_hand = "region: eu-west-1\nclusters: [{name: prod, manifests: cluster, nodeRoles: [nodes]}]\n"
    (tmp_path / "shiplap.yaml").write_text(by_hand)
    told = shiplap.json("init", "--to", tmp_path)

    assert (tmp_path / "shiplap.yaml").read_text() == by_hand
    rbac = {f"docs/rbac{name}.yaml" for name in ("", "-cluster-manifests", "-deletion-costs", "-rollouts")}
    names = {"cdk.json", "docs/kustomization.yaml", *rbac}
    expected = {"shiplap.schema.json"} | (names if installed else set())
    assert set(told["files"]) == {str(tmp_path / name) for name in expected}
    assert all(Path(name).exists() for name in told["files"])
    assert told["surroundings"] is None
    assert shiplap("init", "--to", tmp_path).splitlines()[:2] == ["shiplap.yaml is there and stays as it is", "next:"]
    (tmp_path / "shiplap.schema.json").write_text("of an earlier version")
    assert shiplap.json("init", "--to", tmp_path)["files"] == [str(tmp_path / "shiplap.schema.json")]


def test_manifests_that_a_shiplap_yaml_names_and_that_are_missing_are_written_as_examples(
    shiplap: Shiplap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "look_around", None)
    (tmp_path / "own").mkdir()
    own = "apiVersion: karpenter.sh/v1\nkind: NodePool\n"
    (tmp_path / "own" / "pool.yaml").write_text(own)
    names = {"prod": "pools", "twin": "pools", "staging": "pools/staging.yaml", "live": "cluster"}
    written = [{"name": name, "manifests": path} for name, path in names.items()]
    (tmp_path / "shiplap.yaml").write_text(yaml.safe_dump({"region": REGION, "clusters": written}))
    told = shiplap.json("init", "--to", tmp_path, "--capacity-types", "spot", "--cpu-limit", "7")

    examples = [str(tmp_path / "pools" / name) for name in ("nodes.yaml", "staging.yaml")]
    assert told["files"] == [*examples, str(tmp_path / "shiplap.schema.json")]
    assert [remark.partition(",")[0] for remark in told["remarks"]] == [
        "pools/nodes.yaml is an example for prod",
        "pools/staging.yaml is an example for staging",
    ]
    for example, role in zip(examples, ("shiplap-node-prod", "shiplap-node-staging"), strict=True):
        node_class, pool = yaml.safe_load_all(Path(example).read_text())
        assert node_class["spec"]["role"] == role
        assert pool["spec"]["limits"] == {"cpu": "7"}
    assert (tmp_path / "own" / "pool.yaml").read_text() == own


def test_a_pattern_for_manifests_is_no_place_for_examples(shiplap: Shiplap, tmp_path: Path) -> None:
    (tmp_path / "shiplap.yaml").write_text("region: eu-west-1\nclusters: [{name: a, manifests: 'pools/*.yaml'}]\n")
    assert "patterns are not expanded" in shiplap.error("init", "--to", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["shiplap.yaml"]


def test_a_mistake_in_the_shiplap_yaml_that_is_there_is_told_and_nothing_is_written(
    shiplap: Shiplap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_installed", lambda: True)
    (tmp_path / "shiplap.yaml").write_text("region: eu-west-9\nclusters: [{name: a, manifests: cluster}]\n")
    assert "shiplap.yaml:1: region: 'eu-west-9' is not a Region" in shiplap.error("init", "--to", tmp_path)
    assert not (tmp_path / "cdk.json").exists()


@pytest.mark.parametrize(
    ("options", "vpc", "selected", "architectures"),
    [
        ((), None, {"tags": {"karpenter.sh/discovery": "prod"}}, ["amd64"]),
        (
            (
                "--endpoint",
                "private",
                "--subnets",
                "subnet-0000000b,subnet-0000000a",
                "--security-group",
                "sg-0000000a",
            ),
            {"subnets": ["subnet-0000000a", "subnet-0000000b"], "securityGroups": ["sg-0000000a"]},
            {"id": "subnet-0000000a"},
            ["amd64"],
        ),
        (
            ("--subnets", "subnet-0000000a", "--arch", "arm64,amd64"),
            None,
            {"id": "subnet-0000000a"},
            ["amd64", "arm64"],
        ),
    ],
)
def test_without_credentials_options_tell_about_the_cluster(
    shiplap: Shiplap,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    vpc: dict[str, Any] | None,
    selected: dict[str, Any],
    architectures: list[str],
) -> None:
    monkeypatch.setattr(module, "look_around", None)
    page = shiplap("init", "--no-aws", "--cluster", "prod", "--region", REGION, "--to", tmp_path, *options)

    (cluster,) = yaml.safe_load((tmp_path / "shiplap.yaml").read_text())["clusters"]
    assert cluster.get("vpc") == vpc
    node_class, pool = yaml.safe_load_all((tmp_path / "manifests/prod/nodes.yaml").read_text())
    assert node_class["spec"]["subnetSelectorTerms"][0] == selected
    rules = {item["key"]: item["values"] for item in pool["spec"]["template"]["spec"]["requirements"]}
    assert rules["kubernetes.io/arch"] == architectures
    assert page.startswith("prod in eu-west-1, as told\n")
    assert "note: AWS was not asked" in page
    assert ("nodes go into subnets with the tag karpenter.sh/discovery=prod" in page) == (not options)
    assert read(tmp_path / "shiplap.yaml")
    shiplap("validate", "--strict", tmp_path / "manifests")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--no-aws --region eu-west-1", "--cluster: is missing"),
        ("--no-aws --region eu-west-1 --cluster a/b", "--cluster: 'a/b' is no name of an EKS cluster"),
        ("--no-aws --cluster a", "--region: is missing"),
        (
            "--no-aws --cluster a --region eu-west-9",
            "--region: 'eu-west-9' is not a Region; the nearest are eu-west-1,",
        ),
        ("--no-aws --cluster a --region mars", "--region: 'mars' is not a Region"),
        ("--no-aws --cluster a --region eu-west-1 --endpoint private", "--subnets: is missing"),
        (
            "--no-aws --cluster a --region eu-west-1 --endpoint private --subnets subnet-00000001",
            "--security-group: is missing",
        ),
        ("--no-aws --cluster a --region eu-west-1 --subnets sg-1", "--subnets: 'sg-1' is no id such as subnet-0"),
        (
            "--no-aws --cluster a --region eu-west-1 --security-group sg-00000001,sg-00000002",
            "--security-group: names several",
        ),
        ("--no-aws --cluster a --region eu-west-1 --arch x86", "--arch: 'x86' is neither amd64 nor arm64"),
        ("--no-aws --cluster a --region eu-west-1 --arch ,", "--arch: names nothing"),
        ("--cluster a --region eu-west-1 --subnets subnet-00000001", "--subnets: is asked of AWS: give --no-aws"),
        ("--endpoint private", "--endpoint: is asked of AWS"),
        ("--arch arm64", "--arch: is asked of AWS"),
    ],
)
def test_options_that_tell_nothing_are_refused_and_nothing_is_written(
    shiplap: Shiplap, tmp_path: Path, options: str, said: str
) -> None:
    assert said in shiplap.error("init", "--to", tmp_path, *options.split())
    assert not list(tmp_path.iterdir())


def test_it_writes_what_fits_the_only_cluster(aws: None, shiplap: Shiplap, tmp_path: Path) -> None:
    subnets = make_cluster()
    page = shiplap("init", "--region", REGION, "--to", tmp_path)
    assert f"wrote {tmp_path / 'shiplap.yaml'}" in page
    assert page.splitlines()[-4:] == [
        "  npx aws-cdk bootstrap    # once per account and Region",
        "  shiplap doctor --before-deploy",
        "  npx aws-cdk deploy",
        "  kubectl apply -f docs/rbac.yaml",
    ]
    install = read(tmp_path / "shiplap.yaml")
    assert [cluster.name for cluster in install.document.clusters] == ["prod"]
    first, *_ = (tmp_path / "shiplap.yaml").read_text().splitlines()
    schema = json.loads((tmp_path / first.removeprefix("# yaml-language-server: $schema=./")).read_text())
    jsonschema.validate(yaml.safe_load((tmp_path / "shiplap.yaml").read_text()), schema)
    shiplap("validate", "--strict", tmp_path / "manifests")
    node_class, pool = yaml.safe_load_all((tmp_path / "manifests/prod/nodes.yaml").read_text())
    assert node_class["spec"]["amiSelectorTerms"] == [{"alias": "bottlerocket@latest"}]
    assert node_class["spec"]["subnetSelectorTerms"] == [{"id": subnets[0]}], "the private one"
    assert pool["spec"]["limits"] == {"cpu": "100"}


def test_networks_and_node_groups_are_seen(aws: None) -> None:
    subnets = make_cluster()
    found = seen()
    assert {subnet.id: subnet.is_public for subnet in found.subnets} == {name: name != subnets[0] for name in subnets}
    assert [(group.name, group.ami_type) for group in found.node_groups] == [("core", "BOTTLEROCKET_x86_64")]
    assert found.others == OtherProvisioners()


def test_other_provisioners_are_seen_by_their_tags(aws: None) -> None:
    subnets = make_cluster()
    ec2 = boto3.client("ec2", REGION)
    image = ec2.describe_images()["Images"][0]["ImageId"]
    tags = [{"Key": "karpenter.sh/nodepool", "Value": "a"}, {"Key": "eks:eks-cluster-name", "Value": "prod"}]
    ec2.run_instances(
        ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
    )
    template = ec2.create_launch_template(LaunchTemplateName="web", LaunchTemplateData={"ImageId": image})
    boto3.client("autoscaling", REGION).create_auto_scaling_group(
        AutoScalingGroupName="web",
        MinSize=0,
        MaxSize=5,
        LaunchTemplate={"LaunchTemplateId": template["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"},
        VPCZoneIdentifier=subnets[0],
        Tags=[{"Key": "k8s.io/cluster-autoscaler/prod", "Value": "owned"}],
    )
    assert seen().others == OtherProvisioners(karpenter=True, cluster_autoscaler=True)
    boto3.client("eks", REGION).create_cluster(name="other", roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets})
    assert seen("other").others == OtherProvisioners()


def test_tagged_networks_are_selected_by_their_tag(aws: None) -> None:
    subnets = make_cluster()
    ec2 = boto3.client("ec2", REGION)
    groups = [group["GroupId"] for group in ec2.describe_security_groups()["SecurityGroups"]]
    ec2.create_tags(Resources=[*subnets[:2], *groups[:1]], Tags=[{"Key": "karpenter.sh/discovery", "Value": "prod"}])
    spec = documents(first_install(seen(), Choices()))["EC2NodeClass"]["spec"]
    tagged = [{"tags": {"karpenter.sh/discovery": "prod"}}]
    assert spec["subnetSelectorTerms"] == spec["securityGroupSelectorTerms"] == tagged


def test_nothing_is_written_over_unless_forced(aws: None, shiplap: Shiplap, tmp_path: Path) -> None:
    make_cluster()
    (tmp_path / "shiplap.yaml").write_text("mine")
    told = shiplap.error("init", "--region", REGION, "--to", tmp_path)
    assert "shiplap.yaml: is there already" in told
    assert (tmp_path / "shiplap.yaml").read_text() == "mine"
    assert not (tmp_path / "manifests").exists()
    shiplap("init", "--region", REGION, "--to", tmp_path, "--force")
    assert read(tmp_path / "shiplap.yaml")


def test_of_several_clusters_one_must_be_named(aws: None, shiplap: Shiplap, tmp_path: Path) -> None:
    subnets = make_cluster()
    boto3.client("eks", REGION).create_cluster(name="test", roleArn=ROLE, resourcesVpcConfig={"subnetIds": subnets})
    assert "--cluster: name one of prod, test" in shiplap.error("init", "--region", REGION, "--to", tmp_path)
    found = shiplap.json("init", "--region", REGION, "--cluster", "test", "--to", tmp_path)
    assert found["surroundings"]["cluster"] == "test"


def test_what_cannot_be_asked_is_said(aws: None, shiplap: Shiplap, tmp_path: Path, monkeypatch: Any) -> None:
    assert "--region" in shiplap.error("init", "--to", tmp_path)
    assert f"there is no EKS cluster in {REGION}" in shiplap.error("init", "--region", REGION, "--to", tmp_path)
    assert "describe EKS cluster none" in shiplap.error("init", "--region", REGION, "--cluster", "none")
    for error, said in (
        (NoCredentialsError(), "credentials"),
        (ClientError({"Error": {"Code": "AccessDeniedException", "Message": "eks:ListClusters"}}, "x"), "eks:List"),
    ):

        def refuse(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr("botocore.client.BaseClient._make_api_call", refuse)
            assert said in shiplap.error("init", "--region", REGION, "--to", tmp_path)


@pytest.mark.parametrize(("given", "said"), [("cheap", "'cheap' is neither"), (" , ", "names nothing")])
def test_odd_capacity_types_are_refused(shiplap: Shiplap, given: str, said: str) -> None:
    assert said in shiplap.error("init", "--capacity-types", given)


def test_on_a_terminal_the_cluster_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(module.typer, "prompt", lambda *_, **__: "b")
    assert module._chosen(["a", "b"], REGION) == "b"
    monkeypatch.setattr(module.typer, "prompt", lambda *_, **__: "c")
    with pytest.raises(module.InvalidInput, match="there is no EKS cluster 'c'"):
        module._chosen(["a", "b"], REGION)


# What is written


def documents(made: FirstInstall) -> dict[str, Any]:
    """The documents by kind; that of shiplap.yaml is its cluster."""
    found: dict[str, Any] = {str(item["kind"]): item for file in made.files[1:] for item in file.documents}
    return {**found, "cluster": made.files[0].documents[0]["clusters"][0]}


def test_an_open_endpoint_needs_no_network() -> None:
    made = first_install(OPEN, Choices())
    assert documents(made)["cluster"] == {"name": "prod", "manifests": "manifests/prod"}
    assert made.remarks == ()


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"is_public": False}, "the endpoint is private"),
        ({"public_cidrs": ("10.0.0.0/8",)}, "admits 10.0.0.0/8 only"),
        ({"public_cidrs": ("10.0.0.0/8",), "is_private": False}, "endpointPrivateAccess=true"),
        ({"is_public": False, "subnets": (PUBLIC,)}, "no private subnet"),
    ],
)
def test_a_closed_endpoint_is_reached_from_private_subnets(changes: dict[str, Any], remark: str) -> None:
    made = first_install(replace(OPEN, **changes), Choices())
    subnets = [PUBLIC.id] if "subnets" in changes else [PRIVATE.id]
    assert documents(made)["cluster"]["vpc"] == {"subnets": subnets, "securityGroups": ["sg-00000001"]}
    assert any(remark in said for said in made.remarks)


@pytest.mark.parametrize(
    ("found", "choices", "remark"),
    [
        (replace(OPEN, authentication_mode="CONFIG_MAP"), Choices(), "authenticationMode=API_AND_CONFIG_MAP"),
        (replace(OPEN, status="CREATING"), Choices(), "is CREATING"),
        (OPEN, Choices(node_role="mine"), "role mine must exist"),
        (OPEN, Choices(capacity_types=("on-demand", "spot")), "spot.amazonaws.com"),
        (replace(OPEN, is_ipv6=True), Choices(), f"nodes would be in {PRIVATE.id}, which have none"),
    ],
)
def test_what_is_to_be_known_is_said(found: ClusterSurroundings, choices: Choices, remark: str) -> None:
    (said,) = first_install(found, choices).remarks
    assert remark in said


@pytest.mark.parametrize(
    ("others", "beside", "name"),
    [
        (OtherProvisioners(karpenter=True), False, "Karpenter"),
        (OtherProvisioners(cluster_autoscaler=True), False, "Cluster Autoscaler"),
        (OtherProvisioners(auto_mode=True), False, "EKS Auto Mode"),
        (OtherProvisioners(), True, "another provisioner"),
    ],
)
def test_beside_another_provisioner_only_chosen_pods_are_taken(
    others: OtherProvisioners, beside: bool, name: str
) -> None:
    made = first_install(replace(OPEN, others=others), Choices(is_beside_another=beside))
    found = documents(made)
    assert found["cluster"]["claimRules"] == [{"tolerates": "shiplap.dev/migration"}]
    (taint,) = found["NodePool"]["spec"]["template"]["spec"]["taints"]
    assert taint["key"] == "shiplap.dev/migration"
    (remark,) = made.remarks
    assert remark.startswith(f"{name} launches nodes")


@pytest.mark.parametrize(
    ("kinds", "architectures", "alias"),
    [
        ((), ["amd64"], "al2023@latest"),
        (("AL2023_ARM_64_STANDARD",), ["arm64"], "al2023@latest"),
        (("BOTTLEROCKET_ARM_64", "BOTTLEROCKET_x86_64"), ["amd64", "arm64"], "bottlerocket@latest"),
        (("BOTTLEROCKET_x86_64", "AL2_x86_64"), ["amd64"], "al2023@latest"),
        (("CUSTOM",), ["amd64"], "al2023@latest"),
    ],
)
def test_nodes_are_like_those_of_the_node_groups(kinds: tuple[str, ...], architectures: list[str], alias: str) -> None:
    groups = tuple(NodeGroup(f"g{number}", kind, ()) for number, kind in enumerate(kinds))
    found = documents(first_install(replace(OPEN, node_groups=groups), Choices()))
    rules = {item["key"]: item["values"] for item in found["NodePool"]["spec"]["template"]["spec"]["requirements"]}
    assert rules["kubernetes.io/arch"] == architectures
    assert found["EC2NodeClass"]["spec"]["amiSelectorTerms"] == [{"alias": alias}]


def test_nodes_of_an_ipv6_cluster_are_put_into_subnets_with_such_addresses() -> None:
    other = VpcSubnet("subnet-00000003", f"{REGION}c", has_ipv6=True)
    groups = (NodeGroup("g", "AL2023_x86_64_STANDARD", (PRIVATE.id, other.id)),)
    cluster = replace(OPEN, subnets=(PRIVATE, PUBLIC, other), node_groups=groups)
    for is_ipv6, subnets in ((True, [other.id]), (False, [PRIVATE.id, other.id])):
        made = first_install(replace(cluster, is_ipv6=is_ipv6), Choices())
        assert documents(made)["EC2NodeClass"]["spec"]["subnetSelectorTerms"] == [{"id": name} for name in subnets]
        assert not any("IPv6" in remark for remark in made.remarks)
        told = first_install(replace(cluster, is_ipv6=is_ipv6), Choices(node_role="mine")).remarks
        assert any("mine must allow ec2:AssignIpv6Addresses" in remark for remark in told) == is_ipv6


def test_ipv6_of_cluster_and_subnets_is_seen(aws: None) -> None:
    make_cluster()
    ec2 = boto3.client("ec2", REGION)
    names = [item["SubnetId"] for item in ec2.describe_subnets()["Subnets"]]
    ec2.associate_subnet_cidr_block(SubnetId=names[0], Ipv6CidrBlock="2001:db8:1234::/64")
    assert not look_around(lambda service: boto3.client(service, REGION), REGION, "prod").is_ipv6

    eks_backends[ACCOUNT_ID][REGION].clusters["prod"].kubernetes_network_config = {"ipFamily": "ipv6"}
    found = look_around(lambda service: boto3.client(service, REGION), REGION, "prod")
    assert found.is_ipv6
    assert [subnet.id for subnet in found.subnets if subnet.has_ipv6] == [names[0]]


SURROUNDINGS = st.builds(
    ClusterSurroundings,
    region=st.sampled_from([REGION, "us-gov-west-1", "cn-north-1"]),
    cluster=st.from_regex(r"\A[0-9A-Za-z][0-9A-Za-z_-]{0,40}\Z"),
    status=st.sampled_from(["ACTIVE", "UPDATING"]),
    authentication_mode=st.sampled_from(["API", "CONFIG_MAP", "API_AND_CONFIG_MAP", ""]),
    is_public=st.booleans(),
    is_private=st.booleans(),
    public_cidrs=st.sampled_from([(ANYWHERE,), ("10.0.0.0/8",)]),
    cluster_subnets=st.sampled_from([(), (PRIVATE.id,), (PUBLIC.id, PRIVATE.id)]),
    security_group=st.just("sg-00000001"),
    is_group_tagged=st.booleans(),
    subnets=st.lists(
        st.builds(
            VpcSubnet,
            st.integers(1, 40).map(lambda number: f"subnet-{number:08x}"),
            st.just(f"{REGION}a"),
            is_public=st.booleans(),
            is_tagged=st.booleans(),
            has_ipv6=st.booleans(),
        ),
        min_size=1,
        max_size=30,
        unique_by=lambda subnet: subnet.id,
    ).map(lambda found: tuple(sorted(found))),
    node_groups=st.lists(
        st.builds(
            NodeGroup, st.just("g"), st.sampled_from(["AL2_x86_64", "AL2023_ARM_64_STANDARD", "CUSTOM"]), st.just(())
        ),
        max_size=2,
    ).map(tuple),
    others=st.builds(OtherProvisioners, st.booleans(), st.booleans(), st.booleans()),
    is_ipv6=st.booleans(),
)
CHOICES = st.builds(
    Choices,
    capacity_types=st.sampled_from([("on-demand",), ("spot",), ("on-demand", "spot")]),
    node_role=st.sampled_from(["", "mine"]),
    cpu_limit=st.integers(1, 10**6),
    is_beside_another=st.booleans(),
)


@settings(deadline=None, max_examples=draws(60), derandomize=True)
@given(SURROUNDINGS, CHOICES)
def test_whatever_is_found_what_is_written_is_valid_without_a_warning(
    found: ClusterSurroundings, choices: Choices
) -> None:
    made = first_install(found, choices)
    with TemporaryDirectory() as folder:
        module._write(Path(folder), made.files, force=False)
        install = read(Path(folder) / "shiplap.yaml")
        assert [cluster.name for cluster in install.document.clusters] == [found.cluster]
        report = inspect_files([Path(folder) / "manifests"])
        assert report.problems == ()
        assert manifest_warnings(report.sound, embedded.load()) == []
    assert yaml_text(made.files[0].documents).startswith("region: ")
