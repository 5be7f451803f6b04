"""Launch templates and user data of an EC2NodeClass: scenarios 75 to 91 of the AWS reference."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import Ami, CapacityReservation
from shiplap.kubernetes.objects import Taint
from tests.builders.node_classes import node_class
from tests.conformance.given_aws import EFA, Launch, launch

UNREGISTERED = "karpenter.sh/unregistered"
KUBELET = {
    "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    "systemReserved": {"cpu": "500m"},
    "evictionHard": {"memory.available": "5%"},
    "evictionSoft": {"memory.available": "10%"},
    "evictionSoftGracePeriod": {"memory.available": "1m"},
    "evictionMaxPodGracePeriod": 300,
    "imageGCHighThresholdPercent": 50,
    "imageGCLowThresholdPercent": 10,
    "cpuCFSQuota": False,
}
MIME = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo hello

--//--
"""
NODE_CONFIG = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 5}}}\n"


def test_75_node_classes_of_two_names_have_two_templates() -> None:
    assert launch(node_class("one")).names != launch(node_class("two")).names


def test_77_what_a_node_is_told_names_its_template() -> None:
    plain = launch().names
    changed = (
        node_class(kubelet={"systemReserved": {"cpu": "1"}}),
        node_class(userData="#!/bin/bash\n"),
        node_class(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi"}}]),
        node_class(tags={"team": "a"}),
        node_class(metadataOptions={"httpTokens": "optional"}),
        node_class(detailedMonitoring=True),
    )
    names = [launch(item).names for item in changed]
    assert plain not in names
    assert len(set(names)) == len(changed)
    assert launch(max_pods=30).names != plain
    assert launch(resolved={"cluster_ca": "b3RoZXI="}).names != plain  # its user data differs, so it must be another


def test_77_types_that_boot_alike_share_a_template() -> None:
    assert launch(None, "m5.large").names == launch(None, "c5.large").names
    assert len(launch(None, "m5.large", "c5.large", "r5.large").templates) == 1
    assert len(launch(None, "m5.large", "m5.xlarge").templates) == 2  # they take different numbers of pods


@pytest.mark.parametrize(
    ("family", "volumes"),
    [
        ("AL2", {"/dev/xvda": 20}),
        ("AL2023", {"/dev/xvda": 20}),
        ("Bottlerocket", {"/dev/xvda": 4, "/dev/xvdb": 20}),
        ("Windows2022", {"/dev/sda1": 50}),
        ("Custom", {}),
    ],
)
def test_79_every_family_has_its_volumes(family: str, volumes: dict[str, int]) -> None:
    found = launch(node_class(family=family))
    assert found.volumes == volumes
    for mapping in found.data.get("BlockDeviceMappings", []):
        assert mapping["Ebs"]["VolumeType"] == "gp3"
        assert mapping["Ebs"]["Encrypted"] is True
        assert mapping["Ebs"]["DeleteOnTermination"] is True


@pytest.mark.parametrize(("size", "gib"), [("4G", 4), ("2T", 1863), ("30Gi", 30), ("1Ti", 1024)])
def test_79_sizes_are_rounded_up_to_whole_gib(size: str, gib: int) -> None:
    own = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}]
    assert launch(node_class(blockDeviceMappings=own)).volumes == {"/dev/xvda": gib}


def flags(found: Launch) -> str:
    return found.parts[-1][1]


@pytest.mark.parametrize(
    "flag",
    [
        "--max-pods=29",
        "--kube-reserved=cpu=1,memory=1Gi",
        "--system-reserved=cpu=500m",
        "--eviction-hard=memory.available<5%",
        "--eviction-soft=memory.available<10%",
        "--eviction-soft-grace-period=memory.available=1m",
        "--eviction-max-pod-grace-period=300",
        "--image-gc-high-threshold=50",
        "--image-gc-low-threshold=10",
        "--cpu-cfs-quota=false",
        "--pods-per-core=2",
    ],
)
def test_81_al2_hands_kubelet_its_settings_as_flags(flag: str) -> None:
    found = launch(node_class(family="AL2", kubelet={**KUBELET, "podsPerCore": 2}))
    assert flag in flags(found)
    assert "--use-max-pods false" in flags(found)


