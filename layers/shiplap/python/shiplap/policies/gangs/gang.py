"""A gang, its members in a cluster, and what is known of it beside its pods: plain data."""

from __future__ import annotations

import msgspec

from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.policies.gangs.memory.gang_tries import GangTries

WAIT_S = 300.0
"""How long members that do not exist yet are waited for where nothing else is said, in seconds."""


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """A group of pods that cannot start before `minimum` of them have a node."""

    namespace: str

    name: str

    minimum: int

    topology: str = ""
    """The label of nodes of which all members need the same value; empty where they may be anywhere."""

    priority: int = 0

    created_at: str = ""
    """RFC 3339: when its PodGroup, or its first pod, was created."""

    deadline_s: float = 0.0
    """Seconds after its creation, after which nothing is launched for it any more; 0 without a deadline."""

    problem: str = ""
    """Why it cannot be planned whatever there is room for."""

    @property
    def key(self) -> str:
        """`namespace/name`, as messages name a gang."""
        return namespaced_name(self.namespace, self.name)

    @property
    def began(self) -> float | None:
        """When it was created, epoch seconds; None where that is not known, as of a pod of a file."""
        try:
            return epoch(self.created_at)
        except ValueError:
            return None


class GangMembers(msgspec.Struct, frozen=True):
    """A gang with its pods in a cluster: those that wait for a node, and what the others have.

    `placed` counts members that have a node or have succeeded, `gated` those that a scheduling gate holds back.
    `nodes` are the names of the nodes that members have.
    """

    gang: Gang
    waiting: tuple[Pod, ...]
    placed: int = 0
    gated: int = 0
    nodes: frozenset[str] = frozenset()

    @property
    def needed(self) -> int:
        """How many of the waiting pods must have a place, if any is to have one.

        A gang that runs lacks what it has lost: members that nobody has made anew are not waited for.
        """
        missing = max(self.gang.minimum - self.placed, 0)
        return min(missing, len(self.waiting)) if self.placed else missing


class PodGroupFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a PodGroup that matter for its gang. `api` is the group of its API.

    `problem` says why nothing is known of it, such as that it does not exist; with `unread` it may exist. A group of
    `minimum` 1 is no gang. Without a `priority` the highest of its pods counts.
    """

    api: str
    namespace: str
    name: str
    minimum: int = 1
    topology: str = ""
    priority: int | None = None
    created_at: str = ""
    problem: str = ""
    unread: bool = False


class RequestState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ProvisioningRequest, as pods that consume it meet it.

    `holds` says why no node is launched for these pods; empty once they are planned like any others. With `is_over`
    nothing will change that. `booked_until`, epoch seconds, is the end of a booking of ours; 0 without one.
    """

    namespace: str
    name: str
    holds: str = ""
    is_over: bool = False
    booked_until: float = 0.0


class KnownGangs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What decisions know of gangs beside pods: PodGroups, and how long missing members are waited for.

    A gang that has waited for `set_aside_s` seconds has room set aside from gangs after it; 0: none ever has. Without
    `requests` ProvisioningRequests are off; with `requests_unread` they could not be read, and why. Without `tries`
    nothing is remembered of gangs that were short.
    """

    wait_s: float = WAIT_S
    pod_groups: tuple[PodGroupFacts, ...] = ()
    set_aside_s: float = 0.0
    requests: tuple[RequestState, ...] | None = None
    requests_unread: str = ""
    tries: tuple[GangTries, ...] | None = None
