"""What new nodes for some pods cost at least, without a plan for them.

A price for each millicore and each byte, such that no instance type sells its resources for less, bounds what any new
nodes cost from below. Existing nodes take at most what their room is worth at these prices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiplap.kubernetes.quantity import CPU, MEMORY
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.preferences import NO_PREFERENCES
from shiplap.scheduling.model.resources import Floats, Ints
from shiplap.scheduling.supply.limits import NODES
from shiplap.scheduling.supply.templates import NodeClaimTemplate

_SHARES = np.arange(17) / 16
_PER_MILLICORE, _PER_BYTE = _SHARES / 1000, (1 - _SHARES) / (4 << 30)
"""Proportions of the prices of CPU and memory that are tried; the best bound counts."""


class LeastPrices:
    """For the templates of one snapshot."""

    def __init__(self, templates: Sequence[NodeClaimTemplate]) -> None:
        self._templates = [item for item in templates if not item.blocked and np.isfinite(item.row_prices).any()]
        self._best_level = min((template.level for template in self._templates), default=(0, 0))
        self._scales: dict[bool, Floats] = {}

    def of(self, classes: Sequence[PodClass], free: Ints) -> float:
        """USD per hour that new nodes for these pods cost at least.

        Args:
            classes: of the pods.
            free: what existing nodes have left [nodes, resources]; cpu and memory are the first columns.
        """
        if not self._templates or not classes:
            return 0.0
        sizes = np.array([(item.requests.get(CPU, 0), item.requests.get(MEMORY, 0)) for item in classes], np.float64)
        numbers = np.array([len(item.members) for item in classes], np.float64)
        scales = self._scales_of(best=all(map(self._gets_best, classes)))
        worth = (sizes[:, :1] * _PER_MILLICORE + sizes[:, 1:] * _PER_BYTE) * scales
        room = np.maximum(free[:, :2], 0).astype(np.float64)
        taken = _most_taken(room, sizes, numbers)
        room, taken = room[taken.any(axis=1)], taken[taken.any(axis=1)]
        whole = (room[:, :1] * _PER_MILLICORE + room[:, 1:] * _PER_BYTE) * scales
        absorbed = np.minimum(whole, (taken[:, :, None] * worth).sum(axis=1)).sum(axis=0)
        return max(float(((numbers[:, None] * worth).sum(axis=0) - absorbed).max()), 0.0)

    def _scales_of(self, *, best: bool) -> Floats:
        """By proportion, how often it may be taken until some instance type would be dearer than it is."""
        if best not in self._scales:
            templates = [item for item in self._templates if not best or item.level == self._best_level]
            scales = np.array([_scales(template) for template in templates]).min(axis=0)
            self._scales[best] = np.where(np.isfinite(scales), scales, 0.0)
        return self._scales[best]

    def _gets_best(self, pod_class: PodClass) -> bool:
        """Whether new nodes for a class are sure to be of the best level: a template there takes each of its pods."""
        plain = not any(pod_class.terms) and not pod_class.ports and not pod_class.topological
        plain = plain and pod_class.preferences == NO_PREFERENCES
        return plain and any(
            _surely_takes(item, pod_class) for item in self._templates if item.level == self._best_level
        )


def _surely_takes(template: NodeClaimTemplate, pod_class: PodClass) -> bool:
    limits = template.limits
    if template.counted or len(limits.columns) or NODES in limits.amounts:
        return False
    if any(entry.min_values for entry in template.requirements.values()):
        return False
    if untolerated(template.pool.spec.template.spec.taints, pod_class.tolerations) is not None:
        return False
    fits = (template.net >= template.table.axis.vector(pod_class.requests)).all(axis=1)
    return bool((fits & template.table.careful_rows & np.isfinite(template.row_prices)).any())


def _scales(template: NodeClaimTemplate) -> Floats:
    net = np.maximum(template.net[:, :2], 0).astype(np.float64)
    worth = net[:, :1] * _PER_MILLICORE + net[:, 1:] * _PER_BYTE
    dearest = np.full_like(worth, np.inf)
    np.divide(template.row_prices[:, None], worth, out=dearest, where=worth > 0)
    scales: Floats = dearest.min(axis=0, initial=np.inf)
    return scales


def _most_taken(room: Floats, sizes: Floats, numbers: Floats) -> Floats:
    """How many pods of each class alone a node takes at most [nodes, classes]."""
    many = np.full((len(room), *sizes.shape), np.inf)
    np.divide(room[:, None, :], sizes, out=many, where=sizes > 0)
    taken: Floats = np.minimum(np.floor(many).min(axis=2), numbers)
    return taken