@pytest.mark.parametrize(
    ("kubelet", "resolved", "expected"),
    [
        ({}, {}, "--dns-cluster-ip 10.100.0.10"),
        ({"clusterDNS": ["10.0.10.100"]}, {}, "--dns-cluster-ip 10.0.10.100"),
        ({}, {"cluster_dns": "fd4b:121b:812b::a"}, "--dns-cluster-ip fd4b:121b:812b::a --ip-family ipv6"),
    ],
)
def test_81_dns_of_either_family(kubelet: dict[str, Any], resolved: dict[str, str], expected: str) -> None:
    assert expected in flags(launch(node_class(family="AL2", kubelet=kubelet), resolved=resolved))


def striped(family: str, alias: str = "", **spec: Any) -> Launch:
    terms = {"amiSelectorTerms": [{"alias": alias}]} if alias else {}
    return launch(node_class(family=family, instanceStorePolicy="RAID0", **terms, **spec))


def test_83_instance_stores_are_striped_as_each_family_does_it() -> None:
    assert "--local-disks raid0" in flags(striped("AL2"))
    assert striped("AL2023").node_config["instance"] == {"localStorage": {"strategy": "RAID0"}}


@pytest.mark.parametrize(
    ("release", "directories"), [("1.45.0", True), ("1.46.0", False), ("v1.46.0", False), ("latest", False)]
)
def test_83_bottlerocket_binds_what_its_release_does_not_bind_by_itself(release: str, directories: bool) -> None:
    own = '[settings.bootstrap-commands.100-own]\ncommands = [["echo", "hi"]]\n'
    commands = striped("Bottlerocket", f"bottlerocket@{release}", userData=own).settings["bootstrap-commands"]
    assert list(commands) == ["000-mount-instance-storage", "100-own"]
    init, bind = commands["000-mount-instance-storage"]["commands"]
    assert init == ["apiclient", "ephemeral-storage", "init"]
    assert (len(bind) > 3) is directories


@pytest.mark.parametrize(
    ("name", "directories"),
    [
        ("bottlerocket-aws-k8s-1.33-x86_64-v1.45.0-431fe75a", True),
        ("bottlerocket-aws-k8s-1.33-x86_64-v1.47.0-abc123", False),
        ("built-by-ourselves", True),
    ],
)
def test_83_the_release_of_an_image_without_an_alias_is_in_its_name(name: str, directories: bool) -> None:
    spec = {"amiSelectorTerms": [{"id": "ami-1"}], "instanceStorePolicy": "RAID0"}
    other = Ami("ami-2", "bottlerocket-aws-k8s-1.33-x86_64-v1.50.0-0", "2026-01-01T00:00:00Z")
    known = {"amis": (other, Ami("ami-1", name, "2025-01-01T00:00:00Z"))}
    made = launch(node_class(family="Bottlerocket", **spec), resolved=known)
    _, bind = made.settings["bootstrap-commands"]["000-mount-instance-storage"]["commands"]
    assert (len(bind) > 3) is directories


@pytest.mark.parametrize(
    ("custom", "before"),
    [
        (None, []),
        ("", []),
        (MIME, ["text/x-shellscript"]),
        (NODE_CONFIG, ["application/node.eks.aws"]),
        ("#!/bin/bash\necho hi\n", ["text/x-shellscript"]),
    ],
)
def test_85_al2023_has_the_users_part_first_and_ours_last(custom: str | None, before: list[str]) -> None:
    found = launch(node_class(userData=custom) if custom is not None else node_class())
    assert [kind for kind, _ in found.parts] == [*before, "application/node.eks.aws"]
    assert found.node_config["kubelet"]["config"]["maxPods"] == 29
    assert found.node_config["cluster"]["cidr"] == "10.100.0.0/16"


