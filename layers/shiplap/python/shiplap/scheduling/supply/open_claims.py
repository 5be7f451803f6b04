"""The claims a decision has opened so far: how full each is, what it may become and what its pool is charged for it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirements
from shiplap.scheduling.model.pod_classes import HostPort, PodClass
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.topology_constraints import Constraints
from shiplap.scheduling.supply.claim_groups import ClaimGroup, ClaimGroups
from shiplap.scheduling.supply.daemon_terms import NO_COMPANY, Company
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class RefusalKind(StrEnum):
    """The reason to pass over a template."""

    BLOCKED = "blocked"
    TAINT = "taint"
    REQUIREMENTS = "requirements"
    TYPES = "types"
    MIN_VALUES = "minValues"
    LIMITS = "limits"
    NODES = "nodes"
    RESERVED = "reserved"
    SPOT_SHARE = "spotShare"


class Refusal(msgspec.Struct, frozen=True, eq=False):
    """A template could not open a claim for a class; `left` [resources] is what its limits left then."""

    template: NodeClaimTemplate
    kind: RefusalKind
    attempt: PlacementAttempt
    left: Ints


class PlacementAttempt(msgspec.Struct, frozen=True, eq=False):
    """A class in one attempt to place it: a node-affinity term, and what is still held to of its preferences.

    `term` is one of the class's, joined with the node preference `preferred` if one is held to. `constraints` are the
    topology constraints that bind: the required ones and the preferred ones not given up yet. `soft`: PreferNoSchedule
    is tolerated. `level` counts the steps of relaxation. `constraint` numbers what matters for which claims suit, so
    that classes of different size share answers. `company` says which DaemonSets must run beside it, or must not.
    """

    pod_class: PodClass
    term: Requirements
    soft: bool
    requests: Ints
    constraint: int
    constraints: Constraints
    level: int = 0
    preferred: Requirements | None = None
    company: Company = NO_COMPANY


class OpenClaim(msgspec.Struct, eq=False):
    """The parts of a claim that are not arrays; `relaxations` are the attempts that gave up preferences."""

    group: ClaimGroup
    pods: list[tuple[PodClass, Sequence[Pod]]] = msgspec.field(default_factory=list)
    ports: set[HostPort] = msgspec.field(default_factory=set)
    skipped: tuple[Refusal, ...] = ()
    relaxed: bool = False
    relaxations: list[PlacementAttempt] = []


class OpenClaims:
    """Claims with their loads as arrays: `used` and `charges` [claims, resources], `group_of` [claims].

    `changes` counts alterations, so that answers about all claims can be remembered while there is none.
    """

    def __init__(self, columns: int, groups: ClaimGroups) -> None:
        self.groups = groups
        self.claims: list[OpenClaim] = []
        self.changes = 0
        self._used: Ints = np.zeros((64, columns), np.int64)
        self._charges: Ints = np.zeros((64, columns), np.int64)
        self._group_of: Ints = np.zeros(64, np.int64)
        self._reach: Ints = np.zeros((0, columns), np.int64)

    def __len__(self) -> int:
        return len(self.claims)

    @property
    def used(self) -> Ints:
        """The load of each claim, daemons not included."""
        return self._used[: len(self.claims)]

    @property
    def charges(self) -> Ints:
        """The charge of each claim to the limits of its pool."""
        return self._charges[: len(self.claims)]

    @property
    def group_of(self) -> Ints:
        """The number of each claim's group."""
        return self._group_of[: len(self.claims)]

    def within_reach(self, requests: Ints) -> Ints:
        """The places of the claims that the largest amounts of their group's rows leave room for `requests`.

        Most claims are full, so this saves asking each of their groups.
        """
        known = len(self._reach)
        if known < len(self.groups.all):
            fresh = [group.reach for group in self.groups.all[known:]]
            self._reach = np.concatenate([self._reach, np.array(fresh, np.int64)])
        return np.flatnonzero((self.used + requests <= self._reach[self.group_of]).all(axis=1))

    def install(self, groups: Sequence[ClaimGroup], charges: Ints, loads: Ints) -> list[OpenClaim]:
        """Open claims with loads decided elsewhere; their pods and what goes with these are the caller's to add.

        `charges` and `loads` are [claims, resources].
        """
        start, end = len(self.claims), len(self.claims) + len(groups)
        while end > len(self._used):
            self._grow()
        opened = [OpenClaim(group, relaxed=group.relaxed) for group in groups]
        self.claims += opened
        self._used[start:end], self._charges[start:end] = loads, charges
        self._group_of[start:end] = [group.index for group in groups]
        self.changes += len(groups)
        return opened

    def open(self, group: ClaimGroup, charge: Ints, skipped: tuple[Refusal, ...]) -> int:
        """Open an empty claim and return its place."""
        place = len(self.claims)
        if place == len(self._used):
            self._grow()
        self.claims.append(OpenClaim(group, skipped=skipped, relaxed=group.relaxed))
        self._charges[place] = charge
        self._group_of[place] = group.index
        self.changes += 1
        return place

    def _grow(self) -> None:
        """Make room for twice as many claims."""
        self._used = np.concatenate([self._used, np.zeros_like(self._used)])
        self._charges = np.concatenate([self._charges, np.zeros_like(self._charges)])
        self._group_of = np.concatenate([self._group_of, np.zeros_like(self._group_of)])

    def add(self, place: int, group: ClaimGroup, attempt: PlacementAttempt, pods: Sequence[Pod]) -> None:
        """Put pods of a class on a claim, which comes into `group` by it."""
        claim = self.claims[place]
        claim.group = group
        claim.pods.append((attempt.pod_class, pods))
        if attempt.level:
            claim.relaxations.append(attempt)
        claim.ports |= attempt.pod_class.ports
        self._group_of[place] = group.index
        self._used[place] += attempt.requests * len(pods)
        self.changes += 1

    def regroup(self, place: int, group: ClaimGroup) -> None:
        """Let a claim be of another group, which holds its load."""
        self.claims[place].group = group
        self._group_of[place] = group.index
        self.changes += 1

    def restrict(self, place: int, allowed: Bools) -> None:
        """Let a claim use only these rows [rows] of its catalogue from now on."""
        claim = self.claims[place]
        group = claim.group
        claim.group = self.groups.get(group.template, group.requirements, allowed, group.minimums)
        self._group_of[place] = claim.group.index
        self.changes += 1
