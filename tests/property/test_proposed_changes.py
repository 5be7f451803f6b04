"""A proposed change gives a pod its place, and no weaker one of its kind does: read from its words and tried."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan, solve
from shiplap_cli.accounts.smallest_changes import change_proposals
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.property.drawn_edits import edited, edits, weaker
from tests.strategies import sampled_from
from tests.thoroughness import draws

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE, GPU = "topology.kubernetes.io/zone", "nvidia.com/gpu"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """One pod that may be too large, keep off taints, or ask for a zone, before pools that may be full."""
    pods = [
        pod(
            "asker",
            cpu=draw(sampled_from(["1", "3900m", "5", "20"])),
            memory=draw(sampled_from(["1Gi", "9Gi", "70Gi"])),
            requests={GPU: "1"} if draw(st.booleans()) else {},
            selector=draw(sampled_from([{}, {}, {ZONE: Z2}, {ZONE: "nowhere"}])),
        )
    ]
    types = (
        fake_type("small", cpu="4", memory="8Gi", price=0.4),
        fake_type("large", cpu="16", memory="64Gi", price=1.6),
        fake_type("one", cpu="8", memory="16Gi", extra={GPU: "1"}, price=2.0),
        fake_type("four", cpu="32", memory="64Gi", extra={GPU: "4"}, price=8.0),
    )
    old = [node("old", pool="p0", cpu="1", pods="0", capacity={"cpu": "3", "memory": "5Gi", GPU: "2"})]
    limit = st.fixed_dictionaries(
        {},
        optional={
            "cpu": sampled_from(["2", "7", "100"]),
            "memory": sampled_from(["6Gi", "3000Mi", "500Gi"]),
            GPU: sampled_from(["2", "3"]),
            "nodes": sampled_from(["1", "5"]),
        },
    )
    pools = [
        pool(
            f"p{number}",
            *draw(sampled_from([[], [rule(ZONE, "In", Z1)]])),
            *draw(sampled_from([[], [rule(INSTANCE_TYPE, "In", "small", "one")]])),
            taints=draw(sampled_from([[], [TAINT]])),
            limits=draw(limit),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    return case.snapshot_of(pods, old, pools=pools, types=types)


def places(snapshot: Snapshot) -> bool:
    return not plan(snapshot).unschedulable


@settings(derandomize=True, deadline=None, max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_what_is_proposed_works_and_nothing_weaker_does(snapshot: Snapshot) -> None:
    if places(snapshot):
        return
    for proposal in change_proposals(snapshot, *solve(snapshot), "default/asker"):
        wanted = [edit for text in proposal.changes for edit in edits(text)]
        if not wanted or any(not edits(text) for text in proposal.changes):
            continue  # words that this test cannot carry out
        assert places(edited(snapshot, wanted)), proposal
        for number, edit in enumerate(wanted):
            others = [*wanted[:number], *wanted[number + 1 :]]
            assert not places(edited(snapshot, others)), (proposal, "without", edit)
            less = weaker(edit)
            assert less is None or not places(edited(snapshot, [*others, less])), (proposal, "with", less)


def test_the_words_can_be_read() -> None:
    """So that the property is about something."""
    assert edits("raise the cpu limit of pool p from 2 to 4, raise the memory limit of pool p from 1Gi to 2Gi") == [
        ("limit", "cpu", "p", "2", "4"),
        ("limit", "memory", "p", "1Gi", "2Gi"),
    ]
    assert edits("request 3900m cpu instead of 4") == [("request", "cpu", "3900m", "4")]
    assert edits("allow a in requirement k, b in requirement j of pool p") == []
    assert edits("allow large in requirement k of pool p") == [("allow", "large", "k", "p")]
    assert edits("tolerate dedicated=x:NoSchedule") == [("tolerate", "dedicated", "x", "NoSchedule")]
