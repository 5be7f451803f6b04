"""Tests the contents of launch templates, from EC2NodeClass, claim and override."""

from __future__ import annotations

import re
import tomllib
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from shiplap.aws.ec2 import fleet_requests
from shiplap.aws.ec2.launch_templates import template_data
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation, PlacementGroup, ResolvedNodeClass, Subnet
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    ConnectionTracking,
    CpuOptions,
    EC2NodeClass,
    EC2NodeClassSpec,
    EnclaveOptions,
    NetworkInterface,
    RequirementSpec,
)
from shiplap.ports import FleetOverride, FleetRequest
from tests.builders.claims import node_claim, with_fields

SUBNETS = (Subnet("subnet-a", "a", free_ips=10),)
SANDBOX = "eks.amazonaws.com/nitro-sandbox"
RESOLVED = ResolvedNodeClass(
    "default", "Bottlerocket", (), SUBNETS, ("sg-1", "sg-2"), "profile", "https://e", "Q0E=", "10.0.0.0/16"
)
EFA_ONLY = (NetworkInterface(), NetworkInterface(0, 1, "efa-only"), NetworkInterface(1, 0, "interface"))
RESERVATIONS = (
    CapacityReservation("cr-1", "m5.large", "a"),
    CapacityReservation("cr-2", "m5.large", "a", type="capacity-block"),
    CapacityReservation("cr-3", "m5.large", "a", interruptible=True),
)


def request(
    *overrides: FleetOverride,
    capacity_type: str = "on-demand",
    requirements: tuple[RequirementSpec, ...] = (),
    resolved: Mapping[str, Any] | None = None,
    **spec: Any,
) -> FleetRequest:
    claim = node_claim(cluster="demo", name="c-1", node_pool="default", node_class="default", requirements=requirements)
    fields: dict[str, Any] = {"claims": (claim,)} if "claims" in FleetRequest.__struct_fields__ else {"claim": claim}
    return FleetRequest(
        **fields,
        node_class=EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(**spec)),
        resolved=msgspec.structs.replace(RESOLVED, **(resolved or {})),
        capacity_type=capacity_type,
        overrides=overrides or (override(),),
        token="t",
    )


def override(name: str = "m5.large", **changes: Any) -> FleetOverride:
    return msgspec.structs.replace(FleetOverride(1, name, "a", "ami-1", 29, "h"), **changes)


def data(wanted: FleetRequest | None = None, **options: Any) -> dict[str, Any]:
    wanted = wanted or request(**options)
    return dict(template_data(wanted, wanted.overrides[0], {"owner": "me"}))


def test_the_least_a_template_says() -> None:
    found = data()
    assert set(found) == {
        "BlockDeviceMappings",
        "CapacityReservationSpecification",
        "IamInstanceProfile",
        "ImageId",
        "MetadataOptions",
        "NetworkInterfaces",
        "TagSpecifications",
        "UserData",
    }
    assert found["NetworkInterfaces"] == [
        {
            "DeviceIndex": 0,
            "NetworkCardIndex": 0,
            "InterfaceType": "interface",
            "Groups": ["sg-1", "sg-2"],
            "DeleteOnTermination": True,
        }
    ]
    assert (found["ImageId"], found["IamInstanceProfile"]) == ("ami-1", {"Name": "profile"})
    assert found["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "disabled",
        "HttpPutResponseHopLimit": 1,
        "HttpTokens": "required",
        "InstanceMetadataTags": "disabled",
    }


def test_isolated_regions_know_no_ipv6_for_metadata() -> None:
    found = data(resolved={"subnets": (Subnet("subnet-a", "us-iso-east-1a"),)})
    assert "HttpProtocolIpv6" not in found["MetadataOptions"]


@pytest.mark.parametrize(
    ("capacity_type", "kinds"),
    [("on-demand", ["network-interface"]), ("spot", ["network-interface", "spot-instances-request"])],
)
def test_what_a_fleet_cannot_tag_its_template_does(capacity_type: str, kinds: list[str]) -> None:
    written = [{"Key": "owner", "Value": "me"}]
    assert data(capacity_type=capacity_type)["TagSpecifications"] == [
        {"ResourceType": kind, "Tags": written} for kind in kinds
    ]


@pytest.mark.parametrize("wanted", [True, False])
def test_detailed_monitoring(wanted: bool) -> None:
    assert data(detailed_monitoring=wanted)["Monitoring"] == {"Enabled": wanted}