def test_85_without_the_service_range_there_is_no_launch() -> None:
    with pytest.raises(NodeClassNotReady, match="service CIDR") as raised:
        launch(resolved={"service_cidr": ""})
    assert raised.value.code == "ClusterCIDRResolutionFailed"


@pytest.mark.parametrize("requests", [{}, {EFA: 1}])
@pytest.mark.parametrize("wanted", [True, False])
def test_87_public_addresses_with_and_without_elastic_fabric(wanted: bool, requests: dict[str, int]) -> None:
    found = launch(node_class(associatePublicIPAddress=wanted), "g5.48xlarge", requests=requests)
    (nic,) = found.data["NetworkInterfaces"]
    assert nic["AssociatePublicIpAddress"] is wanted
    assert nic["InterfaceType"] == ("efa" if requests else "interface")


@pytest.mark.parametrize("count", [0, 1, 10, 100])
@pytest.mark.parametrize(("cidr", "key"), [("10.100.0.0/16", "Ipv4PrefixCount"), ("fd00:10::/108", "Ipv6PrefixCount")])
def test_87_prefixes_of_the_clusters_family(count: int, cidr: str, key: str) -> None:
    nics = [{}, {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}]
    found = launch(
        node_class(ipPrefixCount=count, networkInterfaces=nics), "g5.48xlarge", resolved={"service_cidr": cidr}
    )
    primary, fabric = found.data["NetworkInterfaces"]
    assert {name: number for name, number in primary.items() if "Prefix" in name} == ({key: count} if count else {})
    assert not {name for name in fabric if "Prefix" in name or name == "AssociatePublicIpAddress"}


def test_87_as_many_fabric_adapters_as_the_type_has() -> None:
    found = launch(None, "p5.48xlarge", requests={EFA: 1})
    assert len(found.data["NetworkInterfaces"]) == 32
    assert len(launch(None, "p5.48xlarge").data["NetworkInterfaces"]) == 1


@pytest.mark.parametrize("capacity_type", ["on-demand", "spot"])
def test_89_what_is_not_reserved_never_uses_up_an_open_reservation(capacity_type: str) -> None:
    held = {"capacity_reservations": (CapacityReservation("cr-1", "m5.large", "us-east-1a"),)}
    for resolved in ({}, held):
        found = launch(capacity_type=capacity_type, resolved=resolved)
        assert found.data["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2022"])
def test_91_user_data_beyond_ec2s_limit_is_refused_before_ec2_does(family: str) -> None:
    long = "x" * 16384
    custom = f'[settings]\nmotd = "{long}"\n' if family == "Bottlerocket" else f"echo {long}\n"
    with pytest.raises(NodeClassNotReady, match="EC2 takes 16384") as raised:
        launch(node_class(family=family, userData=custom))
    assert raised.value.code == "UserDataSizeLimitExceeded"


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"])
def test_every_node_registers_itself_with_all_its_taints(family: str) -> None:
    """From the reference's table of families, not a numbered scenario."""
    found = launch(
        node_class(family=family),
        labels={"team": "a", "node-role.kubernetes.io/worker": "x"},
        taints=(Taint("dedicated", "NoSchedule", "batch"),),
    )
    assert UNREGISTERED in found.text
    assert "dedicated" in found.text
    assert "karpenter.sh/do-not-sync-taints" in found.text
    assert "node-role.kubernetes.io" not in found.text  # kubelet may not set it: registration does


def test_custom_images_are_told_nothing_but_what_the_user_says() -> None:
    """From the reference's table of families, not a numbered scenario."""
    assert launch(node_class(family="Custom", userData="join me\n")).text == "join me\n"
    assert "UserData" not in launch(node_class(family="Custom")).data
