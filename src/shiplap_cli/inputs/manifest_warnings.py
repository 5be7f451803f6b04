"""Warns of manifests that are legal and surely not meant: names that nothing has, contradictions, placeholders.

The instance types are those of the embedded catalogue. Types that are newer than it are unknown here, so these are
warnings and no problems.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import parse_amount
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap.manifests.decoding import Path, Problem, field_name
from shiplap.manifests.files.loading import FoundManifest
from shiplap.manifests.shiplap_annotations import VM_MEMORY_OVERHEAD_PERCENT
from shiplap.manifests.tiers import expand, is_glob
from shiplap.manifests.validation.ami_rules import ami_family
from shiplap_cli.labels_of_types import Supply

_NODES = "nodes"
_CAPACITY_TYPES = frozenset({"on-demand", "spot", "reserved"})
_SYSTEMS = frozenset({"linux", "windows"})
_SPELLED = {"x86_64": "amd64", "x86-64": "amd64", "x64": "amd64", "i386": "amd64", "aarch64": "arm64", "arm": "arm64"}
NO_NEW_AL2 = "EKS has AL2 images for Kubernetes 1.32 and older only: later versions need al2023"
REGISTER_HINT = (
    f"start the kubelet with --register-with-taints={labels.UNREGISTERED_TAINT}:NoExecute, beside taints of its own:"
    " Shiplap takes no other Node for the instance's; labels and taints of the NodePool come when it registers"
)
"""The demand on images of family Custom: it completes `the user data has to`."""
_MEASURED = re.compile(r"instance-(?:cpu|memory|ebs-bandwidth|network-bandwidth|local-nvme|gpu-memory)\Z")
"""Labels with numbers: a value that no type has today is often a bound."""
_PLACEHOLDER = re.compile(r"\$\{?[A-Za-z_]\w*\}?|<[^<>]*>|\{\{.*?\}\}|REPLACE|CHANGE_?ME\b|YOUR[-_]", re.DOTALL)
_FREE_TEXTS = frozenset({"userData", "kubelet"})
"""Fields whose text may hold anything, shell variables and expressions among them."""


def manifest_warnings(found: Sequence[FoundManifest], catalog: Catalog) -> list[InvalidInput]:
    """Warnings about valid manifests, in the order of files and lines; each is made as a problem, and is none."""
    classes = {each.manifest.metadata.name: each.manifest for each in found if isinstance(each.manifest, EC2NodeClass)}
    supplies: dict[str, Supply] = {}
    made = []
    for document, manifest in found:
        if isinstance(manifest, NodePool):
            name = manifest.spec.template.spec.node_class_ref.name
            supply = supplies.get(name) or supplies.setdefault(name, Supply(catalog, classes.get(name)))
            warnings = _of_node_pool(manifest, supply)
        elif isinstance(manifest, EC2NodeClass):
            warnings = _of_node_class(manifest, document.data, {kind.instance_type for kind in catalog.types})
        else:
            continue
        made += [
            InvalidInput(
                document.source, why, document=document.name, field=field_name(path), line=document.line_of(path)
            )
            for path, why in warnings
        ]
    return made


def _of_node_pool(pool: NodePool, supply: Supply) -> Iterator[Problem]:
    if (replicas := pool.spec.replicas) and parse_amount(_NODES, pool.spec.limits.get(_NODES, replicas)) < replicas:
        limit = pool.spec.limits[_NODES]
        yield ("spec", "limits", _NODES), f"{limit} is below spec.replicas: {replicas} nodes are never reached"
    at: Path = ("spec", "template", "spec", "requirements")
    unknown = list(_unknown_values(pool, supply, at))
    yield from unknown
    tiers = expand(pool, supply.values_of)
    if not tiers or any(_is_contradiction(tier.requirements, pool) for tier in tiers):
        yield at, "the requirements contradict each other: no node can meet them"
    elif not unknown and not any(supply.has_any(tier.requirements) for tier in tiers):
        yield at, f"none of the {len(supply.types)} instance types of the embedded catalogue meets them all"


def _unknown_values(pool: NodePool, supply: Supply, at: Path) -> Iterator[Problem]:
    for number, spec in enumerate(pool.spec.template.spec.requirements):
        key = labels.NORMALIZED.get(spec.key, spec.key)
        known = _known_values(key, supply)
        if spec.operator not in ("In", "NotIn") or not known:
            continue
        for value in spec.values:
            if not is_glob(value) and value not in known:
                near = [_SPELLED[value]] if value in _SPELLED else difflib.get_close_matches(value, sorted(known), 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                yield (*at, number, "values"), f"no instance type has {key}={value}{hint}"


def _known_values(key: str, supply: Supply) -> frozenset[str]:
    """The values that a label may have; none where values are numbers, or are not those of types."""
    if key == labels.CAPACITY_TYPE:
        return _CAPACITY_TYPES
    if key == labels.OS:
        return _SYSTEMS
    if key == labels.REGION or _MEASURED.search(key):
        return frozenset()
    return supply.values_of(key)


def _is_contradiction(requirements: Requirements, pool: NodePool) -> bool:
    """True if the requirements of one label leave no value although none of them is DoesNotExist."""
    absent = {spec.key for spec in pool.spec.template.spec.requirements if spec.operator == "DoesNotExist"}
    return any(
        rule.operator == "DoesNotExist" and key not in {labels.NORMALIZED.get(each, each) for each in absent}
        for key, rule in requirements.items()
    )


def _of_node_class(node_class: EC2NodeClass, data: Mapping[str, Any], types: Iterable[str]) -> Iterator[Problem]:
    known = sorted(types)
    for key in node_class.metadata.annotations:
        prefix, _, name = key.partition(VM_MEMORY_OVERHEAD_PERCENT + ".")
        if not prefix and name and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield ("metadata", "annotations", key), f"there is no instance type {name}{hint}"
    for place, term in enumerate(node_class.spec.ami_selector_terms):
        if term.alias.startswith("al2@"):
            yield ("spec", "amiSelectorTerms", place, "alias"), NO_NEW_AL2
    if ami_family(node_class.spec) == "Custom" and not is_told_to_register(node_class.spec.user_data or ""):
        why = f"does not name {labels.UNREGISTERED_TAINT}: it, or the image, has to {REGISTER_HINT}"
        yield ("spec", "userData"), why
    for path, text in _texts(data.get("spec"), ("spec",)):
        if placeholder := _PLACEHOLDER.search(text):
            yield path, f"{text!r} holds the placeholder {placeholder[0]}"


def is_told_to_register(user_data: str) -> bool:
    """True if user data of a Custom image names the taint by which a joining node is known."""
    return labels.UNREGISTERED_TAINT in user_data


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _FREE_TEXTS:
                yield from _texts(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, number))
