"""Domains: where pods with topology constraints, or counted by those of others, may go next.

For every label but the hostname a domain is chosen first, lowest count first, then by name; the pods are then placed
with that value as a further requirement, so that the domain of every pod that counts is settled within the plan. Under
the hostname every node is a domain, so those constraints only bound how many pods a node or claim takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from math import prod

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import PLENTY, Bools, Ints
from shiplap.scheduling.model.topology_constraints import Constraints, Spread
from shiplap.scheduling.supply.existing_nodes import ExistingNodes
from shiplap.scheduling.supply.open_claims import PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import Openings, PossibleNodes
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.followers import Attractions, Entry, attractions_of
from shiplap.scheduling.topology.reachable_domains import (
    DomainChoice,
    DomainChoices,
    DomainOption,
    ReachableDomains,
    best_first,
    weight,
)
from shiplap.scheduling.topology.topology_counts import ABSENT, OPEN, TopologyCounts


class HostnameBounds(msgspec.Struct, frozen=True, eq=False):
    """The most pods of a class that each node [nodes], each claim [claims] and a new claim may take.

    `claims` is None where nothing bounds them. `single`: all pods have to go to one node, because they follow each
    other.
    """

    nodes: Ints
    claims: Ints | None
    new: int
    single: bool = False


class _Demand(msgspec.Struct, frozen=True):
    """The demands of one attempt over one label: its spreads, and the numbers of its (anti-)affinity terms."""

    spreads: tuple[Spread, ...] = ()
    affinity: tuple[int, ...] = ()
    anti: tuple[int, ...] = ()


_NOTHING = _Demand()


class Domains:
    """Answers for one packing."""

    def __init__(
        self,
        counts: TopologyCounts,
        openings: Openings,
        possible: PossibleNodes,
        attempts: PlacementAttempts,
        nodes: ExistingNodes,
    ) -> None:
        """`possible` are the nodes whose domains count; `openings` decides where a node can be launched now."""
        self._counts = counts
        self._openings, self._possible_nodes = openings, possible
        self._attempts = attempts
        self._nodes = nodes
        self._labels = counts.base.label_keys().union(
            *(template.label_keys for template in possible.templates), (HOSTNAME,)
        )
        self._known_options: dict[object, list[DomainOption]] = {}
        self._known_launchable: dict[tuple[int, str, frozenset[str]], list[int]] = {}
        self._reach = ReachableDomains(possible, attempts)
        self._codes: dict[tuple[int, str], Ints] = {}
        self._numbered: set[str] = set()
        self._dead_ends: dict[int, str] = {}
        self._counted_over: dict[int, frozenset[str]] = {}
        self._anti_over: dict[str, set[int]] = {}
        self._repelling: dict[tuple[int, str], list[int]] = {}
        self._counting: dict[tuple[int, str], list[int]] = {}
        self._nodes_inside: dict[tuple[str, int], Bools] = {}
        self._claims_inside: dict[tuple[str, int], Bools] = {}
        self._nowhere = frozenset(
            number for number, term in enumerate(counts.terms.all) if term.key not in self._labels
        )
        self._last_demands: (
            tuple[Constraints, PodClass, frozenset[int], tuple[list[str], dict[str, _Demand]]] | None
        ) = None
        self._options_version = (-1, -1)
        self._pulls: Attractions = {}
        self._pulling_terms: frozenset[int] = frozenset()
        self._strengths: dict[int, int] = {}
        self._reaches: dict[tuple[int, str], frozenset[str]] = {}
        self._terms = counts.terms
        self._known_ways: dict[tuple[int, tuple[str, ...], tuple[int, ...]], dict[tuple[str, str], int]] = {}

    def choices(self, attempt: PlacementAttempt) -> DomainChoices:
        """The combinations of domains that the next pods of a class may go to, best first."""
        keys, demands = self._demands(attempt)
        options = [self._options(attempt, key, demands[key]) for key in keys]
        if not all(options):
            return DomainChoices(iter(()), lambda chosen: self._choice(attempt, keys, chosen, ()))
        binding = [self._binds(attempt, key, demands[key]) for key in keys]
        return DomainChoices(
            self._ranked(attempt, keys, options), lambda chosen: self._choice(attempt, keys, chosen, binding)
        )

    def dead_end(self, attempt: PlacementAttempt) -> bool:
        """True if the constraints over one label leave no domain within reach, whatever other constraints allow."""
        if not self._possible_at_all(attempt):
            return True
        self._forget_if_changed()
        last = self._dead_ends.get(attempt.pod_class.index)
        # What a class gives up first is seldom what leaves it nothing.
        if last is not None:
            demand = self._demand_over(attempt, last)
            if demand is not None and self._leaves_nothing(attempt, last, demand):
                return True
        demands = self._demands(attempt)[1]
        key = next((key for key, demand in demands.items() if self._leaves_nothing(attempt, key, demand)), None)
        if key is not None:
            self._dead_ends[attempt.pod_class.index] = key
        return key is not None

    def _leaves_nothing(self, attempt: PlacementAttempt, key: str, demand: _Demand) -> bool:
        options = self._options(attempt, key, demand)
        if not options or not self._binds(attempt, key, demand):
            return not options
        if any(self._reach.may_launch(attempt, key, map(_value, options))):
            return False
        return self._suited(attempt, key).isdisjoint(option.code for option in options)

    def _suited(self, attempt: PlacementAttempt, key: str) -> set[int]:
        """The domains with a node that suits an attempt, whether it has free capacity or not."""
        existing = self._counts.base.existing
        if not existing:
            return set()
        fits = self._nodes.fits(attempt.pod_class, soft=attempt.soft, preferred=attempt.preferred)
        return set(self._counts.node_codes(key)[:existing][fits].tolist())

    def _ranked(
        self, attempt: PlacementAttempt, keys: Sequence[str], options: Sequence[Sequence[DomainOption]]
    ) -> Iterator[Sequence[DomainOption]]:
        """Combinations of one option per label: the lowest counts first, then what can least be had otherwise."""
        if prod(map(len, options)) > BOUNDS.sorted_domains:
            possible = self._possible(attempt, keys, options)
            return islice(best_first(possible), BOUNDS.tried_domains) if all(possible) else iter(())
        ways = self._ways(attempt, keys) if len(keys) > 1 else {}

        def rank(chosen: Sequence[DomainOption]) -> tuple[tuple[int, int, int], int, Sequence[DomainOption]]:
            ways_left = sum(ways.get((key, option.value), 0) for key, option in zip(keys, chosen, strict=True))
            return weight(chosen), ways_left, chosen

        return iter(sorted(product(*options), key=rank))

    def _possible(
        self, attempt: PlacementAttempt, keys: Sequence[str], options: Sequence[Sequence[DomainOption]]
    ) -> list[list[DomainOption]]:
        """The options in which a node suits a class, or may be launched, as far as each label alone tells."""
        possible = []
        for key, some in zip(keys, options, strict=True):
            suited = self._suited(attempt, key)
            launchable = self._reach.may_launch(attempt, key, map(_value, some))
            possible.append(
                [option for option, may in zip(some, launchable, strict=True) if may or option.code in suited]
            )
            if not possible[-1]:
                break
        return possible

    def _choice(
        self, attempt: PlacementAttempt, keys: Sequence[str], chosen: Sequence[DomainOption], binding: Sequence[bool]
    ) -> DomainChoice:
        existing = self._counts.base.existing
        inside: Bools = np.ones(existing, np.bool_)
        claims: Bools | None = None
        for key, option, binds in zip(keys, chosen, binding, strict=True):
            if binds and existing:
                inside = inside & self._nodes_in(key, option.code)
            some = self._claims_in(key, option.code)
            claims = some if claims is None else claims & some
        pins = map(_pin, keys, chosen)
        most = min((option.most for option in chosen), default=PLENTY)
        return DomainChoice(
            self._attempts.pinned(attempt, pins), inside, most, any(option.pull for option in chosen), claims
        )

    def _nodes_in(self, key: str, code: int) -> Bools:
        """The nodes [nodes] in a domain."""
        known = self._nodes_inside.get((key, code))
        if known is None:
            known = self._counts.node_codes(key)[: self._counts.base.existing] == code
            self._nodes_inside[key, code] = known
        return known

    def _claims_in(self, key: str, code: int) -> Bools:
        """The claims [claims] that are in a domain or may still be; remembered until a claim changes."""
        self._forget_if_changed()
        known = self._claims_inside.get((key, code))
        if known is None:
            codes = self._counts.claim_codes(key)
            known = self._claims_inside[key, code] = (codes == code) | (codes == OPEN)
        return known

    def _ways(self, attempt: PlacementAttempt, keys: Sequence[str]) -> dict[tuple[str, str], int]:
        """Per label and value, with how many values of the other labels a new node could have it.

        Of combinations with equal counts the one whose domains can least be had otherwise goes first: those that are
        left then fit together.
        """
        values = [sorted(self._counts.values(key)) for key in keys]
        identity = (attempt.constraint, tuple(keys), tuple(map(len, values)))
        known = self._known_ways.get(identity)
        if known is None:
            known = self._known_ways[identity] = {}
            for combination in product(*values) if prod(map(len, values)) <= BOUNDS.sorted_domains else ():
                labelled = list(zip(keys, combination, strict=True))
                pinned = self._attempts.pinned(attempt, [Requirement.one_of(key, value) for key, value in labelled])
                if pinned is not None and self._can_start(pinned):
                    for entry in labelled:
                        known[entry] = known.get(entry, 0) + 1
        return known

    def _can_start(self, attempt: PlacementAttempt) -> bool:
        possible = self._possible_nodes
        return any(not isinstance(possible.group(template, attempt), RefusalKind) for template in possible.templates)

    def draw_together(self, waiting: Sequence[Entry]) -> None:
        """Note which domains attract the classes of one series as long as none of its pods has a place."""
        self._reaches.clear()
        self._strengths.clear()
        self._known_options.clear()
        opened = {term for pod_class, _ in waiting for term in pod_class.opening}
        self._pulls = attractions_of(
            waiting, {term for term in opened if not self._counts.begun(term)}, self._domains_of
        )
        self._pulling_terms = frozenset(self._pulls)

    @property
    def drawn(self) -> Iterable[int]:
        """The terms of which it is known what attracts their series."""
        return self._pulls.keys()

    def pull(self, pod_class: PodClass) -> int:
        """Return how many classes of the series of a class can reach its best domain.

        Its best domain is the best that it can reach. The number holds as far as is known.
        """
        known = self._strengths.get(pod_class.index)
        if known is None:
            pulled = pod_class.selected & self._pulling_terms
            known = self._strengths[pod_class.index] = max(
                (
                    self._pulls[term][value]
                    for term in pulled
                    for value in self._reaches.get((pod_class.index, self._terms.all[term].key), ())
                ),
                default=0,
            )
        return known

    def _domains_of(self, pod_class: PodClass, term: int) -> frozenset[str]:
        """The domains of a term's label with a node that takes a pod of a class, or that are open to a new one."""
        key = self._terms.all[term].key
        known = self._reaches.get((pod_class.index, key))
        if known is None:
            known = self._reaches[pod_class.index, key] = frozenset(self._within_reach(pod_class, key))
        return known

    def _within_reach(self, pod_class: PodClass, key: str) -> Iterator[str]:
        if key == HOSTNAME:
            return
        reached: set[str] = set()
        for attempt in self._attempts.relaxed(pod_class)[: BOUNDS.affinity_terms]:
            left = self._left_by_terms(attempt, key, self._demand_over(attempt, key) or _NOTHING)
            if self._nodes.all:
                fits = self._nodes.fits(pod_class, soft=attempt.soft)
                codes = self._counts.node_codes(key)[: len(fits)][
                    self._nodes.count(pod_class, fits, attempt.requests) > 0
                ]
                yield from (self._counts.values(key)[code] for code in codes[codes >= 0].tolist() if left[code])
            for template in self._possible_nodes.templates:
                for value in self._reach.values_of(template, key):
                    if value in reached or not left[self._counts.code(key, value)]:
                        continue
                    pinned = self._attempts.pinned(attempt, (Requirement.one_of(key, value),))
                    if pinned is not None and self._possible_nodes.has_node(template, pinned):
                        reached.add(value)
                        yield value

    def bounds(self, attempt: PlacementAttempt) -> HostnameBounds:
        """Return how many pods constraints on the hostname allow on each node and claim, and on a new claim."""
        pod_class, counts = attempt.pod_class, self._counts
        nodes = np.full(counts.base.existing, PLENTY, np.int64)
        spreads = [spread for spread in attempt.constraints.spreads if spread.key == HOSTNAME]
        avoided = [(term, False) for term in self._of_key(attempt.constraints.anti, HOSTNAME)]
        avoided += [(term, True) for term in self._repelling_terms(pod_class, HOSTNAME)]
        followed = self._of_key(self._followed(attempt), HOSTNAME)
        if not spreads and not avoided and not followed:
            return HostnameBounds(nodes, None, PLENTY)
        claims = np.full(len(self._openings.open), PLENTY, np.int64)
        new, single = PLENTY, False

        for spread in spreads:
            # A new node is always possible in principle, so that the lowest count is 0.
            own = spread.term in pod_class.selected
            on_nodes, on_claims = self._on_hosts(spread.term)
            nodes = np.minimum(nodes, _pods_under(on_nodes, spread.max_skew, own=own))
            claims = np.minimum(claims, _pods_under(on_claims, spread.max_skew, own=own))
            new = min(new, spread.max_skew if own else PLENTY)
        for term, keeping in avoided:
            most = 1 if term in pod_class.selected and not keeping else PLENTY
            on_nodes, on_claims = self._on_hosts(term, keeping=keeping)
            nodes = np.where(on_nodes == 0, np.minimum(nodes, most), 0)
            claims = np.where(on_claims == 0, np.minimum(claims, most), 0)
            new = min(new, most)
        met_by_daemons = {term for term, _ in attempt.company.near}
        for term in followed:
            on_nodes, on_claims = self._on_hosts(term)
            if term in met_by_daemons:  # on each claim that the attempt may join or open
                nodes = np.where(on_nodes > 0, nodes, 0)
                continue
            if term in pod_class.selected and not counts.begun(*pod_class.series(term)):
                single = True
                continue
            nodes, claims, new = np.where(on_nodes > 0, nodes, 0), np.where(on_claims > 0, claims, 0), 0
        return HostnameBounds(nodes, claims, new, single)

    def _on_hosts(self, term: int, *, keeping: bool = False) -> tuple[Ints, Ints]:
        """Per node [nodes] and per claim [claims], the pods a term counts or that keep away from them."""
        on_nodes = self._counts.on_nodes_of(term, keeping=keeping)
        return on_nodes[: self._counts.base.existing], self._counts.on_claims(term, keeping=keeping)

    def _demands(self, attempt: PlacementAttempt) -> tuple[list[str], dict[str, _Demand]]:
        """The labels whose domains matter to an attempt and what it demands over each; the last answer is remembered.

        Of labels that no node can have only those matter that the attempt cannot do without.
        """
        last, started = self._last_demands, self._counts.started
        if last is not None and last[0] is attempt.constraints and last[1] is attempt.pod_class and last[2] is started:
            return last[3]
        constraints = attempt.constraints
        spreads: dict[str, list[Spread]] = {}
        for spread in constraints.spreads:
            spreads.setdefault(spread.key, []).append(spread)
        affinity, anti = self._by_key(self._followed(attempt)), self._by_key(constraints.anti)
        matter = (
            affinity.keys() | spreads.keys() | (anti.keys() & self._labels) | self._counting_keys(attempt.pod_class)
        )
        keys = sorted(matter - {HOSTNAME})
        demands = {
            key: _Demand(tuple(spreads.get(key, ())), tuple(affinity.get(key, ())), tuple(anti.get(key, ())))
            for key in keys
        }
        self._last_demands = (attempt.constraints, attempt.pod_class, started, (keys, demands))
        return keys, demands

    def _demand_over(self, attempt: PlacementAttempt, key: str) -> _Demand | None:
        """Return the demands of an attempt over one label, as `_demands` has them; None if domains do not matter."""
        constraints = attempt.constraints
        spreads = tuple(spread for spread in constraints.spreads if spread.key == key)
        affinity = tuple(self._of_key(self._followed(attempt), key))
        anti = tuple(self._of_key(constraints.anti, key))
        if spreads or affinity:
            return _Demand(spreads, affinity, anti)
        counts = (anti and key in self._labels) or key in self._counting_keys(attempt.pod_class)
        return _Demand((), (), anti) if counts else None

    def _followed(self, attempt: PlacementAttempt) -> tuple[int, ...]:
        """The affinity terms that an attempt has to satisfy: its own, and those of groups that this packing started."""
        joined = self._counts.joined(attempt.pod_class)
        return (
            tuple(dict.fromkeys((*attempt.constraints.affinity, *sorted(joined))))
            if joined
            else attempt.constraints.affinity
        )

    def _by_key(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        by_key: dict[str, list[int]] = {}
        for number in sorted(set(numbers)):
            by_key.setdefault(self._terms.all[number].key, []).append(number)
        return by_key

    def _possible_at_all(self, attempt: PlacementAttempt) -> bool:
        """True if nodes can have all the labels that an attempt cannot do without."""
        constraints = attempt.constraints
        return not self._nowhere or (
            self._nowhere.isdisjoint(constraints.affinity)
            and self._nowhere.isdisjoint(spread.term for spread in constraints.spreads)
        )

    def _of_key(self, numbers: Sequence[int] | frozenset[int] | set[int], key: str) -> list[int]:
        return sorted(self._terms.over(key, numbers))

    def _binds(self, attempt: PlacementAttempt, key: str, demand: _Demand) -> bool:
        """True if constraints may keep pods of this class out of a domain. Otherwise they merely count these pods."""
        return demand != _NOTHING or bool(self._repelling_terms(attempt.pod_class, key))

    def _counting_keys(self, pod_class: PodClass) -> frozenset[str]:
        """The labels that nodes can have and over which pods of a class are counted."""
        known = self._counted_over.get(pod_class.index)
        if known is None:
            known = self._counted_over[pod_class.index] = self._terms.keys_among(self._labels, pod_class.selected)
        return known

    def _counting_terms(self, pod_class: PodClass, key: str) -> list[int]:
        """The terms over a label that count pods of a class."""
        known = self._counting.get((pod_class.index, key))
        if known is None:
            known = self._counting[pod_class.index, key] = self._of_key(pod_class.selected, key)
        return known

    def _repelling_terms(self, pod_class: PodClass, key: str) -> list[int]:
        """The terms over a label by which other pods demand that pods of a class stay away from them."""
        known = self._repelling.get((pod_class.index, key))
        if known is None:
            if key not in self._anti_over:
                self._anti_over[key] = self._terms.over(key, self._terms.anti)
            known = self._repelling[pod_class.index, key] = sorted(self._anti_over[key] & pod_class.selected)
        return known

    def _options(self, attempt: PlacementAttempt, key: str, demand: _Demand) -> list[DomainOption]:
        """The domains of a label that the counts leave open, remembered until a pod is placed or a claim changes."""
        self._forget_if_changed()
        identity = (attempt.pod_class.index, key, demand)
        known = self._known_options.get(identity)
        if known is None:
            known = self._known_options[identity] = self._open_options(attempt, key, demand)
        return known

    def _forget_if_changed(self) -> None:
        version = (self._counts.version, self._openings.open.changes)
        if version != self._options_version:
            self._known_options.clear()
            self._claims_inside.clear()
            self._options_version = version

    def _open_options(self, attempt: PlacementAttempt, key: str, demand: _Demand) -> list[DomainOption]:
        # Terms are asked first: what is within reach costs far more to know, and nothing may be left of it.
        most = self._left_by_terms(attempt, key, demand)
        options = self._options_in(attempt, key, demand.spreads, most) if most.any() else []
        if not demand.spreads and not demand.affinity:
            options.append(DomainOption(True, 0, 0, "", ABSENT, PLENTY))
        return sorted(options)

    def _left_by_terms(self, attempt: PlacementAttempt, key: str, demand: _Demand) -> Ints:
        """Return how many pods of a class (anti-)affinity leaves to each domain [values], one pod at a time."""
        pod_class, counts = attempt.pod_class, self._counts
        met_by_daemons = {term for term, _ in attempt.company.near}
        if key not in self._numbered:
            self._numbered.add(key)
            for template in self._possible_nodes.templates:
                self._codes_of(template, key)
        counts.node_codes(key), counts.claim_codes(key)  # these, too, may number further values
        most = np.full(len(counts.values(key)), PLENTY, np.int64)
        for term in demand.anti:
            own = 1 if term in pod_class.selected else PLENTY
            most = np.minimum(most, np.where(counts.totals(term, key) == 0, own, 0))
        for term in self._repelling_terms(pod_class, key) if most.any() else ():
            most = np.minimum(most, np.where(counts.totals(term, key, keeping=True) == 0, PLENTY, 0))
        for term in demand.affinity if most.any() else ():
            if term in met_by_daemons:
                continue
            if term not in pod_class.selected or counts.begun(*pod_class.series(term)):
                most = np.where(counts.totals(term, key, certain=True) > 0, most, 0)
        return most

    def _left_by_spreads(
        self, attempt: PlacementAttempt, key: str, spreads: Sequence[Spread], most: Ints
    ) -> tuple[Ints, Ints]:
        """Return the part of `most` [values] that spreads leave within reach, and the pods counted in each domain."""
        pod_class, counts = attempt.pod_class, self._counts
        launchable = self.launchable(pod_class, key)
        usable = np.zeros(len(most), np.bool_)
        usable[launchable] = True
        for codes in (counts.node_codes(key), counts.claim_codes(key)):
            usable[codes[codes >= 0]] = True
        most = np.where(usable, most, 0)
        counted = np.zeros(len(most), np.int64)
        for spread in spreads:
            per_domain, present = counts.spread(pod_class, spread)
            present[launchable] = True
            enough = int(present.sum()) >= max(spread.min_domains, 1)
            lowest = min(per_domain[present].tolist(), default=0) if enough else 0
            left = _pods_under(per_domain - lowest, spread.max_skew, own=spread.term in pod_class.selected)
            most = np.minimum(most, np.where(present, left, 0))
            counted += per_domain
        if not spreads and most.any():
            for term in self._counting_terms(pod_class, key):
                counted += counts.totals(term, key, certain=True)
        return most, counted

    def _options_in(
        self, attempt: PlacementAttempt, key: str, spreads: Sequence[Spread], most: Ints
    ) -> list[DomainOption]:
        """The domains that spreads leave of `most` [values] within reach."""
        most, counted = self._left_by_spreads(attempt, key, spreads, most)
        values, pulling = self._counts.values(key), self._pulling(attempt.pod_class, key)
        options = []
        for code in np.flatnonzero(most > 0).tolist():
            pull = sum(self._pulls[term][values[code]] for term in pulling)
            # The first pod of a series settles where others find it; one is enough.
            number = 1 if pull else int(most[code])
            options.append(DomainOption(False, -pull, int(counted[code]), values[code], code, number))
        return options

    def _pulling(self, pod_class: PodClass, key: str) -> list[int]:
        """The terms over a label whose series attract a class; none of a series that has begun."""
        pulling = self._terms.over(key, pod_class.selected & self._pulling_terms)
        return [term for term in pulling if not self._counts.begun(term)]

    def launchable(self, pod_class: PodClass, key: str) -> list[int]:
        """The domains of a label that NodePools, EC2NodeClasses and the class allow to a new node, by number.

        A domain that no NodePool can reach must not hold down a spread: nothing would ever raise its count. So it is
        with all domains but that of a volume once a pod of this plan decides it. Nothing else that has been placed
        counts: a limit that is reached closes no domain.
        """
        found = self._launchable_before(pod_class, key)
        for term in self._of_key(pod_class.constraints.volumes, key):
            if self._counts.begun(term):
                here = self._counts.totals(term, key, certain=True)
                found = [code for code in found if code < len(here) and here[code]]
        return found

    def _launchable_before(self, pod_class: PodClass, key: str) -> list[int]:
        """The same before any volume is made."""
        needed = frozenset(spread.key for spread in pod_class.constraints.spreads) - {key, HOSTNAME}
        identity = (self._reach.profile(pod_class), key, needed)
        known = self._known_launchable.get(identity)
        if known is None:
            values: set[int] = set()
            for template in self._possible_nodes.templates:
                if not needed <= template.label_keys:
                    continue  # such nodes belong to no domain for kube-scheduler
                codes = self._codes_of(template, key)
                if len(codes):
                    values.update(codes[self._reach.opening(pod_class, template, key)].tolist())
            known = self._known_launchable[identity] = sorted(values)
        return known

    def _codes_of(self, template: NodeClaimTemplate, key: str) -> Ints:
        """The domains [values] of the values of a label that nodes of a template may have."""
        known = self._codes.get((template.index, key))
        if known is None:
            codes = [self._counts.code(key, value) for value in self._reach.values_of(template, key)]
            known = self._codes[template.index, key] = np.array(codes, np.int64)
        return known


def _pin(key: str, option: DomainOption) -> Requirement:
    return Requirement(key) if option.absent else Requirement.one_of(key, option.value)


def _value(option: DomainOption) -> str | None:
    return None if option.absent else option.value


def _pods_under(above: Ints, max_skew: int, *, own: bool) -> Ints:
    """Return how many pods each domain takes if it has `above` the lowest; pods not counted themselves add nothing."""
    if own:
        return np.maximum(max_skew - above, 0)
    return np.where(above <= max_skew, PLENTY, 0)
