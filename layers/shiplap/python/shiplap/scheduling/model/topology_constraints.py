"""Topology constraints as data: spread, pod affinity and pod anti-affinity, required and preferred.

Every constraint counts pods that a term selects, per value of a node label (a domain). Equal terms of different pods
are one `Term`, so that pods are counted once per term.

Default spread constraints: those of the cluster for pods that have none, with selectors deduced as on a cluster.

A pod is spread among the pods that the Services selecting it and its controller select together: kube-scheduler's own
rule. A pod that belongs to neither is not spread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Pod,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from shiplap.kubernetes.related_objects import NAMESPACE_NAME, selects_by_name_only
from shiplap.kubernetes.selectors import matcher, matches
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_volumes import SharedPlace
from shiplap.scheduling.model.snapshot import ClusterView


class DefaultSpread:
    """The default constraints of one decision; pods with the same deduced selector share a number, 0 is none."""

    def __init__(self, constraints: Sequence[TopologySpreadConstraint], view: ClusterView) -> None:
        self._constraints = tuple(constraints)
        self._services: dict[str, list[dict[str, str]]] = {}
        for service in sorted(view.services, key=lambda item: item.metadata.name) if constraints else ():
            if service.spec.selector:
                namespace = service.metadata.namespace or "default"
                self._services.setdefault(namespace, []).append(service.spec.selector)
        self._selectors: dict[tuple[str, str, str], LabelSelector] = {}
        for kind, items in (("ReplicaSet", view.replica_sets), ("StatefulSet", view.stateful_sets)):
            for item in items:
                if item.spec.selector is not None:
                    namespace = item.metadata.namespace or "default"
                    self._selectors[kind, namespace, item.metadata.name] = item.spec.selector
        self._plain = {
            (item.metadata.namespace or "default", item.metadata.name): item.spec.selector or {}
            for item in view.replication_controllers
        }
        self._numbers: dict[object, int] = {}
        self._written: list[tuple[TopologySpreadConstraint, ...]] = [()]

    def number(self, pod: Pod) -> int:
        """Return the number of a pod's deduced constraints; 0 when it has constraints of its own, or none."""
        if not self._constraints or pod.spec.topology_spread_constraints:
            return 0
        meta = pod.metadata
        namespace = meta.namespace or "default"
        controller = next((owner for owner in meta.owner_references if owner.controller), None)
        kind, name = (controller.kind, controller.name) if controller is not None else ("", "")
        key = (namespace, kind, name, tuple(sorted(meta.labels.items())))
        known = self._numbers.get(key)
        if known is None:
            selector = self._deduced(namespace, kind, name, meta.labels)
            known = self._numbers[key] = 0 if selector is None else self._numbered(selector)
        return known

    def constraints(self, number: int) -> tuple[TopologySpreadConstraint, ...]:
        """The constraints of a number."""
        return self._written[number]

    def _numbered(self, selector: LabelSelector) -> int:
        identity = msgspec.msgpack.encode(selector, order="deterministic")
        known = self._numbers.setdefault(identity, len(self._written))
        if known == len(self._written):
            with_selector = (msgspec.structs.replace(spread, label_selector=selector) for spread in self._constraints)
            self._written.append(tuple(with_selector))
        return known

    def _deduced(self, namespace: str, kind: str, name: str, labels: dict[str, str]) -> LabelSelector | None:
        """Return the joint selector of a pod's Services and its controller; None when that is nothing in particular.

        The selector of a ReplicationController replaces what Services say about the same label; those of the others
        are joined with it, so that a contradiction selects nobody.
        """
        wanted: dict[str, str] = {}
        for selector in self._services.get(namespace, ()):
            if selector.items() <= labels.items():
                wanted |= selector
        expressions: list[LabelSelectorRequirement] = []
        if kind == "ReplicationController":
            wanted |= self._plain.get((namespace, name), {})
        elif (own := self._selectors.get((kind, namespace, name))) is not None:
            for key, value in sorted(own.match_labels.items()):
                if wanted.setdefault(key, value) != value:
                    expressions.append(LabelSelectorRequirement(key, "In", (value,)))
            expressions += own.match_expressions
        if not wanted and not expressions:
            return None
        return LabelSelector(wanted, tuple(expressions))


