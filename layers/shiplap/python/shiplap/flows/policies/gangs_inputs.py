"""Reads the PodGroups that pods of a cluster name: a list of each API of which one is named, and nothing else.

A gang whose PodGroup cannot be read waits, with the reason; the pods beside it are planned for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from msgspec.structs import replace

from shiplap.errors import ClusterError, ClusterUnreachable
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.reading import Reader
from shiplap.policies.gangs.gang import PodGroupFacts
from shiplap.policies.gangs.gang_membership import POD_GROUP_APIS, Asked, named_pod_groups
from shiplap.policies.gangs.pod_groups import (
    KIND,
    VERSIONS,
    PodGroupObject,
    named_facts,
    read_facts,
    unread_facts,
)
from shiplap.ports import CustomKind

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
