"""Bounds of what one decision reads, tries, remembers and names, however many or strange its pods are.

An ordinary cluster stays far below them. They keep a hostile one, or one with a mistake in it, within the time and the
memory of a function (tests/property/test_effort.py, test_bounded_work.py and test_hostile_clusters.py draw such ones).
"""

from __future__ import annotations

import msgspec


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a decision does for pods and clusters of any kind."""

    resources: int = 128
    """Columns of a decision. EC2's instance types have 15 resources, device plugins of real clusters add a few."""

    topology_constraints: int = 8_192
    """Different required topology constraints of all waiting pods, and as many different preferred ones."""

    virtual_pods: int = 10_000
    """Virtual pods of one CapacityBuffer; more are a mistake in its numbers."""

    node_variants: int = 24
    """Combinations of labels between which DaemonSets differ: each repeats the rows of a template. Of a further label,
    whatever may run for some value of it counts."""

    affinity_terms: int = 4
    """Of a class's required node-affinity terms, how many are asked which domains they reach."""

    sorted_domains: int = 200
    """Combinations of domains up to which they are all compared, with which can least be had otherwise."""

    tried_domains: int = 64
    """Of more combinations, how many are tried before the pods are taken not to fit: those with the lowest counts."""

    attracting_series: int = 8
    """Series for which it is worked out what attracts them, by so many of their classes."""

    preferring_attempts: int = 128
    """Failed attempts of one class with its preferences."""

    all_preferring_attempts: int = 2_000
    """The same for all classes together, each of which has an equal share: these take about a second."""

    group_comparisons: int = 32_000
    """Groups of claims that all classes of pods together are compared with; each class has an equal share."""

    late_comparisons: int = 50_000
    """Comparisons of spread classes with groups of claims, beyond which pods are not placed again for late domains."""

    late_rounds: int = 4
    """Times that pods are placed again for domains that appeared late. Each time there is at least one more domain."""

    explained_domains: int = 4_000
    """Domains that are asked about to explain all classes left out, who share them equally."""

    explained_labels: int = 256
    """Labels of node-affinity terms that are explained for one class: a thousand pods of twenty terms of fifty labels
    each take a second so. The first term is always explained."""

    net_bytes: int = 1 << 26
    """Bytes of all arrays of net resources that are remembered at a time: pods can ask for as many sets of rows as
    there are pods. It is a sixteenth of a function of 1 GiB."""

    remembered_catalogues: int = 8
    """Compiled catalogues that are remembered: most decisions of a cluster are about the same instance types."""

    remembered_searches: int = 256
    """Searches that are remembered, of some kilobytes each; one decision about a cluster makes a few dozen."""

    reason_characters: int = 8_000
    """Characters of a reason: fifty NodePools have room to say theirs. Names that users choose may be long."""

    named_rules: int = 20
    """Constraints, or taints of a NodePool, that a reason names."""

    named_domains: int = 6
    """Domains that a reason names per constraint, as many as the largest Region has zones; the others are counted."""

    named_templates: int = 5
    """Templates or reservations that a reason names; the others are counted."""


BOUNDS = Bounds()
"""The bounds of every decision. They are no settings: whoever needs more of one has found a mistake."""
