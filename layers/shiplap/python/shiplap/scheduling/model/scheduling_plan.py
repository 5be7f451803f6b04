"""The plan: what one scheduling decision concluded, in the fixed output format of `shiplap plan -o json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import PodReference, PreferredSpot
from shiplap.scheduling.model.bounds import BOUNDS


def shortened(reason: str) -> str:
    """A reason of at most `Bounds.reason_characters` characters, and how many more there were."""
    most = BOUNDS.reason_characters
    return reason if len(reason) <= most else f"{reason[:most]}… ({len(reason) - most} more)"


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base: camelCase on the wire, every field always present."""


class LaunchChoice(_Part, frozen=True):
    """The cheapest available offering of the claim; price in USD per hour. `reservation_id` when it is reserved."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float
    reservation_id: str = ""


class OfferingRisk(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One offering as `type/zone`: price and premium in millionths of a dollar per hour, interruptions per million
    node-hours, and the mean of the latter over its list.
    """

    offering: str
    price_micros: int
    premium_micros: int
    interruptions_per_million: int
    mean_of_list: int = 0


class RiskOfLaunch(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Records what the risk of spot means for one launch.

    `listed` counts the spot offerings of its list, `left_out` those that are not asked for. `as_is` is the cheapest
    offering of the list, `preferred` the cheapest of what is left, by price and premium. `observed`: the launch asks
    for the whole list all the same. `offerings` are what is left, as `type/zone`, sorted; empty where that is all.
    `bounded` are those of them that an avoided offering is cheaper than.
    """

    listed: int
    as_is: OfferingRisk
    preferred: OfferingRisk
    left_out: int = 0
    observed: bool = False
    offerings: tuple[str, ...] = ()
    bounded: tuple[str, ...] = ()


class PlannedClaim(_Part, frozen=True, kw_only=True):
    """A node to launch. Resources are canonical; `shiplap plan` prints them as quantities.

    `allocatable` is the smallest allocatable over `instance_types`; `relies_on_estimate` see NodeClaim. `virtual_pods`
    are those of CapacityBuffers, which are part of `requests` but will never exist. `gave_up` are the preferences that
    some of the pods had to give up to get here. `covered` is what commitments pay of the launch's price, USD per hour;
    plans without commitments lack it. `preferred_spot` and `spot_risk` are there where `spotRisk` is on.
    """

    name: str
    node_pool: str
    node_class: str
    tier: int
    requirements: tuple[RequirementSpec, ...]
    taints: tuple[Taint, ...]
    startup_taints: tuple[Taint, ...] = ()
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    instance_types: tuple[str, ...]
    launch: LaunchChoice
    requests: dict[str, int]
    pods: tuple[PodReference, ...]
    reasons: tuple[str, ...] = ()
    allocatable: dict[str, int] = {}
    relies_on_estimate: tuple[str, ...] = ()
    virtual_pods: tuple[PodReference, ...] = ()
    gave_up: tuple[str, ...] = ()
    covered: float | msgspec.UnsetType = msgspec.UNSET
    preferred_spot: PreferredSpot | msgspec.UnsetType = msgspec.UNSET
    spot_risk: RiskOfLaunch | msgspec.UnsetType = msgspec.UNSET


class Placement(_Part, frozen=True):
    """Pods that fit on a node which exists or is in flight; `name` is the Node's or the NodeClaim's."""

    name: str
    pods: tuple[PodReference, ...]


class NearestMiss(_Part, frozen=True):
    """The type or node that came closest to holding a pod.

    `short` is a canonical amount of `resource`, 0 when the miss is not about resources.
    """

    instance_type: str = ""
    node_pool: str = ""
    resource: str = ""
    short: int = 0


class Unschedulable(_Part, frozen=True):
    pod: PodReference
    message: str
    nearest: NearestMiss | None = None


SLEEPS = "sleeps: "
"""How the message of a pod begins that waits because it sleeps."""


def is_asleep(entry: Unschedulable) -> bool:
    """True for a pod of a plan that waits because it sleeps: nothing is wrong with it."""
    return entry.message.startswith(SLEEPS)


class BufferState(_Part, frozen=True):
    """A CapacityBuffer: how many virtual pods it has, on nodes that are there, on new ones, and nowhere, and why.

    `nodes` names the Nodes, and claims in flight, that are there and have room for some of them, `held` for how many.
    """

    namespace: str
    name: str
    replicas: int = 0
    existing: int = 0
    new: int = 0
    missing: int = 0
    reason: str = ""
    nodes: tuple[str, ...] = ()
    held: tuple[int, ...] = ()


class StaticPool(_Part, frozen=True):
    """A NodePool with `replicas`: how many nodes and claims it has, how many are missing after this plan and why.

    `surplus` names nodes, or claims without one, that are too many, the first to be removed first.
    """

    node_pool: str
    replicas: int
    present: int
    missing: int = 0
    reason: str = ""
    surplus: tuple[str, ...] = ()


class PlanStats(_Part, frozen=True):
    pods: int = 0
    classes: int = 0


class Plan(_Part, frozen=True):
    """`ignored` are pods left alone, with the reason. Everything is sorted; equal snapshots give equal plans.

    `unsettled`: pods are left out, virtual ones too, that another decision would place as soon as the claims of this
    one are there. `remembered` is what policies want remembered of this plan, by the names of their inputs in records;
    plans of which nothing is lack it.
    """

    node_claims: tuple[PlannedClaim, ...] = ()
    existing_nodes: tuple[Placement, ...] = ()
    unschedulable: tuple[Unschedulable, ...] = ()
    ignored: tuple[Unschedulable, ...] = ()
    hourly: float = 0.0
    stats: PlanStats = PlanStats()
    static_pools: tuple[StaticPool, ...] = ()
    buffers: tuple[BufferState, ...] = ()
    unsettled: bool = False
    remembered: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def left_by_priority(plan: Plan, priorities: Mapping[str, int]) -> list[int]:
    """Count the pods that a plan leaves out, by priority, the most important first: of two plans the lesser is better.

    Args:
        plan: the plan.
        priorities: those of all pods, by `namespace/name`.
    """
    keys = {entry.pod.key for entry in plan.unschedulable}
    left = Counter(priority for key, priority in priorities.items() if key in keys)
    return [left[priority] for priority in sorted(set(priorities.values()), reverse=True)]
