"""Tests the time that pods may hold a node that leaves: by its NodeClaim object, else by its NodePool."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.flows.claim_updates import grace_ends_at, grace_of
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.settings import ClusterSettings
from tests.builders.claims import node_claim
from tests.builders.pools import pool


def with_grace(grace: str) -> NodePool:
    made = pool()
    spec = replace(made.spec.template.spec, termination_grace_period=grace)
    return replace(made, spec=replace(made.spec, template=replace(made.spec.template, spec=spec)))


@pytest.mark.parametrize(
    ("fields", "pools", "grace"),
    [
        ({}, [with_grace("5m")], "5m"),
        ({}, [pool()], None),
        ({}, [], None),
        ({"termination_grace_period": "1h"}, [with_grace("5m")], "1h"),
        ({"termination_grace_period": "1h"}, [], "1h"),
        ({"expire_after": "720h"}, [with_grace("5m")], None),
        ({"object_uid": "u", "node_pool": ""}, [with_grace("5m")], None),
        ({"object_uid": "u", "node_pool": "", "termination_grace_period": "1h"}, [with_grace("5m")], "1h"),
    ],
)
def test_the_grace_period_of_a_claim(fields: dict[str, str], pools: list[NodePool], grace: str | None) -> None:
    settings = ClusterSettings(name="test", region="eu-west-1", manifests=Manifests(node_pools=tuple(pools)))
    claim = node_claim(name="a", **fields)
    assert grace_of(claim, settings) == grace
    seconds = {"5m": 300.0, "1h": 3600.0}
    assert grace_ends_at(claim, settings, 7.0) == (7.0 + seconds[grace] if grace else None)
