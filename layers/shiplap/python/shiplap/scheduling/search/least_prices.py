"""Computes the least that new nodes for some pods cost, without a plan for these pods.

A price for each millicore and each byte, such that no instance type sells its resources for less, bounds what any new
nodes cost from below. Existing nodes take at most what their room is worth at these prices. Nodes are bought whole:
what so much money buys at most, in whole nodes, bounds the price once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import floor, ldexp, log2

import msgspec
import numpy as np

from shiplap.kubernetes.quantity import CPU, MEMORY
from shiplap.kubernetes.related_objects import has_claims
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.preferences import NO_PREFERENCES
from shiplap.scheduling.model.resources import ROUNDING, Floats, Ints
from shiplap.scheduling.supply.limits import NODES
from shiplap.scheduling.supply.templates import NodeClaimTemplate

_SHARES = np.arange(17) / 16
_PER_MILLICORE, _PER_BYTE = _SHARES / 1000, (1 - _SHARES) / (4 << 30)
"""Proportions of the prices of CPU and memory that are tried; the best bound counts."""

_STEPS = 256
"""So many prices are looked at, in equal steps; what nodes cost in parts is at a quarter of them, or at half."""

_WHOLE_STEPS = 8
"""Nodes of less than so many steps are bought in parts: many of them would be rounded down."""


class PodsToPlace(msgspec.Struct, frozen=True, eq=False):
    """Pods by how many there are of each size, cpu and memory.

    `templates` are the indexes of those that new nodes for them are sure to be of. `unknown`: nothing is known of what
    they need.
    """

    by_size: Mapping[tuple[int, int], int]
    templates: frozenset[int]
    unknown: bool = False


class LeastPrices:
    """For the templates of one snapshot."""

    def __init__(self, templates: Sequence[NodeClaimTemplate]) -> None:
        self._templates = [item for item in templates if not item.blocked and np.isfinite(item.row_prices).any()]
        self._sold: dict[frozenset[int], SoldResources] = {}

    def pods_to_place(self, classes: Sequence[PodClass]) -> PodsToPlace:
        """Return the sizes of the pods of one node, the templates of new nodes, and whether the needs are unknown."""
        by_size: dict[tuple[int, int], int] = {}
        for item in classes:
            size = (item.requests.get(CPU, 0), item.requests.get(MEMORY, 0))
            by_size[size] = by_size.get(size, 0) + len(item.members)
        unknown = any(has_claims(pod) for item in classes for pod in item.members)
        return PodsToPlace(by_size, frozenset().union(*map(self._sure_templates, classes)), unknown)

    def of(self, groups: Sequence[PodsToPlace], room: Floats) -> float:
        """USD per hour that new nodes for these pods cost at least.

        Args:
            groups: the pods.
            room: what existing nodes have left [nodes, (cpu, memory)], as `room_of`.
        """
        by_size: dict[tuple[int, int], int] = {}
        for item in groups:
            for size, number in item.by_size.items():
                by_size[size] = by_size.get(size, 0) + number
        templates = frozenset[int]().union(*(item.templates for item in groups))
        if not templates or not by_size or any(item.unknown for item in groups):
            return 0.0
        sizes, numbers = np.array(list(by_size), np.float64), np.array(list(by_size.values()), np.float64)
        least_cpu, least_memory = sizes.min(axis=0)
        room = room[(room[:, 0] >= least_cpu) & (room[:, 1] >= least_memory)]  # the others take none of the pods
        needed = numbers @ worth_of_sizes(sizes) - _absorbed(room, sizes, numbers)
        return self._sold_by(templates).least_price(needed)

    def _sold_by(self, indexes: frozenset[int]) -> SoldResources:
        if indexes not in self._sold:
            templates = [item for item in self._templates if item.index in indexes]
            net = np.concatenate([np.maximum(item.net[:, :2], 0) for item in templates])
            price = np.concatenate([item.row_prices for item in templates])
            bought = np.isfinite(price) & net.any(axis=1)
            self._sold[indexes] = SoldResources(net[bought].astype(np.float64), price[bought])
        return self._sold[indexes]

    def _sure_templates(self, pod_class: PodClass) -> frozenset[int]:
        """Return the templates of which new nodes surely are: all that suit a class, or the best if one takes each pod.

        Between NodePools of one weight the price decides, so the later tiers of one may go before the first of
        another pool.
        """
        suiting = [item for item in self._templates if _suits(item, pod_class)]
        best = min((item.level for item in suiting), default=None)
        first = [item for item in suiting if item.level[:1] == (best or ())[:1]]
        alone = len({item.tier.pool for item in first}) == 1
        sure = [item for item in first if item.level == best] if alone else first
        plain = len(pod_class.terms) == 1 and not pod_class.ports and not pod_class.topological
        plain = plain and pod_class.preferences == NO_PREFERENCES
        taken = plain and any(_surely_takes(item, pod_class) for item in sure)
        return frozenset(item.index for item in (sure if taken else suiting))


def room_of(free: Ints) -> Floats:
    """Return the room for pods [nodes, (cpu, memory)] where so much is left [nodes, (cpu, memory, ...)]."""
    room: Floats = np.maximum(free[:, :2], 0).astype(np.float64)
    return room


def _suits(template: NodeClaimTemplate, pod_class: PodClass) -> bool:
    """True if taints and requirements let nodes of a template take pods of a class."""
    taints = template.pool.spec.template.spec.taints
    if untolerated(taints, pod_class.tolerations, ignore_preferences=True) is not None:
        return False
    return any(template.requirements.compatible(term, template.allow_undefined) for term in pod_class.terms)


def _surely_takes(template: NodeClaimTemplate, pod_class: PodClass) -> bool:
    limits = template.limits
    if template.counted or len(limits.columns) or NODES in limits.amounts:
        return False
    if any(entry.min_values for entry in template.requirements.values()):
        return False
    if untolerated(template.pool.spec.template.spec.taints, pod_class.tolerations) is not None:
        return False
    fits = (template.net >= template.table.axis.vector(pod_class.requests)).all(axis=1)
    bought = np.isfinite(template.prices_of_rows(template.requirements.and_(pod_class.terms[0].values())))
    return bool((fits & template.table.careful_rows & bought).any())


class SoldResources:
    """The resources that new nodes offer [rows, (cpu, memory)], and their prices [rows]."""

    def __init__(self, net: Floats, price: Floats) -> None:
        self._net, self._price = net.tobytes(), price.tobytes()
        self._per_dollar = _per_dollar(worth_of_sizes(net), price)

    def least_price(self, needed: Floats) -> float:
        """USD per hour of nodes that are worth so much at each proportion [proportions]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            prices: Floats = np.nan_to_num(needed / self._per_dollar, nan=0.0, posinf=0.0)
        in_parts: float = max(prices.tolist())
        if in_parts <= 0:
            return 0.0
        step = ldexp(4 / _STEPS, floor(log2(in_parts)))
        too_few: Ints = (_most_bought(self._net, self._price, step) < needed * (1 - ROUNDING)).sum(axis=0)
        whole: float = max(too_few.tolist()) * step
        return max(in_parts, whole)


