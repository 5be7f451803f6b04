"""Clusters drawn by a seed so that options meet: every pair, and every triple of the options used most.

A cluster's number draws its options and their details, so that each can be drawn again alone.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from random import Random
from types import ModuleType

from shiplap.scheduling.model.snapshot import Snapshot
from tests.combinations import cluster_options, pod_options, supply_options
from tests.combinations.cluster_draft import ClusterDraft
from tests.policy_parts import policy_parts

Option = Callable[[ClusterDraft], None]

MOST_USED = frozenset(
    {
        "zone_spread",
        "host_spread",
        "zone_affinity",
        "host_anti_affinity",
        "zone_selector",
        "toleration",
        "pod_priority",
        "second_pool",
        "pool_weight",
        "cpu_limit",
        "pool_taint",
        "pool_zones",
        "existing_nodes",
        "daemon_set",
        "own_volumes",
    }
)
"""What most clusters of users have: every triple of these meets."""

_SHARE, _SHARE_OF_MOST_USED = 0.08, 0.25
"""How often an option is drawn: two of the rarer ones meet in 0.64 of 100 clusters, three of the others in 1.6."""

COVERING = 5_000
"""So many clusters cover every pair and triple."""


def options_of(*modules: ModuleType) -> dict[str, Option]:
    """The public functions of modules, in the order in which they apply: supply before the pods that refer to it."""
    return {
        name: made
        for module in modules
        for name, made in vars(module).items()
        if inspect.isfunction(made) and made.__module__ == module.__name__ and not name.startswith("_")
    }


def _kept_clusters() -> dict[str, list[str]]:
    lines = Path(__file__).with_name("kept_clusters.txt").read_text().splitlines()
    return {name: options.split() for name, _, options in (line.partition(": ") for line in lines)}


_KEPT = _kept_clusters()
"""The options of clusters that tests name, by seed and number: they stay as they are when options come and go."""

OPTIONS = options_of(supply_options, pod_options, cluster_options, *policy_parts("combinations", "options"))
"""Every option by its name."""


@dataclass(frozen=True)
class DrawnCluster:
    """A cluster, and how it was drawn."""

    seed: int
    number: int
    options: tuple[str, ...]
    snapshot: Snapshot

    @property
    def name(self) -> str:
        """Names the cluster for whoever wants to draw it again."""
        return f"{self.seed}-{self.number}"

    def rng(self, purpose: str) -> Random:
        """Randomness of its own for each use, so that one more use changes no other."""
        return Random(f"{self.name}-{purpose}")  # noqa: S311 - a draw for a test


def drawn(seed: int, number: int) -> DrawnCluster:
    """The cluster of this number."""
    return with_options(seed, number, options_drawn(seed, number))


def options_drawn(seed: int, number: int) -> list[str]:
    """The options of the cluster of this number. Each is drawn by itself, so that one more or less moves no other."""
    kept = _KEPT.get(f"{seed} {number}")
    return [name for name in OPTIONS if _is_drawn(seed, number, name)] if kept is None else [*filter(OPTIONS.get, kept)]


def _is_drawn(seed: int, number: int, option: str) -> bool:
    share = _SHARE_OF_MOST_USED if option in MOST_USED else _SHARE
    return Random(f"{seed}-{number}-draws-{option}").random() < share  # noqa: S311 - a draw for a test


def with_options(seed: int, number: int, options: Iterable[str]) -> DrawnCluster:
    """The cluster of this number with these options only: each has a draw of its own, so that it can be left out."""
    chosen = tuple(options)
    draft = ClusterDraft.begun(Random(f"{seed}-{number}-begun"))  # noqa: S311 - a draw for a test
    for name in chosen:
        draft.rng = Random(f"{seed}-{number}-{name}")  # noqa: S311 - a draw for a test
        OPTIONS[name](draft)
    return DrawnCluster(seed, number, chosen, draft.snapshot())


@dataclass
class Coverage:
    """Counts the pairs and triples of options that drawn clusters have combined so far."""

    clusters: int = 0
    pairs: Counter[frozenset[str]] = field(default_factory=Counter)
    triples: Counter[frozenset[str]] = field(default_factory=Counter)

    def add(self, options: Iterable[str]) -> None:
        """Count the pairs and triples of one cluster."""
        names = sorted(options)
        self.clusters += 1
        self.pairs.update(map(frozenset, combinations(names, 2)))
        self.triples.update(map(frozenset, combinations(sorted(MOST_USED.intersection(names)), 3)))

    def missing(self) -> Iterator[tuple[str, ...]]:
        """Pairs and triples that have not met."""
        for pair in combinations(sorted(OPTIONS), 2):
            if frozenset(pair) not in self.pairs:
                yield pair
        for triple in combinations(sorted(MOST_USED), 3):
            if frozenset(triple) not in self.triples:
                yield triple

    def line(self) -> str:
        """Say it in one line."""
        pairs, triples = len(OPTIONS) * (len(OPTIONS) - 1) // 2, len(list(combinations(MOST_USED, 3)))
        return (
            f"{self.clusters} clusters of {len(OPTIONS)} options: {len(self.pairs)} of {pairs} pairs, the rarest "
            f"{min(self.pairs.values(), default=0)} times; {len(self.triples)} of {triples} triples of the "
            f"{len(MOST_USED)} used most, the rarest {min(self.triples.values(), default=0)} times"
        )
