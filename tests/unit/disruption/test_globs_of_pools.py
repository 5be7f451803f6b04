"""A NodePool's globs stand for the values of a label that its types and its nodes have, and for no other values."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.disruption.current_prices import PoolMarket
from shiplap.disruption.methods.drift import tiers_of
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirement
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from tests.builders.nodes import node
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type

FAMILY = "karpenter.k8s.aws/instance-family"


class _On:
    """A candidate, as far as its node's labels go."""

    def __init__(self, family: str = "") -> None:
        self.node = node("n", labels={FAMILY: family} if family else {})


def sold(name: str, family: str, *more: Requirement) -> InstanceType:
    rules = (Requirement.one_of(FAMILY, family), Requirement.one_of(labels.ARCH, "m-odd"))
    return replace(fake_type(name), requirements=(*rules, *more))


def asking(*globs: str) -> NodePool:
    made = pool(name="web")
    spec = replace(made.spec.template.spec, requirements=(RequirementSpec(FAMILY, "In", globs),))
    return replace(made, spec=replace(made.spec, template=replace(made.spec.template, spec=spec)))


@pytest.mark.parametrize(
    ("types", "nodes", "values"),
    [
        ([sold("m5.large", "m5"), sold("c5.large", "c5")], [], {"m5"}),
        ([sold("m5.large", "m5"), sold("m6.large", "m6")], [], {"m5", "m6"}),
        ([sold("m5.large", "m5")], [_On("m4"), _On("r4")], {"m4", "m5"}),
        ([sold("m5.large", "m5")], [_On()], {"m5"}),
        (
            [sold("m5.large", "m5", Requirement(FAMILY, complement=True, values=frozenset({"m9"})))],
            [],
            {"m5"},
        ),
    ],
    ids=["one", "several", "of nodes", "a node without the label", "what a type is not"],
)
def test_a_glob_stands_for_the_values_of_its_label(types: Any, nodes: Any, values: set[str]) -> None:
    market = PoolMarket({"web": {item.name: item for item in types}, "other": {"m7": sold("m7.large", "m7")}})
    found = {value for tier in tiers_of(asking("m*"), market, nodes) for value in tier.requirements[FAMILY].values}
    assert found == values
