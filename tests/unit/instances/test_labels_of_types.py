"""Labels of instance types, by the rules and samples of Karpenter."""

from __future__ import annotations

import pytest

from shiplap.instances.catalog.ec2_catalog import NetworkCard, NetworkInfo
from shiplap.instances.catalog.type_labels import RequirementCache, meets, network_bandwidth, single_valued_labels
from shiplap.kubernetes.requirements import requirement
from tests.builders.node_classes import node_class
from tests.unit.instances.given_instances import resolved, yields

AWS = "karpenter.k8s.aws/"


def labels(name: str, family: str = "AL2023") -> dict[str, str]:
    return single_valued_labels(yields(name, node_class(family=family)))


def test_all_labels_of_a_plain_type() -> None:
    assert labels("m5.large") == {
        AWS + "instance-capability-flex": "false",
        AWS + "instance-category": "m",
        AWS + "instance-cpu": "2",
        AWS + "instance-cpu-manufacturer": "intel",
        AWS + "instance-cpu-sustained-clock-speed-mhz": "3100",
        AWS + "instance-ebs-bandwidth": "4750",
        AWS + "instance-encryption-in-transit-supported": "false",
        AWS + "instance-family": "m5",
        AWS + "instance-generation": "5",
        AWS + "instance-hypervisor": "nitro",
        AWS + "instance-memory": "8192",
        AWS + "instance-network-bandwidth": "750",
        AWS + "instance-size": "large",
        AWS + "nitro-sandbox": "false",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/region": "us-east-1",
    }


@pytest.mark.parametrize(
    ("name", "label", "value"),
    [
        ("u-6tb1.112xlarge", "instance-category", "u"),
        ("u-6tb1.112xlarge", "instance-generation", "1"),
        ("u-6tb1.112xlarge", "instance-family", "u-6tb1"),
        ("c7i-flex.large", "instance-capability-flex", "true"),
        ("c7i-flex.large", "instance-family", "c7i-flex"),
        ("m5.metal", "instance-hypervisor", ""),
        ("m5.metal", "instance-size", "metal"),
        ("c4.large", "instance-hypervisor", "xen"),
        ("g5.48xlarge", "instance-gpu-name", "a10g"),
        ("g5.48xlarge", "instance-gpu-manufacturer", "nvidia"),
        ("g5.48xlarge", "instance-gpu-count", "8"),
        ("g6f.large", "instance-gpu-count", "1"),
        ("g5.48xlarge", "instance-gpu-memory", "22888"),
        ("g5.48xlarge", "instance-local-nvme", "7600"),
        ("inf2.24xlarge", "instance-accelerator-name", "inferentia2"),
        ("inf2.24xlarge", "instance-accelerator-manufacturer", "aws"),
        ("inf2.24xlarge", "instance-accelerator-count", "6"),
        ("dl2q.24xlarge", "instance-accelerator-name", "qualcomm-ai100"),
        ("dl2q.24xlarge", "instance-accelerator-manufacturer", "qualcomm"),
        ("c6g.medium", "instance-cpu-manufacturer", "aws"),
    ],
)
def test_single_labels(name: str, label: str, value: str) -> None:
    assert labels(name)[AWS + label] == value


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("m5.large", "instance-gpu-count"),
        ("m5.large", "instance-accelerator-count"),
        ("m5.large", "instance-local-nvme"),
        ("d2.xlarge", "instance-local-nvme"),
        ("t2.nano", "instance-network-bandwidth"),
        ("m1.small", "instance-ebs-bandwidth"),
    ],
)
def test_what_a_type_lacks_does_not_exist(name: str, label: str) -> None:
    found = {item.key: item for item in yields(name).requirements}[AWS + label]
    assert found.operator == "DoesNotExist"


def test_labels_of_offerings_and_tenancy_have_many_values() -> None:
    found = {item.key: item.values for item in yields("m5.large", answered=resolved()).requirements}
    assert found["topology.kubernetes.io/zone"] == {"us-east-1a", "us-east-1b"}
    assert found["topology.k8s.aws/zone-id"] == {"use1-az6", "use1-az1"}
    assert found["karpenter.sh/capacity-type"] == {"on-demand", "spot"}
    assert found[AWS + "instance-tenancy"] == {"default", "dedicated"}


def test_windows_nodes_name_their_build() -> None:
    found = labels("m5.large", "Windows2022")
    assert found["kubernetes.io/os"] == "windows"
    assert found["node.kubernetes.io/windows-build"] == "10.0.20348"


@pytest.mark.parametrize(
    ("performance", "cards", "mbps"),
    [
        ("Up to 10 Gigabit", [(0.75, 10.0)], "750"),
        ("10 Gigabit", [(12.0, 12.0)], "10000"),
        ("200 Gigabit", [(200.0, 200.0), (200.0, 200.0)], "200000"),
        ("4x 100 Gigabit", [(100.0, 100.0)] * 4, "400000"),
        ("Up to 28 Gigabit", [(28.125, 28.125)], "28120"),
        ("133.33 Gigabit", [(133.333, 133.333)], "133330"),
        ("Up to 33.33 Gigabit", [(16.666, 33.333)], "16666"),
        ("Up to 10 Gigabit", [], None),
        ("Moderate", [(0.3, 1.0)], None),
        ("", [], None),
    ],
)
def test_network_bandwidth(performance: str, cards: list[tuple[float, float]], mbps: str | None) -> None:
    network = NetworkInfo(
        network_performance=performance, network_cards=tuple(NetworkCard(4, base, peak) for base, peak in cards)
    )
    assert network_bandwidth(network) == mbps


def test_meeting_a_requirement_is_strict() -> None:
    pool = RequirementCache()
    zones = pool["zone", ("a", "b")]
    assert meets(requirement("zone", "In", ("b",)), zones)
    assert not meets(requirement("zone", "In", ("c",)), zones)
    assert not meets(requirement("zone", "In", ("a",)), None)
    assert not meets(requirement("zone", "Exists"), None)
    assert not meets(requirement("zone", "Exists"), pool["zone", None])
    assert meets(requirement("zone", "DoesNotExist"), None)
    assert meets(requirement("zone", "NotIn", ("a",)), pool["zone", None])
    assert not meets(requirement("zone", "DoesNotExist"), zones)


def test_requirements_are_made_once() -> None:
    pool = RequirementCache()
    assert pool["a", "b"] is pool["a", "b"]
    assert pool["a", "b"].values == {"b"}