_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class PodSelector(msgspec.Struct, frozen=True):
    """Pods that `selector` selects in `namespaces` (None: in all) and in those that `namespace_selector` selects."""

    namespaces: frozenset[str] | None
    namespace_selector: LabelSelector | None
    selector: LabelSelector | None

    def reaches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if the selected pods can be in a namespace that has these labels at all."""
        if self.namespaces is None or namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and matches(self.namespace_selector, labels)


class Term(msgspec.Struct, frozen=True):
    """Pods that all of these selectors choose, counted per value of the node label `key`.

    With a `claim` instead, namespace/name, pods that use its volume, which is still to be made or bound.
    """

    key: str
    pod_selectors: tuple[PodSelector, ...]
    claim: str = ""

    def reaches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """True if the term can count pods of a namespace that has these labels at all, by their labels."""
        return not self.claim and all(pod_selector.reaches(namespace, labels) for pod_selector in self.pod_selectors)


class Spread(msgspec.Struct, frozen=True):
    """A spread constraint; `term` is the number of its term. The flags are the node inclusion policies."""

    term: int
    key: str
    max_skew: int
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


class Constraints(msgspec.Struct, frozen=True):
    """The constraints that bind a pod: spreads, and the numbers of its affinity and anti-affinity terms.

    `volumes` are the affinity terms that hold it together with the other pods of its volumes.
    """

    spreads: tuple[Spread, ...] = ()
    affinity: tuple[int, ...] = ()
    anti: tuple[int, ...] = ()
    volumes: tuple[int, ...] = ()


UNCONSTRAINED = Constraints()


Matcher = Callable[[Mapping[str, str]], bool]
"""Whether a pod with these labels is counted."""


class _Reach(msgspec.Struct, frozen=True):
    """The terms that can count pods of one namespace, and the labels that any of them looks at, sorted and as a set.

    `by_label` holds those that ask for exactly one label, which is what nearly all of them do; `others` the rest.
    Of these, terms of equal selectors over several labels are together. `known` are the terms found so far by the
    values of the labels in `mentioned`.
    """

    by_label: dict[tuple[str, str], list[int]]
    others: tuple[tuple[Matcher, tuple[int, ...]], ...]
    mentioned: tuple[str, ...]
    known: dict[object, frozenset[int]]
    mentioned_set: set[str]

    def profile_of(self, labels_of_pod: Mapping[str, str]) -> object:
        """The labels that decide which terms count a pod. Of more labels than it has, its own are looked at."""
        if len(self.mentioned) <= len(labels_of_pod):
            label = labels_of_pod.get
            return tuple([label(key) for key in self.mentioned])  # several times as quick as map() or a generator
        return frozenset(item for item in labels_of_pod.items() if item[0] in self.mentioned_set)


class Terms:
    """The distinct terms of one decision, by number. `anti` are those that some pod demands to stay away from.

    With `prefer` off, preferences are not read at all. `namespaces` are those of the cluster with their labels; none
    when they are not known. `defaults` are spread constraints for pods without their own, `widened` standing pods of
    too many terms.
    """

    def __init__(
        self,
        *,
        prefer: bool = True,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        defaults: DefaultSpread | None = None,
        widened: WidenedTerms | None = None,
    ) -> None:
        self.prefer = prefer
        self.namespaces = namespaces or {}
        self.defaults = defaults
        self._widened = widened or NOTHING_WIDENED
        self.all: list[Term] = []
        self.anti: set[int] = set()
        self._over: dict[str, set[int]] = {}
        self._key_of: list[str] = []
        self._keys: dict[frozenset[int], frozenset[str]] = {}
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._of_volumes: dict[SharedPlace, int] = {}
        self._pod_selectors: list[bytes] = []
        self._reaching: dict[str, _Reach] = {}
        self._selections: dict[frozenset[int], frozenset[int]] = {}

    def over(self, key: str, numbers: Iterable[int]) -> set[int]:
        """Return the terms among `numbers` whose topology key is `key`."""
        known = self._over.get(key)
        return known.intersection(numbers) if known else set()

    def keys(self, selected: frozenset[int]) -> frozenset[str]:
        """The topology keys of the terms that select a pod; pods of few kinds are asked for often."""
        known = self._keys.get(selected)
        if known is None:
            known = self._keys[selected] = frozenset(map(self._key_of.__getitem__, selected))
        return known

    def keys_among(self, keys: Iterable[str], numbers: Iterable[int]) -> frozenset[str]:
        """Return the keys among `keys` that are the topology key of any of these terms.

        This is cheaper than the method `keys` where the argument `keys` has few.
        """
        return frozenset(key for key in keys if key in self._over and not self._over[key].isdisjoint(numbers))

    def constraints_of(self, pod: Pod, *, standing: bool = False) -> Constraints:
        """Return what a pod demands, its terms numbered.

        Of a `standing` pod this is only anti-affinity, which other pods must respect.

        Raises:
            ValueError: a selector is malformed, or names namespaces by labels that are not known.
        """
        affinity, anti = _affinity_of(pod.spec)
        repelled = self._each(pod, self._widened.terms_of(pod) if standing else anti)
        self.anti.update(repelled)
        if standing:
            return Constraints(anti=repelled)
        spreads = tuple(self._spread(pod, spread) for spread in self._spreads_of(pod) if _hard(spread))
        for term in affinity:
            if not self._decidable(term.namespace_selector):
                raise ValueError("not supported yet: podAffinity with a namespaceSelector over labels of namespaces")
        return Constraints(spreads, self._together(pod, affinity), repelled)

    def preferences_of(self, pod: Pod) -> Constraints:
        """Return what a pod prefers, its terms numbered, in the order of giving up: heaviest first, spreads as written.

        A preference that cannot be decided, or whose selector is malformed, is left out: it is no reason to refuse
        the pod.
        """
        if not self.prefer:
            return UNCONSTRAINED
        attracted, repelled = _preferred(pod.spec)
        spreads = [self._spread(pod, spread) for spread in self._spreads_of(pod) if _soft(spread)]
        return Constraints(
            tuple(spreads),
            self._each(pod, filter(self._usable, attracted)),
            self._each(pod, filter(self._usable, repelled)),
        )

    def constrains(self, spec: PodSpec) -> bool:
        """True if a pod may have any topology constraint, required or preferred."""
        own = spec.topology_spread_constraints
        if (own and (self.prefer or any(map(_hard, own)))) or (not own and self.defaults is not None):
            return True
        affinity = spec.affinity
        return affinity is not None and any(
            part is not None and (part.required or (self.prefer and part.preferred))
            for part in (affinity.pod_affinity, affinity.pod_anti_affinity)
        )

    def default_number(self, pod: Pod) -> int:
        """Return the number of the default spread constraints that apply to a pod; 0 for none."""
        return self.defaults.number(pod) if self.defaults is not None else 0

    def _spreads_of(self, pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
        if self.defaults is None or pod.spec.topology_spread_constraints:
            return pod.spec.topology_spread_constraints
        return self.defaults.constraints(self.defaults.number(pod))

    def _usable(self, term: PodAffinityTerm) -> bool:
        """True if a preferred term can be decided."""
        selectors = (term.label_selector, term.namespace_selector)
        return all(map(_sound, selectors)) and self._decidable(term.namespace_selector)

    def _decidable(self, selector: LabelSelector | None) -> bool:
        """True if the namespaces that a selector means can be determined."""
        return selector is None or bool(self.namespaces) or selects_by_name_only(selector)

    def selecting(self, pod: Pod) -> frozenset[int]:
        """The numbers of the terms that count a pod; only after the last term was numbered.

        Equal answers are the same object.
        """
        return self.selecting_each((pod,))[0]

    def selecting_each(self, pods: Iterable[Pod]) -> list[frozenset[int]]:
        """`selecting` of each of these pods."""
        found = []
        namespace, reach = "default", self._reached("default")
        for pod in pods:
            meta = pod.metadata
            if meta.namespace != namespace:
                namespace = meta.namespace
                reach = self._reached(namespace or "default")
            profile = reach.profile_of(meta.labels)
            known = reach.known.get(profile)
            found.append(self._selected(reach, profile, meta.labels) if known is None else known)
        return found

    def _selected(self, reach: _Reach, profile: object, labels_of_pod: Mapping[str, str]) -> frozenset[int]:
        found = set[int]().union(
            *(reach.by_label.get(label, ()) for label in labels_of_pod.items()),
            *(numbers for selects, numbers in reach.others if selects(labels_of_pod)),
        )
        selected = frozenset(found)  # the copy is as large as it must be: a set that grew is up to four times as large
        known = reach.known[profile] = self._selections.setdefault(selected, selected)
        return known

    def _reached(self, namespace: str) -> _Reach:
        known = self._reaching.get(namespace)
        if known is None:
            by_label: dict[tuple[str, str], list[int]] = {}
            others: dict[bytes, list[int]] = {}
            mentioned: set[str] = set()
            labels_there = {**self.namespaces.get(namespace, {}), NAMESPACE_NAME: namespace}
            for number, term in enumerate(self.all):
                if term.reaches(namespace, labels_there):
                    mentioned.update(key for pod_selector in term.pod_selectors for key in _keys(pod_selector.selector))
                    label = _only_label(term.pod_selectors[0].selector) if len(term.pod_selectors) == 1 else None
                    if label is None:
                        others.setdefault(self._pod_selectors[number], []).append(number)
                    else:
                        by_label.setdefault(label, []).append(number)
            together = tuple((_matcher_of(self.all[numbers[0]]), tuple(numbers)) for numbers in others.values())
            known = self._reaching[namespace] = _Reach(by_label, together, tuple(sorted(mentioned)), {}, mentioned)
        return known

    def _spread(self, pod: Pod, spread: TopologySpreadConstraint) -> Spread:
        key = labels.NORMALIZED.get(spread.topology_key, spread.topology_key)
        selector = with_label_keys(spread.label_selector, pod.metadata.labels, spread.match_label_keys, ())
        namespace = pod.metadata.namespace or "default"
        number = self._number(Term(key, (PodSelector(frozenset((namespace,)), None, selector),)))
        return Spread(
            number,
            key,
            spread.max_skew,
            spread.min_domains or 1,
            spread.node_affinity_policy != "Ignore",
            spread.node_taints_policy == "Honor",
        )

    def _each(self, pod: Pod, items: Iterable[PodAffinityTerm]) -> tuple[int, ...]:
        return tuple(self._number(Term(_key(term), (self._crowd(pod, term),))) for term in items)

    def _together(self, pod: Pod, items: Sequence[PodAffinityTerm]) -> tuple[int, ...]:
        """Required affinity: kube-scheduler counts only pods that all terms select, per label of each term."""
        pod_selectors: list[PodSelector] = []
        for pod_selector in (self._crowd(pod, term) for term in items):
            if pod_selector not in pod_selectors:
                pod_selectors.append(pod_selector)
        return tuple(dict.fromkeys(self._number(Term(_key(term), tuple(pod_selectors))) for term in items))

    def _crowd(self, pod: Pod, term: PodAffinityTerm) -> PodSelector:
        selector = with_label_keys(
            term.label_selector, pod.metadata.labels, term.match_label_keys, term.mismatch_label_keys
        )
        by_label = term.namespace_selector
        namespaces: frozenset[str] | None = frozenset(term.namespaces)
        if by_label is None and not namespaces:
            namespaces = frozenset((pod.metadata.namespace or "default",))
        elif by_label is not None and (_is_empty(by_label) or not self._decidable(by_label)):
            # Staying away from pods of more namespaces than asked is safe; affinity has been refused before.
            namespaces, by_label = None, None
        return PodSelector(namespaces, by_label, selector)

    def of_volumes(self, places: Iterable[SharedPlace]) -> tuple[int, ...]:
        """The terms that hold the pods of these volumes together."""
        return tuple(map(self._of_volume, places))

    def known_of_volumes(self, places: Iterable[SharedPlace]) -> list[int]:
        """As `of_volumes`, without the terms that no pod has brought; once all terms are numbered."""
        return [self._of_volumes[place] for place in places if place in self._of_volumes]

    def _of_volume(self, place: SharedPlace) -> int:
        number = self._of_volumes.get(place)
        if number is None:
            number = self._of_volumes[place] = self._added(Term(place.key, (), place.claim), b"")
        return number

    def _number(self, term: Term) -> int:
        for pod_selector in term.pod_selectors:
            _check(pod_selector.selector)
            _check(pod_selector.namespace_selector)
        pod_selectors = [
            (
                None if pod_selector.namespaces is None else sorted(pod_selector.namespaces),
                pod_selector.namespace_selector,
                pod_selector.selector,
            )
            for pod_selector in term.pod_selectors
        ]
        same = msgspec.msgpack.encode(pod_selectors, order="deterministic")
        number = self._numbers.get((term.key, same))
        if number is None:
            number = self._numbers[term.key, same] = self._added(term, same)
        return number

    def _added(self, term: Term, pod_selectors: bytes) -> int:
        number = len(self.all)
        self.all.append(term)
        self._key_of.append(term.key)
        self._pod_selectors.append(pod_selectors)
        self._over.setdefault(term.key, set()).add(number)
        return number


def reads_own_labels(spec: PodSpec) -> bool:
    """True if a pod's constraints take values from its own labels: then equal specifications may demand differently."""
    terms = [term for both in (_affinity_of(spec), _preferred(spec)) for some in both for term in some]
    return any(spread.match_label_keys for spread in spec.topology_spread_constraints) or any(
        term.match_label_keys or term.mismatch_label_keys for term in terms
    )


