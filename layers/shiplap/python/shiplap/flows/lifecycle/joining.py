"""Writes down how nodes join, and gives up those that registered and never become complete.

What is noted here shortens waiting and keeps off broken AMIs; a note that cannot be written is counted and missed by
nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from shiplap.errors import StoreError
from shiplap.flows.claim_updates import facts
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.interrupt import handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.lifecycle.registration import not_initialized
from shiplap.flows.optional.optional_calls import JOINS
from shiplap.instances.readiness.joins import LONGEST_INITIALIZE_S, SHORTEST_DEADLINE_S, deadline_s
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import JoinLog
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


class JoinRecorder:
    """Collects how the nodes of one invocation joined, and writes it together at its end.

    All nodes of a NodePool are noted in one item: were each written for itself, those that join together would wait for
    each other. What a function that dies does not write, other nodes teach.
    """

    def __init__(self, cluster: str, context: FlowContext) -> None:
        self._cluster = cluster
        self._context = context
        self._joined: dict[tuple[str, str, str], list[float]] = {}
        self._initialized: dict[str, list[float]] = {}

    def joined(self, claim: NodeClaim, seconds: float) -> None:
        """A node was registered so many seconds after its launch."""
        kind = (claim.plan.node_pool, claim.known_instance.ami, claim.known_instance.type)
        self._joined.setdefault(kind, []).append(seconds)

    def initialized(self, claim: NodeClaim, seconds: float) -> None:
        """A node was complete so many seconds after its registration."""
        self._initialized.setdefault(claim.plan.node_pool, []).append(seconds)

    def write(self) -> None:
        """Write the noted joins, once."""
        for (pool, ami, instance_type), times in sorted(self._joined.items()):
            self._record(partial(_joined, self._cluster, pool, ami, instance_type, times, self._context.clock.now()))
        for pool, times in sorted(self._initialized.items()):
            self._record(partial(_initialized, self._cluster, pool, times, self._context.clock.now()))
        self._joined, self._initialized = {}, {}

    def _record(self, write: Callable[[JoinLog], None]) -> None:
        _record(write, {"cluster": self._cluster}, self._context)


def _joined(
    cluster: str, pool: str, ami: str, instance_type: str, seconds: Sequence[float], now: float, joins: JoinLog
) -> None:
    joins.joined(cluster, pool, ami, instance_type, seconds, now)


def _initialized(cluster: str, pool: str, seconds: Sequence[float], now: float, joins: JoinLog) -> None:
    joins.initialized(cluster, pool, seconds, now)


def record_failed_join(claim: NodeClaim, context: FlowContext) -> None:
    """The instance of a Launched claim has not become a node in time."""
    now, launched_at = context.clock.now(), claim.changed_at
    context.meter.count("NodesNotJoined")
    _record(
        lambda joins: joins.failed(
            claim.cluster, claim.known_instance.ami, claim.known_instance.type, launched_at, now
        ),
        facts(claim),
        context,
    )


def give_up_incomplete(claim: NodeClaim, node: Node, settings: ClusterSettings, context: FlowContext) -> None:
    """Have a Registered node replaced and emptied when it should long have been complete.

    It may run pods: it is left without haste. Until then planning counts on what it may never have.

    Raises:
        StoreError: tried again when the claim is looked at again.
    """
    waited_s = context.clock.now() - claim.changed_at
    if context.joins is None or waited_s < SHORTEST_DEADLINE_S:
        return
    times = context.joins.read(claim.cluster).times(claim.plan.node_pool)
    if waited_s < deadline_s(times.initialize_s, LONGEST_INITIALIZE_S):
        return
    context.meter.count("NodesNotInitialized")
    missing = not_initialized(claim, node)
    _LOG.warning("not initialized within %.0f s: %s", waited_s, missing, extra=facts(claim))
    now, since = context.clock.now(), claim.changed_at
    _record(
        lambda joins: joins.failed(claim.cluster, claim.known_instance.ami, claim.known_instance.type, since, now),
        facts(claim),
        context,
    )
    handle_notice(claim.name, Notice(NoticeKind.INCOMPLETE, (claim.instance_id,)), settings, context)


def _record(write: Callable[[JoinLog], None], about: Mapping[str, str], context: FlowContext) -> None:
    if context.joins is None:
        return
    try:
        write(context.within(JOINS, context.joins))
    except StoreError as error:
        context.meter.count("JoinsNotRecorded")
        _LOG.warning("join not recorded: %s", error, extra=about)
