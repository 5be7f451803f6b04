"""The record of instances that become nodes: the time that takes, and the AMIs and types on which it never happens.

A deadline that suits a Bottlerocket node is too short for Windows, and one that suits both is ten minutes of waiting
for a node that will never come. An AMI that is broken would be launched, waited for and ended for ever; so after a few
failures in a row there is one try at a time, with growing pauses, until one node joins.

EC2 accepts some launches and ends the instance seconds later, for example because it may not use the key of a volume.
The next instance of the same EC2NodeClass would end alike, whatever its type: it is left alone for a while, and people
get advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import msgspec
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.readiness.nodeclass_status import manifest_digest
from shiplap.manifests.custom_resources import EC2NodeClass

SAMPLES = 100
"""Times remembered per NodePool, the newest ones."""

FEWEST_SAMPLES = 5
"""Fewer times say nothing."""

DEADLINE_FACTOR = 2.0
"""A node is given up after the 99th percentile of its NodePool's times, times this."""

SHORTEST_DEADLINE_S = 180.0
"""No deadline is shorter, in seconds: a slow image pull is not a broken node."""

LONGEST_INITIALIZE_S = 1800.0
"""How long a registered node may take to become complete at most, in seconds; upstream waits for ever."""

AMI_FAILURES = 3
"""Failures in a row, on any type, after which an AMI is tried with one node at a time only."""

TYPE_FAILURES = 2
"""The same for one instance type on an AMI that works on others."""

FIRST_PAUSE_S = 900.0
LONGEST_PAUSE_S = 6 * 3600.0


class JoinRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Failures since the last node that joined, the last of them at `failed_at`; `joined_at` 0 when none ever did.

    Nodes that were launched before a failure was known fail for the same reason, or at least prove nothing new: they
    are one failure, however many.
    """

    failures: int = 0
    failed_at: float = 0.0
    joined_at: float = 0.0

    def joined(self, now: float) -> JoinRecord:
        """The record once a node has joined."""
        return JoinRecord(joined_at=now)

    def failed(self, launched_at: float, now: float) -> JoinRecord:
        """The record once a node launched at `launched_at` has not joined."""
        known = launched_at <= self.failed_at
        return self if known else replace(self, failures=self.failures + 1, failed_at=now)

    def pause_until(self, limit: int) -> float:
        """Epoch seconds of the next try; 0 while there were fewer failures than `limit`."""
        if self.failures < limit:
            return 0.0
        doublings = min(self.failures - limit, 8)
        return self.failed_at + min(FIRST_PAUSE_S * (1 << doublings), LONGEST_PAUSE_S)


class AmiJoins(msgspec.Struct, frozen=True, omit_defaults=True):
    """The joins of nodes of one AMI: of all nodes, and by instance type."""

    ami: str
    all: JoinRecord = JoinRecord()
    types: dict[str, JoinRecord] = {}

    def joined(self, instance_type: str, now: float) -> AmiJoins:
        """The same once a node of this type has joined."""
        return replace(self, all=self.all.joined(now), types={**self.types, instance_type: JoinRecord(joined_at=now)})

    def failed(self, instance_type: str, launched_at: float, now: float) -> AmiJoins:
        """The same once a node of this type has not joined."""
        own = self.types.get(instance_type, JoinRecord()).failed(launched_at, now)
        return replace(self, all=self.all.failed(launched_at, now), types={**self.types, instance_type: own})


class PoolJoins(msgspec.Struct, frozen=True, omit_defaults=True):
    """Seconds that nodes of a NodePool took from launch to registration and from there to be complete, oldest first."""

    pool: str
    register_s: tuple[float, ...] = ()
    initialize_s: tuple[float, ...] = ()


class JoinHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is known of one cluster, sorted by name."""

    pools: tuple[PoolJoins, ...] = ()
    amis: tuple[AmiJoins, ...] = ()

    def times(self, pool: str) -> PoolJoins:
        """Return the joins of a NodePool; empty when nothing is known."""
        return next((joins for joins in self.pools if joins.pool == pool), PoolJoins(pool))