def test_nested_virtualization() -> None:
    assert data(cpu_options=CpuOptions("enabled"))["CpuOptions"] == {"NestedVirtualization": "enabled"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [(("dedicated",), {"Tenancy": "dedicated"}), (("dedicated", "default"), None), (("default",), None)],
)
def test_dedicated_hardware_only_where_the_pool_takes_no_other(values: tuple[str, ...], expected: object) -> None:
    rule = RequirementSpec("karpenter.k8s.aws/instance-tenancy", "In", values)
    assert data(requirements=(rule,)).get("Placement") == expected
    others = (
        RequirementSpec("kubernetes.io/arch", "In", ("amd64",)),
        RequirementSpec("karpenter.k8s.aws/instance-tenancy", "Exists"),
        RequirementSpec("karpenter.k8s.aws/instance-tenancy", "NotIn", ("host",)),
    )
    assert data(requirements=(*others, rule)).get("Placement") == expected


@pytest.mark.parametrize(("enabled", "expected"), [(True, {"Enabled": True}), (False, None)])
def test_enclaves_of_a_node_class(enabled: bool, expected: object) -> None:
    assert data(enclave_options=EnclaveOptions(enabled)).get("EnclaveOptions") == expected


@pytest.mark.parametrize(("requests", "expected"), [({"cpu": 1000}, None), ({SANDBOX: 1}, {"Enabled": True})])
def test_enclaves_only_for_pods_that_start_them(requests: dict[str, int], expected: object) -> None:
    wanted = request()
    claim = with_fields(wanted.claim, requests=requests)
    assert data(msgspec.structs.replace(wanted, claims=(claim,))).get("EnclaveOptions") == expected


def test_placement_group_and_partition() -> None:
    group = {"placement_group": PlacementGroup("pg-1", "wide", "partition", 7)}
    assert data(resolved=group)["Placement"] == {"GroupId": "pg-1"}
    rule = RequirementSpec("karpenter.k8s.aws/placement-group-partition", "In", ("3",))
    assert data(resolved=group, requirements=(rule,))["Placement"] == {"GroupId": "pg-1", "PartitionNumber": 3}


@pytest.mark.parametrize(
    ("reservation", "market"),
    [("cr-1", None), ("cr-2", "capacity-block"), ("cr-3", "interruptible-capacity-reservation")],
)
def test_a_reservation_is_launched_into_by_its_id(reservation: str, market: str | None) -> None:
    wanted = request(override(reservation=reservation), resolved={"capacity_reservations": RESERVATIONS})
    found = data(wanted)
    assert found["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation},
    }
    assert found.get("InstanceMarketOptions") == ({"MarketType": market} if market else None)


