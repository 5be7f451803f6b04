"""The Compute adapter beyond its contract: templates, tags, user data, selectors and every kind of refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from shiplap.aws.eks import control_plane
from shiplap.errors import AwsError, AwsThrottled, NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.kubernetes.objects import ObjectMeta, Taint
from shiplap.manifests.custom_resources import (
    AmiSelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
    Manifests,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import FleetOverride, FleetRequest, FleetResult
from shiplap.settings import ClusterSettings
from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.control import EmulatedImage, EmulatedInstance
from tests.builders.claims import node_claim
from tests.integration.contracts.emulated_ec2 import REGION, VERSION, ZONES, Region, emulated_region

ANY = {"karpenter.sh/discovery": "*"}
SPEC = EC2NodeClassSpec(
    subnet_selector_terms=(SubnetSelectorTerm(tags=ANY),),
    security_group_selector_terms=(SecurityGroupSelectorTerm(tags=ANY),),
    ami_selector_terms=(AmiSelectorTerm(alias="al2023@latest"),),
    role="path/node-role",
)
GPU = "karpenter.k8s.aws/instance-gpu-count"
ACCELERATOR = "karpenter.k8s.aws/instance-accelerator-count"


@pytest.fixture(scope="module")
def running() -> Iterator[Region]:
    with emulated_region() as region:
        yield region


class Ground:
    def __init__(self, region: Region) -> None:
        region.empty()
        self.region = region
        self.control = region.control
        self.network = region.seed("demo")
        self.compute = region.compute()

    def node_class(self, **changes: Any) -> EC2NodeClass:
        return EC2NodeClass(ObjectMeta(name="default"), msgspec.structs.replace(SPEC, **changes))

    def request(
        self,
        claim: str = "default-1",
        *,
        node_class: EC2NodeClass | None = None,
        pool: str = "default",
        beside: tuple[str, ...] = (),
        offerings: tuple[tuple[str, str, int], ...] = (("m5.large", ZONES[0], 29),),
        **changes: Any,
    ) -> FleetRequest:
        node_class = node_class or self.node_class()
        resolved = self.compute.resolve(node_class)
        ami = next(ami.id for ami in resolved.amis if standard(ami, "amd64"))
        wanted = FleetRequest(
            claims=tuple(
                node_claim(
                    cluster="demo",
                    name=name,
                    node_pool=pool,
                    node_class="default",
                    labels={"team": "a"},
                    taints=(Taint("dedicated", "NoSchedule", "batch"),),
                )
                for name in (claim, *beside)
            ),
            node_class=node_class,
            resolved=resolved,
            capacity_type="on-demand",
            overrides=tuple(FleetOverride(0.1, name, zone, ami, pods, f"h{pods}") for name, zone, pods in offerings),
            token=f"token-{claim}",
        )
        return msgspec.structs.replace(wanted, **changes)

    def launch(self, claim: str = "default-1", **options: Any) -> FleetResult:
        return self.compute.launch(self.request(claim, **options))

    def instances(self) -> tuple[EmulatedInstance, ...]:
        return self.control.instances()

    def calls(self, action: str) -> int:
        return self.control.calls().get(action, 0)


@pytest.fixture
def ground(running: Region) -> Ground:
    return Ground(running)


def standard(ami: Ami, arch: str) -> bool:
    wanted = {("kubernetes.io/arch", "In", (arch,)), (ACCELERATOR, "DoesNotExist", ()), (GPU, "DoesNotExist", ())}
    return set(ami.requirements) == wanted


def node_config(user_data: str) -> dict[str, Any]:
    """The NodeConfig in a MIME document."""
    body = user_data.partition("application/node.eks.aws\n\n")[2].partition("\n--")[0]
    return dict(json.loads(body))


def test_claims_of_a_pool_share_a_launch_template(ground: Ground) -> None:
    for claim in ("a", "b", "c"):
        assert ground.launch(claim).instance is not None
    assert ground.calls("CreateLaunchTemplate") == 1
    assert ground.launch("d", pool="other").instance is not None
    assert ground.calls("CreateLaunchTemplate") == 2


def test_another_process_reuses_templates_by_name(ground: Ground) -> None:
    ground.launch("a")
    ground.compute = ground.region.compute()
    ground.launch("b")
    assert ground.calls("CreateLaunchTemplate") == 1


def test_a_template_made_by_another_function_meanwhile_is_used(ground: Ground) -> None:
    # As if the other function's request came just before: the template is there, and ours is told so.
    ground.control.fault("CreateLaunchTemplate", "InvalidLaunchTemplateName.AlreadyExistsException", after=True)
    assert ground.launch().instance is not None
    [template] = ground.region.client("ec2").describe_launch_templates()["LaunchTemplates"]
    assert template["LaunchTemplateName"].startswith("shiplap/demo/")


def test_deleted_templates_are_made_again(ground: Ground) -> None:
    ground.launch("a")
    ec2 = ground.region.client("ec2")
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    assert ground.launch("b").instance is not None


def test_templates_of_another_install_are_its_own(ground: Ground) -> None:
    ground.launch("a")
    theirs = ground.region.compute(install="second")
    theirs.launch(ground.request("b"))
    assert ground.calls("CreateLaunchTemplate") == 2
    for item in ground.instances():
        ground.region.client("ec2").terminate_instances(InstanceIds=[item.id])
    ground.control.advance(25 * 3600)
    assert ground.compute.sweep_templates("demo") == 1
    [left] = ground.region.client("ec2").describe_launch_templates()["LaunchTemplates"]
    assert {"Key": "shiplap.dev/install", "Value": "second"} in left["Tags"]
    assert theirs.sweep_templates("demo") == 1


def test_each_number_of_pods_has_its_own_user_data(ground: Ground) -> None:
    ground.control.capacity("m5.large", available=0)
    result = ground.launch(offerings=(("m5.large", ZONES[0], 29), ("m5.xlarge", ZONES[0], 58)))
    assert result.instance is not None
    assert result.instance.instance_type == "m5.xlarge"
    assert ground.calls("CreateLaunchTemplate") == 2
    [instance] = ground.instances()
    assert node_config(instance.user_data)["spec"]["kubelet"]["config"]["maxPods"] == 58


def test_instances_carry_tags_labels_taints_and_the_profile(ground: Ground) -> None:
    ground.launch(node_class=ground.node_class(tags={"owner": "me", "shiplap.dev/nodepool": "mine"}))
    [instance] = ground.instances()
    assert instance.instance_profile == "shiplap-demo-nodes"
    wanted = {
        "Name": "default-1",
        "kubernetes.io/cluster/demo": "owned",
        "shiplap.dev/cluster": "demo",
        "shiplap.dev/ec2nodeclass": "default",
        "shiplap.dev/install": "shiplap",
        "shiplap.dev/launch": "token-default-1",
        "shiplap.dev/nodeclaim": "default-1",
        "shiplap.dev/nodepool": "default",
        "owner": "me",
    }
    assert {key: value for key, value in instance.tags.items() if not key.startswith("aws:")} == wanted
    spec = node_config(instance.user_data)["spec"]
    assert spec["cluster"]["name"] == "demo"
    assert "team=a" in spec["kubelet"]["flags"][0]
    taints = spec["kubelet"]["config"]["registerWithTaints"]
    assert {"key": "karpenter.sh/unregistered", "effect": "NoExecute"} in taints
    assert {"key": "dedicated", "value": "batch", "effect": "NoSchedule"} in taints


def test_what_a_launch_answers_is_what_ec2_describes_later(ground: Ground) -> None:
    request = ground.request()
    (launched,) = ground.compute.launch(request).instances
    described = ground.compute.instance("demo", launched.id)
    assert described is not None
    assert launched.subnet in {subnet.id for subnet in request.resolved.subnets}
    assert (launched.subnet, launched.security_groups) == (described.subnet, described.security_groups)
    assert launched.security_groups == request.resolved.selection.security_groups


def test_nothing_looks_like_karpenters(ground: Ground) -> None:
    """Its garbage collector ends instances with these tags that have no NodeClaim object, and deletes templates."""
    ground.launch()
    its_own = {"eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.k8s.aws/ec2nodeclass"}
    [instance] = ground.instances()
    assert not its_own & set(instance.tags)
    for template in ground.region.client("ec2").describe_launch_templates()["LaunchTemplates"]:
        assert not its_own & {tag["Key"] for tag in template["Tags"]}


def test_a_users_own_name_is_kept(ground: Ground) -> None:
    ground.launch(node_class=ground.node_class(tags={"Name": "worker"}))
    assert ground.instances()[0].tags["Name"] == "worker"


def of_instance(name: str, node_class: str, instance_id: str) -> NodeClaim:
    return node_claim(cluster="demo", name=name, node_pool="default", node_class=node_class, instance_id=instance_id)


def test_a_users_own_name_is_kept_when_claims_get_theirs(ground: Ground) -> None:
    named = ground.node_class(tags={"Name": "worker"})
    ground.compute = ground.region.compute(manifests=Manifests(node_classes=(named,)))
    first, second = ground.launch(node_class=named, beside=("default-2",)).instances
    ground.compute.name(of_instance("default-1", "default", first.id), keeps_name=True)
    ground.compute.name(of_instance("default-2", "plain", second.id))
    tagged = {item.id: (item.tags["Name"], item.tags["shiplap.dev/nodeclaim"]) for item in ground.instances()}
    assert tagged == {first.id: ("worker", "default-1"), second.id: ("default-2", "default-2")}


def test_templates_say_how_to_boot(ground: Ground) -> None:
    device = BlockDeviceMapping("/dev/xvda", ebs=BlockDevice(volume_size="2T", volume_type="gp3"))
    ground.launch(
        node_class=ground.node_class(block_device_mappings=(device,), associate_public_ip_address=False), token="t"
    )
    ec2 = ground.region.client("ec2")
    name = ec2.describe_launch_templates()["LaunchTemplates"][0]["LaunchTemplateName"]
    [version] = ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]
    assert data["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 1863
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    [interface] = data["NetworkInterfaces"]
    assert interface["Groups"] == [ground.network.security_group]
    assert interface["AssociatePublicIpAddress"] is False
    tagged = {spec["ResourceType"]: spec["Tags"] for spec in data["TagSpecifications"]}
    assert "shiplap.dev/nodeclaim" not in {tag["Key"] for tag in tagged["network-interface"]}


def test_a_throttled_fleet_is_worth_another_try(ground: Ground) -> None:
    ground.control.fault("CreateFleet", "RequestLimitExceeded")
    with pytest.raises(AwsThrottled):
        ground.launch()
    assert ground.launch().instance is not None


def test_a_lost_answer_is_an_unknown_outcome_that_the_token_clears_up(ground: Ground) -> None:
    ground.control.fault("CreateFleet", "InternalError", after=True)
    with pytest.raises(AwsError) as raised:
        ground.launch()
    assert raised.value.code == "ServiceUnavailable"
    result = ground.launch()
    assert result.instance is not None
    assert [instance.id for instance in ground.instances()] == [result.instance.id]


CHANGED = (("m5.xlarge", ZONES[1], 58),)
"""Offerings of a launch that is resumed after the list has changed: EC2 takes the token to be misused."""


def test_a_resumed_launch_with_another_list_gets_the_answer_to_the_first(ground: Ground) -> None:
    ground.control.timing(describe_lag_s=100)  # EC2 hides the instance, but not its fleet
    ground.control.capacity("m5.large", ZONES[0], available=2)
    first = ground.launch(beside=("default-2", "default-3"))
    assert (len(first.instances), len(first.failures)) == (2, 1)
    again = ground.launch(beside=("default-2", "default-3"), offerings=CHANGED)
    assert [(item.id, item.instance_type, item.zone) for item in again.instances] == [
        (item.id, "m5.large", ZONES[0]) for item in first.instances
    ]
    assert again.failures == first.failures
    ground.control.advance(101)
    assert len(ground.instances()) == 2


def test_what_has_ended_since_is_no_answer(ground: Ground) -> None:
    first = ground.launch().instance
    assert first is not None
    ground.compute.terminate("demo", first.id)
    assert ground.launch(offerings=CHANGED) == FleetResult()


def test_a_fleet_that_nothing_came_of_tells_why(ground: Ground) -> None:
    ground.control.capacity("m5.large", ZONES[0], available=0)
    first = ground.launch()
    assert ground.launch(offerings=CHANGED) == first
    assert [failure.code for failure in first.failures] == ["InsufficientInstanceCapacity"]


@pytest.mark.parametrize(
    ("action", "code"),
    [("DescribeTags", "RequestLimitExceeded"), ("DescribeFleets", "InvalidFleetId.NotFound")],
)
def test_while_no_answer_can_be_found_the_outcome_is_unknown(ground: Ground, action: str, code: str) -> None:
    ground.control.timing(describe_lag_s=10)
    first = ground.launch().instance
    ground.control.fault(action, code, times=9)
    with pytest.raises(AwsError) as raised:  # it exists but cannot be seen yet
        ground.launch(offerings=CHANGED)
    assert raised.value.code == "IdempotentParameterMismatch"
    ground.control.advance(11)
    again = ground.launch(offerings=CHANGED).instance
    assert first is not None
    assert again is not None
    assert again.id == first.id
    assert len(ground.instances()) == 1


@pytest.mark.parametrize(
    ("code", "kind"), [("VcpuLimitExceeded", "quota"), ("InsufficientInstanceCapacity", "capacity")]
)
def test_a_fleet_refused_as_a_whole_blames_every_offering(ground: Ground, code: str, kind: str) -> None:
    ground.control.fault("CreateFleet", code)
    result = ground.launch(offerings=(("m5.large", ZONES[0], 29), ("m5.large", ZONES[1], 29)))
    assert result.instance is None
    assert [(failure.zone, failure.code, failure.kind) for failure in result.failures] == [
        (ZONES[0], code, kind),
        (ZONES[1], code, kind),
    ]


@pytest.mark.parametrize("action", ["CreateFleet", "CreateLaunchTemplate"])
def test_what_only_a_changed_manifest_mends_is_a_node_class_that_is_not_ready(ground: Ground, action: str) -> None:
    ground.control.fault(action, "UnauthorizedOperation")
    with pytest.raises(NodeClassNotReady) as raised:
        ground.launch()
    assert raised.value.code == "UnauthorizedOperation"


def test_a_vanished_image_is_a_configuration_failure(ground: Ground) -> None:
    override = FleetOverride(0.1, "m5.large", ZONES[0], "ami-00000000000000000", 29)
    result = ground.launch(overrides=(override,))
    assert result.instance is None
    assert [(failure.code, failure.kind) for failure in result.failures] == [("InvalidAMIID.NotFound", "configuration")]


def test_the_subnet_with_most_free_addresses_is_used(ground: Ground) -> None:
    ec2 = ground.region.client("ec2")
    tags = [{"ResourceType": "subnet", "Tags": [{"Key": "karpenter.sh/discovery", "Value": "demo"}]}]
    small = ec2.create_subnet(
        VpcId=ground.network.vpc_id, CidrBlock="10.0.240.0/28", AvailabilityZone=ZONES[0], TagSpecifications=tags
    )["Subnet"]["SubnetId"]
    ground.launch("a")
    assert ground.instances()[0].subnet_id == ground.network.subnets[ZONES[0]]
    ground.control.free_ips(ground.network.subnets[ZONES[0]], 3)
    ground.compute = ground.region.compute()
    ground.launch("b")
    assert ground.instances()[1].subnet_id == small


def test_without_addresses_nothing_is_asked_of_ec2(ground: Ground) -> None:
    for subnet in ground.network.subnets.values():
        ground.control.free_ips(subnet, 0)
    result = ground.launch()
    assert (result.instance, result.was_sent) == (None, False)
    assert [failure.kind for failure in result.failures] == ["subnet"]
    assert ground.calls("CreateFleet") == 0


def test_only_what_carries_the_clusters_tags_is_terminated(ground: Ground) -> None:
    stranger = ground.region.client("ec2").run_instances(
        ImageId=ground.request().overrides[0].ami, InstanceType="m5.large", MinCount=1, MaxCount=1,
        SubnetId=ground.network.subnets[ZONES[0]],
    )["Instances"][0]["InstanceId"]  # fmt: skip
    ground.compute.terminate("demo", stranger)
    assert ground.calls("TerminateInstances") == 0
    assert [instance.state for instance in ground.instances()] == ["running"]


def test_a_termination_that_ec2_refuses_is_an_error(ground: Ground) -> None:
    instance = ground.launch().instance
    assert instance is not None
    ground.control.fault("TerminateInstances", "InvalidInstanceID.NotFound")
    ground.compute.terminate("demo", instance.id)
    ground.control.fault("TerminateInstances", "RequestLimitExceeded")
    with pytest.raises(AwsThrottled):
        ground.compute.terminate("demo", instance.id)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"subnet_selector_terms": (SubnetSelectorTerm(tags={"no": "such"}),)}, "SubnetsNotFound"),
        ({"security_group_selector_terms": (SecurityGroupSelectorTerm(name="none"),)}, "SecurityGroupsNotFound"),
        ({"ami_selector_terms": (AmiSelectorTerm(id="ami-0"),), "ami_family": "AL2023"}, "AMINotFound"),
        ({"ami_selector_terms": (AmiSelectorTerm(alias="al2@latest"),)}, "UnsupportedAlias"),
        ({"ami_selector_terms": (AmiSelectorTerm(id="ami-0"),)}, "AMIFamilyUnknown"),
    ],
)
def test_selectors_that_match_nothing_say_so(ground: Ground, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(NodeClassNotReady) as raised:
        ground.compute.resolve(ground.node_class(**changes))
    assert raised.value.code == code


def test_answers_are_kept_for_a_minute(ground: Ground) -> None:
    for _ in range(3):
        ground.compute.resolve(ground.node_class())
    assert ground.calls("DescribeSubnets") == 1
    ground.control.advance(61)
    ground.compute.resolve(ground.node_class())
    assert ground.calls("DescribeSubnets") == 2


def test_a_fresh_answer_believes_nothing_of_before(ground: Ground) -> None:
    before = ground.compute.resolve(ground.node_class()).amis
    newer = [
        seed.PublishedImage(
            msgspec.structs.replace(
                item.image, image_id=f"ami-f{item.image.image_id[5:]}", creation_date="2026-06-01T00:00:00Z"
            ),
            item.parameters,
        )
        for item in seed.release_images("al2023@latest", VERSION)
    ]
    seed.register_images(ground.control, newer)
    assert ground.compute.resolve(ground.node_class()).amis == before
    after = ground.compute.resolve(ground.node_class(), fresh=True).amis
    assert {ami.id for ami in after} == {item.image.image_id for item in newer}
    assert ground.calls("DescribeSubnets") == 2
    assert ground.compute.resolve(ground.node_class()).amis == after
    assert ground.calls("DescribeSubnets") == 2


def test_subnets_and_groups_by_id(ground: Ground) -> None:
    subnet = ground.network.subnets[ZONES[1]]
    resolved = ground.compute.resolve(
        ground.node_class(
            subnet_selector_terms=(SubnetSelectorTerm(id=subnet),),
            security_group_selector_terms=(
                SecurityGroupSelectorTerm(id=ground.network.security_group),
                SecurityGroupSelectorTerm(name="demo-nodes"),
            ),
        )
    )
    assert [(found.id, found.zone) for found in resolved.subnets] == [(subnet, ZONES[1])]
    assert resolved.subnets[0].free_ips == 8187
    assert resolved.security_groups == (ground.network.security_group,)


def test_an_alias_gives_one_image_per_variant(ground: Ground) -> None:
    resolved = ground.compute.resolve(ground.node_class())
    assert len(resolved.amis) == 5
    assert sum(standard(ami, "amd64") for ami in resolved.amis) == 1
    assert sum((GPU, "Exists", ()) in ami.requirements for ami in resolved.amis) == 2
    assert resolved.family == "AL2023"


def test_one_bottlerocket_image_serves_standard_and_neuron(ground: Ground) -> None:
    seed.register_images(ground.control, seed.release_images("bottlerocket@1.32.0", VERSION))
    resolved = ground.compute.resolve(
        ground.node_class(ami_selector_terms=(AmiSelectorTerm(alias="bottlerocket@v1.32.0"),))
    )
    neuron = next(ami for ami in resolved.amis if (ACCELERATOR, "Exists", ()) in ami.requirements)
    assert len(resolved.amis) == 5
    assert neuron.id == next(ami.id for ami in resolved.amis if standard(ami, "amd64"))


def test_a_parameter_that_does_not_exist_leaves_the_other_images(ground: Ground) -> None:
    released = seed.release_images("al2023@v20260101", VERSION)
    seed.register_images(ground.control, released[:2])
    resolved = ground.compute.resolve(
        ground.node_class(ami_selector_terms=(AmiSelectorTerm(alias="al2023@v20260101"),))
    )
    assert {ami.id for ami in resolved.amis} == {item.image.image_id for item in released[:2]}


def test_images_by_id_name_tag_and_parameter(ground: Ground) -> None:
    ground.control.image(EmulatedImage("ami-00000000000000001", "by-id"))
    ground.control.image(EmulatedImage("ami-00000000000000002", "by-name-1", "arm64"))
    ground.control.image(EmulatedImage("ami-00000000000000003", "by-tag", tags={"use": "nodes"}))
    ground.control.image(EmulatedImage("ami-00000000000000004", "by-parameter"))
    ground.control.image(EmulatedImage("ami-00000000000000005", "odd", "i386"))
    ground.control.parameters({"/own/ami": "ami-00000000000000004"})

    def found(*terms: AmiSelectorTerm) -> list[str]:
        compute = ground.region.compute()
        node_class = ground.node_class(ami_family="AL2023", ami_selector_terms=terms)
        return [ami.id[-1] for ami in compute.resolve(node_class).amis]

    assert found(AmiSelectorTerm(id="ami-00000000000000001")) == ["1"]
    assert found(AmiSelectorTerm(name="by-name-*")) == ["2"]
    assert found(AmiSelectorTerm(tags={"use": "*"})) == ["3"]
    assert found(AmiSelectorTerm(tags={"use": "nodes"}, owner="amazon")) == ["3"]
    assert found(AmiSelectorTerm(ssm_parameter="/own/ami")) == ["4"]
    with pytest.raises(NodeClassNotReady):
        found(AmiSelectorTerm(id="ami-00000000000000005"))


def test_deprecated_images_come_last_and_lose_against_current_ones(ground: Ground) -> None:
    old = "2023-01-01T00:00:00Z"  # before the emulator's clock
    ground.control.image(EmulatedImage("ami-00000000000000001", "new", creation_date="2025-06-01T00:00:00Z",
                                       deprecation_time=old))  # fmt: skip
    ground.control.image(EmulatedImage("ami-00000000000000002", "older", creation_date="2025-01-01T00:00:00Z"))
    ground.control.image(EmulatedImage("ami-00000000000000003", "arm", "arm64", "2025-12-01T00:00:00Z", old))
    terms = tuple(AmiSelectorTerm(id=f"ami-0000000000000000{number}") for number in (1, 2, 3))
    resolved = ground.compute.resolve(ground.node_class(ami_family="AL2023", ami_selector_terms=terms))
    assert [(ami.id[-1], ami.deprecated) for ami in resolved.amis] == [("2", False), ("3", True)]


def test_the_control_plane_is_read_from_eks(ground: Ground) -> None:
    eks = ground.region.client("eks")
    eks.create_cluster(name="real", version="1.33", roleArn="arn:aws:iam::123456789012:role/c",
                       resourcesVpcConfig={}, kubernetesNetworkConfig={"serviceIpv4Cidr": "172.20.0.0/16"})  # fmt: skip
    plane = control_plane(ClusterSettings(name="real", region=REGION), lambda: eks)
    assert plane.version == "1.33"
    assert plane.endpoint.startswith("https://")
    assert plane.ca
    assert plane.dns == "172.20.0.10"
    with pytest.raises(AwsError, match="describe EKS cluster gone"):
        control_plane(ClusterSettings(name="gone", region=REGION), lambda: eks)


@pytest.mark.parametrize(
    ("cidr", "dns"), [("10.100.0.0/16", "10.100.0.10"), ("fd30:1:2::/108", "fd30:1:2::a"), ("", "")]
)
def test_a_cluster_outside_eks_is_described_by_its_settings(cidr: str, dns: str) -> None:
    settings = ClusterSettings(name="own", region=REGION, endpoint="https://own", service_cidr=cidr)
    assert control_plane(settings, _never).dns == dns


@pytest.mark.parametrize("cidr", ["nonsense", "10.0.0.0/30"])
def test_a_service_range_that_is_none(cidr: str) -> None:
    settings = ClusterSettings(name="own", region=REGION, endpoint="https://own", service_cidr=cidr)
    with pytest.raises(AwsError, match="is not the service range"):
        control_plane(settings, _never)


def _never() -> Any:
    raise AssertionError("EKS was asked")


def test_an_inspection_names_every_part_that_is_missing(ground: Ground) -> None:
    nothing = {"no": "such"}
    found = ground.compute.inspect(
        ground.node_class(
            subnet_selector_terms=(SubnetSelectorTerm(tags=nothing),),
            security_group_selector_terms=(SecurityGroupSelectorTerm(tags=nothing),),
            ami_selector_terms=(AmiSelectorTerm(tags=nothing),),
            ami_family="AL2023",
        )
    )
    assert [(problem.condition, problem.reason) for problem in found.problems] == [
        ("AMIsReady", "AMINotFound"),
        ("SubnetsReady", "SubnetsNotFound"),
        ("SecurityGroupsReady", "SecurityGroupsNotFound"),
    ]
    assert found.subnets == ()


def test_an_inspection_without_problems_is_the_resolution(ground: Ground) -> None:
    assert ground.compute.inspect(ground.node_class()) == ground.compute.resolve(ground.node_class())
    assert ground.compute.inspect(ground.node_class()).security_group_names


# Launches that are only tried out


def test_a_launch_that_would_be_allowed_is_not_made(ground: Ground) -> None:
    assert ground.compute.dry_run(ground.request()) is None
    assert ground.instances() == ()
    assert (ground.calls("CreateFleet"), ground.calls("RunInstances")) == (1, 1)
    assert ground.launch().instance is not None  # its token was not used up
    assert ground.calls("CreateLaunchTemplate") == 1


@pytest.mark.parametrize(
    ("action", "code", "reason"),
    [
        ("CreateLaunchTemplate", "UnauthorizedOperation", "CreateLaunchTemplateAuthCheckFailed"),
        ("CreateLaunchTemplate", "InvalidBlockDeviceMapping", "InvalidBlockDeviceMapping"),
        ("CreateFleet", "UnauthorizedOperation", "CreateFleetAuthCheckFailed"),
        ("RunInstances", "UnauthorizedOperation", "RunInstancesAuthCheckFailed"),
        ("RunInstances", "AuthFailure", "RunInstancesAuthCheckFailed"),
    ],
)
def test_what_is_forbidden_is_told_in_ec2s_words(ground: Ground, action: str, code: str, reason: str) -> None:
    ground.control.fault(action, code, times=3)
    found = ground.compute.dry_run(ground.request())
    assert found is not None
    assert (found.condition, found.reason) == ("ValidationSucceeded", reason)
    assert "injected by the scenario" in found.message


def test_a_subnet_that_is_allowed_is_enough(ground: Ground) -> None:
    ground.control.fault("RunInstances", "UnauthorizedOperation")
    offerings = tuple(("m5.large", zone, 29) for zone in ZONES[:2])
    assert ground.compute.dry_run(ground.request(offerings=offerings)) is None
    assert ground.calls("RunInstances") == 2


def test_what_is_not_about_permissions_is_left_to_launches(ground: Ground) -> None:
    ground.control.fault("RunInstances", "InsufficientInstanceCapacity")
    assert ground.compute.dry_run(ground.request()) is None
    assert ground.compute.dry_run(ground.request(offerings=(("m5.large", "eu-west-1z", 29),))) is None


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError"])
def test_a_rehearsal_that_ec2_does_not_answer(ground: Ground, code: str) -> None:
    ground.control.fault("CreateFleet", code, times=9)
    with pytest.raises(AwsError):
        ground.compute.dry_run(ground.request())


def test_a_profile_that_is_not_there_is_named(ground: Ground) -> None:
    resolved = msgspec.structs.replace(ground.request().resolved, instance_profile="missing")
    found = ground.compute.dry_run(ground.request(resolved=resolved))
    assert found is None or found.reason == "InstanceProfileNotFound"


def test_user_data_that_ec2_finds_too_long(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise NodeClassNotReady("User data is limited to 16384 bytes", code="InvalidUserData.Malformed")

    monkeypatch.setattr(ground.compute._templates, "ensure", refuse)
    found = ground.compute.dry_run(ground.request())
    assert found is not None
    assert found.reason == "UserDataSizeLimitExceeded"


def test_what_spot_would_be_refused(ground: Ground) -> None:
    assert ground.compute.dry_run(ground.request(capacity_type="spot")) is None
    assert ground.instances() == ()
