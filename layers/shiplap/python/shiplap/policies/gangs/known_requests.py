"""The ProvisioningRequests of a cluster as one look finds them, and the pods that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.reading import Unreadable
from shiplap.policies.gangs.gang import RequestState
from shiplap.policies.gangs.provisioning_requests import (
    CapacityRequest,
    KnownTemplates,
    ProvisioningRequest,
    capacity_request,
    state_of,
)
from shiplap.policies.gangs.requested_pods import booked_pods, consumers_of, guards, waiting_pods
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.snapshot import ClusterView

Consumers = Mapping[tuple[str, str], Sequence[Pod]]
"""The pods that consume each request, by its namespace and name."""


class KnownRequests(msgspec.Struct, frozen=True):
    """Requests that are served, and what consumers of any request meet; with `unread` they could not be read."""

    served: tuple[CapacityRequest, ...] = ()
    states: tuple[RequestState, ...] = ()
    unread: str = ""


def known_requests(
    items: Sequence[ProvisioningRequest],
    unreadable: Iterable[Unreadable],
    templates: KnownTemplates,
    now: float,
    template_wait_s: float,
) -> KnownRequests:
    """Return what is known of requests that were read, those first that have booked room, then the oldest."""
    served = [
        capacity_request(item, templates, now, template_wait_s)
        for item in sorted(items, key=_turn)
        if item.is_ours and not item.is_over
    ]
    states = [state_of(item) for item in items if not item.metadata.deletion_timestamp]
    states += map(_unreadable_state, unreadable)
    return KnownRequests(tuple(served), tuple(sorted(states, key=lambda item: (item.namespace, item.name))))


def _turn(item: ProvisioningRequest) -> tuple[bool, str, str]:
    return not item.is_provisioned, item.metadata.creation_timestamp or "", item.key


def _unreadable_state(about: Unreadable) -> RequestState:
    return RequestState(about.namespace or "default", about.name, f"which cannot be read: {about.reason}", is_over=True)


def consumers(known: KnownRequests, view: ClusterView) -> Consumers:
    """Return the pods that consume the requests that are served."""
    return consumers_of(view, (request.item.name for request in known.served))


def pods_of_requests(known: KnownRequests, view: ClusterView, taken: Consumers, now: float) -> list[Pod]:
    """Return the pods of the requests, no more than a plan bears: later requests wait for their turn.

    `taken` are the consumers of the requests that are served.
    """
    if known.unread:
        return list(guards(view.nodes))
    pods: list[Pod] = []
    for request in known.served:
        if request.item.is_provisioned:
            pods += booked_pods(request, taken[request.item.name])
        elif now < request.valid_until and len(pods) + request.total <= BOUNDS.virtual_pods:
            pods += waiting_pods(request, taken[request.item.name])
    return pods
