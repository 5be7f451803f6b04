"""Reads what gangs are made of beside pods and what is remembered of them, and answers who asked for them.

PodGroups: a list of each API of which a pod names one, and nothing else. A gang whose PodGroup cannot be read waits,
with the reason; the pods beside it are planned for.

ProvisioningRequests: those of a cluster are read for each decision, and answered by what was decided.

Tries: read while a gang waits, and written after a decision. Without them a gang is tried in each decision.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import UNSET, convert
from msgspec.structs import replace

from shiplap.errors import ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.flows.optional.policy_port import PolicyPort
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.reading import Reader
from shiplap.policies.gangs.gang import PodGroupFacts
from shiplap.policies.gangs.gang_membership import POD_GROUP_APIS, REQUESTS, Asked, named_pod_groups
from shiplap.policies.gangs.known_requests import Consumers, KnownRequests, known_requests
from shiplap.policies.gangs.memory.gang_tries import GANGS, GangTries
from shiplap.policies.gangs.memory.tries_store import GangTriesStore
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
    KnownTemplates,
    ProvisioningRequest,
    RequestTemplate,
    named_templates,
)
from shiplap.policies.gangs.request_conditions import next_status, outcomes
from shiplap.ports import CustomKind
from shiplap.scheduling.model.scheduling_plan import Plan

_LOG = logging.getLogger(__name__)

POD_GROUPS = OptionalPart("PodGroups", ClusterUnreachable, call_s=10.0, budget_s=30.0)
"""An invocation has several looks at the cluster, and a cluster may have several APIs of PodGroups."""

TRIES = PolicyPort[GangTriesStore]("gang_tries", OptionalPart("tries for gangs"))
"""The port to the tries for the gangs of a cluster."""

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
    return known_requests(found.items, found.unreadable, templates, now, template_wait_s)


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


def answer_requests(
    cluster: str,
    known: KnownRequests,
    taken: Consumers,
    nodes: Sequence[Node],
    plan: Plan | None,
    now: float,
    context: FlowContext,
) -> None:
    """Write what became of requests. A write that fails is made up for by the next look: it decides the same."""
    found = outcomes(plan, nodes) if plan is not None else {}
    written = 0
    for request in known.served:
        item = request.item
        status = next_status(request, found.get(item.metadata.uid), taken.get(item.name, ()), nodes, now)
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


def read_tries(cluster: str, context: FlowContext) -> tuple[GangTries, ...] | None:
    """Return the tries for the gangs of a cluster; None where they cannot be read, and must not be written over."""
    store = context.policy_port(TRIES)
    if store is None:
        return None
    try:
        return store.read(cluster)
    except StoreError as error:
        context.meter.count("GangTriesNotRead")
        _LOG.warning("each gang is tried, what is remembered is not read: %s", error, extra={"cluster": cluster})
        return None


def remember_tries(cluster: str, before: Sequence[GangTries], plan: Plan, now: float, context: FlowContext) -> None:
    """Write what a plan wants remembered of gangs, if that is not what is stored already."""
    store, wanted = context.policy_port(TRIES), plan.remembered
    if store is None or wanted is UNSET or GANGS not in wanted:
        return
    tries = convert(wanted[GANGS], tuple[GangTries, ...])
    if tries == before:
        return
    try:
        store.save(cluster, tries, now)
    except StoreError as error:
        context.meter.count("GangTriesNotWritten")
        _LOG.warning("tries for gangs are not remembered: %s", error, extra={"cluster": cluster})
