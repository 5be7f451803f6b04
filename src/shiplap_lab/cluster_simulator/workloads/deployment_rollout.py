"""The arithmetic of a rolling update: which ReplicaSet grows or shrinks next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class SetSize(msgspec.Struct, frozen=True):
    """A ReplicaSet of a Deployment: how many pods it wants, and how many of its pods are available."""

    name: str
    wanted: int
    available: int = 0


def next_sizes(new: SetSize, old: Sequence[SetSize], replicas: int, *, surge: int, unavailable: int) -> dict[str, int]:
    """The sizes that change now, by name; none when the rollout is complete or has to wait for pods.

    The new ReplicaSet grows first. The old ones, oldest first, lose pods that are not available, then as many as
    `replicas - unavailable` available ones can spare.

    Args:
        new: of the current template.
        old: all others, oldest first.
        replicas: how many pods the Deployment wants.
        surge: how many pods there may be beyond that.
        unavailable: how many of them may be missing.
    """
    if new.wanted > replicas:
        return {new.name: replicas}
    total = new.wanted + sum(each.wanted for each in old)
    grown = min(max(replicas + surge - total, 0), replicas - new.wanted)
    if grown:
        return {new.name: new.wanted + grown}
    least = replicas - unavailable
    spare = total - least - max(new.wanted - new.available, 0)
    sizes = {each.name: each.wanted for each in old}
    for each in old:
        lost = min(max(each.wanted - each.available, 0), max(spare, 0))
        sizes[each.name] -= lost
        spare -= lost
    spare = min(spare, new.available + sum(min(each.available, each.wanted) for each in old) - least)
    for each in old:
        lost = min(sizes[each.name], max(spare, 0))
        sizes[each.name] -= lost
        spare -= lost
    return {each.name: sizes[each.name] for each in old if sizes[each.name] != each.wanted}