@pytest.mark.parametrize("capacity_type", ["spot", "on-demand"])
def test_without_one_no_open_reservation_is_used_up(capacity_type: str) -> None:
    found = data(request(capacity_type=capacity_type, resolved={"capacity_reservations": RESERVATIONS}))
    assert found["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}


def interfaces(**options: Any) -> list[dict[str, Any]]:
    return list(data(**options)["NetworkInterfaces"])


def test_elastic_fabric_adapters_one_per_card() -> None:
    found = interfaces(wanted=request(override(fabric_adapters=3), associate_public_ip_address=False))
    places = [(nic["NetworkCardIndex"], nic["DeviceIndex"], nic["InterfaceType"]) for nic in found]
    assert places == [(0, 0, "efa"), (1, 1, "efa"), (2, 1, "efa")]
    assert all(nic["AssociatePublicIpAddress"] is False for nic in found)
    assert all(nic["Groups"] == ["sg-1", "sg-2"] for nic in found)


def test_interfaces_asked_for_come_before_what_pods_want() -> None:
    found = interfaces(wanted=request(override(fabric_adapters=3), network_interfaces=EFA_ONLY))
    assert [nic["InterfaceType"] for nic in found] == ["interface", "efa-only", "interface"]


def test_fabric_alone_has_nothing_that_is_about_addresses() -> None:
    found = interfaces(
        network_interfaces=EFA_ONLY,
        associate_public_ip_address=True,
        ip_prefix_count=10,
        connection_tracking=ConnectionTracking(udp_timeout=30),
        resolved={"service_cidr": "fd00::/108"},
    )
    assert set(found[1]) == {"DeviceIndex", "NetworkCardIndex", "InterfaceType", "Groups", "DeleteOnTermination"}


@pytest.mark.parametrize("wanted", [True, False])
def test_public_addresses(wanted: bool) -> None:
    assert interfaces(associate_public_ip_address=wanted)[0]["AssociatePublicIpAddress"] is wanted


@pytest.mark.parametrize(
    ("count", "cidr", "expected"),
    [
        (0, "10.0.0.0/16", {}),
        (1, "10.0.0.0/16", {"Ipv4PrefixCount": 1}),
        (100, "10.0.0.0/16", {"Ipv4PrefixCount": 100}),
        (10, "fd00::/108", {"Ipv6PrefixCount": 10}),
        (0, "fd00::/108", {}),
    ],
)
def test_prefixes_of_the_clusters_family(count: int, cidr: str, expected: dict[str, int]) -> None:
    (nic,) = interfaces(ip_prefix_count=count, resolved={"service_cidr": cidr})
    assert {key: value for key, value in nic.items() if key.endswith("PrefixCount")} == expected
    assert nic.get("PrimaryIpv6", False) is (":" in cidr)
    assert nic.get("Ipv6AddressCount", 0) == int(":" in cidr)


def test_only_the_primary_interface_gets_prefixes() -> None:
    found = interfaces(network_interfaces=EFA_ONLY, ip_prefix_count=1)
    assert ["Ipv4PrefixCount" in nic for nic in found] == [True, False, False]


def test_connection_tracking_in_seconds() -> None:
    every = ConnectionTracking(7200, 60, 30)
    assert interfaces(connection_tracking=every)[0]["ConnectionTrackingSpecification"] == {
        "TcpEstablishedTimeout": every.tcp_established_timeout,
        "UdpStreamTimeout": every.udp_stream_timeout,
        "UdpTimeout": every.udp_timeout,
    }
    wanted = ConnectionTracking(tcp_established_timeout=7200, udp_stream_timeout=60)
    assert interfaces(connection_tracking=wanted)[0]["ConnectionTrackingSpecification"] == {
        "TcpEstablishedTimeout": 7200,
        "UdpStreamTimeout": 60,
    }


def settings_of(found: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tomllib.loads(b64decode(found["UserData"]).decode())["settings"]["kubernetes"])


def test_expressions_reach_kubelet_as_what_they_come_to() -> None:
    kubelet = {"maxPods": "vcpus * 4", "kubeReserved": {"cpu": "vcpus * 10", "memory": "1Gi"}}
    values = (("kubeReserved", "cpu", "20m"),)
    found = settings_of(data(request(override(max_pods=8, kubelet_values=values), kubelet=kubelet)))
    assert found["max-pods"] == 8
    assert found["kube-reserved"] == {"cpu": "20m", "memory": "1Gi"}


def test_what_boots_otherwise_has_a_template_of_its_own() -> None:
    wanted = request(
        override("a.large"),
        override("b.large", fabric_adapters=1),
        override("c.large", reservation="cr-1"),
        override("d.large", kubelet_values=(("kubeReserved", "cpu", "20m"),)),
        override("e.large"),
        kubelet={"kubeReserved": {"cpu": "vcpus * 10"}},
        resolved={"capacity_reservations": RESERVATIONS},
    )
    configs = fleet_requests.fleet_configs(wanted)
    assert sorted(len(config.overrides) for config in configs) == [1, 1, 1, 2]
    assert len({config.template.name for config in configs}) == 4


@pytest.mark.parametrize("characters", [1, 98, 99, 100])
def test_names_of_templates_fit_into_ec2_and_are_apart_by_cluster_whatever_its_name(characters: int) -> None:
    def named(cluster: str) -> str:
        own = request()
        own = msgspec.structs.replace(own, claims=(msgspec.structs.replace(own.claim, cluster=cluster),))
        return fleet_requests.fleet_configs(own)[0].template.name

    names = [named("c" * (characters - 1) + last) for last in "abc"]
    assert len(set(names)) == 3
    assert all(3 <= len(name) <= 128 for name in names)
    assert all(re.fullmatch(r"[a-zA-Z0-9().\-/_]+", name) for name in names)


def test_the_class_is_part_of_a_templates_name() -> None:
    one, other = request(), request()
    other = msgspec.structs.replace(
        other, node_class=msgspec.structs.replace(other.node_class, metadata=ObjectMeta(name="other"))
    )
    names = {fleet_requests.fleet_configs(wanted)[0].template.name for wanted in (one, other)}
    assert len(names) == 1  # it is in the claim, from which its tags and labels are made
