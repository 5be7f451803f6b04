"""Reads what sleeps in a cluster now, from its settings and from the notes of its sleep.

Nothing is read while no window is open. What cannot be read keeps everything awake: a lost note can only keep nodes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import JOINS, OptionalPart
from shiplap.flows.optional.policy_port import PolicyPort
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, SleepState, is_any_open, sleep_state
from shiplap.policies.sleep.sleep_store import SleepStore
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    pass

_LOG = logging.getLogger(__name__)

SLEEP = PolicyPort[SleepStore]("sleep", OptionalPart("notes of sleep"))
"""The port to the notes of the cluster's sleep."""


def read_sleep(settings: ClusterSettings, context: FlowContext, joins: JoinHistory | None = None) -> SleepState | None:
    """Return the state of sleep now; None where nothing may sleep.

    Args:
        settings: the cluster, with its NodePools as they are now.
        context: its ports.
        joins: how its nodes have joined, if that was read before.
    """
    store = context.policy_port(SLEEP)
    wanted = settings.policy(SleepSettings)
    if wanted is None or store is None or not settings.disruption.enabled:
        return None  # where no node may leave, no pod need wait
    now, pools = context.clock.now(), settings.manifests.node_pools
    if not is_any_open(wanted, now):
        return sleep_state(wanted, pools, JoinHistory(), SleepNotes(), now)
    try:
        notes, known = store.read(settings.name), joins
        if known is None:
            known = context.within(JOINS, context.joins).read(settings.name) if context.joins else JoinHistory()
    except StoreError as error:
        context.meter.count("SleepNotesNotRead")
        _LOG.warning("nothing sleeps, what is remembered is not read: %s", error, extra={"cluster": settings.name})
        notes, known = SleepNotes(), JoinHistory()
    return sleep_state(wanted, pools, known, notes, now)
