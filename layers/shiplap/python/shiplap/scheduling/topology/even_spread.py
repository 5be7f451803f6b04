"""Levels: many pods of a spread class placed at once, where that ends as placing them one by one would.

One by one each pod goes to the domain with the fewest, so that the counts rise level like water. The outcome follows
from the counts and from how much each domain can take, as far as that is certain. Some pods are left for one by one:
within the skew they may prefer room that exists to new nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.resources import PLENTY, Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.supply.existing_nodes import NodeTable
from shiplap.scheduling.supply.open_claims import Kind, Want
from shiplap.scheduling.supply.openings import Openings, estimates
from shiplap.scheduling.supply.placement_attempts import Wants
from shiplap.scheduling.topology.domain_combinations import Choice
from shiplap.scheduling.topology.domains import Bounds, Domains
from shiplap.scheduling.topology.topology_counts import Ledger


class _New(msgspec.Struct, frozen=True):
    """New nodes in a domain: their pool, how many its limits allow, and how many pods each takes."""

    pool: str
    openable: int
    each: int


class Levels:
    """Answers for one packing."""

    def __init__(self, ledger: Ledger, openings: Openings, wants: Wants, domains: Domains, nodes: NodeTable) -> None:
        self._ledger = ledger
        self._openings = openings
        self._wants = wants
        self._domains = domains
        self._nodes = nodes

    def quotas(self, want: Want, number: int) -> list[tuple[Choice, int]]:
        """How many of `number` pods can safely go to each domain now; nothing where that cannot be told."""
        spread = self._only_spread(want)
        if spread is None or number <= spread.max_skew:
            return []
        bounds = self._domains.bounds(want)
        if bounds.single:
            return []
        ledger, key = self._ledger, spread.key
        counts, present = ledger.spread(want.item, spread)
        launchable = self._domains.launchable(want, key)
        size = len(ledger.values(key))
        counts = np.concatenate([counts, np.zeros(size - len(counts), np.int64)])
        present = np.concatenate([present, np.zeros(size - len(present), np.bool_)])
        present[launchable] = True
        pour = number - spread.max_skew * int(present.sum())
        if pour <= 0 or not present.any():
            return []
        choices = {code: self._choice(want, key, code) for code in np.flatnonzero(present).tolist()}
        room = self._existing(want, bounds, choices, number)
        new = {code: self._new(choice, bounds) for code, choice in choices.items()}
        able = np.array([room[code] if new[code] is None else PLENTY for code in choices], np.int64)
        shares = _poured(counts[list(choices)], able, pour, spread)
        if not self._affordable(shares, [(room[code], new[code]) for code in choices]):
            return []
        return [(choice, share) for choice, share in zip(choices.values(), shares.tolist(), strict=True) if share]

    def _only_spread(self, want: Want) -> Spread | None:
        """The one constraint over another label than the hostname, if it counts the class's own pods."""
        terms, item = self._ledger.terms, want.item
        keys = {
            terms.all[term].key
            for term in (*want.constraints.affinity, *want.constraints.anti, *(item.selected & terms.anti))
        }
        spreads = [spread for spread in want.constraints.spreads if spread.key != HOSTNAME]
        if len(spreads) != 1 or keys - {HOSTNAME} or spreads[0].term not in item.selected:
            return None
        counted = {terms.all[term].key for term in item.selected} - {HOSTNAME, spreads[0].key}
        return spreads[0] if not counted else None

    def _choice(self, want: Want, key: str, code: int) -> Choice:
        value = self._ledger.values(key)[code]
        pinned = self._wants.pinned(want, (Requirement(key, False, frozenset((value,))),))
        inside = self._ledger.place_codes(key)[: self._ledger.ground.rooms] == code
        return Choice(pinned, inside, PLENTY)

    def _existing(self, want: Want, bounds: Bounds, choices: dict[int, Choice], number: int) -> dict[int, int]:
        """How many pods the nodes of each domain take."""
        if not self._nodes.rooms:
            return dict.fromkeys(choices, 0)
        fits = self._nodes.fits(want.item, soft=want.soft, preferred=want.preferred)
        many = np.minimum(self._nodes.count(want.item, fits, want.requests), np.minimum(bounds.rooms, number))
        return {code: int(many[choice.rooms].sum()) for code, choice in choices.items()}

    def _new(self, choice: Choice, bounds: Bounds) -> _New | None:
        """New nodes in a domain, if their number follows from the pool's limits alone."""
        want = choice.want
        if want is None or not bounds.new or want.item.ports:
            return None
        for lane in self._openings.lanes:
            group = self._openings.entry(lane, want)
            if isinstance(group, Kind):
                continue
            budget = self._openings.budgets[lane.pool.metadata.name]
            if estimates(group) or group.minimums or budget.shares:
                return None
            empty = np.zeros((1, len(want.requests)), np.int64)
            each = min(int(group.room(empty, want.requests)[0]), bounds.new)
            holding = group.rows[group.holding(want.requests)]
            charge = lane.table.capacity[lane.table.row_type[holding]].max(axis=0)
            return _New(lane.pool.metadata.name, budget.openable(charge), each)
        return None

    def _affordable(self, shares: Ints, sources: Sequence[tuple[int, _New | None]]) -> bool:
        """Whether the pools' limits allow the new nodes, whichever of their types they become."""
        needed: dict[str, int] = {}
        openable: dict[str, int] = {}
        for share, (room, new) in zip(shares.tolist(), sources, strict=True):
            if new is not None:
                needed[new.pool] = needed.get(new.pool, 0) - (-max(share - room, 0) // new.each)
                openable[new.pool] = min(openable.get(new.pool, PLENTY), new.openable)
        return all(number <= openable[pool] for pool, number in needed.items())


def _poured(counts: Ints, able: Ints, number: int, spread: Spread) -> Ints:
    """What each domain gets [domains] of at most `number` pods: all rise to one level, as far as each is able.

    No domain rises more than the skew above the one that is stuck lowest.
    """
    before = counts.tolist()
    stuck = min(np.minimum(counts + able, PLENTY).tolist()) if len(before) >= spread.min_domains else 0
    low, high = min(before), min(stuck + spread.max_skew, max(before) + number)
    while low < high:
        level = (low + high + 1) // 2
        if int(np.clip(level - counts, 0, able).sum()) <= number:
            low = level
        else:
            high = level - 1
    shares: Ints = np.clip(low - counts, 0, able)
    return shares
