"""Topology counts: how many pods each topology term counts on which node or claim, and the domain each is in.

Nodes are the ExistingNodes in their order, then bystanders: nodes that take no new pods but whose pods count.
Claims opened by this decision follow the numbering of OpenClaims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from shiplap.kubernetes import labels
from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.objects import Pod, Toleration
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.topology_constraints import Spread, Terms, keeps_away
from shiplap.scheduling.supply.existing_nodes import ExistingNode, label_of, meets
from shiplap.scheduling.supply.open_claims import ClaimGroup, OpenClaims

NodesOfSpread = tuple[tuple[Requirements, ...] | None, tuple[Toleration, ...] | None, frozenset[str]]
"""The node affinity and tolerations by which a spread chooses nodes to look at, None where its policy ignores them, and
the labels that these nodes must have."""

ExpectedDomains = Mapping[tuple[NodesOfSpread, str], frozenset[str]]
"""By the nodes that a spread looks at and its label: domains of nodes that the plan launches for other pods."""

Counts = NDArray[np.int32]
"""Numbers of pods: terms and nodes may be many thousands each, so that an element has no more bytes than it needs."""

ABSENT, OPEN = range(-1, -3, -1)
"""Codes of a node without the label, and of one whose value is not decided yet."""

_UNASKED = OPEN - 1
_NOBODY_ASKED: Ints = np.zeros(0, np.int64)

_Key = TypeVar("_Key")


class BaseCounts(msgspec.Struct, frozen=True, eq=False):
    """The pods that stand on nodes before anything is placed.

    `nodes` are `existing` existing nodes, then bystanders; `counted` and `keeping` [terms, nodes] are the pods a term
    selects and the pods that demand to stay away from those it selects. `leaving` [nodes] are on their way out.
    """

    terms: Terms
    nodes: tuple[ExistingNode, ...]
    existing: int
    leaving: Bools
    counted: Counts
    keeping: Counts

    def label_keys(self) -> frozenset[str]:
        """All labels that a node has or may still get."""
        names = {key for node in self.nodes for key in (*node.labels, *node.possible)}
        return frozenset(labels.NORMALIZED.get(key, key) for key in names)


_NOTHING: Counts = np.zeros((0, 0), np.int32)
NO_BASE_COUNTS = BaseCounts(Terms(), (), 0, np.zeros(0, np.bool_), _NOTHING, _NOTHING)
"""Where no pod has topology constraints, nothing is counted."""


def base_counts_of(
    terms: Terms,
    existing: Sequence[ExistingNode],
    bystanders: Sequence[tuple[ExistingNode, bool]],
    standing: Mapping[str, Sequence[Pod]],
) -> BaseCounts:
    """The counts before packing. `bystanders` say whether they are leaving; `standing` are the pods that count."""
    nodes = (*existing, *(node for node, _ in bystanders))
    counted = np.zeros((len(terms.all), len(nodes)), np.int32)
    keeping = np.zeros_like(counted)
    counting: list[int] = []
    places: list[int] = []
    for index, node in enumerate(nodes):
        on_node = standing.get(node.name, ())
        for selected in filter(None, terms.selecting_each(on_node)):
            counting += selected
            places += [index] * len(selected)
        for pod in on_node:
            if keeps_away(pod.spec):
                for term in terms.constraints_of(pod, standing=True).anti:
                    keeping[term, index] += 1
    np.add.at(counted, (np.array(counting, np.int64), np.array(places, np.int64)), 1)
    leaving = np.array([False] * len(existing) + [gone for _, gone in bystanders], np.bool_)
    return BaseCounts(terms, nodes, len(existing), leaving, counted, keeping)


class TopologyCounts:
    """The counts of one packing; they grow as pods are placed, and `version` with them."""

    def __init__(self, base: BaseCounts, open_claims: OpenClaims, expected: ExpectedDomains | None = None) -> None:
        """Spreads compare the `expected` domains from the beginning, whatever is placed."""
        self.expected = expected or {}
        self.base = base
        self.terms = base.terms
        self.counted = base.counted.copy()
        self.keeping = base.keeping.copy()
        self._open = open_claims
        self.version = 0
        self.started: frozenset[int] = frozenset()
        """Affinity terms of which this packing has placed the first pod that they count anywhere."""
        self._begun: set[tuple[int, ...]] = set()
        self._claims_counted: Ints = np.zeros((len(self.terms.all), 64), np.int64)
        self._claims_keeping: Ints = np.zeros((len(self.terms.all), 64), np.int64)
        self._values: dict[str, list[str]] = {}
        self._codes: dict[str, dict[str, int]] = {}
        self._node_codes: dict[str, tuple[Ints, list[tuple[int, list[int]]]]] = {}
        self._group_codes: dict[str, Ints] = {}
        self._claim_codes: dict[str, tuple[int, Ints]] = {}
        self._totals: dict[tuple[int, str, bool, bool], Ints] = {}
        self._totals_version = (-1, -1)
        self._suited: dict[object, Bools] = {}
        self._group_suited: dict[object, Ints] = {}
        self._group_certain: dict[tuple[Requirements, ...], Ints] = {}

    def record(self, pod_class: PodClass, index: int, number: int, *, claim: bool) -> None:
        """`number` pods of a class now stand on a node, or on a claim."""
        self._note_first(pod_class)
        self.version += 1
        if claim:
            self._reach(index)
        counted = self._claims_counted if claim else self.counted
        keeping = self._claims_keeping if claim else self.keeping
        for term in pod_class.selected:
            counted[term, index] += number
        for term in pod_class.constraints.anti:
            keeping[term, index] += number

    def record_claims(self, classes: Sequence[PodClass], class_of: Ints, claims: Ints, number: Ints) -> None:
        """`number` [n] pods now stand on `claims` [n]; topology sees them as those of the class at `class_of` [n]."""
        if not len(claims):
            return
        for pod_class in classes:
            self._note_first(pod_class)
        self.version += 1
        self._reach(int(np.max(claims)))
        for counts, terms in (
            (self._claims_counted, [tuple(pod_class.selected) for pod_class in classes]),
            (self._claims_keeping, [pod_class.constraints.anti for pod_class in classes]),
        ):
            lengths = np.array(list(map(len, terms)), np.int64)
            flat = np.array([term for some in terms for term in some], np.int64)
            times = lengths[class_of]
            entry = np.repeat(np.arange(len(claims)), times)
            start = np.repeat((np.cumsum(lengths) - lengths)[class_of] - (np.cumsum(times) - times), times)
            np.add.at(counts, (flat[start + np.arange(len(entry))], claims[entry]), number[entry])

    def _note_first(self, pod_class: PodClass) -> None:
        """Note the series that pods of this class start, if nothing that its terms count is anywhere yet."""
        series = pod_class.company
        if series in self._begun or not pod_class.starts_series:
            return
        if not self.begun(*series):
            self.started |= frozenset(series)
        self._begun.add(series)

    def joined(self, pod_class: PodClass) -> frozenset[int]:
        """The affinity terms of other pods whose groups this packing has started and that count pods of a class.

        A pod that such a group counts may bind first. The group could then only follow it, so it has to be where the
        group is.
        """
        return (
            (self.started & pod_class.selected).difference(pod_class.constraints.affinity)
            if self.started
            else self.started
        )

    def _reach(self, index: int) -> None:
        while index >= self._claims_counted.shape[1]:
            self._claims_counted = np.concatenate([self._claims_counted, np.zeros_like(self._claims_counted)], 1)
            self._claims_keeping = np.concatenate([self._claims_keeping, np.zeros_like(self._claims_keeping)], 1)

    def on_nodes_of(self, term: int, *, keeping: bool = False) -> Ints:
        """Per node [nodes], the pods a term counts, or those that keep away from them."""
        line: Ints = (self.keeping if keeping else self.counted)[term].astype(np.int64)
        return line

    def on_claims(self, term: int, *, keeping: bool = False) -> Ints:
        """Per claim [claims], the pods a term counts, or those that keep away from them."""
        known = self._claims_keeping if keeping else self._claims_counted
        missing = len(self._open) - known.shape[1]
        line = known[term, : len(self._open)]
        return line if missing <= 0 else np.concatenate([line, np.zeros(missing, np.int64)])

    def values(self, key: str) -> list[str]:
        """The values of a label seen so far; a value's index is its code."""
        return self._values.setdefault(key, [])

    def code(self, key: str, value: str) -> int:
        """The number of a label's value."""
        codes = self._codes.setdefault(key, {})
        number = codes.setdefault(value, len(codes))
        if number == len(self.values(key)):
            self.values(key).append(value)
        return number

    def node_codes(self, key: str) -> Ints:
        """The domain of each node [nodes], ABSENT or OPEN."""
        return self._compiled(key)[0]

    def claim_codes(self, key: str) -> Ints:
        """The domain of each claim [claims] as far as its requirements decide it, else OPEN."""
        found = self._claim_codes.get(key)
        if found is None or found[0] != self._open.changes:
            codes = self._of_groups(lambda group: self._code_of(group, key), self._group_codes, key)
            found = self._claim_codes[key] = (self._open.changes, codes)
        return found[1]

    def _code_of(self, group: ClaimGroup, key: str) -> int:
        entry = group.requirements.get(key)
        if entry is None or entry.complement:
            return OPEN
        if len(entry.values) == 1:
            return self.code(key, next(iter(entry.values)))
        return OPEN if entry.values else ABSENT

    def _of_groups(self, ask: Callable[[ClaimGroup], int], answers: dict[_Key, Ints], key: _Key) -> Ints:
        """Return the answer of `ask` for the group of each claim [claims]; each group is asked once for a key."""
        groups = self._open.groups.all
        known = answers.get(key, _NOBODY_ASKED)
        if len(known) < len(groups):
            known = answers[key] = np.concatenate([known, np.full(len(groups), _UNASKED, np.int64)])
        of_claims = known[self._open.group_of]
        if (of_claims == _UNASKED).any():
            for number in np.unique(self._open.group_of[of_claims == _UNASKED]).tolist():
                known[number] = ask(groups[number])
            of_claims = known[self._open.group_of]
        return of_claims

    def totals(self, term: int, key: str, *, keeping: bool = False, certain: bool = False) -> Ints:
        """Per domain [values], the pods a term counts or that keep away from them.

        Pods whose domain is not decided yet count in every domain they may end up in, unless `certain`. Answers are
        remembered until a pod is placed or a claim changes, so callers must not alter them.
        """
        version = (self.version, self._open.changes)
        if version != self._totals_version:
            self._totals.clear()
            self._totals_version = version
        identity = (term, key, keeping, certain)
        known = self._totals.get(identity)
        if known is None or len(known) != len(self.values(key)):
            known = self._totals[identity] = self._total(term, key, keeping=keeping, certain=certain)
            known.flags.writeable = False
        return known

    def _total(self, term: int, key: str, *, keeping: bool, certain: bool) -> Ints:
        nodes, undecided = self._compiled(key)
        claims = self.claim_codes(key)
        on_nodes = self.on_nodes_of(term, keeping=keeping)
        total = self._sum(nodes, on_nodes, key) + self._sum(claims, self.on_claims(term, keeping=keeping), key)
        for index, possible in undecided if not certain else ():
            total[possible] += on_nodes[index]
        return total

    def begun(self, *series: int) -> bool:
        """True if a series of affinity terms, see `PodClass.series`, has begun: no pod may be its first any more.

        As kube-scheduler has it: a pod that the terms select is on some node with the label of one of them, wherever
        the pod that asks may run itself.
        """
        return any(map(self._anywhere, series))

    def _anywhere(self, term: int) -> bool:
        """True if a pod that a term counts is where the term's label is, or may be once that label is decided."""
        key = self.terms.all[term].key
        if key == HOSTNAME:  # every node has one
            return bool(self.counted[term].any() or self.on_claims(term).any())
        on_nodes = self.counted[term][self.node_codes(key) != ABSENT]
        return bool(on_nodes.any() or self.on_claims(term)[self.claim_codes(key) != ABSENT].any())

    def spread(self, pod_class: PodClass, spread: Spread) -> tuple[Ints, Bools]:
        """Per domain [values], the pods counted by a class's constraint, and whether the domain exists for it."""
        key = spread.key
        expected = self.expected_codes(pod_class, spread)
        suited = self._suits(pod_class, spread)
        claims_suited = self._claims_suit(pod_class, spread)
        nodes, claims = self.node_codes(key), self.claim_codes(key)
        counts = self._sum(nodes, np.where(suited, self.on_nodes_of(spread.term), 0), key)
        counts = counts + self._sum(claims, np.where(claims_suited, self.on_claims(spread.term), 0), key)
        present = np.zeros(len(self.values(key)), np.bool_)
        present[nodes[suited & ~self.base.leaving & (nodes >= 0)]] = True
        present[claims[claims_suited & (claims >= 0)]] = True
        present[expected] = True
        return counts, present

    def expected_codes(self, pod_class: PodClass, spread: Spread) -> list[int]:
        """The expected domains of a class's constraint."""
        if not self.expected:
            return []
        values = self.expected.get((nodes_of_spread(pod_class, spread), spread.key), frozenset())
        return [self.code(spread.key, value) for value in sorted(values)]

    def forget_absent(self, classes: Iterable[PodClass]) -> bool:
        """Expect no longer, for spreads of these classes, the domains that nothing has brought; True if there are any.

        A packing that reckons with them may place other pods elsewhere than the packing that brought them.
        """
        left = dict(self.expected)
        for pod_class in classes if left else ():
            for spread in pod_class.constraints.spreads:
                seen = (nodes_of_spread(pod_class, spread), spread.key)
                codes = self.on_nodes(pod_class, spread) | self.on_open_claims(pod_class, spread)
                if seen in left:
                    left[seen] &= {self.values(spread.key)[code] for code in codes}
        if left == self.expected:
            return False
        self.expected = left
        self.version += 1
        return True

    def on_nodes(self, pod_class: PodClass, spread: Spread) -> set[int]:
        """The domains of nodes that a class's constraint looks at, without those that are leaving."""
        codes = self.node_codes(spread.key)
        return set(codes[self._suits(pod_class, spread) & ~self.base.leaving & (codes >= 0)].tolist())

    def on_open_claims(self, pod_class: PodClass, spread: Spread) -> set[int]:
        """The settled domains of claims that a class's constraint looks at whichever of their types is launched."""
        codes, suited = self.claim_codes(spread.key), self._claims_suit(pod_class, spread)
        settled = suited & (codes >= 0)
        if spread.honor_affinity and settled.any():
            terms = pod_class.own_terms
            sure = self._of_groups(lambda group: _meets_surely(group, terms), self._group_certain, terms)
            settled = settled & (sure > 0)
        return set(codes[settled].tolist())

    def _sum(self, codes: Ints, amounts: Ints, key: str) -> Ints:
        if not amounts.any():
            return np.zeros(len(self.values(key)), np.int64)
        # Every domain moves up by two, so that those that are none come first.
        total = np.bincount(codes + 2, amounts, minlength=len(self.values(key)) + 2)[2:]
        return total.astype(np.int64)

    def _compiled(self, key: str) -> tuple[Ints, list[tuple[int, list[int]]]]:
        known = self._node_codes.get(key)
        if known is not None:
            return known
        codes: list[int] = []
        undecided: list[tuple[int, list[int]]] = []
        for index, node in enumerate(self.base.nodes):
            label = label_of(node, key)
            if label is None:
                codes.append(ABSENT)
            elif isinstance(label, str):
                codes.append(self.code(key, label))
            else:
                entries = [entry for entry in label if entry is not None and not entry.complement]
                possible = sorted({value for entry in entries for value in entry.values})
                if not possible and not any(entry is not None and entry.complement for entry in label):
                    codes.append(ABSENT)
                elif len(possible) == 1 and len(entries) == len(label):
                    codes.append(self.code(key, possible[0]))
                else:
                    codes.append(OPEN)
                    undecided.append((index, [self.code(key, value) for value in possible]))
        known = self._node_codes[key] = (np.array(codes, np.int64), undecided)
        return known

    def _suits(self, pod_class: PodClass, spread: Spread) -> Bools:
        """Return a mask of the nodes [nodes] that a spread constraint looks at."""
        identity = nodes_of_spread(pod_class, spread)
        known = self._suited.get(identity)
        if known is None:
            verdicts = [
                (not spread.honor_affinity or any(_node_meets(node, term) for term in pod_class.own_terms))
                and (
                    not spread.honor_taints
                    or untolerated(node.taints, pod_class.tolerations, ignore_preferences=True) is None
                )
                for node in self.base.nodes
            ]
            known = np.array(verdicts, np.bool_)
            for key in sorted(other_labels(pod_class, spread)):
                known &= self.node_codes(key) != ABSENT
            self._suited[identity] = known
        return known

    def _claims_suit(self, pod_class: PodClass, spread: Spread) -> Bools:
        """Return a mask of the claims [claims] that a spread constraint looks at."""
        needed = sorted(other_labels(pod_class, spread))

        def suits(group: ClaimGroup) -> int:
            template = group.template
            fits = not spread.honor_affinity or any(
                group.requirements.compatible(term, template.allow_undefined) for term in pod_class.own_terms
            )
            taints = template.pool.spec.template.spec.taints
            return (
                fits
                and (
                    not spread.honor_taints
                    or untolerated(taints, pod_class.tolerations, ignore_preferences=True) is None
                )
                and all(self._code_of(group, key) != ABSENT for key in needed)
            )

        return self._of_groups(suits, self._group_suited, nodes_of_spread(pod_class, spread)) > 0


