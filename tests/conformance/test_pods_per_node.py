"""The number of pods per node decides how many nodes are planned: prefix delegation, maxPods and ceilings."""

from __future__ import annotations

import pytest

from shiplap.instances.capacity.capacity_setting import VpcCni
from tests.builders.pods import pods
from tests.builders.pools import pool, rule
from tests.conformance.given import daemon_set, given
from tests.conformance.real_types import TYPE, real_types

DELEGATES = VpcCni(prefix_delegation=True, version="1.19.2")
FOUR_DAEMONS = [daemon_set(f"d{n}") for n in range(4)]


def nodes_for(number: int, instance_type: str, **setting: object) -> int:
    """Nodes of one type that `number` tiny pods and four daemons need."""
    outcome = given(
        *pods(number, cpu="1m", memory="1Mi"),
        pools=[pool("default", rule(TYPE, "In", instance_type), limits={})],
        types=real_types(**setting),  # type: ignore[arg-type]
        daemon_sets=FOUR_DAEMONS,
    )
    assert outcome.scheduled
    return len(outcome.claims)


def test_prefix_delegation_needs_one_node_instead_of_four() -> None:
    assert nodes_for(100, "m5.large") == 4
    assert nodes_for(100, "m5.large", cni=DELEGATES) == 1
    assert nodes_for(100, "m5.large", cni=DELEGATES, max_pods=110) == 1


def test_max_pods_above_the_ceiling_is_not_believed() -> None:
    assert nodes_for(105, "c6g.medium", cni=DELEGATES, max_pods=110) == 2
    assert nodes_for(94, "c6g.medium", cni=DELEGATES, max_pods=110) == 1


@pytest.mark.parametrize(
    ("instance_type", "cni", "expected"),
    [
        ("i3.large", DELEGATES, 29),
        ("c4.large", DELEGATES, 29),
        ("m5.large", VpcCni(prefix_delegation=True, version="1.8.0"), 29),
        ("m5.large", VpcCni(prefix_delegation=True, version="1.9.0"), 110),
        ("p5.48xlarge", None, 100),
        ("p5.48xlarge", DELEGATES, 250),
        ("m5.24xlarge", None, 737),
        ("m5.24xlarge", DELEGATES, 250),
    ],
)
def test_slots_per_node(instance_type: str, cni: VpcCni | None, expected: int) -> None:
    slots = expected - len(FOUR_DAEMONS)
    assert nodes_for(slots, instance_type, cni=cni) == 1
    assert nodes_for(slots + 1, instance_type, cni=cni) == 2
