"""What an EC2NodeClass must satisfy beyond its shape: the rules of Karpenter's CRD and of its checks at run time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import (
    BlockDevice,
    BlockDeviceMapping,
    CapacityReservationSelectorTerm,
    EC2NodeClass,
)
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation import kubelet_rules
from shiplap.manifests.validation.ami_rules import ami_problems
from shiplap.manifests.validation.common_rules import (
    count_problems,
    id_problems,
    name_problems,
    one_of,
    selector_tags,
    within,
)
from shiplap.manifests.validation.user_data_rules import user_data_problems

VOLUME_TYPES = ("standard", "io1", "io2", "gp2", "gp3", "sc1", "st1")

_SIZE = re.compile(r"([1-9][0-9]*)(Gi|G|Ti|T)", re.ASCII)
_LARGEST = {"Gi": 59000, "G": 64000, "Ti": 58, "T": 64}


def mapping_problems(mappings: Sequence[BlockDeviceMapping]) -> Iterator[Problem]:
    """Of all block devices of a node class."""
    path: Path = ("spec", "blockDeviceMappings")
    if len(mappings) > 50:
        yield path, f"at most 50 block devices are allowed, there are {len(mappings)}"
    if sum(mapping.root_volume for mapping in mappings) > 1:
        yield path, "at most one block device can have rootVolume"
    for number, mapping in enumerate(mappings):
        if mapping.ebs is not None:
            yield from _device_problems(mapping.ebs, (*path, number, "ebs"))


def _device_problems(device: BlockDevice, path: Path) -> Iterator[Problem]:
    if device.snapshot_id is None and device.volume_size is None:
        yield path, "snapshotID or volumeSize must be set"
    if device.volume_size is not None and (wrong := _size_problem(device.volume_size)):
        yield (*path, "volumeSize"), wrong
    yield from one_of(device.volume_type, VOLUME_TYPES, (*path, "volumeType"))
    yield from within(device.volume_initialization_rate, 100, 300, (*path, "volumeInitializationRate"))
    if device.volume_initialization_rate is not None and device.snapshot_id is None:
        yield (*path, "volumeInitializationRate"), "can be set only together with snapshotID"
    for field, value in (("iops", device.iops), ("throughput", device.throughput)):
        if value is not None and value < 0:
            yield (*path, field), f"must not be negative, is {value}"


def _size_problem(text: str) -> str | None:
    size = _SIZE.fullmatch(text)
    if size is None or int(size[1]) > _LARGEST[size[2]]:
        bounds = ", ".join(f"1{unit} to {most}{unit}" for unit, most in _LARGEST.items())
        return f"{text!r} is not a volume size: expected a whole number with Gi, G, Ti or T ({bounds})"
    return None


_SWITCH = ("enabled", "disabled")
_RESERVED_TAGS = (
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
)
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)


def problems_of(node_class: EC2NodeClass, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule the node class breaks. `data` is the node class as it was written, where absent and empty differ."""
    yield from name_problems(node_class.metadata)
    yield from shiplap_annotations.node_class_problems(node_class.metadata.annotations, ("metadata", "annotations"))
    for rule in _RULES:
        yield from rule(node_class)
    yield from _identity(data["spec"])


def _subnets(node_class: EC2NodeClass) -> Iterator[Problem]:
    path: Path = ("spec", "subnetSelectorTerms")
    terms = node_class.spec.subnet_selector_terms
    yield from count_problems(len(terms), 30, path)
    for number, term in enumerate(terms):
        here = (*path, number)
        yield from selector_tags(term.tags, (*here, "tags"))
        yield from id_problems("subnet", term.id, (*here, "id"))
        if not term.tags and not term.id:
            yield here, "a term needs tags or id"
        elif term.tags and term.id:
            yield here, "id stands alone in a term, it cannot be combined with tags"


def _security_groups(node_class: EC2NodeClass) -> Iterator[Problem]:
    path: Path = ("spec", "securityGroupSelectorTerms")
    terms = node_class.spec.security_group_selector_terms
    yield from count_problems(len(terms), 30, path)
    for number, term in enumerate(terms):
        here = (*path, number)
        yield from selector_tags(term.tags, (*here, "tags"))
        yield from id_problems("sg", term.id, (*here, "id"))
        written = [name for name in ("id", "name", "tags") if getattr(term, name)]
        if not written:
            yield here, "a term needs tags, id or name"
        elif len(written) > 1:
            yield here, f"{written[0]} stands alone in a term, it cannot be combined with {' or '.join(written[1:])}"


def _capacity_reservations(node_class: EC2NodeClass) -> Iterator[Problem]:
    path: Path = ("spec", "capacityReservationSelectorTerms")
    terms = node_class.spec.capacity_reservation_selector_terms
    if len(terms) > 30:
        yield path, f"at most 30 terms are allowed, there are {len(terms)}"
    for number, term in enumerate(terms):
        yield from _capacity_reservation(term, (*path, number))


def _capacity_reservation(term: CapacityReservationSelectorTerm, path: Path) -> Iterator[Problem]:
    yield from selector_tags(term.tags, (*path, "tags"))
    yield from id_problems("cr", term.id, (*path, "id"))
    if not (term.tags or term.id or term.instance_match_criteria):
        yield path, "a term needs tags, id or instanceMatchCriteria"
    if term.id and (term.tags or term.owner_id or term.instance_match_criteria):
        yield path, "id stands alone in a term, it cannot be combined with tags, ownerID or instanceMatchCriteria"
    if term.owner_id and not _ACCOUNT.fullmatch(term.owner_id):
        yield (*path, "ownerID"), f"{term.owner_id!r} is not an account of 12 digits"
    yield from one_of(term.instance_match_criteria or None, ("open", "targeted"), (*path, "instanceMatchCriteria"))


