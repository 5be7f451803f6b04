"""A launch sees the same instance types as the plan it carries out."""

from __future__ import annotations

import msgspec

from shiplap.flows.planning.decision_inputs import read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import PricedSnapshot, priced_snapshot
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import MEMORY, parse_amount
from shiplap.manifests.custom_resources import NodeOverlay
from shiplap.manifests.nodeclaim import NodeClaim
from tests.builders.claims import node_claim, with_fields
from tests.integration.flows.stage import Stage

CLAIM = node_claim(cluster="demo", name="flex-1", node_pool="flex", node_class="default")
TYPE = "c7i-flex.large"


def overlay(name: str, memory: str, **requirements: str) -> NodeOverlay:
    written = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in {labels.INSTANCE_TYPE: TYPE, **requirements}.items()
    ]
    spec = {"requirements": written, "capacity": {"memory": memory}, "weight": 1}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, NodeOverlay)


def priced(*overlays: NodeOverlay) -> PricedSnapshot:
    stage = Stage()
    manifests = msgspec.structs.replace(stage.settings.manifests, node_overlays=overlays)
    settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    return priced_snapshot(
        settings, read_inputs(settings, stage.context), read_supply(settings, stage.context), stage.context
    )


def memory(seen: PricedSnapshot, claim: NodeClaim = CLAIM) -> int:
    return seen.types_for(claim)[TYPE].capacity[MEMORY]


def test_an_overlay_holds_at_launch_too() -> None:
    assert memory(priced(overlay("measured", "3Gi"))) == parse_amount(MEMORY, "3Gi")


def test_an_overlay_that_conflicts_in_one_pool_holds_in_none() -> None:
    rejected, accepted = overlay("one", "3Gi"), overlay("two", "2Gi", **{labels.NODE_POOL: "flex"})
    elsewhere = with_fields(CLAIM, node_pool="fallback")
    assert memory(priced(rejected, accepted)) == parse_amount(MEMORY, "2Gi")
    assert memory(priced(rejected, accepted), elsewhere) == memory(priced(), elsewhere)


def test_the_types_are_reckoned_once_per_pool() -> None:
    seen = priced(overlay("measured", "3Gi"))
    again = msgspec.structs.replace(CLAIM, name="flex-2")
    assert seen.types_for(CLAIM) is seen.types_for(again)


def test_a_zone_whose_subnets_are_full_is_still_sold_though_not_to_be_had() -> None:
    stage = Stage()
    full, *others = stage.compute.subnets
    stage.compute.subnets = (msgspec.structs.replace(full, free_ips=0), *others)
    settings = stage.settings
    seen = priced_snapshot(
        settings, read_inputs(settings, stage.context), read_supply(settings, stage.context), stage.context
    )
    offered = {offering.zone: offering.available for offering in seen.types_for(CLAIM)[TYPE].offerings}
    assert offered.pop(full.zone) is False
    assert all(offered.values())
    assert len(offered) == len(others)
