"""Gangs in simulations: the settings of a scenario, and planted defects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from shiplap.flows.policies import gangs_inputs, gangs_policy
from shiplap.kubernetes.objects import Node, ObjectMeta, Pod
from shiplap.policies.gangs import known_requests, provisioning_requests, request_conditions
from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.gangs.known_requests import pods_of_requests
from shiplap.policies.gangs.provisioning_requests import BOOKED_S, CapacityRequest, ProvisioningRequest
from shiplap.policies.gangs.request_conditions import RequestOutcome, outcomes
from shiplap.policies.gangs.requested_pods import Booking, booking_details, waiting_pods
from shiplap.policies.policy_settings import PolicySettings
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap_lab.scenarios.scenario import Scenario

Patches = list[tuple[Any, str, Any]]


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the settings of each cluster of a scenario; None where gangs are off."""
    if scenario.gangs != WHOLE:
        return None
    return GangSettings(WHOLE, provisioning_requests=bool(scenario.provisioning_requests))


def _plans_provisioned_anew() -> Patches:
    """A request whose room is booked is answered by what the plan of now has for it."""
    return [(ProvisioningRequest, "is_provisioned", property(lambda _: False))]


def _books_for_a_minute() -> Patches:
    """Bookings end nine minutes too soon."""
    return [(provisioning_requests, "BOOKED_S", 60.0)]


def _books_for_hours() -> Patches:
    """Bookings end too late."""
    return [(provisioning_requests, "BOOKED_S", 20 * BOOKED_S)]


def _books_a_part() -> Patches:
    """The status leaves out one of the places that are booked."""

    def act(booking: Booking) -> dict[str, str]:
        return booking_details(dict(sorted(booking.items())[1:]))

    return [(request_conditions, "booking_details", act)]


def _books_before_nodes_come() -> Patches:
    """A request is provisioned as soon as its nodes are launched."""

    def act(plan: Plan, nodes: Iterable[Node]) -> dict[str, RequestOutcome]:
        return outcomes(plan, [*nodes, *(Node(ObjectMeta(place.name)) for place in plan.existing_nodes)])

    return [(gangs_inputs, "outcomes", act), (request_conditions, "_is_in_service", lambda _: True)]


def _gives_booked_room_away() -> Patches:
    """No pod stands for booked room: nodes with nothing else leave."""
    return [(known_requests, "booked_pods", lambda *_: ())]


def _asks_twice() -> Patches:
    """Twice as many pods are planned as a request has."""

    def act(request: CapacityRequest, consumers: Sequence[Pod]) -> Iterator[Pod]:
        for pod in waiting_pods(request, consumers):
            yield pod
            meta = pod.metadata
            yield replace(pod, metadata=replace(meta, name=f"{meta.name}00", uid=f"{meta.uid}00"))

    return [(known_requests, "waiting_pods", act)]


def _plans_no_request() -> Patches:
    """Requests are accepted, and no plan has their pods."""
    return [(known_requests, "waiting_pods", lambda *_: iter(()))]


def _keeps_what_was_booked() -> Patches:
    """Room stays booked, and its nodes stay, when the booking is over."""
    kept: dict[str, Pod] = {}

    def act(*given: Any) -> list[Pod]:
        found = pods_of_requests(*given)
        kept.update({pod.metadata.uid: pod for pod in found if pod.spec.node_name})
        known = {pod.metadata.uid for pod in found}
        return [*found, *(pod for uid, pod in sorted(kept.items()) if uid not in known)]

    return [(gangs_policy, "pods_of_requests", act)]


_REQUESTS = ("gangs-requests",)

MUTANTS = {
    "plans provisioned requests anew": (_plans_provisioned_anew, _REQUESTS),
    "books for a minute": (_books_for_a_minute, _REQUESTS),
    "books for hours": (_books_for_hours, _REQUESTS),
    "books a part": (_books_a_part, _REQUESTS),
    "books before nodes come": (_books_before_nodes_come, _REQUESTS),
    "gives booked room away": (_gives_booked_room_away, _REQUESTS),
    "asks for requests twice": (_asks_twice, _REQUESTS),
    "plans no request": (_plans_no_request, _REQUESTS),
    "keeps what was booked": (_keeps_what_was_booked, _REQUESTS),
}
"""Planted defects by name: the patches, and the scenarios that find them."""