def with_samples(samples: Sequence[float], seconds: Sequence[float]) -> tuple[float, ...]:
    """The newest samples with some more."""
    return (*samples, *(round(item, 1) for item in seconds))[-SAMPLES:]


def deadline_s(samples: Sequence[float], ceiling_s: float) -> float:
    """After how many seconds a node is given up: FACTOR × the 99th percentile, from FLOOR_S to `ceiling_s`.

    Without enough samples, `ceiling_s`.
    """
    if len(samples) < FEWEST_SAMPLES:
        return ceiling_s
    slowest = sorted(samples)[ceil(0.99 * len(samples)) - 1]
    return min(max(SHORTEST_DEADLINE_S, DEADLINE_FACTOR * slowest), ceiling_s)


class BlockedLaunches(msgspec.Struct, frozen=True):
    """AMIs, and types on AMIs, that nothing is launched on now."""

    amis: frozenset[str] = frozenset()
    types: frozenset[tuple[str, str]] = frozenset()


def blocked_launches(history: JoinHistory, joining: Iterable[tuple[str, str]], now: float) -> BlockedLaunches:
    """The AMIs, and types on AMIs, to keep off.

    Args:
        history: of the cluster.
        joining: (AMI, instance type) of every instance that has not joined yet: while one is under way, the next try
            waits for its outcome.
        now: epoch seconds.
    """
    under_way = set(joining)
    trying = {ami for ami, _ in under_way}
    blocked_amis, blocked_types = set(), set()
    for joins in history.amis:
        until = joins.all.pause_until(AMI_FAILURES)
        if until and (now < until or joins.ami in trying):
            blocked_amis.add(joins.ami)
        for name, record in joins.types.items():
            until = record.pause_until(TYPE_FAILURES)
            if until and (now < until or (joins.ami, name) in under_way):
                blocked_types.add((joins.ami, name))
    return BlockedLaunches(frozenset(blocked_amis), frozenset(blocked_types))


def without_blocked(types: Iterable[InstanceType], blocked: BlockedLaunches) -> tuple[InstanceType, ...]:
    """The same types with no offering available where launches are blocked."""
    if not blocked.amis and not blocked.types:
        return tuple(types)

    def closed(instance_type: InstanceType) -> InstanceType:
        if instance_type.ami not in blocked.amis and (instance_type.ami, instance_type.name) not in blocked.types:
            return instance_type
        return replace(
            instance_type, offerings=tuple(replace(offering, available=False) for offering in instance_type.offerings)
        )

    return tuple(closed(instance_type) for instance_type in types)


def timeouts(history: JoinHistory, ceiling_s: float) -> Mapping[str, float]:
    """Seconds from launch to registration after which a node is given up, by NodePool, where they were learned."""
    return {joins.pool: deadline_s(joins.register_s, ceiling_s) for joins in history.pools}


_PREFIX = "nodeclass:"


def node_class_scope(cluster: str, node_class: EC2NodeClass) -> str:
    """The name under which an EC2NodeClass, as it is written now, is left alone: a changed one may do."""
    return f"{scope_prefix(cluster, node_class.metadata.name)}{manifest_digest(node_class)}"


def scope_prefix(cluster: str, node_class: str) -> str:
    """The beginning of that name, whatever the manifest says."""
    return f"{_PREFIX}{cluster}/{node_class}@"


def is_node_class(scope: str) -> bool:
    """True if a name stands for an EC2NodeClass, not for an instance type."""
    return scope.startswith(_PREFIX)


def scope_text(scope: str) -> str:
    """The name as people read it: `EC2NodeClass default of demo`; other names stay as they are."""
    if not is_node_class(scope):
        return scope
    cluster, _, name = scope.removeprefix(_PREFIX).rpartition("@")[0].rpartition("/")
    return f"EC2NodeClass {name} of {cluster}"


def is_left_alone(cluster: str, node_class: str, scopes: Iterable[str]) -> bool:
    """True if one of the names is the name of the EC2NodeClass, whatever its manifest says now."""
    start = scope_prefix(cluster, node_class)
    return any(scope.startswith(start) for scope in scopes)
