"""The hashes by which claims remember their NodePool and EC2NodeClass."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap.manifests.template_hash import (
    differ,
    first_node_class_hashes,
    first_pool_hashes,
    node_class_hash,
    pool_hash,
)
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

CLAIM = "spec.template.spec"
LABELS = "spec.template.metadata.labels"


def parsed(kind: type[Any], sample: dict[str, Any], *changes: tuple[str, Any], under: str = "") -> Any:
    """The changed sample as a file gives it: no text of it is the object that the types hold as their default."""
    for path, value in changes:
        sample = changed(sample, under + path, value)
    return msgspec.json.decode(msgspec.json.encode(sample), type=kind)


pool = partial(parsed, NodePool, NODE_POOL)
node_class = partial(parsed, EC2NodeClass, EC2_NODE_CLASS, under="spec.")


def of_pool(*changes: tuple[str, Any]) -> str:
    return pool_hash(pool(*changes))


def of_class(*changes: tuple[str, Any], ca: str = "") -> str:
    return node_class_hash(node_class(*changes), "AL2023", ca)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{CLAIM}.expireAfter", "720h"),
        (f"{CLAIM}.expireAfter", "43200m"),
        (f"{CLAIM}.nodeClassRef", {"name": "default"}),
        (f"{CLAIM}.taints", []),
        ("spec.template.metadata", {"labels": {}, "annotations": {}}),
        ("spec.weight", 7),
        ("spec.disruption", {"consolidateAfter": "5m"}),
    ],
    ids=str,
)
def test_a_pool_that_says_the_same_or_speaks_of_no_node_keeps_its_hash(path: str, value: Any) -> None:
    assert of_pool((path, value)) == of_pool()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{CLAIM}.expireAfter", "721h"),
        (f"{CLAIM}.expireAfter", "Never"),
        (f"{CLAIM}.terminationGracePeriod", "1h"),
        (f"{CLAIM}.nodeClassRef.name", "other"),
        (f"{CLAIM}.taints", [{"key": "a", "effect": "NoSchedule"}]),
        (LABELS, {"team": ""}),
        (LABELS, {"team": "a"}),
    ],
    ids=str,
)
def test_a_pool_that_makes_other_nodes_has_another_hash(path: str, value: Any) -> None:
    assert of_pool((path, value)) != of_pool()


def test_one_length_of_time_has_one_hash_however_it_is_spelt() -> None:
    field = f"{CLAIM}.terminationGracePeriod"
    assert of_pool((field, "90m")) == of_pool((field, "1h30m"))


METADATA = {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1}
INTERFACE = {"networkCardIndex": 0, "deviceIndex": 0}
DISK = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "1024Gi"}}


@pytest.mark.parametrize(
    ("path", "plain", "written"),
    [
        ("metadataOptions", None, {"httpTokens": "required"}),
        ("metadataOptions", {}, {**METADATA, "httpTokens": "required"}),
        ("networkInterfaces", [INTERFACE], [{**INTERFACE, "interfaceType": "interface"}]),
        ("networkInterfaces", [{}], [{**INTERFACE, "interfaceType": "interface"}]),
        ("blockDeviceMappings", [DISK], [{**DISK, "rootVolume": False}]),
        ("blockDeviceMappings", [DISK], [{**DISK, "ebs": {"volumeSize": "1Ti"}}]),
        ("userData", None, ""),
        ("kubelet", None, {}),
        ("kubelet", {"maxPods": 20}, {"maxPods": 20, "podsPerCore": None}),
    ],
    ids=str,
)
def test_a_class_that_says_the_same_keeps_its_hash(path: str, plain: Any, written: Any) -> None:
    before = of_class() if plain is None else of_class((path, plain))
    assert of_class((path, written)) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"clusterDNS": ["10.0.0.1", "10.0.0.2"]}, {"clusterDNS": ["10.0.0.2", "10.0.0.1"]}),
        ({"podsPerCore": 0}, {}),
        ({"cpuCFSQuota": False}, {}),
        ({"evictionHard": {}}, {}),
        ({"maxPods": 12}, {"maxPods": 21}),
    ],
    ids=str,
)
def test_the_kubelet_map_counts_as_it_is_written(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert of_class(("kubelet", one)) != of_class(("kubelet", other))


def test_a_tag_without_a_value_is_a_tag() -> None:
    assert of_class(("tags", {"a": ""})) != of_class()


def test_another_certificate_authority_is_a_difference_and_an_unknown_one_is_none() -> None:
    assert differ(of_class(ca="b25l"), of_class(ca="dHdv"))
    assert not differ(of_class(ca="b25l"), of_class(ca="b25l"))
    assert not differ(of_class(), of_class(ca="dHdv"))
    assert not differ(of_class(ca="b25l"), of_class())
    assert differ(of_class(ca="b25l"), of_class(("role", "other")))
    assert differ(of_class(("role", "other")), of_class(ca="b25l"))


# Version shiplap-1


def test_the_hashes_of_the_first_version_are_what_it_wrote() -> None:
    """As Shiplap computed them when it wrote that version."""
    assert FIRST_POOL in first_pool_hashes(pool())
    assert FIRST_POOL_WITH_TAINT in first_pool_hashes(pool(TAINTED))
    assert FIRST_CLASS in first_node_class_hashes(node_class(), "AL2023")
    assert FIRST_CLASS_WITH_MORE in first_node_class_hashes(node_class(*MORE), "AL2023")
    assert FIRST_CLASS_TRACKING in first_node_class_hashes(node_class(TRACKING), "AL2023")


@pytest.mark.parametrize("written", ["720h", None])
def test_a_first_hash_survives_that_a_default_is_written_out_or_taken_away(written: str | None) -> None:
    now = pool() if written is None else pool((f"{CLAIM}.expireAfter", written))
    assert {FIRST_POOL, FIRST_POOL_WRITTEN} <= first_pool_hashes(now)
    assert not {FIRST_POOL, FIRST_POOL_WRITTEN} & first_pool_hashes(pool((f"{CLAIM}.expireAfter", "721h")))


@pytest.mark.parametrize("options", [None, {}, {"httpTokens": "required"}, {**METADATA, "httpTokens": "required"}])
def test_a_first_class_hash_survives_it_too(options: dict[str, Any] | None) -> None:
    now = node_class() if options is None else node_class(("metadataOptions", options))
    assert {FIRST_CLASS, FIRST_CLASS_WRITTEN} <= first_node_class_hashes(now, "AL2023")
    other = node_class(("metadataOptions", {"httpTokens": "optional"}))
    assert not {FIRST_CLASS, FIRST_CLASS_WRITTEN} & first_node_class_hashes(other, "AL2023")


TAINTED = (f"{CLAIM}.taints", [{"key": "a", "effect": "NoSchedule"}])
MORE = (
    ("kubelet", {"maxPods": 20, "clusterDNS": ["10.0.0.1"]}),
    ("tags", {"a": "b"}),
    ("blockDeviceMappings", [DISK]),
    ("detailedMonitoring", False),
    ("metadataOptions", {"httpTokens": "optional"}),
)
TRACKING = ("connectionTracking", {"udpTimeout": 45})

FIRST_POOL = "340392372d948eee"
FIRST_POOL_WRITTEN = "6baa56d48948293e"
FIRST_POOL_WITH_TAINT = "5e1478a73797227b"
FIRST_CLASS = "480f374ed7900334"
FIRST_CLASS_WRITTEN = "af064209a0886bfc"
FIRST_CLASS_WITH_MORE = "d1ace60b3a19e8a0"
FIRST_CLASS_TRACKING = "1de60f88a7a287be"
