"""What keeps a sick node from being replaced: an annotation, or too many sick nodes of its AMI."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil
from types import MappingProxyType

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import NodeClaim

MOST_OF_AN_AMI = 3
"""So many nodes of one AMI that were sick within an hour stop its repairs: a new node would be as sick."""

SHARE_OF_AN_AMI = 0.01
"""Of an AMI with more nodes than three hundred, this share of them: so many fall sick in an hour without a cause."""

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


def most_of_an_ami(nodes: int) -> int:
    """Return the number of sick nodes that stops the repairs of an AMI with so many nodes in service."""
    return max(MOST_OF_AN_AMI, ceil(SHARE_OF_AN_AMI * nodes))


def sick_amis(
    noted: Mapping[str, SickNote], sick: Mapping[str, str], in_service: Mapping[str, int] = MappingProxyType({})
) -> frozenset[str]:
    """Return the AMIs of which too many nodes are or were sick.

    Args:
        noted: what is remembered of sick nodes, by the name of the claim.
        sick: the AMIs of nodes that are sick now, by the name of the claim; empty where the AMI is not to blame.
        in_service: the number of nodes in service by AMI.
    """
    amis = {name: note.ami for name, note in noted.items()} | dict(sick)
    number = Counter(ami for ami in amis.values() if ami)
    return frozenset(ami for ami, count in number.items() if count >= most_of_an_ami(in_service.get(ami, 0)))
