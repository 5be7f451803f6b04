"""What keeps a sick node from being replaced: an annotation, or too many sick nodes of its AMI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import NodeClaim

MOST_OF_AN_AMI = 3
"""So many nodes of one AMI that were sick within an hour stop its repairs: a new node would be as sick."""

KEPT = "true"


class SickNote(msgspec.Struct, frozen=True):
    """The AMI of a node that was sick, and since when that is known, epoch seconds."""

    ami: str
    at: float


def kept_by(claim: NodeClaim, node: Node | None, shown: Mapping[str, str]) -> str:
    """Return what keeps a sick node, or nothing; `shown` are the annotations of its NodeClaim object."""
    places = (
        (f"node {claim.node_name}", node.metadata.annotations if node is not None else {}),
        (f"NodeClaim {claim.name}", {**claim.plan.annotations, **shown}),
    )
    for place, written in places:
        if written.get(labels.DO_NOT_REPAIR) == KEPT:
            return f"{place} has the annotation {labels.DO_NOT_REPAIR}={KEPT}"
    return ""


def sick_amis(noted: Mapping[str, SickNote], sick: Mapping[str, str]) -> frozenset[str]:
    """Return the AMIs of which too many nodes are or were sick.

    Args:
        noted: what is remembered of sick nodes, by the name of the claim.
        sick: the AMIs of nodes that are sick now, by the name of the claim; empty where the AMI is not to blame.
    """
    amis = {name: note.ami for name, note in noted.items()} | dict(sick)
    number = Counter(ami for ami in amis.values() if ami)
    return frozenset(ami for ami, count in number.items() if count >= MOST_OF_AN_AMI)
