"""A bound on the saving of a better packing: the same pods on nodes of the kinds in use, without waste."""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.drawing.picture import Amounts, NodePicture, NodePictureState

_STEPS = 60


def least_hourly(nodes: Iterable[NodePicture]) -> float:
    """USD per hour that no packing of these pods on nodes like these, at their prices, could undercut.

    The bound is the linear programme that buys fractions of nodes: min Σ x·price, Σ x·cpu ≥ cpu used, Σ x·memory ≥
    memory used. Its dual has two unknowns, a price of CPU and one of memory; for each price of CPU the best price of
    memory is the least over the kinds of node, a concave function that is searched. Nodes of unknown price, and those
    that do not take pods yet, are left out with their pods.
    """
    priced = [
        node for node in nodes if node.hourly > 0 and node.state in (NodePictureState.READY, NodePictureState.LEAVING)
    ]
    used = sum((node.used for node in priced), Amounts())
    kinds = sorted(
        {
            (node.allocatable.millicores / 1000, node.allocatable.memory_bytes / 2**30, node.hourly)
            for node in priced
            if node.allocatable.millicores > 0 and node.allocatable.memory_bytes > 0
        }
    )
    if not kinds:
        return 0.0
    cpu, memory = used.millicores / 1000, used.memory_bytes / 2**30

    def value(cpu_price: float) -> float:
        memory_price = min((hourly - cpu_price * cores) / gib for cores, gib, hourly in kinds)
        return cpu_price * cpu + memory_price * memory

    low, high = 0.0, min(hourly / cores for cores, _, hourly in kinds)
    for _ in range(_STEPS):
        third = (high - low) / 3
        if value(low + third) < value(high - third):
            low += third
        else:
            high -= third
    return max(value(low), value(high), value(0.0))
