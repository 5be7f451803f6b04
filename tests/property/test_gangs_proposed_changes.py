"""A change that is proposed for a gang lets it start, and no weaker one of its kind does: tried as its words say."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan, solve
from shiplap_cli.accounts.smallest_changes import ChangeProposal, change_proposals
from shiplap_cli.policy_views import planned_together
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.property.drawn_edits import edited, edits, weaker
from tests.strategies import sampled_from
from tests.thoroughness import draws
from tests.unit.gangs.gang_cases import gang, homes
from tests.unit.gangs.gang_cases import snapshot as cluster_of

GPU = "nvidia.com/gpu"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
TYPES = (
    fake_type("small", cpu="4", memory="8Gi", price=0.4),
    fake_type("large", cpu="16", memory="64Gi", price=1.6),
    fake_type("eight", cpu="32", memory="64Gi", extra={GPU: "8"}, price=8.0),
)
KEY = "default/train-0"


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """A gang, often with another before it, and pods of no gang, before pools that are too small."""
    asked = {"cpu": draw(sampled_from(["1", "3", "7"])), "memory": draw(sampled_from(["1Gi", "9Gi"]))}
    wants = {"requests": {GPU: draw(sampled_from(["1", "8"]))}} if draw(st.booleans()) else {}
    size, ports = draw(st.integers(2, 6)), draw(sampled_from([[], [80]]))
    waiting = gang("train", size, draw(st.integers(2, size)), ports=ports, **asked, **wants)
    if draw(st.booleans()):
        waiting += gang("first", 2, ports=ports, priority=5, **asked, **wants)
    if draw(st.booleans()):
        waiting += pods(2, "web", cpu="3")
    limit = st.fixed_dictionaries(
        {},
        optional={"cpu": sampled_from(["5", "17", "60"]), GPU: sampled_from(["0", "8"]), "nodes": sampled_from("12")},
    )
    pools = [
        pool(f"p{number}", taints=draw(sampled_from([[], [], [TAINT]])), limits=draw(limit))
        for number in range(draw(st.integers(1, 2)))
    ]
    return cluster_of(*waiting, pools=pools, types=TYPES)


def proposals(snapshot: Snapshot, key: str = KEY) -> tuple[ChangeProposal, ...]:
    return change_proposals(snapshot, *solve(snapshot), key, planned_together(snapshot, key))


@settings(derandomize=True, deadline=None, max_examples=draws(60), suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_what_is_proposed_lets_a_gang_start_and_nothing_weaker_does(snapshot: Snapshot) -> None:
    made, together = plan(snapshot), planned_together(snapshot, KEY)
    assert together is not None
    if together.is_served(made):
        return

    def suffices(wanted: list[tuple[str, ...]]) -> bool:
        """True if the whole gang has places then, and nobody has lost one."""
        then = plan(edited(snapshot, wanted))
        return together.is_served(then) and set(homes(made)) <= {*homes(then)}

    for proposal in proposals(snapshot):
        wanted = [edit for text in proposal.changes for edit in edits(text)]
        if any(edit[0] != "limit" for edit in wanted) or any(not edits(text) for text in proposal.changes):
            continue  # changes of the members themselves are tried for single pods
        assert suffices(wanted), proposal
        for number, edit in enumerate(wanted):
            others = [*wanted[:number], *wanted[number + 1 :]]
            assert not suffices(others), (proposal, "without", edit)
            less = weaker(edit)
            assert less is None or not suffices([*others, less]), (proposal, "with", less)


def gpu_gang(name: str = "train", **fields: object) -> Snapshot:
    waiting = gang(name, 4, requests={GPU: "8"}, ports=[])
    return cluster_of(*waiting, types=TYPES, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "changes"),
    [
        ({GPU: "16"}, ("raise the nvidia.com/gpu limit of pool train from 16 to 32",)),
        ({"nodes": "1"}, ("raise the nodes limit of pool train from 1 to 4",)),
        (
            {GPU: "8", "cpu": "64"},
            (
                "raise the nvidia.com/gpu limit of pool train from 8 to 32",
                "raise the cpu limit of pool train from 64 to 128",
            ),
        ),
    ],
)
def test_the_change_is_for_the_whole_gang(limits: dict[str, str], changes: tuple[str, ...]) -> None:
    first = proposals(gpu_gang(pools=[pool("train", limits=limits)]))[0]
    assert sorted(part for text in first.changes for part in text.split(", ")) == sorted(changes)
    assert first.place.endswith("$8.0000/h, with 4 that start together on 4 nodes for $32.0000/h")


def test_every_member_tolerates_what_keeps_them_off() -> None:
    first = proposals(gpu_gang(pools=[pool("train", taints=[TAINT])]))[0]
    assert first.changes == ("tolerate dedicated=x:NoSchedule",)


def test_a_gang_with_a_problem_is_helped_by_no_change() -> None:
    waiting = gang("train", 3, 4, requests={GPU: "8"}, ports=[])
    assert proposals(cluster_of(*waiting, types=TYPES, pools=[pool("train", limits={GPU: "16"})])) == ()
