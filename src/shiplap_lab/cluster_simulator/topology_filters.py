"""Topology spread, pod affinity and pod anti-affinity, as the filters of kube-scheduler have them.

Only what is required counts: `ScheduleAnyway` and preferred terms change scores, which are not imitated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shiplap.kubernetes.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from shiplap.kubernetes.selectors import matches, node_affinity_allows
from shiplap.kubernetes.taints import untolerated

SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
OTHERS_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

PlacedPods = Sequence[tuple[Node, Sequence[Pod]]]
"""All nodes with the pods on them."""

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of namespaces by name."""


def has_topology_rules(pod: Pod) -> bool:
    """True if the pod itself requires anything of where other pods are."""
    return bool(_hard_spreads(pod) or _required(pod, anti=False) or _required(pod, anti=True))


def keeps_others_off(pod: Pod) -> bool:
    """True if the pod requires that some pods are not near it."""
    return bool(_required(pod, anti=True))


class TopologyFilter:
    """Keeps one pod off nodes because of the pods that are on them at one moment."""

    def __init__(self, pod: Pod, placed: PlacedPods, namespaces: Namespaces) -> None:
        constraints = _hard_spreads(pod)
        keys = frozenset(constraint.topology_key for constraint in constraints)
        self._spreads = [_Spread(constraint, pod, placed, keys) for constraint in constraints]
        self._affinity = _Affinity(pod, placed, namespaces)

    def refusals(self, node: Node) -> list[str]:
        """Return why the pod must not be on this node, in kube-scheduler's words; empty if it may."""
        said = next(filter(None, (spread.refusal(node) for spread in self._spreads)), "")
        said = said or self._affinity.refusal(node)
        return [said] if said else []


class _Spread:
    """One constraint: matching pods by domain. Only nodes with the keys of all constraints make a domain."""

    def __init__(
        self, constraint: TopologySpreadConstraint, pod: Pod, placed: PlacedPods, keys: frozenset[str]
    ) -> None:
        selector = _with_keys(constraint.label_selector, pod, constraint.match_label_keys, ())
        self._key, self._most = constraint.topology_key, constraint.max_skew
        self._own = int(matches(selector, pod.metadata.labels))
        self._counts: Counter[str] = Counter()
        for node, there in placed:
            if _is_counted(constraint, pod, node, keys):
                self._counts[node.metadata.labels[self._key]] += sum(_is_like(item, pod, selector) for item in there)
        too_few = len(self._counts) < (constraint.min_domains or 1)
        self._least = 0 if too_few else min(self._counts.values())

    def refusal(self, node: Node) -> str:
        domain = node.metadata.labels.get(self._key)
        if domain is None:
            return SPREAD_LABEL
        return SPREAD if self._counts[domain] + self._own - self._least > self._most else ""


def _is_counted(constraint: TopologySpreadConstraint, pod: Pod, node: Node, keys: frozenset[str]) -> bool:
    if not keys <= node.metadata.labels.keys():
        return False
    if constraint.node_affinity_policy == "Honor" and not node_affinity_allows(pod.spec, node):
        return False
    honoured = constraint.node_taints_policy == "Honor"
    return not honoured or untolerated(node.spec.taints, pod.spec.tolerations, ignore_preferences=True) is None


def _is_like(other: Pod, pod: Pod, selector: LabelSelector | None) -> bool:
    if other.metadata.namespace != pod.metadata.namespace or other.metadata.deletion_timestamp:
        return False
    return matches(selector, other.metadata.labels)


Domain = tuple[str, str]
"""A topology key and a value of it."""


class _Affinity:
    """Affinity of the pod, its anti-affinity, and that of the pods that are there."""

    def __init__(self, pod: Pod, placed: PlacedPods, namespaces: Namespaces) -> None:
        near = [_Term.of(term, pod, namespaces) for term in _required(pod, anti=False)]
        apart = [_Term.of(term, pod, namespaces) for term in _required(pod, anti=True)]
        self._keys = [term.key for term in near]
        self._near: set[Domain] = set()
        self._apart: set[Domain] = set()
        self._kept_off: set[Domain] = set()
        for node, there in placed:
            for other in there:
                if near and all(term.covers(other) for term in near):
                    self._near |= _domains(node, near)
                self._apart |= _domains(node, [term for term in apart if term.covers(other)])
                others = (_Term.of(term, other, namespaces) for term in _required(other, anti=True))
                self._kept_off |= _domains(node, [term for term in others if term.covers(pod)])
        # The first of pods that want each other's company would find none anywhere.
        self._is_first = not self._near and all(term.covers(pod) for term in near)

    def refusal(self, node: Node) -> str:
        labels = node.metadata.labels
        if any(labels.get(key) == value for key, value in self._kept_off):
            return OTHERS_ANTI_AFFINITY
        if any(labels.get(key) == value for key, value in self._apart):
            return ANTI_AFFINITY
        for key in self._keys:
            if key not in labels or not (self._is_first or (key, labels[key]) in self._near):
                return AFFINITY
        return ""


class _Term(NamedTuple):
    """A term of affinity as its owner means it; `namespaces` None for all."""

    key: str
    selector: LabelSelector | None
    namespaces: frozenset[str] | None

    @classmethod
    def of(cls, term: PodAffinityTerm, owner: Pod, namespaces: Namespaces) -> _Term:
        selector = _with_keys(term.label_selector, owner, term.match_label_keys, term.mismatch_label_keys)
        return cls(term.topology_key, selector, _meant(term, owner, namespaces))

    def covers(self, pod: Pod) -> bool:
        if self.namespaces is not None and pod.metadata.namespace not in self.namespaces:
            return False
        return matches(self.selector, pod.metadata.labels)


def _meant(term: PodAffinityTerm, owner: Pod, namespaces: Namespaces) -> frozenset[str] | None:
    chosen = term.namespace_selector
    if chosen is None:
        return frozenset(term.namespaces or (owner.metadata.namespace,))
    if chosen == LabelSelector():
        return None
    return frozenset(term.namespaces) | {name for name, labels in namespaces.items() if matches(chosen, labels)}


def _domains(node: Node, terms: Iterable[_Term]) -> set[Domain]:
    labels = node.metadata.labels
    return {(term.key, labels[term.key]) for term in terms if term.key in labels}


def _with_keys(
    selector: LabelSelector | None, pod: Pod, same: Sequence[str], other: Sequence[str]
) -> LabelSelector | None:
    """The selector, for pods with the same values of some labels as the pod, and other values of others."""
    labels = pod.metadata.labels
    if selector is None or not (same or other):
        return selector
    more = [LabelSelectorRequirement(key, "In", (labels[key],)) for key in same if key in labels]
    more += [LabelSelectorRequirement(key, "NotIn", (labels[key],)) for key in other if key in labels]
    return replace(selector, match_expressions=(*selector.match_expressions, *more))


def _hard_spreads(pod: Pod) -> list[TopologySpreadConstraint]:
    return [item for item in pod.spec.topology_spread_constraints if item.when_unsatisfiable == "DoNotSchedule"]


def _required(pod: Pod, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    rules: PodAffinity | None = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return rules.required if rules is not None else ()
