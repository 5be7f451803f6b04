"""Annotations about prices: what is refused, and what the accepted ones mean."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import NO_RULES, PriceRules, price_rules
from tests.unit.manifests.manifest_samples import NODE_POOL, changed, problems_of


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("max-hourly-price", "-1", "'-1' is not a price in USD per hour, such as 1.25"),
        ("max-hourly-price", "1e3", "'1e3' is not a price in USD per hour, such as 1.25"),
        ("max-node-price", "$4", "'$4' is not a price in USD per hour, such as 1.25"),
        ("max-vcpu-price", "", "'' is not a price in USD per hour, such as 1.25"),
        ("on-demand-discount", "28%", "'28%' is not a fraction from 0 to 1, such as 0.075"),
        ("spot-discount", "1", "'1' is not a fraction from 0 to 1, such as 0.075"),
        ("min-on-demand", "0.3", "'0.3' is not a percentage from 0% to 100%, such as 30%"),
        ("min-on-demand", "101%", "'101%' is not a percentage from 0% to 100%, such as 30%"),
    ],
)
def test_refused(name: str, value: str, reason: str) -> None:
    key = f"shiplap.dev/{name}"
    written = changed(NODE_POOL, "metadata.annotations", {key: value})
    assert problems_of(written) == [(f"metadata.annotations[{key}]", reason)]
    with pytest.raises(ValueError, match=r"NodePool default: shiplap\.dev/"):
        price_rules(msgspec.convert(written, NodePool))


def test_accepted() -> None:
    annotations = {
        "shiplap.dev/max-hourly-price": "12.345678",
        "shiplap.dev/max-node-price": "4",
        "shiplap.dev/max-vcpu-price": "0.05",
        "shiplap.dev/on-demand-discount": "0.28",
        "shiplap.dev/spot-discount": "0",
        "shiplap.dev/min-on-demand": "33.34%",
    }
    written = changed(NODE_POOL, "metadata.annotations", annotations)
    assert problems_of(written) == []
    assert price_rules(msgspec.convert(written, NodePool)) == PriceRules(12_345_678, 4.0, 0.05, 0.28, 0.0, 3334)


def test_a_pool_without_annotations_has_no_rules() -> None:
    rules = price_rules(msgspec.convert(NODE_POOL, NodePool))
    assert rules is NO_RULES
    assert not rules.changes_types
