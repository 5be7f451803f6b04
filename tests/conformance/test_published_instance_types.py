"""`shiplap explain instance-types` against the figures Karpenter publishes, where a copy of them is at hand."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shiplap.instances.capacity.described_capacity import branch_interfaces, careful_branches
from shiplap.kubernetes.quantity import parse_resources
from shiplap_lab.catalogue.embedded import load
from tests.commands import Shiplap

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "instance-types-sample.json"
NOT_DERIVABLE = {"vpc.amazonaws.com/pod-eni"}
"""By a rule, not by an answer of EC2's; see the last test."""
NOT_PUBLISHED = {"karpenter.k8s.aws/nitro-sandbox", "topology.kubernetes.io/region"}

# EC2's answers changed between the published table and the catalogue at hand.
CLOCK = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz"
CHANGED = {
    **{name: {CLOCK} for name in ("c9g.12xlarge", "c9g.2xlarge", "m9g.16xlarge", "m9gd.2xlarge", "i7i.12xlarge")},
    "i8ge.metal-48xl": {"pods", "memory", "karpenter.k8s.aws/instance-network-bandwidth"},
}

pytestmark = pytest.mark.skipif(not SAMPLE.exists(), reason="the published sample is not on this machine")


@cache
def published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SAMPLE.read_text())["types"]
    return found


def test_resources_and_labels_agree(shiplap: Shiplap) -> None:
    ours = shiplap.json("explain", "instance-types")
    shared = sorted(published().keys() & ours.keys())
    differences = {name: found for name in shared if (found := _differences(name, ours[name]))}
    assert differences == {}
    assert len(shared) >= 120


def test_branch_interfaces_agree_where_nothing_but_the_size_matters(shiplap: Shiplap) -> None:
    """The rule never gives more than the published table where there are no disks or accelerators.

    A published 0 of a type with a trunk says that the controller's table did not list it yet.
    """
    ours = shiplap.json("explain", "instance-types")
    shared = sorted(published().keys() & ours.keys())
    (resource,) = NOT_DERIVABLE
    rule = {name: int(ours[name]["allocatable"].get(resource, 0)) for name in shared}
    real = {name: int(published()[name]["resources"].get(resource, 0)) for name in shared}
    plain = [name for name in shared if re.match(r"(?:c|m|r|t)\d", name)]
    assert [name for name in plain if rule[name] > real[name] > 0] == []
    assert sum(rule[name] == real[name] for name in plain) >= 0.9 * len(plain) > 50
    assert sum(rule[name] == real[name] for name in shared) >= 0.85 * len(shared)


def test_nodes_that_may_be_without_branch_interfaces_are_not_relied_on() -> None:
    """`careful` does not count on resources that the published table has none of, whatever the rule gives."""
    kinds = {kind.instance_type: kind for kind in load().types}
    (resource,) = NOT_DERIVABLE
    plain = [name for name in published().keys() & kinds.keys() if re.match(r"(?:a|c|m|r)\d", name)]
    real = {name: int(published()[name]["resources"].get(resource, 0)) for name in plain}
    assert sorted(name for name in plain if careful_branches(kinds[name]) > real[name]) == []
    assert sum(real[name] == 0 < branch_interfaces(kinds[name]) for name in plain) >= 3


def _differences(name: str, mine: dict[str, Any]) -> dict[str, tuple[object, object]]:
    theirs = published()[name]
    wanted = parse_resources(theirs["resources"]) | theirs["labels"]
    found = parse_resources(mine["allocatable"]) | mine["labels"]
    keys = (wanted.keys() | found.keys()) - NOT_DERIVABLE - NOT_PUBLISHED - CHANGED.get(name, set())
    return {key: (wanted.get(key), found.get(key)) for key in keys if wanted.get(key) != found.get(key)}
