"""Finds which topology constraints close which domains to a class of pods, with the counts they go by."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import PLENTY, Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.topology.topology_counts import TopologyCounts

_MOST = 6
"""Domains named per constraint; the others are counted."""

_MOST_CONSTRAINTS = 20
"""Constraints that a text tells of; the others are counted."""


def has_binding_constraints(pod_class: PodClass, counts: TopologyCounts) -> bool:
    """True if any topology constraint can keep pods of this class out of a domain; otherwise they are only counted."""
    demands = pod_class.constraints
    own = demands.spreads or demands.affinity or demands.anti
    return bool(own or not pod_class.selected.isdisjoint(counts.terms.anti) or counts.joined(pod_class))


def bound_keys(pod_class: PodClass, counts: TopologyCounts, among: frozenset[str]) -> frozenset[str]:
    """Return the labels `among` these, hostname aside, whose domains bind a class."""
    demands, selected = pod_class.constraints, pod_class.selected
    binding = selected & counts.terms.anti | counts.joined(pod_class) | {*demands.affinity, *demands.anti}
    spread_over = among.intersection(spread.key for spread in demands.spreads)
    return (counts.terms.keys_among(among, binding) | spread_over) - {HOSTNAME}


def domains_left_open(pod_class: PodClass, key: str, values: Iterable[str], counts: TopologyCounts) -> list[str]:
    """The values of a label, by name, whose counts let one more pod of a class in, were a node launched there."""
    demands, terms = pod_class.constraints, counts.terms
    ordered = sorted(values)
    if not ordered:
        return []
    codes = np.array([counts.code(key, value) for value in ordered], np.int64)
    free = np.ones(len(codes), np.bool_)
    for term in terms.over(key, demands.anti):
        free &= counts.totals(term, key)[codes] == 0
    for term in terms.over(key, pod_class.selected) & terms.anti:
        free &= counts.totals(term, key, keeping=True)[codes] == 0
    for term in terms.over(key, demands.affinity):
        if term not in pod_class.selected or counts.begun(*pod_class.series(term)):
            free &= counts.totals(term, key)[codes] > 0
    for term in terms.over(key, counts.joined(pod_class)):
        free &= counts.totals(term, key)[codes] > 0
    for spread in demands.spreads:
        if spread.key == key:
            per_domain, present = counts.spread(pod_class, spread)
            here = per_domain[codes]
            enough = present.sum() + ~present[codes] >= spread.min_domains
            lowest = np.where(enough, np.minimum(here, min(per_domain[present].tolist(), default=PLENTY)), 0)
            free &= here + (spread.term in pod_class.selected) - lowest <= spread.max_skew
    return [value for value, is_free in zip(ordered, free.tolist(), strict=True) if is_free]


def unsatisfied_constraints(pod_class: PodClass, counts: TopologyCounts) -> str:
    """The constraints of a class, the first ones with how their domains stand now."""
    demands, terms = pod_class.constraints, counts.terms
    parts = [_spread_words(pod_class, spread, counts) for spread in demands.spreads]
    closing = [(term, _affinity_words) for term in demands.affinity] + [
        (term, _anti_affinity_words) for term in demands.anti
    ]
    others = (pod_class.selected & terms.anti).difference(demands.anti)
    closing += [(term, _anti_affinity_of_others_words) for term in sorted(others)]
    closing += [(term, _held_together) for term in sorted(counts.joined(pod_class))]
    shown = max(_MOST_CONSTRAINTS - len(parts), 1)
    parts += [words(pod_class, term, counts) for term, words in closing[:shown]]
    if len(closing) > shown:
        parts.append(f"{len(closing) - shown} more constraints")
    return f"unsatisfiable topology constraint: no domain is left by {'; '.join(parts)}"


def _anti_affinity_words(_item: PodClass, term: int, counts: TopologyCounts) -> str:
    key = counts.terms.all[term].key
    return f"pod anti-affinity over {key} (such pods are in {_domains_with_pods(counts, term, key) or 'no domain'})"


def _anti_affinity_of_others_words(_item: PodClass, term: int, counts: TopologyCounts) -> str:
    key = counts.terms.all[term].key
    keepers = _domains_with_pods(counts, term, key, keeping=True)
    return f"anti-affinity of other pods over {key} (they are in {keepers or 'no domain'})"


def _held_together(_item: PodClass, term: int, counts: TopologyCounts) -> str:
    key = counts.terms.all[term].key
    where = _domains_with_pods(counts, term, key)
    return f"affinity of other pods over {key} (they start together in {where}, and count this pod)"


def _affinity_words(pod_class: PodClass, term: int, counts: TopologyCounts) -> str:
    """Name the domains with the pods that a class has to join, and state that it may not start without these pods."""
    if claim := counts.terms.all[term].claim:
        where = _domains_with_pods(counts, term, counts.terms.all[term].key)
        return (
            f'volume of persistentvolumeclaim "{claim}", which all its pods share (they are in {where or "no domain"})'
        )
    where = _domains_with_pods(counts, term, counts.terms.all[term].key)
    begun = counts.begun(*pod_class.series(term))
    if not where and not begun:
        return f"pod affinity over {counts.terms.all[term].key} (there is no such pod)"
    words = f"such pods are in {where}" if where else "such pods are only on nodes without this label"
    if term in pod_class.selected and begun:
        words += "; kube-scheduler starts no second group elsewhere"
    return f"pod affinity over {counts.terms.all[term].key} ({words})"


def _spread_words(pod_class: PodClass, spread: Spread, counts: TopologyCounts) -> str:
    head = f"topology spread over {spread.key} (maxSkew {spread.max_skew}"
    if spread.key == HOSTNAME:
        return f"{head}, so at most {spread.max_skew} such pods per node)"
    per_domain, present = counts.spread(pod_class, spread)
    values = counts.values(spread.key)
    here = np.flatnonzero(present).tolist()
    if not here:
        return f"{head}; no node or pool has a domain of it)"
    enough = len(here) >= spread.min_domains
    lowest = min((int(per_domain[code]) for code in here), default=0) if enough else 0
    listed = _listed((values[code], int(per_domain[code])) for code in here)
    fewer = "" if enough else f", {len(here)} domains of at least {spread.min_domains} wanted"
    return f"{head}{fewer}; counted now: {listed}; a domain may hold {lowest + spread.max_skew})"


def _domains_with_pods(counts: TopologyCounts, term: int, key: str, *, keeping: bool = False) -> str:
    """Name the domains with the pods of a term: `a 2, b 1`; for the hostname only the number of nodes."""
    if key == HOSTNAME:
        nodes = _nodes_with_pods(counts, term, keeping=keeping)
        return f"{nodes} node{'' if nodes == 1 else 's'}" if nodes else ""
    totals = counts.totals(term, key, keeping=keeping)
    values = counts.values(key)
    return _listed((values[code], int(totals[code])) for code in np.flatnonzero(totals).tolist())


def _nodes_with_pods(counts: TopologyCounts, term: int, *, keeping: bool) -> int:
    on_nodes: Ints = (counts.keeping if keeping else counts.counted)[term]
    return int((on_nodes > 0).sum() + (counts.on_claims(term, keeping=keeping) > 0).sum())


def _listed(per_domain: Iterable[tuple[str, int]]) -> str:
    ordered = sorted(per_domain)
    shown = ", ".join(f"{value} {number}" for value, number in ordered[:_MOST])
    return shown if len(ordered) <= _MOST else f"{shown} and {len(ordered) - _MOST} more"
