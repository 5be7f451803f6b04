"""Holds the formats that the previous release writes and reads, as it was released.

They are not changed with the structs of this release.

With each release, these are replaced by the flat forms of the one before.
"""

from __future__ import annotations

import msgspec

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import CommandState
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import ClaimState, PodReference


class PreviousNodeClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    cluster: str
    name: str
    node_pool: str
    node_class: str
    state: ClaimState = ClaimState.PLANNED
    tier: int = 0
    created_at: float = 0.0
    changed_at: float = 0.0
    deadline_at: float = 0.0
    requirements: tuple[RequirementSpec, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    instance_types: tuple[str, ...] = ()
    relies_on_estimate: tuple[str, ...] = ()
    requests: dict[str, int] = {}
    pods: tuple[PodReference, ...] = ()
    unproven: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    token: str = ""
    together: int = 0
    answered_at: float = 0.0
    owner: str = ""
    instance_id: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    ami: str = ""
    kubelet_hash: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    hourly: float = 0.0
    allocatable: dict[str, int] = {}
    node_name: str = ""
    failure: str = ""
    missed: bool = False
    first_event_at: float = 0.0
    event_id: str = ""
    cordoned: str = ""
    change_at: float = 0.0
    expire_after: str = ""
    termination_grace_period: str = ""
    version: int = 0


class PreviousDisruptionCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    cluster: str
    name: str
    reason: Reason
    method: Method
    targets: tuple[str, ...]
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()
    receiving: tuple[str, ...] = ()
    state: CommandState = CommandState.WAITING
    savings_hourly: float = 0.0
    created_at: float = 0.0
    changed_at: float = 0.0
    detail: str = ""
    failure: str = ""
    version: int = 0
