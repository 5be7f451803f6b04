"""Reads what gangs are made of beside pods, and answers who asked for them.

PodGroups: a list of each API of which a pod names one, and nothing else. A gang whose PodGroup cannot be read waits,
with the reason; the pods beside it are planned for.

ProvisioningRequests: those of a cluster are read for each decision, and answered by what was decided.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from shiplap.errors import ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.reading import Reader, Unreadable
from shiplap.policies.gangs.gang import PodGroupFacts, RequestState
from shiplap.policies.gangs.gang_membership import POD_GROUP_APIS, REQUESTS, Asked, named_pod_groups
from shiplap.policies.gangs.pod_groups import (
    KIND,
    VERSIONS,
    PodGroupObject,
    named_facts,
    read_facts,
    unread_facts,
)
from shiplap.policies.gangs.provisioning_requests import (
    REQUEST_KIND,
    REQUEST_VERSIONS,
    CapacityRequest,
    KnownTemplates,
    ProvisioningRequest,
    RequestTemplate,
    capacity_request,
    named_templates,
    state_of,
)
from shiplap.policies.gangs.request_conditions import next_status, outcomes
from shiplap.policies.gangs.requested_pods import booked_pods, consumers_of, guards, waiting_pods
from shiplap.ports import CustomKind
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView

_LOG = logging.getLogger(__name__)

POD_GROUPS = OptionalPart("PodGroups", ClusterUnreachable, call_s=10.0, budget_s=30.0)
"""An invocation has several looks at the cluster, and a cluster may have several APIs of PodGroups."""

_READER = Reader(PodGroupObject, KIND)
_KINDS = {api: CustomKind(api, VERSIONS[api], "podgroups", _READER) for api in POD_GROUP_APIS}


def read_pod_groups(cluster: str, pods: Iterable[Pod], context: FlowContext) -> tuple[PodGroupFacts, ...]:
    """Return what the PodGroups say that pods name; of those that do not exist, that they do not."""
    named = named_pod_groups(pods)
    facts: list[PodGroupFacts] = []
    for api, of_api in groupby(named, key=lambda asked: asked[0]):
        facts += _facts_of(cluster, api, tuple(of_api), context)
    return named_facts(named, facts, "in the cluster")


def _facts_of(cluster: str, api: str, named: Collection[Asked], context: FlowContext) -> Iterator[PodGroupFacts]:
    names = {(namespace, name) for _, namespace, name in named}
    try:
        found = context.within(POD_GROUPS, context.cluster).named_objects(_KINDS[api], names)
    except ClusterError as error:
        context.meter.count("PodGroupsNotRead")
        _LOG.warning("gangs wait, their PodGroups are not read: %s", error, extra={"cluster": cluster})
        yield from (unread_facts(asked, str(error)) for asked in named)
        return
    for group in found.items:
        yield read_facts(replace(group, api_version=api))
    for about in found.unreadable:
        yield unread_facts((api, about.namespace, about.name), about.reason)
    for name in found.unlisted:
        yield unread_facts((api, *name), "it is not among the first that are listed")


PROVISIONING_REQUESTS = OptionalPart("ProvisioningRequests", ClusterUnreachable, call_s=10.0, budget_s=30.0)

MOST_ANSWERS = 50
"""Statuses written in one invocation; further ones have their turn in the next."""

_REQUESTS = CustomKind(REQUESTS, REQUEST_VERSIONS, "provisioningrequests", Reader(ProvisioningRequest, REQUEST_KIND))
_TEMPLATES = CustomKind("", ("v1",), "podtemplates", Reader(RequestTemplate, "PodTemplate"))


class KnownRequests(msgspec.Struct, frozen=True):
    """The requests of a cluster as one look finds them: those that are served, and what consumers of any meet."""

    served: tuple[CapacityRequest, ...] = ()
    states: tuple[RequestState, ...] = ()
    unread: str = ""


def read_requests(cluster: str, now: float, template_wait_s: float, context: FlowContext) -> KnownRequests:
    """Return the ProvisioningRequests of a cluster; what cannot be read is counted, and said."""
    try:
        found = context.within(PROVISIONING_REQUESTS, context.cluster).named_objects(_REQUESTS, None)
        templates = _templates(found.items, context)
    except ClusterError as error:
        context.meter.count("ProvisioningRequestsNotRead")
        _LOG.warning("ProvisioningRequests are not read: %s", error, extra={"cluster": cluster})
        return KnownRequests(unread=str(error))
    for about in found.unreadable:
        context.meter.count("ProvisioningRequestsNotRead")
        _LOG.warning("%s", about.text, extra={"cluster": cluster})
    served = [
        capacity_request(item, templates, now, template_wait_s)
        for item in sorted(found.items, key=_turn)
        if item.is_ours and not item.is_over
    ]
    states = [state_of(item) for item in found.items if not item.metadata.deletion_timestamp]
    states += map(_unreadable_state, found.unreadable)
    return KnownRequests(tuple(served), tuple(sorted(states, key=lambda item: (item.namespace, item.name))))


def _turn(item: ProvisioningRequest) -> tuple[bool, str, str]:
    """Booked room comes first, then the oldest request."""
    return not item.is_provisioned, item.metadata.creation_timestamp or "", item.key


def _unreadable_state(about: Unreadable) -> RequestState:
    return RequestState(about.namespace or "default", about.name, f"which cannot be read: {about.reason}", is_over=True)


def _templates(items: Sequence[ProvisioningRequest], context: FlowContext) -> KnownTemplates:
    wanted = named_templates(items)
    if not wanted:
        return KnownTemplates()
    found = context.within(PROVISIONING_REQUESTS, context.cluster).named_objects(_TEMPLATES, wanted)
    unreadable = {(about.namespace, about.name): about.reason for about in found.unreadable}
    unreadable |= dict.fromkeys(found.unlisted, "it is not among the first that are listed")
    return KnownTemplates(
        {(item.metadata.namespace, item.metadata.name): item.template for item in found.items}, unreadable
    )


def pods_of_requests(known: KnownRequests, view: ClusterView, now: float) -> list[Pod]:
    """Return the pods of the requests, no more than a plan bears: later requests wait for their turn."""
    if known.unread:
        return list(guards(view.nodes))
    consumers, pods = _consumers(known, view), list[Pod]()
    for request in known.served:
        if request.item.is_provisioned:
            pods += booked_pods(request, consumers[request.item.name])
        elif now < request.valid_until and len(pods) + request.total <= BOUNDS.virtual_pods:
            pods += waiting_pods(request, consumers[request.item.name])
    return pods


def _consumers(known: KnownRequests, view: ClusterView) -> Mapping[tuple[str, str], list[Pod]]:
    return consumers_of(view, (request.item.name for request in known.served))


def answer_requests(
    cluster: str, known: KnownRequests, view: ClusterView, plan: Plan | None, now: float, context: FlowContext
) -> None:
    """Write what became of requests. A write that fails is made up for by the next look: it decides the same."""
    found = outcomes(plan, view.nodes) if plan is not None else {}
    consumers = _consumers(known, view)
    written = 0
    for request in known.served:
        item = request.item
        status = next_status(request, found.get(item.metadata.uid), consumers.get(item.name, ()), view.nodes, now)
        if status is None:
            continue
        if written >= MOST_ANSWERS:
            return
        try:
            context.within(PROVISIONING_REQUESTS, context.cluster).write_status(
                REQUEST_KIND, item.metadata.namespace, item.metadata.name, status, item.metadata.resource_version
            )
        except (ObjectConflict, ObjectNotFound) as error:
            _LOG.info("ProvisioningRequest %s has just changed: %s", item.key, error, extra={"cluster": cluster})
        except ClusterError as error:
            context.meter.count("ProvisioningRequestsNotAnswered")
            _LOG.warning("ProvisioningRequest %s is not answered: %s", item.key, error, extra={"cluster": cluster})
            return
        else:
            _LOG.info("ProvisioningRequest %s is answered", item.key, extra={"cluster": cluster})
        written += 1
