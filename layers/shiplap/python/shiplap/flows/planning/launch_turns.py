"""The order in which claims are launched where a budget does not launch all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import NodeClaim

_OF_TYPES = frozenset({labels.INSTANCE_TYPE, labels.ARCH, labels.OS})


def in_turns(claims: Sequence[NodeClaim]) -> list[NodeClaim]:
    """The claims domain by domain: those of each zone, capacity type and label take turns, fewest pods first.

    So a budget decides how many nodes there are, and not in which zones: each beginning of this order is as level as
    claims of whole nodes can be. Claims of one domain keep their order.
    """
    pods: Counter[tuple[tuple[str, str], ...]] = Counter()
    turns = []
    for place, claim in enumerate(claims):
        domain = tuple(sorted(item for item in claim.plan.labels.items() if item[0] not in _OF_TYPES))
        turns.append((pods[domain], place))
        pods[domain] += len(claim.plan.pods)
    return [claims[place] for _, place in sorted(turns)]
