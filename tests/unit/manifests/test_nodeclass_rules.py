"""Each rule of an EC2NodeClass but its kubelet's, by an input that keeps it and one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.decoding import decode
from shiplap.manifests.validation.ami_rules import ami_family
from tests.unit.manifests.manifest_samples import ABSENT, EC2_NODE_CLASS, changed, fields_of, problems_of

SUBNETS = "spec.subnetSelectorTerms"
GROUPS = "spec.securityGroupSelectorTerms"
RESERVATIONS = "spec.capacityReservationSelectorTerms"
AMIS = "spec.amiSelectorTerms"
DEVICES = "spec.blockDeviceMappings"
INTERFACES = "spec.networkInterfaces"
METADATA = "spec.metadataOptions"
TRACKING = "spec.connectionTracking"
PLACEMENT = "spec.placementGroupSelector"
PRIMARY = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}


def efa(card: int, device: int) -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": "efa-only"}


def device(**ebs: Any) -> list[dict[str, Any]]:
    return [{"deviceName": "/dev/xvda", "ebs": ebs}]


def test_the_sample_is_valid() -> None:
    assert problems_of(EC2_NODE_CLASS) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (SUBNETS, [{"id": "subnet-0123abcd"}, {"tags": {"a": "b", "c": "*"}}]),
        (GROUPS, [{"name": "nodes"}, {"tags": {"a": "b"}}]),
        (RESERVATIONS, [{"id": "cr-012"}, {"tags": {"a": "b"}, "ownerID": "012345678901"}]),
        (RESERVATIONS, [{"instanceMatchCriteria": "open"}, {"instanceMatchCriteria": "targeted"}]),
        (PLACEMENT, {"name": "group"}),
        (PLACEMENT, {"id": "pg-0a1b"}),
        ("spec.amiFamily", "AL2023"),
        ("spec.amiFamily", "Custom"),
        *(
            (AMIS, [{"alias": alias}])
            for alias in (
                "al2@latest",
                "al2@v20240625",
                "al2023@v20240625",
                "bottlerocket@1.32.0",
                "bottlerocket@v1.32.0",
                "bottlerocket@1.32.0-cacc4ce9",
                "windows2019@latest",
                "windows2022@latest",
                "windows2025@latest",
            )
        ),
        ("spec.userData", "#!/bin/sh"),
        ("spec.role", "a/path/of/roles/Name"),
        ("spec.tags", {"team": "a", "empty": ""}),
        (DEVICES, [{"deviceName": "/dev/xvda", "rootVolume": True}, {"deviceName": "/dev/xvdb"}]),
        *((DEVICES, device(volumeSize=size)) for size in ("1Gi", "59000Gi", "64000G", "58Ti", "64T", "1T")),
        *(
            (DEVICES, device(volumeSize="1Gi", volumeType=kind))
            for kind in ("standard", "io1", "io2", "gp2", "gp3", "sc1", "st1")
        ),
        (DEVICES, device(snapshotID="snap-1", volumeInitializationRate=100)),
        (DEVICES, device(snapshotID="snap-1", volumeInitializationRate=300)),
        (
            DEVICES,
            device(volumeSize="1Gi", iops=3000, throughput=125, encrypted=True, deleteOnTermination=True, kmsKeyID="k"),
        ),
        ("spec.instanceStorePolicy", "RAID0"),
        ("spec.detailedMonitoring", True),
        ("spec.associatePublicIPAddress", False),
        ("spec.ipPrefixCount", 0),
        (INTERFACES, [PRIMARY, efa(0, 1), efa(1, 1)]),
        (METADATA, {}),
        (
            METADATA,
            {
                "httpEndpoint": "disabled",
                "httpProtocolIPv6": "enabled",
                "httpPutResponseHopLimit": 64,
                "httpTokens": "optional",
            },
        ),
        (TRACKING, {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 180, "udpTimeout": 60}),
        (TRACKING, {"tcpEstablishedTimeout": 432000}),
        ("spec.cpuOptions", {"nestedVirtualization": "enabled"}),
        ("spec.context", "any"),
        ("metadata.annotations", {"shiplap.dev/prefix-delegation": "on", "else.where/x": "y"}),
        (
            "metadata.annotations",
            {"shiplap.dev/vm-memory-overhead-percent": "0.06", "shiplap.dev/vm-memory-overhead-percent.r5a": "0"},
        ),
        ("status", {"amis": []}),
    ],
)
def test_accepted(path: str, value: Any) -> None:
    assert problems_of(changed(EC2_NODE_CLASS, path, value)) == []


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        *((path, ABSENT, path) for path in (SUBNETS, GROUPS)),
        *((path, [], path) for path in (SUBNETS, GROUPS)),
        (SUBNETS, [{"id": "subnet-1"}] * 31, SUBNETS),
        (SUBNETS, [{}], f"{SUBNETS}[0]"),
        (SUBNETS, [{"id": "subnet-1", "tags": {"a": "b"}}], f"{SUBNETS}[0]"),
        (SUBNETS, [{"id": "sg-1"}], f"{SUBNETS}[0].id"),
        (SUBNETS, [{"id": "subnet-"}], f"{SUBNETS}[0].id"),
        (SUBNETS, [{"id": "subnet-1", "name": "a"}], f"{SUBNETS}[0].name"),
        (SUBNETS, [{"tags": {"": "b"}}], f"{SUBNETS}[0].tags"),
        (SUBNETS, [{"tags": {"a": ""}}], f"{SUBNETS}[0].tags.a"),
        (SUBNETS, [{"tags": {f"k{number}": "v" for number in range(21)}}], f"{SUBNETS}[0].tags"),
        (GROUPS, [{}], f"{GROUPS}[0]"),
        (GROUPS, [{"name": "a", "tags": {"a": "b"}}], f"{GROUPS}[0]"),
        (GROUPS, [{"id": "sg-1", "name": "a"}], f"{GROUPS}[0]"),
        (GROUPS, [{"id": "subnet-1"}], f"{GROUPS}[0].id"),
        (RESERVATIONS, [{"id": "cr-1"}] * 31, RESERVATIONS),
        (RESERVATIONS, [{"ownerID": "012345678901"}], f"{RESERVATIONS}[0]"),
        (RESERVATIONS, [{"id": "cr-1", "tags": {"a": "b"}}], f"{RESERVATIONS}[0]"),
        (RESERVATIONS, [{"id": "r-1"}], f"{RESERVATIONS}[0].id"),
        (RESERVATIONS, [{"tags": {"a": "b"}, "ownerID": "12"}], f"{RESERVATIONS}[0].ownerID"),
        (RESERVATIONS, [{"instanceMatchCriteria": "any"}], f"{RESERVATIONS}[0].instanceMatchCriteria"),
        (PLACEMENT, {}, PLACEMENT),
        (PLACEMENT, {"name": "a", "id": "pg-1"}, PLACEMENT),
        (PLACEMENT, {"id": "group"}, f"{PLACEMENT}.id"),
        (AMIS, [{"alias": "al2023@latest"}, {"id": "ami-1"}], AMIS),
        (AMIS, [{"alias": "al2023@latest", "owner": "self"}], f"{AMIS}[0]"),
        *(
            (AMIS, [{"alias": alias}], f"{AMIS}[0].alias")
            for alias in (
                "al2023",
                "al2023@",
                "al2023@2024",
                "al2023@" + "v" * 30,
                "windows2022@1.0",
                "bottlerocket@1.32",
                "bottlerocket@v20240625",
            )
        ),
        ("spec.amiFamily", "Ubuntu", "spec.amiFamily"),
        ("spec.amiFamily", "Bottlerocket", "spec.amiFamily"),
        ("spec.role", ABSENT, "spec"),
        ("spec.role", "", "spec.role"),
        ("spec.instanceProfile", "profile", "spec"),
        ("spec.tags", {"": "a"}, "spec.tags"),
        ("spec.tags", {"eks:eks-cluster-name": "a"}, "spec.tags.eks:eks-cluster-name"),
        ("spec.tags", {"shiplap.dev/cluster": "a"}, "spec.tags[shiplap.dev/cluster]"),
        ("spec.tags", {"karpenter.sh/nodepool": "a"}, "spec.tags[karpenter.sh/nodepool]"),
        ("spec.tags", {"karpenter.sh/nodeclaim": "a"}, "spec.tags[karpenter.sh/nodeclaim]"),
        ("spec.tags", {"karpenter.k8s.aws/ec2nodeclass": "a"}, "spec.tags[karpenter.k8s.aws/ec2nodeclass]"),
        ("spec.tags", {"kubernetes.io/cluster/x": "owned"}, "spec.tags[kubernetes.io/cluster/x]"),
        (DEVICES, [{"rootVolume": True}] * 2, DEVICES),
        (DEVICES, [{}] * 51, DEVICES),
        (DEVICES, device(), f"{DEVICES}[0].ebs"),
        *(
            (DEVICES, device(volumeSize=size), f"{DEVICES}[0].ebs.volumeSize")
            for size in ("0Gi", "59001Gi", "64001G", "59Ti", "65T", "0.5Gi", "10", "512Mi", "-1Gi", "")
        ),
        (DEVICES, device(volumeSize="1Gi", volumeType="gp9"), f"{DEVICES}[0].ebs.volumeType"),
        *(
            (
                DEVICES,
                device(snapshotID="snap-1", volumeInitializationRate=rate),
                f"{DEVICES}[0].ebs.volumeInitializationRate",
            )
            for rate in (99, 301)
        ),
        (
            DEVICES,
            device(volumeSize="1Gi", volumeInitializationRate=200),
            f"{DEVICES}[0].ebs.volumeInitializationRate",
        ),
        (DEVICES, device(volumeSize="1Gi", iops=-1), f"{DEVICES}[0].ebs.iops"),
        ("spec.instanceStorePolicy", "RAID1", "spec.instanceStorePolicy"),
        ("spec.detailedMonitoring", "yes", "spec.detailedMonitoring"),
        ("spec.ipPrefixCount", -1, "spec.ipPrefixCount"),
        (INTERFACES, [PRIMARY] * 2, INTERFACES),
        (INTERFACES, [PRIMARY, efa(1, 0), efa(1, 1)], INTERFACES),
        (INTERFACES, [efa(0, 0)], INTERFACES),
        (INTERFACES, [PRIMARY, {**PRIMARY, "deviceIndex": -1}], f"{INTERFACES}[1].deviceIndex"),
        (INTERFACES, [PRIMARY, {**PRIMARY, "networkCardIndex": -1}], f"{INTERFACES}[1].networkCardIndex"),
        (
            INTERFACES,
            [PRIMARY, {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa"}],
            f"{INTERFACES}[1].interfaceType",
        ),
        (INTERFACES, [{**PRIMARY, "deviceIndex": number} for number in range(151)], INTERFACES),
        (METADATA, {"httpEndpoint": "on"}, f"{METADATA}.httpEndpoint"),
        (METADATA, {"httpProtocolIPv6": "on"}, f"{METADATA}.httpProtocolIPv6"),
        (METADATA, {"httpPutResponseHopLimit": 0}, f"{METADATA}.httpPutResponseHopLimit"),
        (METADATA, {"httpPutResponseHopLimit": 65}, f"{METADATA}.httpPutResponseHopLimit"),
        (METADATA, {"httpTokens": "none"}, f"{METADATA}.httpTokens"),
        (TRACKING, {}, TRACKING),
        *(
            (TRACKING, {"tcpEstablishedTimeout": timeout}, f"{TRACKING}.tcpEstablishedTimeout")
            for timeout in (59, 432001, "1h")
        ),
        *((TRACKING, {"udpStreamTimeout": timeout}, f"{TRACKING}.udpStreamTimeout") for timeout in (59, 181)),
        *((TRACKING, {"udpTimeout": timeout}, f"{TRACKING}.udpTimeout") for timeout in (29, 61, "45s")),
        ("spec.cpuOptions", {"nestedVirtualization": "on"}, "spec.cpuOptions.nestedVirtualization"),
        ("spec.securityGroups", [], "spec.securityGroups"),
        ("metadata.name", "a" * 254, "metadata.name"),
        *(
            ("metadata.annotations", {key: value}, f"metadata.annotations[{key}]")
            for key, value in (
                ("shiplap.dev/prefix-delegation", "maybe"),
                ("shiplap.dev/vm-memory-overhead-percent", "7.5%"),
                ("shiplap.dev/vm-memory-overhead-percent", "nan"),
                ("shiplap.dev/vm-memory-overhead-percent.r5a", "1"),
                ("shiplap.dev/vm-overhead", "0.1"),
            )
        ),
    ],
)
def test_refused(path: str, value: Any, field: str) -> None:
    assert fields_of(changed(EC2_NODE_CLASS, path, value)) == [field]


@pytest.mark.parametrize(
    ("term", "fields"),
    [
        ({"id": "ami-0a"}, []),
        ({"ssmParameter": "/my/ami"}, []),
        ({"owner": "self"}, [f"{AMIS}[0]"]),
        ({"owner": "self", "name": "my-*"}, []),
        ({"owner": "self", "tags": {"a": "b"}}, []),
        ({"name": "my-*", "owner": "123456789012", "tags": {"a": "b"}}, []),
        ({}, [f"{AMIS}[0]"]),
        ({"id": "ami-0a", "name": "x"}, [f"{AMIS}[0]"]),
        ({"id": "image-0a"}, [f"{AMIS}[0].id"]),
        ({"alias": "ubuntu@latest"}, [f"{AMIS}[0].alias"]),
    ],
)
def test_amis_without_a_known_alias(term: dict[str, Any], fields: list[str]) -> None:
    node_class = changed(EC2_NODE_CLASS, AMIS, [term])
    assert fields_of(changed(node_class, "spec.amiFamily", "AL2")) == fields
    if "alias" not in term:
        assert sorted(fields_of(node_class)) == sorted(["spec.amiFamily", *fields])


MIME = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
SHELL = "--B\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n"


@pytest.mark.parametrize(
    ("alias", "text", "reason"),
    [
        ("bottlerocket@latest", "[settings", "is not TOML"),
        ("bottlerocket@latest", "#!/bin/sh\nsecret", "is not TOML"),
        ("bottlerocket@latest", "[settings.host-containers.admin]\nenabled = true", ""),
        ("al2023@latest", MIME + "nothing", "is not a well-formed MIME document"),
        ("al2@latest", MIME + "nothing", "is not a well-formed MIME document"),
        ("al2023@latest", MIME + SHELL + "--B--\n", ""),
        ("al2023@latest", MIME + SHELL + "--B\n", ""),
        ("al2@latest", MIME + SHELL + "--B", ""),
        ("al2023@latest", (MIME + SHELL + "--B \n").replace("\n", "\r\n"), ""),
        ("al2023@latest", MIME + SHELL, "is not a well-formed MIME document"),
        ("al2023@latest", MIME + SHELL + "--B\n\n", "is not a well-formed MIME document"),
        ("al2023@latest", MIME + SHELL + "--C\n", "is not a well-formed MIME document"),
        ("al2023@latest", "Content-Type: text/x-shellscript\n\n#!/bin/sh\n", ""),
        ("windows2022@latest", MIME + "nothing", ""),
        ("al2023@latest", "x" * 16384, ""),
        ("al2023@latest", "ä" * 8193, "is 16386 bytes, EC2 takes 16384"),
    ],
)
def test_user_data_that_its_family_cannot_merge(alias: str, text: str, reason: str) -> None:
    written = changed(EC2_NODE_CLASS, "spec", {**EC2_NODE_CLASS["spec"], "amiSelectorTerms": [{"alias": alias}]})
    written["spec"].pop("kubelet", None)
    found = [why for field, why in problems_of(changed(written, "spec.userData", text)) if field == "spec.userData"]
    assert [why.startswith(reason) for why in found] == ([True] if reason else [])
    assert "secret" not in str(found)


def test_no_ami_selected_at_all() -> None:
    assert sorted(fields_of(changed(EC2_NODE_CLASS, AMIS, ABSENT))) == ["spec.amiFamily", AMIS]


def test_an_instance_profile_instead_of_a_role() -> None:
    profile = changed(changed(EC2_NODE_CLASS, "spec.role", ABSENT), "spec.instanceProfile", "profile")
    assert fields_of(profile) == []
    assert fields_of(changed(profile, "spec.instanceProfile", "")) == ["spec.instanceProfile"]


@pytest.mark.parametrize(
    ("alias", "written", "family"),
    [
        ("al2023@latest", "", "AL2023"),
        ("bottlerocket@1.32.0", "", "Bottlerocket"),
        ("al2@latest", "Custom", "Custom"),
        ("", "Windows2022", "Windows2022"),
    ],
)
def test_the_family_comes_from_the_field_or_the_alias(alias: str, written: str, family: str) -> None:
    terms = (AmiSelectorTerm(alias=alias),) if alias else (AmiSelectorTerm(id="ami-0a"),)
    assert ami_family(EC2NodeClassSpec(ami_selector_terms=terms, ami_family=written)) == family


def test_whole_numbers_beyond_64_bits_are_floats_as_an_api_server_keeps_them() -> None:
    """Go reads a number beyond 64 bits as a float where a schema is open; a manifest read back must not differ."""
    written, stored = (
        decode(changed(EC2_NODE_CLASS, "spec.kubelet", {"a": [{"b": number}], "c": True}), EC2NodeClass)
        for number in (2**63, 9223372036854776000)
    )
    assert written == stored
    assert isinstance(written[0].spec.kubelet["a"][0]["b"], float)  # type: ignore[union-attr]
    smaller, _ = decode(changed(EC2_NODE_CLASS, "spec.kubelet", {"a": 2**63 - 1}), EC2NodeClass)
    assert smaller is not None
    assert smaller.spec.kubelet == {"a": 2**63 - 1}
