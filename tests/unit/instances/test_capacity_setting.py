"""Tests the sources of an estimate's setting: the cluster, its VPC CNI, annotations of the EC2NodeClass."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import (
    CapacitySetting,
    VpcCni,
    cluster_setting,
    detect_cni,
    node_class_setting,
)
from shiplap.instances.catalog.ami_families import FAMILIES, family_of
from shiplap.kubernetes.objects import DaemonSet
from shiplap.manifests.custom_resources import AmiSelectorTerm
from shiplap.settings import ClusterSettings
from tests.builders.node_classes import node_class

IMAGE = "602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon-k8s-cni"


def aws_node(*, image: str = f"{IMAGE}:v1.19.2-eksbuild.1", namespace: str = "kube-system", **env: str) -> DaemonSet:
    variables: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in env.items()]
    variables.append({"name": "MY_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    container = {"name": "aws-node", "image": image, "env": variables}
    agent = {"name": "aws-eks-nodeagent", "image": "agent:v1", "env": [{"name": "MAX_ENI", "value": "9"}]}
    written = {
        "metadata": {"name": "aws-node", "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [agent, container]}}},
    }
    return msgspec.json.decode(json.dumps(written), type=DaemonSet)


def test_no_vpc_cni() -> None:
    assert detect_cni([]) is None
    assert detect_cni([aws_node(namespace="elsewhere")]) is None


def test_a_plain_vpc_cni() -> None:
    assert detect_cni([aws_node()]) == VpcCni(version="1.19.2")


def test_a_vpc_cni_that_departs_in_every_way() -> None:
    found = detect_cni(
        [aws_node(ENABLE_PREFIX_DELEGATION="true", AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG="true", MAX_ENI="4")]
    )
    assert found == VpcCni(prefix_delegation=True, custom_networking=True, max_eni=4, version="1.19.2")


def test_pods_with_ipv6_addresses() -> None:
    found = detect_cni([aws_node(ENABLE_IPv6="true", ENABLE_PREFIX_DELEGATION="true")])
    assert found == VpcCni(prefix_delegation=True, ipv6=True, version="1.19.2")
    assert detect_cni([aws_node(ENABLE_IPv6="false")]) == VpcCni(version="1.19.2")


@pytest.mark.parametrize("limit", ["0", "-1", "", "many"])
def test_no_limit_of_interfaces(limit: str) -> None:
    found = detect_cni([aws_node(MAX_ENI=limit)])
    assert found is not None
    assert found.max_eni is None


@pytest.mark.parametrize(
    ("image", "delegates"),
    [
        (f"{IMAGE}:v1.8.0", False),
        (f"{IMAGE}:v1.9.0", True),
        (f"{IMAGE}:1.10", True),
        (f"{IMAGE}:v2.0.0-rc1", True),
        (f"{IMAGE}:latest", True),
        (IMAGE, True),
        ("registry:5000/cni@sha256:0123", True),
    ],
)
def test_the_version_decides_about_prefixes(image: str, delegates: bool) -> None:
    found = detect_cni([aws_node(image=image, ENABLE_PREFIX_DELEGATION="true")])
    assert found is not None
    assert found.delegates_prefixes is delegates


def test_values_of_other_variables_are_not_kept() -> None:
    decoded = aws_node(TOKEN="secret")
    assert "secret" not in msgspec.json.encode(decoded).decode()


@pytest.mark.parametrize(("switch", "expected"), [("auto", True), ("on", True), ("off", False)])
def test_settings_overrule_the_daemon_set(switch: str, expected: bool) -> None:
    settings = ClusterSettings(name="demo", region="eu-west-1", prefix_delegation=switch, reserved_enis=2)
    made = cluster_setting(settings, [aws_node(ENABLE_PREFIX_DELEGATION="true", MAX_ENI="3")])
    assert made.cni == VpcCni(prefix_delegation=expected, max_eni=3, version="1.19.2")
    assert made.region == "eu-west-1"
    assert made.reserved_enis == 2
    assert made.vm_memory_overhead_percent == 0.075


def test_settings_without_a_daemon_set() -> None:
    assert cluster_setting(ClusterSettings(name="demo", region="eu-west-1"), []).cni is None
    switched = cluster_setting(ClusterSettings(name="demo", region="eu-west-1", prefix_delegation="on"), [])
    assert switched.cni == VpcCni(prefix_delegation=True)


def test_a_node_class_switches_prefix_delegation() -> None:
    base = CapacitySetting(cni=VpcCni(prefix_delegation=True, max_eni=3))
    off = node_class_setting(base, node_class(annotations={"shiplap.dev/prefix-delegation": "off"}))
    assert off.cni == VpcCni(max_eni=3)
    on = node_class_setting(CapacitySetting(), node_class(annotations={"shiplap.dev/prefix-delegation": "on"}))
    assert on.cni == VpcCni(prefix_delegation=True)
    assert node_class_setting(base, node_class(annotations={"team": "a"})) is base


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shiplap.dev/prefix-delegation", "yes"),
        ("shiplap.dev/vm-memory-overhead-percent", "7.5"),
        ("shiplap.dev/vm-memory-overhead-percent", "little"),
        ("shiplap.dev/vm-memory-overhead-percent.m5", "-0.1"),
        ("shiplap.dev/vm-memory-overhead-percent.m5", "1"),
        ("shiplap.dev/vm-memory-overhead-percent.m5", "nan"),
    ],
)
def test_annotations_that_cannot_be_read(key: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=key) as caught:
        node_class_setting(CapacitySetting(), node_class(annotations={key: value}))
    assert caught.value.document == "EC2NodeClass/default"


@pytest.mark.parametrize("fraction", [0.0, 0.99])
def test_a_node_class_may_say_that_nothing_or_nearly_all_of_the_memory_is_missing(fraction: float) -> None:
    key = "shiplap.dev/vm-memory-overhead-percent"
    made = node_class_setting(CapacitySetting(), node_class(annotations={key: str(fraction)}))
    assert made.overhead_percent("m5.large") == fraction


@pytest.mark.parametrize(
    ("alias", "family"),
    [
        ("al2023@latest", "AL2023"),
        ("al2@v20240625", "AL2"),
        ("bottlerocket@1.32.0", "Bottlerocket"),
        ("windows2025@latest", "Windows2025"),
    ],
)
def test_the_family_of_an_alias(alias: str, family: str) -> None:
    aliased = node_class(family="", ami_selector_terms=(AmiSelectorTerm(alias=alias),))
    assert family_of(aliased) is FAMILIES[family]
    custom = node_class(family="Custom", ami_selector_terms=(AmiSelectorTerm(alias=alias),))
    assert family_of(custom) is FAMILIES["Custom"]


@pytest.mark.parametrize("family", ["", "Ubuntu"])
def test_an_unknown_family(family: str) -> None:
    with pytest.raises(InvalidInput, match="AMI family"):
        family_of(node_class(family=family))


@pytest.mark.parametrize(("namespace", "known"), [("kube-system", True), ("", True), ("default", False)])
def test_the_vpc_cni_is_the_one_of_kube_system(namespace: str, known: bool) -> None:
    """Files may leave the namespace out."""
    assert (detect_cni([aws_node(namespace="other"), aws_node(namespace=namespace)]) is not None) is known


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("true", True),
        ("True", True),
        (" t ", True),
        ("1", True),
        ("T", True),
        ("false", False),
        ("", False),
        ("yes", False),
    ],
)
def test_a_switch_of_the_cni_is_on_as_go_reads_it(value: str, on: bool) -> None:
    cni = detect_cni([aws_node(ENABLE_PREFIX_DELEGATION=value)])
    assert cni is not None
    assert cni.prefix_delegation is on
    custom = detect_cni([aws_node(AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=value)])
    assert custom is not None
    assert custom.custom_networking is on


@pytest.mark.parametrize(("value", "most"), [("", None), ("0", None), ("1", 1), ("4", 4), ("-1", None), ("x", None)])
def test_a_bound_of_the_interfaces_is_a_positive_number(value: str, most: int | None) -> None:
    cni = detect_cni([aws_node(MAX_ENI=value)])
    assert cni is not None
    assert cni.max_eni == most


@pytest.mark.parametrize(
    ("version", "delegates"),
    [("", True), ("1.9", True), ("1.9.0", True), ("1.8.9", False), ("2.0", True), ("1.19.2", True)],
)
def test_prefixes_are_delegated_since_a_version_of_the_cni(version: str, delegates: bool) -> None:
    assert VpcCni(prefix_delegation=True, version=version).delegates_prefixes is delegates
    assert not VpcCni(prefix_delegation=False, version=version).delegates_prefixes
