"""Lists of spot offerings that a launch asks for: how short they may be, and which of them may get more nodes.

EC2 chooses among the offerings of a launch by their price and by how much capacity there is, which it alone knows. So a
list is shortened only while a choice is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shiplap.manifests.nodeclaim import PreferredSpot

LEAST_OFFERINGS = 15
LEAST_ZONES = 2
"""What a launch keeps to choose among, as far as its list has as much."""


def may_get_more(preferred: PreferredSpot, count: int, launched: Mapping[str, int]) -> tuple[str, ...]:
    """The preferred offerings of which each may get all of `count` more nodes; none if too few are left.

    `launched` counts nodes that some have got since the decision. Without any, the whole list is asked for, and what
    EC2 chooses then is no consequence of the risk. Nor is it that an offering is chosen which is cheaper than all that
    are avoided: those are not bounded.
    """
    bounded = frozenset(preferred.bounded)
    left = tuple(
        key
        for key in preferred.offerings
        if key not in bounded or preferred.held.get(key, 0) + launched.get(key, 0) + count <= preferred.most
    )
    return left if is_choice(left, preferred.offerings) else ()


def is_choice(left: Collection[str], of: Collection[str]) -> bool:
    """True if the offerings `left`, as `type/zone`, are enough for EC2 to choose among, given all offerings `of`."""
    zones = {key.partition("/")[2] for key in left}
    needed = min(LEAST_ZONES, len({key.partition("/")[2] for key in of}))
    return len(left) >= LEAST_OFFERINGS and len(zones) >= needed
