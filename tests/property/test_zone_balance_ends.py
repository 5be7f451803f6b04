"""Zone balance comes to an end on drawn clusters: each command lowers what is out of balance, and nothing undoes it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.disruption.commands import DisruptionProposal, Method
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from tests.conformance.catalogues import Z1, Z2, Z3
from tests.conformance.disruptions import Standing, disrupted, small
from tests.conformance.zone_spreads import TYPE, balanced, on, spread

APPS = ("web", "api")
MOST_COMMANDS = 40


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Standing], list[Pod]]:
    """Up to six nodes in three zones with pods of two apps, most in two zones."""
    nodes, pods = [], []
    for number in range(draw(st.integers(2, 6))):
        name = f"n{number}"
        nodes.append(small(name, zone=draw(st.sampled_from((Z1, Z1, Z2, Z2, Z3)))))
        for app in APPS:
            rule = spread(app, skew=draw(st.integers(1, 2)))
            pods += on(name, draw(st.integers(0, 2)), app, rule, cpu=draw(st.sampled_from(("500m", "900m"))))
    return nodes, pods


def weights(nodes: list[Standing], pods: list[Pod]) -> dict[str, int]:
    zones = {item.node.metadata.name: item.node.metadata.labels[labels.ZONE] for item in nodes}
    return {
        app: sum(
            number**2
            for number in Counter(
                zones[pod.spec.node_name] for pod in pods if pod.metadata.labels["app"] == app
            ).values()
        )
        for app in APPS
    }


def carried_out(
    command: DisruptionProposal, nodes: list[Standing], pods: list[Pod], number: int
) -> tuple[list[Standing], list[Pod]]:
    """The cluster behind a command, each pod where the plan has it."""
    homes = {pod.name: place.name for place in command.placements for pod in place.pods}
    left = [item for item in nodes if item.node.metadata.name not in command.nodes]
    for place, claim in enumerate(command.replacements):
        name = f"r{number}-{place}"
        homes |= {pod.name: name for pod in claim.pods}
        left.append(small(name, zone=claim.launch.zone))
    moved = [
        replace(pod, spec=replace(pod.spec, node_name=homes[pod.metadata.name]))
        if pod.spec.node_name in command.nodes
        else pod
        for pod in pods
    ]
    return left, moved


@pytest.mark.parametrize("most", ["2", "10"])
@settings(max_examples=40)
@given(cluster=clusters())
def test_it_ends_and_then_there_is_nothing_to_do(most: str, cluster: tuple[list[Standing], list[Pod]]) -> None:
    nodes, pods = cluster
    for number in range(MOST_COMMANDS):
        decision = disrupted(*nodes, pods=pods, pools=[balanced(most)], types=[TYPE])
        if not decision.commands:
            return
        for command in decision.commands:
            before = weights(nodes, pods)
            nodes, pods = carried_out(command, nodes, pods, number)
            after = weights(nodes, pods)
            if command.method is Method.ZONE_BALANCE:
                assert command.moved <= int(most)
                assert command.savings_hourly >= 0
                assert sum(after.values()) < sum(before.values())
                assert all(after[app] <= before[app] for app in APPS)
    raise AssertionError(f"no end after {MOST_COMMANDS} decisions")
