"""Instance types are reckoned once for the same question: a warm function asks it with every invocation.

What is sold and what has been learned changes by the hour, while hundreds of types take a tenth of a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from shiplap.api.types import EC2NodeClass
from shiplap.instances.catalog import Catalog
from shiplap.instances.nodeclass import ResolvedNodeClass
from shiplap.instances.resolve import instance_types
from shiplap.instances.setting import CapacitySetting
from shiplap.instances.types import InstanceType, LearnedCapacity

_MOST = 16
"""Questions that are remembered: an EC2NodeClass of a cluster asks one, until something changes."""

_KNOWN: deque[tuple[tuple[object, ...], tuple[InstanceType, ...]]] = deque(maxlen=_MOST)


def remembered_types(
    catalog: Catalog,
    node_class: EC2NodeClass,
    setting: CapacitySetting,
    *,
    resolved: ResolvedNodeClass | None,
    learned: Sequence[LearnedCapacity],
    unavailable: Collection[tuple[str, str, str]],
) -> tuple[InstanceType, ...]:
    """As `instance_types`; for equal arguments the same tuple. Raises InvalidInput."""
    asked = (catalog, node_class, setting, resolved, tuple(learned), frozenset(unavailable))
    for place, (known, types) in enumerate(_KNOWN):
        if known == asked:
            if place:
                del _KNOWN[place]
                _KNOWN.appendleft((known, types))
            return types
    found = instance_types(catalog, node_class, setting, resolved=resolved, learned=learned, unavailable=unavailable)
    _KNOWN.appendleft((asked, found))
    return found
