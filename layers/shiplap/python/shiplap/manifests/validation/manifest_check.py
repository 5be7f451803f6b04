"""A manifest by itself: typed, and everything that is wrong with it, whether it comes from a file or from a cluster."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from shiplap.manifests.custom_resources import (
    CapacityBuffer,
    EC2NodeClass,
    Manifests,
    NodeOverlay,
    NodePool,
    PodTemplate,
)
from shiplap.manifests.decoding import Problem, decode
from shiplap.manifests.validation import buffer_rules, nodeclass_rules, nodeoverlay_rules, nodepool_rules

Manifest = NodePool | EC2NodeClass | NodeOverlay | CapacityBuffer | PodTemplate
BUFFERS = "autoscaling.x-k8s.io"


_Rules = Callable[[Any, Mapping[str, Any]], Iterator[Problem]]


class _Kind(msgspec.Struct, frozen=True):
    """`admission` is what an API server refuses beyond the shape, `usability` what it accepts and is wrong."""

    version: str
    type: type[Manifest]
    admission: _Rules
    usability: _Rules


_KINDS = {
    ("karpenter.sh", "NodePool"): _Kind("v1", NodePool, nodepool_rules.admission_problems, nodepool_rules.problems_of),
    ("karpenter.k8s.aws", "EC2NodeClass"): _Kind(
        "v1", EC2NodeClass, nodeclass_rules.admission_problems, nodeclass_rules.problems_of
    ),
    ("karpenter.sh", "NodeOverlay"): _Kind(
        "v1alpha1", NodeOverlay, nodeoverlay_rules.admission_problems, nodeoverlay_rules.problems_of
    ),
    (BUFFERS, "CapacityBuffer"): _Kind(
        "v1beta1", CapacityBuffer, buffer_rules.admission_problems, buffer_rules.problems_of
    ),
    ("", "PodTemplate"): _Kind(
        "v1", PodTemplate, buffer_rules.template_admission_problems, buffer_rules.template_problems
    ),
}
_FORMER_KINDS = frozenset({"Provisioner", "AWSNodeTemplate", "Machine"})
"""Karpenter's kinds before v1beta1."""
API_VERSIONS = {name: f"{group}/{kind.version}" for (group, name), kind in _KINDS.items() if group}
"""How the `apiVersion` of each kind is written, PodTemplate of Kubernetes itself aside."""

MANIFEST_GROUPS = frozenset(group for group, _ in _KINDS if group)

OTHER_KINDS = frozenset({(BUFFERS, "ProvisioningRequest"), (BUFFERS, "CapacityQuota")})
"""Kinds of these groups that are no manifests."""

_ALIKE = 0.7
"""From this likeness on a group is taken for a misspelt one."""


def is_manifest_kind(group: str, kind: str) -> bool:
    """True if objects of this kind are manifests."""
    return (group, kind) in _KINDS


def intended_api_version(data: Mapping[str, Any]) -> str:
    """The `apiVersion` that an object of another group was surely meant to have; empty where it may be right."""
    group, version = group_and_version(data)
    kind = str(data.get("kind", "")).lower()
    meant = next((written for name, written in API_VERSIONS.items() if name.lower() == kind), "")
    of_kind = meant.partition("/")[0]
    said = group or version
    if not meant or group == of_kind or not isinstance(data.get("apiVersion"), str):
        return ""
    alike = not group or "karpenter" in said or difflib.SequenceMatcher(None, said, of_kind).ratio() >= _ALIKE
    return meant if alike else ""


def check_object(data: Mapping[str, Any]) -> tuple[Manifest | None, list[Problem], list[Problem]]:
    """A manifest by itself: typed, what an API server with upstream's CRDs refuses, and what it accepts and is wrong.

    There is no manifest where a field has the wrong type or is missing.
    """
    missing = [field for field in ("apiVersion", "kind") if not isinstance(data.get(field), str)]
    if missing:
        return None, [((field,), "required field is missing or not text") for field in missing], []
    group, version = group_and_version(data)
    kind = _KINDS.get((group, data["kind"]))
    if kind is None:
        if meant := intended_api_version(data):
            reason = f"{data['apiVersion']!r} has no {data['kind']}; did you mean {meant}?"
            return None, [(("apiVersion",), reason)], []
        readable = ", ".join(sorted(name for known, name in _KINDS if known == group))
        former = "; bring it to v1 first, `shiplap migrate convert` says how" if data["kind"] in _FORMER_KINDS else ""
        return None, [(("kind",), f"{data['kind']} of {group} is not a manifest; {group} has {readable}{former}")], []
    if version != kind.version:
        converts = "; `shiplap migrate convert` converts it" if version == "v1beta1" else ""
        written = f"write it as {group}/{kind.version}{converts}"
        return None, [(("apiVersion",), f"{group}/{version} is not read; {written}")], []
    manifest, refused = decode(data, kind.type)
    if manifest is None:
        return None, refused, []
    refused = _first_of_each_place([*refused, *kind.admission(manifest, data)])
    both = _first_of_each_place([*refused, *kind.usability(manifest, data)])
    return manifest, refused, both[len(refused) :]


def _first_of_each_place(problems: Iterable[Problem]) -> list[Problem]:
    first: dict[tuple[str | int, ...], Problem] = {}
    for problem in problems:
        first.setdefault(problem[0], problem)
    return list(first.values())


def group_and_version(data: Mapping[str, Any]) -> tuple[str, str]:
    """The parts of `apiVersion`; both empty where it is missing or not text."""
    api_version = data.get("apiVersion")
    group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
    return group, version


def sorted_manifests(manifests: Iterable[Manifest]) -> Manifests:
    """By kind, each sorted by name and namespace."""
    by_name = sorted(manifests, key=lambda manifest: (manifest.metadata.name, manifest.metadata.namespace))
    return Manifests(
        node_pools=tuple(manifest for manifest in by_name if isinstance(manifest, NodePool)),
        node_classes=tuple(manifest for manifest in by_name if isinstance(manifest, EC2NodeClass)),
        node_overlays=tuple(manifest for manifest in by_name if isinstance(manifest, NodeOverlay)),
        capacity_buffers=tuple(manifest for manifest in by_name if isinstance(manifest, CapacityBuffer)),
        pod_templates=tuple(manifest for manifest in by_name if isinstance(manifest, PodTemplate)),
    )