def written_terms(spec: PodSpec) -> tuple[int, int]:
    """Return how many topology constraints a pod requires, and how many it prefers."""
    hard = sum(map(_hard, spec.topology_spread_constraints))
    required, preferred = _affinity_of(spec), _preferred(spec)
    soft = len(spec.topology_spread_constraints) - hard
    return hard + sum(map(len, required)), soft + sum(map(len, preferred))


class WidenedTerms(msgspec.Struct, frozen=True, eq=False):
    """Pods on nodes with required anti-affinity beyond the terms that a decision reads, by id, and the keys of nodes.

    Each of these pods has one term instead for each topology key that nodes have: it keeps away all pods of the
    namespaces, whatever their labels. So no pod is planned where kube-scheduler refuses it.
    """

    pods: frozenset[int] = frozenset()
    keys: frozenset[str] = frozenset()

    def terms_of(self, pod: Pod) -> Sequence[PodAffinityTerm]:
        """The required anti-affinity terms of a pod on a node."""
        anti = _affinity_of(pod.spec)[1]
        if id(pod) not in self.pods:
            return anti
        mine = {pod.metadata.namespace or "default"}
        is_own = all(term.namespace_selector is None and mine.issuperset(term.namespaces) for term in anti)
        reached = None if is_own else LabelSelector()
        keys = sorted(self.keys.intersection(map(_key, anti)))
        return [PodAffinityTerm(key, label_selector=LabelSelector(), namespace_selector=reached) for key in keys]