def worth_of_sizes(sizes: Floats) -> Floats:
    """Return the worth of sizes [n, (cpu, memory)] at each proportion [n, proportions]."""
    return sizes[:, :1] * _PER_MILLICORE + sizes[:, 1:] * _PER_BYTE


def _per_dollar(worth: Floats, price: Floats) -> Floats:
    """The most that rows are worth for their price [proportions]; infinite where one costs nothing."""
    each = np.full_like(worth, np.inf)
    np.divide(worth, price[:, None], out=each, where=price[:, None] > 0)
    most: Floats = each.max(axis=0, initial=0.0)
    return most


@lru_cache(maxsize=64)
def _most_bought(net: bytes, price: bytes, step: float) -> Floats:
    """Return the most worth of whole nodes that cost less than one step, two steps and so on [steps, proportions].

    Prices are rounded down. A decision asks for few steps, and the next decision asks for the same steps.
    """
    worth, prices = worth_of_sizes(np.frombuffer(net, np.float64).reshape(-1, 2)), np.frombuffer(price, np.float64)
    in_parts = prices < _WHOLE_STEPS * step
    per_step = _per_dollar(worth[in_parts], prices[in_parts]) * step
    whole = ~in_parts & (prices < _STEPS * step)
    steps = np.floor(prices[whole] / step).astype(np.int64)
    lengths = np.unique(steps)
    gained = np.array([worth[whole][steps == length].max(axis=0) for length in lengths]).reshape(-1, worth.shape[1])
    most = np.zeros((_STEPS, worth.shape[1]))
    most[0] = per_step
    for place in range(1, _STEPS):
        number = int(np.searchsorted(lengths, place, side="right"))
        before = most[place - lengths[:number]] + gained[:number]
        most[place] = np.maximum(most[place - 1] + per_step, before.max(axis=0, initial=0.0))
    return most


def _absorbed(room: Floats, sizes: Floats, numbers: Floats) -> Floats:
    """Return the most worth of these pods that existing nodes take, at each proportion [proportions]."""
    taken, worth = _most_taken(room, sizes, numbers), worth_of_sizes(sizes)
    some = taken.any(axis=1)
    room, taken = room[some], taken[some]
    by_node = np.minimum(worth_of_sizes(room), taken @ worth).sum(axis=0)
    absorbed: Floats = np.minimum(by_node, np.minimum(taken.sum(axis=0), numbers) @ worth)
    return absorbed


def _most_taken(room: Floats, sizes: Floats, numbers: Floats) -> Floats:
    """Return how many pods of each class alone a node takes at most [nodes, classes]."""
    many = np.full((len(room), *sizes.shape), np.inf)
    np.divide(room[:, None, :], sizes, out=many, where=sizes > 0)
    taken: Floats = np.minimum(np.floor(many).min(axis=2), numbers)
    return taken