def _meets_surely(group: ClaimGroup, terms: Sequence[Requirements]) -> bool:
    """True if a claim of a group meets one of these terms as every type that it may be launched as."""
    template = group.template
    types = np.unique(template.table.row_type[group.rows])
    return any(
        group.requirements.compatible(term, template.allow_undefined)
        and bool(template.table.offered(group.requirements.and_(term.values()), template.given).suits[types].all())
        for term in terms
    )


def nodes_of_spread(pod_class: PodClass, spread: Spread) -> NodesOfSpread:
    """The node affinity, tolerations and labels by which a class's constraint chooses the nodes it looks at."""
    return (
        pod_class.own_terms if spread.honor_affinity else None,
        pod_class.tolerations if spread.honor_taints else None,
        other_labels(pod_class, spread),
    )


def other_labels(pod_class: PodClass, spread: Spread) -> frozenset[str]:
    """The labels of the other required spreads of a class, which kube-scheduler asks of each node it looks at."""
    required = pod_class.constraints.spreads
    if len(required) < 2 or spread not in required:
        return frozenset()
    return frozenset(other.key for other in required) - {spread.key, HOSTNAME}


def _node_meets(node: ExistingNode, term: Requirements) -> bool:
    return all(meets(label_of(node, key), entry) for key, entry in term.items())
