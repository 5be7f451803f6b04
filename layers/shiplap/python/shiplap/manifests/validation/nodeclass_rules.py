"""Checks an EC2NodeClass beyond its fields: by the rules of Karpenter's CRD, and by what makes it usable.

`admission_problems` are refused by an API server with upstream's CRD. `problems_of` are not: they are found by
Karpenter's checks at run time, or only Shiplap refuses them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import BlockDevice, BlockDeviceMapping, EC2NodeClass, NetworkInterface
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation import kubelet_rules
from shiplap.manifests.validation.ami_rules import ami_admission_problems, ami_problems
from shiplap.manifests.validation.common_rules import id_problems, metadata_problems, selector_tags, written_fields
from shiplap.manifests.validation.user_data_rules import user_data_problems

_RESERVED_TAGS = (
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
)


_ROLE = re.compile(r"(?!arn:)/?([\x21-\x2e\x30-\x7e]+/)*[\w+=,.@-]{1,64}", re.ASCII)
_MADE_ROLE = "shiplap-node-"
"""Begins the name by which the role that the stack makes is asked for; with a cluster's it may be longer than IAM's."""


def is_role_name(role: str) -> bool:
    """True if IAM can have a role of this name, with or without a path before it."""
    return _ROLE.fullmatch(role) is not None


def not_a_role(role: str) -> str:
    """The reason against a role of which `is_role_name` is false."""
    meant = re.fullmatch(r"arn:[^/]*:role/(.+)", role)
    hint = f"; write {meant[1]}" if meant is not None and is_role_name(meant[1]) else ""
    return (
        f"{role!r} is not the name of an IAM role: a name of at most 64 letters, digits and +=,.@_-, without its ARN"
        f"{hint}"
    )


def admission_problems(node_class: EC2NodeClass, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems for which an API server refuses the node class.

    `data` is the node class as it was written, where absent and empty differ.
    """
    spec = data["spec"]
    yield from metadata_problems(node_class.metadata)
    yield from _identity(spec)
    yield from _term_problems(spec, "subnetSelectorTerms", ("tags", "id"), {"id": ("tags",)})
    yield from _term_problems(
        spec, "securityGroupSelectorTerms", ("tags", "id", "name"), {"id": ("tags", "name"), "name": ("tags", "id")}
    )
    yield from _term_problems(
        spec,
        "capacityReservationSelectorTerms",
        ("tags", "id", "instanceMatchCriteria"),
        {"id": ("tags", "ownerID", "instanceMatchCriteria")},
    )
    yield from ami_admission_problems(node_class, data)
    yield from _placement_group(spec)
    yield from _reserved_tags(node_class)
    yield from mapping_problems(node_class.spec.block_device_mappings)
    yield from _network_interfaces(node_class.spec.network_interfaces)
    yield from _connection_tracking(node_class)


