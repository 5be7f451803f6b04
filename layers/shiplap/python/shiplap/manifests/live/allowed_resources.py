"""The AWS resources that EC2NodeClasses may name, where Shiplap reads the EC2NodeClasses from the cluster.

Whoever may write an EC2NodeClass decides what runs on a node with a node role. IAM policies know the union of all
clusters of an install: without this list, whoever writes to one cluster could launch with the roles of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from shiplap.manifests.custom_resources import AmiSelectorTerm, BlockDeviceMapping, EC2NodeClass
from shiplap.manifests.decoding import Path, Problem

RESERVED_TAG_PREFIXES = ("shiplap.dev/", "aws:", "eks:", "kubernetes.io/cluster/")
"""Keys of tags by which installs, AWS and cluster tools recognise what is theirs."""

_PUBLIC_PARAMETER = re.compile(r"(arn:[^:]*:ssm:[^:]*::parameter)?/?aws/service/")
"""AWS's own parameters, by name or by an ARN, which has no account."""


class AllowedResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources that EC2NodeClasses of one cluster may name; Shiplap launches with no other resource.

    An EC2NodeClass names none of `node_roles`, `instance_profiles`, `image_parameters` (names or ARNs of SSM
    parameters beside AWS's public ones), `volume_keys` (ids, ARNs or aliases of KMS keys) and `volume_snapshots` that
    is not listed. `subnets`, `security_groups`, `image_owners`, `capacity_reservations` and `placement_groups` bound
    what its selectors match, by id; where one of them is empty, EC2's answer is not bounded.
    """

    node_roles: tuple[str, ...] = ()
    instance_profiles: tuple[str, ...] = ()
    image_parameters: tuple[str, ...] = ()
    volume_keys: tuple[str, ...] = ()
    volume_snapshots: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    image_owners: tuple[str, ...] = ()
    capacity_reservations: tuple[str, ...] = ()
    placement_groups: tuple[str, ...] = ()

    def problems_of(self, node_class: EC2NodeClass) -> Iterator[Problem]:
        """Each field of an EC2NodeClass that names what is not allowed."""
        spec = node_class.spec
        if spec.role and spec.role not in self.node_roles:
            yield ("spec", "role"), _refusal(spec.role, "nodeRoles", self.node_roles)
        if spec.instance_profile and spec.instance_profile not in self.instance_profiles:
            reason = _refusal(spec.instance_profile, "instanceProfiles", self.instance_profiles)
            yield ("spec", "instanceProfile"), reason
        for key in sorted(spec.tags):
            if key.startswith(RESERVED_TAG_PREFIXES):
                yield ("spec", "tags", key), f"tags with the prefix {key[: _prefix_length(key)]} are reserved"
        yield from self._image_problems(spec.ami_selector_terms)
        yield from self._volume_problems(spec.block_device_mappings)
        yield from self._selected_problems(node_class)

    def _image_problems(self, terms: Sequence[AmiSelectorTerm]) -> Iterator[Problem]:
        allowed = {_parameter(name) for name in self.image_parameters}
        for number, term in enumerate(terms):
            where: Path = ("spec", "amiSelectorTerms", number)
            name = _parameter(term.ssm_parameter)
            if name and not is_public_parameter(name) and name not in allowed:
                yield (*where, "ssmParameter"), _refusal(name, "imageParameters", self.image_parameters)
            if term.owner and self.image_owners and term.owner not in self.image_owners:
                yield (*where, "owner"), _refusal(term.owner, "imageOwners", self.image_owners)

    def _volume_problems(self, mappings: Sequence[BlockDeviceMapping]) -> Iterator[Problem]:
        keys = {_key(name) for name in self.volume_keys}
        for number, mapping in enumerate(mappings):
            where: Path = ("spec", "blockDeviceMappings", number, "ebs")
            volume = mapping.ebs
            if volume is not None and volume.kms_key_id and _key(volume.kms_key_id) not in keys:
                yield (*where, "kmsKeyID"), _refusal(volume.kms_key_id, "volumeKeys", self.volume_keys)
            if volume is not None and volume.snapshot_id and volume.snapshot_id not in self.volume_snapshots:
                yield (*where, "snapshotID"), _refusal(volume.snapshot_id, "volumeSnapshots", self.volume_snapshots)

    def _selected_problems(self, node_class: EC2NodeClass) -> Iterator[Problem]:
        """Ids written into selectors; what their tags and names match is bounded when EC2 has answered."""
        spec = node_class.spec
        group = spec.placement_group_selector
        for field, setting, allowed, ids in (
            ("subnetSelectorTerms", "subnets", self.subnets, [term.id for term in spec.subnet_selector_terms]),
            (
                "securityGroupSelectorTerms",
                "securityGroups",
                self.security_groups,
                [term.id for term in spec.security_group_selector_terms],
            ),
            (
                "capacityReservationSelectorTerms",
                "capacityReservations",
                self.capacity_reservations,
                [term.id for term in spec.capacity_reservation_selector_terms],
            ),
        ):
            for number, name in enumerate(ids):
                if name and allowed and name not in allowed:
                    yield ("spec", field, number, "id"), _refusal(name, setting, allowed)
        if group is not None and group.id and self.placement_groups and group.id not in self.placement_groups:
            reason = _refusal(group.id, "placementGroups", self.placement_groups)
            yield ("spec", "placementGroupSelector", "id"), reason


def outside(named: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """Ids that EC2 answered and that are not allowed, sorted; none where `allowed` bounds nothing."""
    return tuple(sorted(set(named) - set(allowed))) if allowed else ()


def _refusal(name: str, setting: str, allowed: Sequence[str]) -> str:
    known = ", ".join(sorted(allowed)) or "nothing"
    return f"{name} is not allowed in this cluster: {setting} of the cluster in shiplap.yaml lists {known}"


def _prefix_length(key: str) -> int:
    return max(len(prefix) for prefix in RESERVED_TAG_PREFIXES if key.startswith(prefix))


def is_public_parameter(name: str) -> bool:
    """True of a name or an ARN of an SSM parameter that AWS publishes for all accounts."""
    return _PUBLIC_PARAMETER.match(name) is not None


def _parameter(name: str) -> str:
    """The name of an SSM parameter without its leading slash. An ARN stays: it may be of another account."""
    return name.removeprefix("/")


def _key(name: str) -> str:
    """The id or alias of a KMS key. An ARN stays: it may be of another account."""
    return name.removeprefix("key/")