NOTHING_WIDENED = WidenedTerms()


def widened_terms(pods: Iterable[Pod], marks: Iterable[Mapping[str, str]]) -> WidenedTerms:
    """The pods whose required anti-affinity is beyond the terms that a decision reads: those with the most go first.

    `marks` are the labels of nodes, present and coming: terms over others keep nobody away.
    """
    standing = sorted(pods, key=lambda pod: pod.key)
    numbers = [len(_affinity_of(pod.spec)[1]) for pod in standing]

    def written(place: int) -> bytes:
        metadata, anti = standing[place].metadata, _affinity_of(standing[place].spec)[1]
        own = metadata.labels if any(term.match_label_keys or term.mismatch_label_keys for term in anti) else {}
        return msgspec.msgpack.encode((metadata.namespace, anti, own), order="deterministic")

    beyond = beyond_the_bound(numbers, written)
    if not beyond:
        return NOTHING_WIDENED
    keys = {labels.HOSTNAME}.union(*marks)
    known = frozenset(labels.NORMALIZED.get(key, key) for key in keys)
    return WidenedTerms(frozenset(id(standing[place]) for place in beyond), known)


def keeps_away(spec: PodSpec) -> bool:
    """True if a pod has required anti-affinity, which other pods have to respect."""
    affinity = spec.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None and bool(affinity.pod_anti_affinity.required)


