"""Ends instance profiles and node roles that no launch uses and no instance carries any more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from shiplap.errors import AwsError
from shiplap.node_identities import (
    GRACE_S,
    EndingIdentities,
    InstanceProfile,
    KeptIdentities,
    OwnNodeRole,
    ending_identities,
)
from shiplap.ports import Clock, KeptIdentityStore, Meter, NodeIdentities

_LOG = logging.getLogger(__name__)

_ASKED_AT_ONCE = 100

_Identity = TypeVar("_Identity", InstanceProfile, OwnNodeRole)


def sweep_identities(
    identities: NodeIdentities, store: KeptIdentityStore, clock: Clock, meter: Meter, *, until: float
) -> None:
    """Look once, and end nothing more after the epoch second `until`.

    Whatever ends it, the next look goes on: since when a profile is kept is stored before anything ends.

    An AwsError is logged and counted, because no launch depends on this.

    Raises:
        StoreError: it is not known since when profiles are kept, and nothing ends.
    """
    if clock.now() >= until:
        return
    before = store.load()
    try:
        ending = look_at_identities(identities, before, clock.now())
    except AwsError as error:
        meter.count("IdentitiesNotSwept")
        _LOG.warning("identities of nodes not looked at: %s", error, extra={"code": error.code})
        return
    store.save(ending.kept)
    end_identities(identities, ending, has_time=lambda: clock.now() < until)


def look_at_identities(
    identities: NodeIdentities, before: KeptIdentities, now: float, *, grace_s: float = GRACE_S
) -> EndingIdentities:
    """Decide what ends, and change nothing.

    Raises:
        AwsError: it cannot be told what exists, or who carries it.
    """
    found = identities.find()
    carriers = identities.carriers(found.superseded) if found.superseded else {}
    holders = {role.name: identities.holders(role) for role in found.unheld[:_ASKED_AT_ONCE]}
    return ending_identities(found, carriers, holders, before, now, grace_s=grace_s)


def end_identities(
    identities: NodeIdentities, ending: EndingIdentities, *, has_time: Callable[[], bool] = lambda: True
) -> frozenset[str]:
    """End what is to end while there is time; names of what has ended.

    One that cannot be ended is logged and keeps no other from it.
    """
    profiles = {item.name for item in ending.profiles if has_time() and _has_ended(identities.end_profile, item)}
    roles = {item.name for item in ending.roles if has_time() and _has_ended(identities.end_role, item)}
    return frozenset(profiles | roles)


def _has_ended(end: Callable[[_Identity], None], identity: _Identity) -> bool:
    try:
        end(identity)
    except AwsError as error:
        _LOG.warning("identity of nodes not ended: %s", error, extra={"cluster": identity.cluster, "code": error.code})
        return False
    _LOG.info("identity of nodes ended", extra={"cluster": identity.cluster, "identity": identity.arn})
    return True
