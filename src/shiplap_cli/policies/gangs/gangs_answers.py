"""Gangs and ProvisioningRequests in `shiplap plan -o json`: each with the verdict of the plan."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from shiplap_cli.output import Printed


class PlannedTogether(Printed, frozen=True, kw_only=True):
    """Pods that have places together in a plan, or none."""

    namespace: str
    name: str

    with_place: int
    """Pods with a node, or with a place in this plan."""

    launched: bool
    """True if this plan has places for them, on new nodes or on nodes that exist."""

    reason: str
    """Why it has none; empty if it has, or if none is needed."""

    new_nodes: int

    hourly: float
    """USD per hour of the new nodes."""

    estimated: bool
    """True if the price of any of them is a guess."""


class PlannedGang(PlannedTogether, frozen=True, kw_only=True):
    """A gang that waits: `waiting` of its members have no node, `placed` have one."""

    minimum: int
    waiting: int
    placed: int

    problem: str
    """Why it cannot be planned whatever there is room for."""


class PlannedRequest(PlannedTogether, frozen=True, kw_only=True):
    """A ProvisioningRequest: `booked` of its pods have booked room."""

    provisioning_class: str = msgspec.field(name="class")

    pods: int
    booked: int


class PlannedGangs(Printed, frozen=True):
    """The gangs that wait, and the ProvisioningRequests."""

    waiting: tuple[PlannedGang, ...]
    requests: tuple[PlannedRequest, ...] | UnsetType = UNSET