def _hard(spread: TopologySpreadConstraint) -> bool:
    return spread.when_unsatisfiable != "ScheduleAnyway"


def _soft(spread: TopologySpreadConstraint) -> bool:
    return not _hard(spread) and _sound(spread.label_selector)


def _preferred(spec: PodSpec) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    """Preferred affinity and anti-affinity terms, heaviest first."""
    affinity = spec.affinity
    if affinity is None:
        return (), ()
    attracted, repelled = affinity.pod_affinity, affinity.pod_anti_affinity
    return (
        _by_weight(attracted.preferred) if attracted is not None and attracted.preferred else (),
        _by_weight(repelled.preferred) if repelled is not None and repelled.preferred else (),
    )


def _by_weight(terms: Sequence[WeightedPodAffinityTerm]) -> tuple[PodAffinityTerm, ...]:
    return tuple(entry.pod_affinity_term for entry in sorted(terms, key=lambda entry: -entry.weight))


def _sound(selector: LabelSelector | None) -> bool:
    return selector is None or all(expression.operator in _OPERATORS for expression in selector.match_expressions)


def _affinity_of(spec: PodSpec) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    """Required affinity and anti-affinity terms."""
    affinity = spec.affinity
    if affinity is None:
        return (), ()
    attracted = affinity.pod_affinity.required if affinity.pod_affinity is not None else ()
    repelled = affinity.pod_anti_affinity.required if affinity.pod_anti_affinity is not None else ()
    return attracted, repelled