def problems_of(node_class: EC2NodeClass, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems that make a node class unusable although an API server accepts it."""
    yield from shiplap_annotations.node_class_problems(node_class.metadata.annotations, ("metadata", "annotations"))
    for rule in _RULES:
        yield from rule(node_class)


def _identity(spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of `role` and `instanceProfile`. An empty value is as wrong as an absent one."""
    written = [name for name in ("role", "instanceProfile") if spec.get(name) is not None]
    if len(written) != 1:
        yield ("spec",), "exactly one of role and instanceProfile must be set"
    for name in written:
        if spec[name] == "":
            yield ("spec", name), "must not be empty"


def _term_problems(
    spec: Mapping[str, Any], field: str, needed: Sequence[str], alone: Mapping[str, Sequence[str]]
) -> Iterator[Problem]:
    """Of selector terms as the CRD has it: combinations are refused only where every term holds one."""
    if spec.get(field) is None:
        return
    path, terms = ("spec", field), [written_fields(term) for term in spec[field]]
    if not terms:
        yield path, "at least one term must be there"
    for number, term in enumerate(terms):
        if not term & {*needed}:
            yield (*path, number), f"a term needs {', '.join(needed[:-1])} or {needed[-1]}"
        tags = spec[field][number].get("tags") or {}
        yield from selector_tags({key: tags[key] for key in sorted(written_fields(tags))}, (*path, number, "tags"))
    for name, others in alone.items():
        if all(name in term and term & {*others} for term in terms):
            reason = f"{name} stands alone in a term, it cannot be combined with {' or '.join(others)}"
            yield from (((*path, number), reason) for number in range(len(terms)))


def _combined_terms(node_class: EC2NodeClass) -> Iterator[Problem]:
    """A term of an id and something else beside a sound one, which an API server accepts."""
    spec = node_class.spec
    for field, terms, names in (
        ("subnetSelectorTerms", spec.subnet_selector_terms, ("id", "tags")),
        ("securityGroupSelectorTerms", spec.security_group_selector_terms, ("id", "name", "tags")),
        (
            "capacityReservationSelectorTerms",
            spec.capacity_reservation_selector_terms,
            ("id", "tags", "owner_id", "instance_match_criteria"),
        ),
    ):
        for number, term in enumerate(terms):
            written = [name for name in names if getattr(term, name)]
            if not set(written) - {"owner_id"}:
                yield ("spec", field, number), "a term needs a field that is not empty"
            elif len(written) > 1 and written[0] in ("id", "name"):
                reason = f"{written[0]} stands alone in a term, it cannot be combined with {' or '.join(written[1:])}"
                yield ("spec", field, number), reason


def _ids(node_class: EC2NodeClass) -> Iterator[Problem]:
    """The CRD finds an id anywhere in the text."""
    for number, subnet in enumerate(node_class.spec.subnet_selector_terms):
        yield from id_problems("subnet", subnet.id, ("spec", "subnetSelectorTerms", number, "id"))
    for number, group in enumerate(node_class.spec.security_group_selector_terms):
        yield from id_problems("sg", group.id, ("spec", "securityGroupSelectorTerms", number, "id"))


def _placement_group(spec: Mapping[str, Any]) -> Iterator[Problem]:
    selector = spec.get("placementGroupSelector")
    if selector is not None and len(written_fields(selector) & {"name", "id"}) != 1:
        yield ("spec", "placementGroupSelector"), "exactly one of name and id must be set"


def _reserved_tags(node_class: EC2NodeClass) -> Iterator[Problem]:
    for key in node_class.spec.tags:
        if not key:
            yield ("spec", "tags"), "a tag's key must not be empty"
        elif key in _RESERVED_TAGS or key.startswith("kubernetes.io/cluster"):
            yield ("spec", "tags", key), "this tag is set by the system"


def _tags(node_class: EC2NodeClass) -> Iterator[Problem]:
    for key in node_class.spec.tags:
        if key.startswith("shiplap.dev/"):
            yield ("spec", "tags", key), "this tag is set by the system"


def mapping_problems(mappings: Sequence[BlockDeviceMapping]) -> Iterator[Problem]:
    """Of all block devices of a node class, what an API server refuses."""
    path: Path = ("spec", "blockDeviceMappings")
    if sum(mapping.root_volume for mapping in mappings) > 1:
        yield path, "at most one block device can have rootVolume"
    for number, mapping in enumerate(mappings):
        if mapping.ebs is not None:
            yield from _device_problems(mapping.ebs, (*path, number, "ebs"))


def _device_problems(device: BlockDevice, path: Path) -> Iterator[Problem]:
    if device.snapshot_id is None and device.volume_size is None:
        yield path, "snapshotID or volumeSize must be set"
    if device.volume_initialization_rate is not None and not device.snapshot_id:
        yield (*path, "volumeInitializationRate"), "can be set only together with snapshotID"


def _role(node_class: EC2NodeClass) -> Iterator[Problem]:
    """A variable that other tools fill in later is left to the warnings."""
    role = node_class.spec.role
    if role and "${" not in role and not role.startswith(_MADE_ROLE) and not is_role_name(role):
        yield ("spec", "role"), not_a_role(role)


def _volumes(node_class: EC2NodeClass) -> Iterator[Problem]:
    for number, mapping in enumerate(node_class.spec.block_device_mappings):
        device, path = mapping.ebs or BlockDevice(), ("spec", "blockDeviceMappings", number, "ebs")
        if device.volume_size in ("Ti", "T"):
            yield (*path, "volumeSize"), f"{device.volume_size!r} has no number"
        for field, value in (("iops", device.iops), ("throughput", device.throughput)):
            if value is not None and value < 0:
                yield (*path, field), f"must not be negative, is {value}"


def _network_interfaces(interfaces: Sequence[NetworkInterface]) -> Iterator[Problem]:
    path: Path = ("spec", "networkInterfaces")
    if not interfaces:
        return
    places = Counter((one.network_card_index, one.device_index) for one in interfaces)
    for (card, device), count in sorted(places.items()):
        if count > 1:
            yield path, f"network card {card}, device {device} is given {count} times"
    efa_only = Counter(one.network_card_index for one in interfaces if one.interface_type == "efa-only")
    for card, count in sorted(efa_only.items()):
        if count > 1:
            yield path, f"network card {card} has {count} efa-only interfaces, one is allowed"
    if not any(
        (one.network_card_index, one.device_index, one.interface_type) == (0, 0, "interface") for one in interfaces
    ):
        yield path, "network card 0, device 0 must be there with type interface"


def _connection_tracking(node_class: EC2NodeClass) -> Iterator[Problem]:
    tracking = node_class.spec.connection_tracking
    timeouts = ("tcp_established_timeout", "udp_stream_timeout", "udp_timeout")
    if tracking is not None and all(getattr(tracking, name) is None for name in timeouts):
        names = "tcpEstablishedTimeout, udpStreamTimeout, udpTimeout"
        yield ("spec", "connectionTracking"), f"at least one of {names} must be set"


_RULES: tuple[Callable[[EC2NodeClass], Iterator[Problem]], ...] = (
    _combined_terms,
    _ids,
    _role,
    ami_problems,
    _tags,
    kubelet_rules.kubelet_problems,
    _volumes,
    user_data_problems,
)
