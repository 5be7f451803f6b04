"""Instances that end before they become nodes: their EC2NodeClass is not launched from, and people get advice.

EC2 accepts such a launch and ends the instance seconds later, for example because it may not use the key of a volume.
The next instance of the same EC2NodeClass would end alike, whatever its type.
"""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.instances.readiness.nodeclass_status import manifest_digest
from shiplap.manifests.custom_resources import EC2NodeClass

_PREFIX = "nodeclass:"

_ADVICE = {
    "Client.InternalError": "key",
    "Client.InvalidKMSKey": "key",
    "Client.CustomerKeyHasBeenRevoked": "key",
    "Client.InvalidSnapshot": "snapshot",
    "Client.VolumeLimitExceeded": "storage",
}
_SENTENCES = {
    "key": (
        "most often EC2 may not use the KMS key of an encrypted volume: list the key under `volumeKeys` in "
        "shiplap.yaml, deploy, and check that the policy of the key admits this account"
    ),
    "snapshot": "a snapshot of the AMI or of blockDeviceMappings does not exist, or is not shared with this account",
    "storage": "request more EBS storage in Service Quotas, or ask for smaller volumes in blockDeviceMappings",
}


def advice(code: str) -> str:
    """What people can do about instances that end with EC2's reason `code`; empty when nothing is known to help.

    A code counts by its beginning: `Client.InvalidKMSKey.InvalidState`.
    """
    known = next((kind for start, kind in _ADVICE.items() if code == start or code.startswith(f"{start}.")), "")
    return _SENTENCES.get(known, "")


def with_advice(code: str, text: str) -> str:
    """The text, and the advice if there is any."""
    return f"{text}; {sentence}" if (sentence := advice(code)) else text


def node_class_scope(cluster: str, node_class: EC2NodeClass) -> str:
    """The name under which an EC2NodeClass, as it is written now, is left alone: a changed one may do."""
    return f"{scope_prefix(cluster, node_class.metadata.name)}{manifest_digest(node_class)[:12]}"


def scope_prefix(cluster: str, node_class: str) -> str:
    """The beginning of that name, whatever the manifest says."""
    return f"{_PREFIX}{cluster}/{node_class}@"


def is_node_class(scope: str) -> bool:
    """Whether a name stands for an EC2NodeClass, not for an instance type."""
    return scope.startswith(_PREFIX)


def scope_text(scope: str) -> str:
    """The name as people read it: `EC2NodeClass default of demo`; other names stay as they are."""
    if not is_node_class(scope):
        return scope
    cluster, _, name = scope.removeprefix(_PREFIX).rpartition("@")[0].rpartition("/")
    return f"EC2NodeClass {name} of {cluster}"


def is_left_alone(cluster: str, node_class: str, scopes: Iterable[str]) -> bool:
    """Whether one of the names is that of the EC2NodeClass, whatever its manifest says now."""
    start = scope_prefix(cluster, node_class)
    return any(scope.startswith(start) for scope in scopes)
