"""Many pods of a class with a topology spread, placed at once where the result equals placing them one by one.

One by one, each pod goes to the domain with the fewest pods, so the counts rise evenly. The result follows from the
counts and from how many pods each domain can take, where both are certain. Some pods are left to be placed one by one:
within the skew they may prefer free capacity of existing nodes to new nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.resources import PLENTY, Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.supply.existing_nodes import ExistingNodes
from shiplap.scheduling.supply.open_claims import ClaimGroup, PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import Openings, estimates
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.domains import Domains, HostnameBounds
from shiplap.scheduling.topology.reachable_domains import DomainChoice
from shiplap.scheduling.topology.topology_counts import TopologyCounts


class _New(msgspec.Struct, frozen=True):
    """New nodes in a domain: their pool, how many its limits allow, how many pods each takes, and all together."""

    pool: str
    openable: int
    each: int
    most: int = PLENTY


class EvenSpread:
    """Answers for one packing."""

    def __init__(
        self,
        counts: TopologyCounts,
        openings: Openings,
        attempts: PlacementAttempts,
        domains: Domains,
        nodes: ExistingNodes,
        *,
        strictly_reserved: bool,
    ) -> None:
        """`strictly_reserved`: pods wait for a reservation that has instances, also for those this packing takes."""
        self._strictly_reserved = strictly_reserved
        self._counts = counts
        self._openings = openings
        self._attempts = attempts
        self._domains = domains
        self._nodes = nodes

    def quotas(self, attempt: PlacementAttempt, number: int) -> list[tuple[DomainChoice, int]]:
        """Return how many of `number` pods can safely go to each domain now; an empty list where this is unknown."""
        spread = self._only_spread(attempt)
        if spread is None or number <= spread.max_skew:
            return []
        bounds = self._domains.bounds(attempt)
        if bounds.single:
            return []
        counts, key = self._counts, spread.key
        per_domain, present = counts.spread(attempt.pod_class, spread)
        launchable = self._domains.launchable(attempt.pod_class, key)
        size = len(counts.values(key))
        per_domain = np.concatenate([per_domain, np.zeros(size - len(per_domain), np.int64)])
        present = np.concatenate([present, np.zeros(size - len(present), np.bool_)])
        present[launchable] = True
        pour = number - spread.max_skew * int(present.sum())
        if pour <= 0 or not present.any():
            return []
        choices = {code: self._choice(attempt, key, code) for code in np.flatnonzero(present).tolist()}
        existing = self._existing(attempt, bounds, choices, number)
        new = {code: self._new(choice, bounds, number) for code, choice in choices.items()}
        able = np.array([existing[code] + (kind.most if (kind := new[code]) else 0) for code in choices], np.int64)
        shares = _spread_evenly(per_domain[list(choices)], able, pour, spread)
        if not self._affordable(shares, [(existing[code], new[code]) for code in choices]):
            return []
        return [(choice, share) for choice, share in zip(choices.values(), shares.tolist(), strict=True) if share]

    def _only_spread(self, attempt: PlacementAttempt) -> Spread | None:
        """The one constraint over another label than the hostname, if it counts the class's own pods."""
        terms, pod_class = self._counts.terms, attempt.pod_class
        spreads = [spread for spread in attempt.constraints.spreads if spread.key != HOSTNAME]
        if len(spreads) != 1 or spreads[0].term not in pod_class.selected:
            return None
        if terms.keys(pod_class.selected) - {HOSTNAME, spreads[0].key}:
            return None
        binding = {*attempt.constraints.affinity, *attempt.constraints.anti, *(pod_class.selected & terms.anti)}
        return None if terms.keys(frozenset(binding)) - {HOSTNAME} else spreads[0]

    def _choice(self, attempt: PlacementAttempt, key: str, code: int) -> DomainChoice:
        value = self._counts.values(key)[code]
        pinned = self._attempts.pinned(attempt, (Requirement.one_of(key, value),))
        inside = self._counts.node_codes(key)[: self._counts.base.existing] == code
        return DomainChoice(pinned, inside, PLENTY)

    def _existing(
        self, attempt: PlacementAttempt, bounds: HostnameBounds, choices: dict[int, DomainChoice], number: int
    ) -> dict[int, int]:
        """Return how many pods the existing nodes of each domain take."""
        if not self._nodes.all:
            return dict.fromkeys(choices, 0)
        fits = self._nodes.fits(attempt.pod_class, soft=attempt.soft, preferred=attempt.preferred)
        many = np.minimum(
            self._nodes.count(attempt.pod_class, fits, attempt.requests), np.minimum(bounds.nodes, number)
        )
        return {code: int(many[choice.nodes].sum()) for code, choice in choices.items()}

    def _new(self, choice: DomainChoice, bounds: HostnameBounds, number: int) -> _New | None:
        """New nodes in a domain, if their number follows from reservations and the limits of one pool alone.

        Once a reservation has given its instances away, pods wait for it, or get nodes of the templates behind it.
        """
        attempt = choice.attempt
        if attempt is None or not bounds.new or attempt.pod_class.ports:
            return None
        reserved: _New | None = None
        for template in self._openings.in_order(attempt, min(number, bounds.new)):
            group = self._openings.entry(template, attempt)
            if group is RefusalKind.RESERVED and self._strictly_reserved:
                return reserved
            if isinstance(group, RefusalKind):
                continue
            limits = self._openings.pool_limits[template.pool.metadata.name]
            if estimates(group) or group.minimums or limits.shares:
                return None
            found = self._of_group(template, group, attempt, bounds)
            if reserved is not None:
                if reserved.pool != found.pool:
                    return reserved
                each, openable = min(reserved.each, found.each), min(reserved.openable, found.openable)
                found = _New(found.pool, openable, each, found.most)
            if not template.reserved or self._strictly_reserved:
                return found
            reserved = found
        return reserved

    def _of_group(
        self, template: NodeClaimTemplate, group: ClaimGroup, attempt: PlacementAttempt, bounds: HostnameBounds
    ) -> _New:
        empty = np.zeros((1, len(attempt.requests)), np.int64)
        each = min(int(group.room(empty, attempt.requests)[0]), bounds.new)
        holding = group.rows[group.holding(attempt.requests)]
        charge = template.table.capacity[template.table.row_type[holding]].max(axis=0)
        openable = self._openings.pool_limits[template.pool.metadata.name].openable(charge)
        most = self._openings.reservations.openable(group) * each if template.reserved else PLENTY
        return _New(template.pool.metadata.name, openable, each, most)

    def _affordable(self, shares: Ints, sources: Sequence[tuple[int, _New | None]]) -> bool:
        """True if the pools' limits allow the new nodes, whichever of their types they become."""
        needed: dict[str, int] = {}
        openable: dict[str, int] = {}
        for share, (existing, new) in zip(shares.tolist(), sources, strict=True):
            if new is not None:
                needed[new.pool] = needed.get(new.pool, 0) - (-max(share - existing, 0) // new.each)
                openable[new.pool] = min(openable.get(new.pool, PLENTY), new.openable)
        return all(number <= openable[pool] for pool, number in needed.items())


def _spread_evenly(per_domain: Ints, able: Ints, number: int, spread: Spread) -> Ints:
    """Return how many of `number` pods each domain gets at most [domains]: all rise to one level, as far as they can.

    No domain rises more than the skew above the domain that is stuck lowest.
    """
    before = per_domain.tolist()
    stuck = min(np.minimum(per_domain + able, PLENTY).tolist()) if len(before) >= spread.min_domains else 0
    low, high = min(before), min(stuck + spread.max_skew, max(before) + number)
    while low < high:
        level = (low + high + 1) // 2
        if int(np.clip(level - per_domain, 0, able).sum()) <= number:
            low = level
        else:
            high = level - 1
    shares: Ints = np.clip(low - per_domain, 0, able)
    return shares
