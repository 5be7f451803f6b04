"""Our types of manifests beside upstream's: the defaults of its CRDs, and the fields of the kubelet's configuration."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap.manifests.template_hash import node_class_hash, pool_hash
from shiplap.manifests.validation.kubelet_rules import KubeletConfiguration
from tests.go_modules import KARPENTER, KUBELET, folder_of
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed, problems_of

CLAIM = "spec.template.spec"
METADATA = "spec.metadataOptions"
OURS = {"apiVersion", "kind"}
"""Fields of every object, which the Go type embeds."""


def schema_of(name: str) -> dict[str, Any]:
    file: Path = folder_of(KARPENTER) / "pkg" / "apis" / "crds" / name
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def defaulted(schema: dict[str, Any], value: Any) -> Any:
    """Return the value that an API server stores: defaults are written into missing fields, from the outside in."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    found = copy.deepcopy(value)
    for name, field in fields.items():
        if "default" in field and name not in found:
            found[name] = copy.deepcopy(field["default"])
    return {name: defaulted(fields.get(name, {}), item) for name, item in found.items()}


def count(schema: Any) -> int:
    """Return the number of defaults that a schema holds."""
    if isinstance(schema, list):
        return sum(map(count, schema))
    if not isinstance(schema, dict):
        return 0
    return ("default" in schema and "type" in schema) + sum(count(item) for item in schema.values())


POOLS = [
    NODE_POOL,
    changed(NODE_POOL, f"{CLAIM}.terminationGracePeriod", "1h"),
    changed(NODE_POOL, f"{CLAIM}.expireAfter", "Never"),
    changed(NODE_POOL, "spec.disruption", {"budgets": [{"schedule": "@daily", "duration": "1h"}]}),
]
CLASSES = [
    EC2_NODE_CLASS,
    changed(EC2_NODE_CLASS, METADATA, {}),
    changed(EC2_NODE_CLASS, METADATA, {"httpTokens": "optional"}),
    changed(EC2_NODE_CLASS, METADATA, {"httpPutResponseHopLimit": 2}),
    changed(EC2_NODE_CLASS, "spec.blockDeviceMappings", [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}]),
]


def read(data: dict[str, Any], kind: type[Any]) -> Any:
    return msgspec.json.decode(json.dumps(data), type=kind)


@pytest.mark.parametrize("data", POOLS)
def test_a_pool_that_moves_from_a_file_to_a_cluster_keeps_its_hash(data: dict[str, Any]) -> None:
    schema = schema_of("karpenter.sh_nodepools.yaml")
    stored = defaulted(schema, data)
    assert count(schema) >= 5
    assert stored != data
    assert problems_of(stored) == []
    assert pool_hash(read(stored, NodePool)) == pool_hash(read(data, NodePool))


@pytest.mark.parametrize("data", CLASSES)
def test_a_class_that_moves_from_a_file_to_a_cluster_keeps_its_hash(data: dict[str, Any]) -> None:
    schema = schema_of("karpenter.k8s.aws_ec2nodeclasses.yaml")
    stored = defaulted(schema, data)
    assert count(schema) >= 5
    assert stored != data
    assert problems_of(stored) == []
    hashes = {node_class_hash(read(item, EC2NodeClass), "AL2023") for item in (data, stored)}
    assert len(hashes) == 1


def fields_of(source: str, name: str) -> dict[str, str]:
    """The JSON names of a Go struct's fields with their Go types."""
    found = re.search(rf"^type {name} struct \{{$(.*?)^\}}$", source, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    lines = re.findall(r'^\s+\w+\s+(\S+)\s+`json:"(\w+)', found[1], re.MULTILINE)
    return {json_name: kind for kind, json_name in lines}


SAMPLES: dict[str, Any] = {
    "bool": True,
    "int": 1,
    "float": 0.5,
    "string": "text",
    "metav1.Duration": "1m",
    "[]string": ["text"],
    "[]int": [1],
    "map[string]string": {"key": "value"},
    "map[string]bool": {"key": True},
    "map[string][]string": {"key": ["value"]},
}
NAMED_TEXTS = ("ImagePullCredentialsVerificationPolicy", "MemoryReservationPolicy", "ResourceChangeDetectionStrategy")
READ_FOR_ITSELF = ("kubeReserved", "systemReserved", "registerWithTaints", "evictionMinimumReclaim")
"""Fields whose content is checked, or refused, for other reasons."""


def sample_of(kind: str) -> Any:
    plain = re.sub(r"^\*", "", kind)
    plain = "string" if plain in NAMED_TEXTS else re.sub(r"(int|float)(32|64)$", r"\1", plain)
    return SAMPLES.get(plain)


def test_every_field_of_the_kubelet_is_known_with_its_type() -> None:
    source = (folder_of(KUBELET) / "config" / "v1beta1" / "types.go").read_text()
    theirs = fields_of(source, "KubeletConfiguration")
    ours = {field.encode_name for field in msgspec.structs.fields(KubeletConfiguration)}
    assert len(theirs) > 120
    assert set(theirs) == ours - OURS
    tried = 0
    for name, kind in theirs.items():
        value = sample_of(kind)
        if value is None or name in READ_FOR_ITSELF or name.startswith("eviction"):
            continue
        tried += 1
        found = problems_of(changed(EC2_NODE_CLASS, "spec.kubelet", {name: value}))
        assert found == [], (name, kind, found)
    assert tried > 100


@pytest.mark.parametrize(
    ("struct", "field"),
    [
        ("MemorySwapConfiguration", "memorySwap"),
        ("CrashLoopBackOffConfig", "crashLoopBackOff"),
        ("UserNamespaces", "userNamespaces"),
    ],
)
def test_nested_fields_of_the_kubelet_are_known(struct: str, field: str) -> None:
    source = (folder_of(KUBELET) / "config" / "v1beta1" / "types.go").read_text()
    for name, kind in fields_of(source, struct).items():
        assert problems_of(changed(EC2_NODE_CLASS, "spec.kubelet", {field: {name: sample_of(kind)}})) == [], name
