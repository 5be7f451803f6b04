"""Nodes of a full capacity reservation whose NodePool sleeps: they leave for that, and none goes first meanwhile."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.disruption.commands import Method
from shiplap.kubernetes import labels
from shiplap.manifests.shiplap_annotations import TERMINATE_FIRST
from shiplap.policies.sleep.sleep_input import SleepInput
from tests.builders.pools import pool, rule
from tests.conformance.disruptions import disrupted, standing
from tests.conformance.sleep_cases import owned, state
from tests.conformance.sold_reservations import held, sold


def test_nodes_that_sleep_do_not_go_first() -> None:
    reserved = rule("karpenter.sh/capacity-type", "In", "reserved")
    fresh = rule("gone", "DoesNotExist")
    wanted = pool("default", reserved, fresh, after="Never", annotations={TERMINATE_FIRST: "10m"})
    marks = {labels.RESERVATION_ID: "cr-1", labels.RESERVATION_TYPE: "default", "gone": "x"}
    nodes = [
        standing(name, "only", cpu="3900m", memory="8000Mi", pods="50", capacity_type="reserved", labels=marks)
        for name in ("a", "b")
    ]
    bound = [owned(f"on-{name}", name, cpu="3") for name in ("a", "b")]
    types = [sold("only", replace(held("cr-1", 0), available=False))]

    awake = disrupted(*nodes, pods=bound, pools=[wanted], types=types)
    assert [command.method for command in awake.commands] == [Method.TERMINATE_FIRST]
    for left in (1, 100):
        night = SleepInput(state(left=left))
        asleep = disrupted(*nodes, pods=bound, pools=[wanted], types=types, policies=[night])
        assert [command.method for command in asleep.commands] == [Method.SLEEP]
