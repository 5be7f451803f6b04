"""NodeClaim: the record that exists before its instance does, and the states it passes through."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from shiplap.api.types import RequirementSpec
from shiplap.kubernetes.objects import Taint


class ClaimState(StrEnum):
    """Planned, Launching, Launched, Registered, Initialized, (Disrupting,) Draining, Terminating, Gone, in this order.

    Failed is reached from the first three.
    """

    PLANNED = "Planned"
    LAUNCHING = "Launching"
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    DISRUPTING = "Disrupting"
    DRAINING = "Draining"
    TERMINATING = "Terminating"
    GONE = "Gone"
    FAILED = "Failed"


IN_FLIGHT = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED})
"""States in which the cluster shows no initialised Node yet, so planning must read the claim itself."""


class PodReference(msgspec.Struct, frozen=True, order=True):
    namespace: str
    name: str
    uid: str = ""


class NodeClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node that is to be, is, or was. Times are epoch seconds, prices USD per hour, resources canonical.

    `instance_types` is the launch list, cheapest first; `relies_on_estimate` are those of it whose unverified estimate,
    not only the careful bound, is needed for `requests` to fit. `allocatable` is what the plan counted on for the type
    that was launched (before launch: the smallest over the list). `token` makes the launch idempotent.
    """

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
    reasons: tuple[str, ...] = ()
    token: str = ""
    owner: str = ""
    instance_id: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    ami: str = ""
    kubelet_hash: str = ""
    hourly: float = 0.0
    allocatable: dict[str, int] = {}
    node_name: str = ""
    failure: str = ""
    missed: bool = False
    first_event_at: float = 0.0
    version: int = 0
