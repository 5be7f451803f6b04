"""Placement groups, which moto lacks: made, described, deleted, and what an instance in one shows."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

_GROUPS = "shiplap_placement_groups"
_DEFAULT_PARTITIONS = 2


def groups_of(backend: Any) -> dict[str, dict[str, Any]]:
    """The placement groups of an account's Region by name, as EC2 describes them; they end with the backend."""
    found: dict[str, dict[str, Any]] = vars(backend).setdefault(_GROUPS, {})
    return found


def create_placement_group(self: Any) -> ActionResult:
    """A group of a new name, available at once."""
    self.error_on_dryrun()
    groups, name = groups_of(self.ec2_backend), str(self._get_param("GroupName"))
    if name in groups:
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    strategy = str(self._get_param("Strategy") or "cluster")
    group: dict[str, Any] = {
        "GroupName": name,
        "GroupId": f"pg-{sha256(name.encode()).hexdigest()[:17]}",
        "Strategy": strategy,
        "State": "available",
        "GroupArn": f"arn:aws:ec2:{self.region}:{self.current_account}:placement-group/{name}",
    }
    if strategy == "partition":
        group["PartitionCount"] = int(self._get_param("PartitionCount") or _DEFAULT_PARTITIONS)
    groups[name] = group
    return ActionResult({"PlacementGroup": group})


def delete_placement_group(self: Any) -> ActionResult:
    """Only a group without instances is deleted."""
    self.error_on_dryrun()
    name = str(self._get_param("GroupName"))
    if name not in groups_of(self.ec2_backend):
        raise EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    if any(_is_in(instance, name) for instance in self.ec2_backend.all_instances()):
        raise EC2ClientError("InvalidPlacementGroup.InUse", f"The placement group {name} is in use.")
    del groups_of(self.ec2_backend)[name]
    return ActionResult({})


def describe_placement_groups(self: Any) -> ActionResult:
    """All groups, or those that are named and match the filters."""
    names, ids = self._get_param("GroupNames") or (), self._get_param("GroupIds") or ()
    filters = self._filters_from_querystring()
    members = {"group-name": "GroupName", "group-id": "GroupId", "state": "State", "strategy": "Strategy"}
    found = [
        group
        for group in groups_of(self.ec2_backend).values()
        if (not names or group["GroupName"] in names)
        and (not ids or group["GroupId"] in ids)
        and all(group[members[name]] in values for name, values in filters.items())
    ]
    return ActionResult({"PlacementGroups": found})


def place(backend: Any, instance: Any, placement: Mapping[str, Any]) -> None:
    """Put a new instance where its template says; in a partition group EC2 chooses a partition if none is given."""
    if placement.get("Tenancy"):
        instance.placement.tenancy = placement["Tenancy"]
    wanted = {placement.get("GroupName"), placement.get("GroupId")}
    named = [group for group in groups_of(backend).values() if {group["GroupName"], group["GroupId"]} & wanted]
    if not named:
        return
    group = named[0]
    others = [other for other in backend.all_instances() if _is_in(other, group["GroupName"])]
    instance.placement.group_name = group["GroupName"]
    instance.placement.group_id = group["GroupId"]
    if group["Strategy"] == "partition":
        used = [other.placement.partition_number for other in others if other.id != instance.id]
        emptiest = min(range(1, group["PartitionCount"] + 1), key=lambda number: (used.count(number), number))
        instance.placement.partition_number = int(placement.get("PartitionNumber") or emptiest)


def _is_in(instance: Any, name: str) -> bool:
    return bool(instance.placement.group_name == name and instance.state != "terminated")
