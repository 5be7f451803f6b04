"""A pod of 240Gi against r5a.8xlarge: what the memory overhead leaves, and how the miss is told in numbers."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.instances.catalog.overlays import apply
from shiplap.manifests.custom_resources import NodeOverlay
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance.given import Outcome, daemon_set, given
from tests.conformance.real_types import TYPE, real_types

MI = 2**20
PINNED = pool("trino", rule(TYPE, "In", "r5a.8xlarge"), limits={})
DAEMONS = [daemon_set(f"d{n}", cpu="100m", memory="128Mi") for n in range(5)]


def trino(memory: str = "240Gi", percent: float = 0.075, *, verified: bool = False) -> Outcome:
    return given(
        pod("trino", cpu="29", memory=memory),
        pools=[PINNED],
        types=real_types(overhead_percent=percent, verified=verified),
        daemon_sets=DAEMONS,
    )


def test_the_default_overhead_leaves_too_little_and_the_message_says_by_how_much() -> None:
    record = trino().left("trino")
    assert record.message.startswith(
        "r5a.8xlarge in pool trino: memory short by 6846Mi: 246400Mi needed (pod 245760Mi + daemonsets 640Mi), "
        "239554Mi allocatable, predicted from 7.5 % overhead, never measured on "
    )
    assert record.nearest is not None
    assert (record.nearest.instance_type, record.nearest.node_pool) == ("r5a.8xlarge", "trino")
    assert (record.nearest.resource, record.nearest.short) == ("memory", 6846 * MI)


@pytest.mark.parametrize(
    ("memory", "percent", "slack"),
    [
        ("240Gi", 0.05, -293),
        ("240Gi", 0.0489, -4),
        ("240Gi", 0.0488, 22),
        ("240Gi", 0.048, 232),
        ("240Gi", 0.0, 12815),
        ("235Gi", 0.075, -1726),
        ("233Gi", 0.075, 322),
    ],
)
def test_overhead_and_request_decide_to_the_mebibyte(memory: str, percent: float, slack: int) -> None:
    outcome = trino(memory, percent)
    if slack < 0:
        nearest = outcome.left("trino").nearest
        assert nearest is not None
        assert nearest.short == -slack * MI
    else:
        claim = outcome.claim
        assert claim.requests["memory"] // MI == int(memory.removesuffix("Gi")) * 1024 + 640
        assert claim.requests["cpu"] == 29500
        assert claim.requests["pods"] == 6
        assert claim.allocatable["memory"] - claim.requests["memory"] == slack * MI
        assert claim.relies_on_estimate == ("r5a.8xlarge",)


def test_an_open_pool_takes_the_next_larger_type() -> None:
    rules = [
        rule("karpenter.sh/capacity-type", "In", "on-demand"),
        rule("karpenter.k8s.aws/instance-family", "In", "r5a"),
    ]
    outcome = given(
        pod("trino", cpu="29", memory="240Gi"),
        pools=[pool("open", *rules, limits={})],
        types=real_types(),
        daemon_sets=DAEMONS,
    )
    assert outcome.claim.launch.instance_type == "r5a.12xlarge"
    assert outcome.claim.allocatable["memory"] == 360795 * MI


def test_an_override_of_the_types_capacity_makes_the_pod_fit() -> None:
    overlay = msgspec.convert(
        {
            "metadata": {"name": "measured"},
            "spec": {
                "requirements": [{"key": TYPE, "operator": "In", "values": ["r5a.8xlarge"]}],
                "capacity": {"memory": "253755Mi"},
            },
        },
        NodeOverlay,
    )
    types = apply(real_types(verified=False), PINNED, [overlay])
    outcome = given(pod("trino", cpu="29", memory="240Gi"), pools=[PINNED], types=types, daemon_sets=DAEMONS)
    assert outcome.claim.launch.instance_type == "r5a.8xlarge"
    short = given(pod("trino", cpu="29", memory="250Gi"), pools=[PINNED], types=types, daemon_sets=DAEMONS)
    assert "set by a NodeOverlay" in short.left("trino").message