def _placement_group(node_class: EC2NodeClass) -> Iterator[Problem]:
    selector, path = node_class.spec.placement_group_selector, ("spec", "placementGroupSelector")
    if selector is None:
        return
    if bool(selector.name) == bool(selector.id):
        yield path, "exactly one of name and id must be set"
    yield from id_problems("pg", selector.id, (*path, "id"))


def _tags(node_class: EC2NodeClass) -> Iterator[Problem]:
    for key in node_class.spec.tags:
        if not key:
            yield ("spec", "tags"), "a tag's key must not be empty"
        elif key in _RESERVED_TAGS or key.startswith(("kubernetes.io/cluster", "shiplap.dev/")):
            yield ("spec", "tags", key), "this tag is set by the system"


def _storage(node_class: EC2NodeClass) -> Iterator[Problem]:
    yield from mapping_problems(node_class.spec.block_device_mappings)
    yield from one_of(node_class.spec.instance_store_policy, ("RAID0",), ("spec", "instanceStorePolicy"))


def _network_interfaces(node_class: EC2NodeClass) -> Iterator[Problem]:
    spec, path = node_class.spec, ("spec", "networkInterfaces")
    if spec.ip_prefix_count is not None and spec.ip_prefix_count < 0:
        yield ("spec", "ipPrefixCount"), f"must not be negative, is {spec.ip_prefix_count}"
    if not spec.network_interfaces:
        return
    if len(spec.network_interfaces) > 150:
        yield path, f"at most 150 interfaces are allowed, there are {len(spec.network_interfaces)}"
    for number, interface in enumerate(spec.network_interfaces):
        here = (*path, number)
        yield from one_of(interface.interface_type, ("interface", "efa-only"), (*here, "interfaceType"))
        for field, index in (
            ("networkCardIndex", interface.network_card_index),
            ("deviceIndex", interface.device_index),
        ):
            if index < 0:
                yield (*here, field), f"must not be negative, is {index}"
    places = Counter((one.network_card_index, one.device_index) for one in spec.network_interfaces)
    for (card, device), count in sorted(places.items()):
        if count > 1:
            yield path, f"network card {card}, device {device} is given {count} times"
    efa_only = Counter(one.network_card_index for one in spec.network_interfaces if one.interface_type == "efa-only")
    for card, count in sorted(efa_only.items()):
        if count > 1:
            yield path, f"network card {card} has {count} efa-only interfaces, one is allowed"
    if not any(
        (one.network_card_index, one.device_index, one.interface_type) == (0, 0, "interface")
        for one in spec.network_interfaces
    ):
        yield path, "network card 0, device 0 must be there with type interface"


def _metadata_options(node_class: EC2NodeClass) -> Iterator[Problem]:
    options, path = node_class.spec.metadata_options, ("spec", "metadataOptions")
    yield from one_of(options.http_endpoint, _SWITCH, (*path, "httpEndpoint"))
    yield from one_of(options.http_protocol_ipv6, _SWITCH, (*path, "httpProtocolIPv6"))
    yield from within(options.http_put_response_hop_limit, 1, 64, (*path, "httpPutResponseHopLimit"))
    yield from one_of(options.http_tokens, ("required", "optional"), (*path, "httpTokens"))


def _connection_tracking(node_class: EC2NodeClass) -> Iterator[Problem]:
    tracking, path = node_class.spec.connection_tracking, ("spec", "connectionTracking")
    if tracking is None:
        return
    timeouts = (
        ("tcpEstablishedTimeout", tracking.tcp_established_timeout, 60, 432000),
        ("udpStreamTimeout", tracking.udp_stream_timeout, 60, 180),
        ("udpTimeout", tracking.udp_timeout, 30, 60),
    )
    if all(timeout_s is None for _, timeout_s, _, _ in timeouts):
        yield path, f"at least one of {', '.join(name for name, *_ in timeouts)} must be set"
    for field, timeout_s, lowest, highest in timeouts:
        if timeout_s is not None and not lowest <= timeout_s <= highest:
            yield (*path, field), f"must be from {lowest} to {highest} seconds, is {timeout_s}"


def _cpu_options(node_class: EC2NodeClass) -> Iterator[Problem]:
    options = node_class.spec.cpu_options
    if options is not None:
        yield from one_of(options.nested_virtualization, _SWITCH, ("spec", "cpuOptions", "nestedVirtualization"))


def _identity(spec: Mapping[str, Any]) -> Iterator[Problem]:
    """Who the nodes are. Written but empty is as wrong as not written."""
    written = [name for name in ("role", "instanceProfile") if spec.get(name) is not None]
    if len(written) != 1:
        yield ("spec",), "exactly one of role and instanceProfile must be set"
    for name in written:
        if spec[name] == "":
            yield ("spec", name), "must not be empty"


_RULES: tuple[Callable[[EC2NodeClass], Iterator[Problem]], ...] = (
    _subnets,
    _security_groups,
    _capacity_reservations,
    _placement_group,
    ami_problems,
    _tags,
    kubelet_rules.kubelet_problems,
    _storage,
    _network_interfaces,
    _metadata_options,
    _connection_tracking,
    _cpu_options,
    user_data_problems,
)
