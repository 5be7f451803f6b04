"""In which AWS Regions a cluster's nodes are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node

_OF_ZONE = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
"""The Region that the name of an availability zone, local zone or Wavelength zone begins with."""


def region_of(node: Node) -> str:
    """By the node's label, else by the zone of its label, else by that of its `providerID`; empty when none says."""
    region = labels.value_of(node.metadata.labels, labels.REGION)
    return region or next(filter(None, map(_region_of_zone, _zones(node))), "")


def regions_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The Regions that nodes say, that of most nodes first, then by name."""
    counted = Counter(map(region_of, nodes))
    del counted[""]
    return tuple(sorted(counted, key=lambda name: (-counted[name], name)))


def _zones(node: Node) -> Iterable[str]:
    yield labels.value_of(node.metadata.labels, labels.ZONE)
    # aws:///eu-west-1a/i-0123456789abcdef0; Fargate has aws:///eu-west-1a/<id>/fargate-ip-….
    if node.spec.provider_id.startswith("aws:///"):
        yield node.spec.provider_id.removeprefix("aws:///").partition("/")[0]


def _region_of_zone(zone: str) -> str:
    found = _OF_ZONE.match(zone)
    return found[0] if found else ""
