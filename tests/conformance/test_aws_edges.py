"""Scenarios of Karpenter's AWS suites that have no number in the reference, each by its outcome."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders.node_classes import node_class
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.given import daemon_set, given
from tests.conformance.given_aws import launch, one, sold

TENANCY = "karpenter.k8s.aws/instance-tenancy"
FLEX = "karpenter.k8s.aws/instance-capability-flex"
STORAGE = "ephemeral-storage"
GIB = 2**30


# Choosing


@pytest.mark.parametrize(
    ("asked", "offered", "fits"),
    [("default", "dedicated", False), ("dedicated", "default", False), ("dedicated", "dedicated", True)],
)
def test_a_pod_of_another_tenancy_than_its_pool_waits(asked: str, offered: str, *, fits: bool) -> None:
    outcome = given(
        pod(cpu="1", selector={TENANCY: asked}), pools=[pool("default", rule(TENANCY, "In", offered))], types=sold()
    )
    assert outcome.scheduled is fits


@pytest.mark.parametrize(("flex", "family"), [("true", "m7i-flex"), ("false", "m5")])
def test_flexible_types_can_be_asked_for_and_ruled_out(flex: str, family: str) -> None:
    types = sold("m7i-flex.large", "m5.large")
    outcome = given(pod(cpu="1", selector={FLEX: flex}), types=types)
    assert outcome.claim.launch.instance_type == f"{family}.large"
    ruled_out = pool("default", rule(FLEX, "NotIn", flex))
    assert not given(pod(cpu="1", selector={FLEX: flex}), pools=[ruled_out], types=types).scheduled


def test_gpus_go_to_pods_that_ask_for_them() -> None:
    outcome = given(pod(cpu="30"), types=sold("g4dn.8xlarge", "m5.metal", "c6g.12xlarge"))
    assert outcome.claim.instance_types == ("c6g.12xlarge",)
    assert given(pod(cpu="20"), types=sold("g4dn.8xlarge")).scheduled  # where there is nothing else


def test_a_local_zone_is_a_zone_like_any_other() -> None:
    zone = "us-east-1-bos-1a"
    types = sold("t3.xlarge")

    local = tuple(replace(item, offerings=tuple(replace(o, zone=zone) for o in item.offerings[:1])) for item in types)
    assert given(pod(cpu="1"), types=local).claim.launch.zone == zone


# Disks


def test_disks_are_filled_like_any_resource() -> None:
    """A volume of 20Gi leaves 17Gi for pods: kubelet keeps 1Gi, and a tenth is the threshold of eviction."""
    types = sold("m5.large", "m5.xlarge")
    assert len(given(*pods(2, requests={STORAGE: "10Gi"}), types=types).claims) == 2
    assert len(given(*pods(2, requests={STORAGE: "8Gi"}), types=types).claims) == 1
    assert not given(pod(requests={STORAGE: "18Gi"}), types=types).scheduled
    crowd = daemon_set(requests={STORAGE: "8Gi"})
    assert len(given(*pods(2, requests={STORAGE: "8Gi"}), types=types, daemon_sets=[crowd]).claims) == 2


@pytest.mark.parametrize(
    ("family", "mappings", "size_gib"),
    [
        ("AL2023", [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "50Gi"}}], 50),
        ("AL2023", [{"deviceName": "/dev/xvda", "ebs": {"snapshotID": "snap-1"}}], 20),
        ("Bottlerocket", [{"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "60Gi"}}], 60),
        ("Bottlerocket", [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "60Gi"}}], 20),
        ("Custom", [], 20),
        ("Custom", [{"deviceName": f"/dev/xvd{n}", "ebs": {"volumeSize": f"{n}Gi"}} for n in (30, 40)], 40),
        ("Custom", [{"deviceName": "a", "rootVolume": True, "ebs": {"volumeSize": "30Gi"}}, {"deviceName": "b"}], 30),
    ],
)
def test_which_volume_holds_pods_data(family: str, mappings: list[Any], size_gib: int) -> None:
    found = one("m5.large", under=node_class(family=family, blockDeviceMappings=mappings))
    assert found.capacity[STORAGE] == size_gib * GIB


# What nodes are told


RESTRICTED = ("kubernetes.io", "foo.kubernetes.io", "k8s.io", "foo.k8s.io", "foo.node-restriction.kubernetes.io")


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2022"])
def test_labels_that_kubelets_may_not_set_are_set_by_the_plan_alone(family: str) -> None:
    labels = {f"{domain}/bar": "baz" for domain in RESTRICTED}
    text = launch(node_class(family=family), labels=labels | {"team": "web"}).text
    assert not [domain for domain in labels if domain in text]
    assert "team" in text
    given_labels = pool("default", labels=labels)
    wanted = given(pod(cpu="1", selector={"foo.k8s.io/bar": "baz"}), pools=[given_labels], types=sold("m5.large"))
    assert wanted.scheduled


@pytest.mark.parametrize(("family", "told"), [("AL2", True), ("Bottlerocket", True), ("Custom", False)])
def test_nodes_are_told_whose_taints_count(family: str, *, told: bool) -> None:
    made = launch(node_class(family=family, userData="# own" if family == "Custom" else None))
    assert ("karpenter.sh/do-not-sync-taints" in made.text) is told


def test_passthrough_settings_change_the_template() -> None:
    plain, other = (launch(node_class(kubelet={"topologyManagerPolicy": policy})) for policy in ("none", "restricted"))
    assert plain.names != other.names
    assert other.node_config["kubelet"]["config"]["topologyManagerPolicy"] == "restricted"


def test_nested_settings_reach_kubelet_as_they_are_written() -> None:
    written = {"memorySwap": {"swapBehavior": "LimitedSwap"}, "allowedUnsafeSysctls": ["net.core.somaxconn"]}
    config = launch(node_class(kubelet=written)).node_config["kubelet"]["config"]
    assert {key: config[key] for key in written} == written


def test_several_dns_servers_reach_nodes_that_take_them() -> None:
    written = {"clusterDNS": ["10.0.100.10", "10.0.100.11"]}
    assert launch(node_class(kubelet=written)).node_config["kubelet"]["config"]["clusterDNS"] == written["clusterDNS"]


# Network


def test_tracking_is_on_every_interface_that_has_addresses() -> None:
    tracked = {"connectionTracking": {"tcpEstablishedTimeout": 3600}}
    cards = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "interface"},
        {"networkCardIndex": 2, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]
    made = launch(node_class(networkInterfaces=cards, **tracked)).data["NetworkInterfaces"]
    assert [item.get("ConnectionTrackingSpecification") for item in made] == [{"TcpEstablishedTimeout": 3600}] * 2 + [
        None
    ]


def test_ipv6_clusters_give_nodes_an_address_of_their_own() -> None:
    ipv6 = {"service_cidr": "fd00::/108", "cluster_dns": "fd00::a"}
    (item,) = launch(node_class(associatePublicIPAddress=True), resolved=ipv6).data["NetworkInterfaces"]
    assert (item["PrimaryIpv6"], item["Ipv6AddressCount"], item["AssociatePublicIpAddress"]) == (True, 1, True)
    (item,) = launch(node_class()).data["NetworkInterfaces"]
    assert not {"PrimaryIpv6", "Ipv6AddressCount", "AssociatePublicIpAddress"} & item.keys()