def _key(term: PodAffinityTerm) -> str:
    return labels.NORMALIZED.get(term.topology_key, term.topology_key)


def with_label_keys(
    selector: LabelSelector | None, mine: Mapping[str, str], equal: Iterable[str], different: Iterable[str]
) -> LabelSelector | None:
    """The selector narrowed to pods that share, or do not share, these labels; keys the pod lacks count for nothing."""
    if selector is None:
        return None
    added = [LabelSelectorRequirement(key, "In", (mine[key],)) for key in sorted(equal) if key in mine]
    added += [LabelSelectorRequirement(key, "NotIn", (mine[key],)) for key in sorted(different) if key in mine]
    if not added:
        return selector
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *added))


def _matcher_of(term: Term) -> Matcher:
    """Return the test of pod labels by which the term counts pods where it reaches."""
    selectors = [pod_selector.selector for pod_selector in term.pod_selectors]
    found = [matcher(selector) for selector in selectors if selector is not None]
    if len(found) < len(selectors):
        return lambda _: False
    return found[0] if len(found) == 1 else lambda labels: all(selects(labels) for selects in found)


def _is_empty(selector: LabelSelector) -> bool:
    return not selector.match_labels and not selector.match_expressions


def _keys(selector: LabelSelector | None) -> set[str]:
    if selector is None:
        return set()
    return {*selector.match_labels, *(expression.key for expression in selector.match_expressions)}


def _check(selector: LabelSelector | None) -> None:
    for expression in selector.match_expressions if selector is not None else ():
        if expression.operator not in _OPERATORS:
            raise ValueError(f"{expression.key}: unknown selector operator {expression.operator!r}")


def _only_label(selector: LabelSelector | None) -> tuple[str, str] | None:
    """The one label a selector asks for, when it asks for nothing else."""
    if selector is None or selector.match_expressions or len(selector.match_labels) != 1:
        return None
    return next(iter(selector.match_labels.items()))


TOO_MANY = (
    f"a decision reads {BOUNDS.topology_constraints:,} different topology constraints, "
    "and those of this pod are beyond them"
)
UNREAD_PREFERENCES = (
    f"what pods prefer of topology, beyond the {BOUNDS.topology_constraints:,} preferences that a decision reads"
)


def beyond_the_bound(numbers: Sequence[int], written: Callable[[int], Hashable]) -> frozenset[int]:
    """The places of the specifications whose constraints, so many of each, are not read.

    `written` says what the constraints of the one at a place are: of equal ones only the first counts.
    """
    if sum(numbers) <= BOUNDS.topology_constraints:
        return frozenset()
    left, known, beyond = BOUNDS.topology_constraints, set[Hashable](), set[int]()
    for place in sorted(range(len(numbers)), key=lambda place: (numbers[place], place)):
        text = written(place)
        if not numbers[place] or text in known:
            continue
        if numbers[place] > left:
            beyond.add(place)
            continue
        known.add(text)
        left -= numbers[place]
    return frozenset(beyond)
