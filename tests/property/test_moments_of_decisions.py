"""Until when a decision on disruption holds: no condition on the time changes before, whichever part of it asks."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from tests.conformance.disruptions import holds_until
from tests.decision_moments import at, snapshots, unnamed_moments


@given(snapshots())
def test_each_moment_at_which_a_comparison_with_the_time_comes_out_otherwise_is_named(
    snapshot: DisruptionSnapshot,
) -> None:
    """A cause whose moment nobody names is found here, in plans, too."""
    assert unnamed_moments(snapshot) == []


@given(snapshots(), st.floats(0.0, 1.0))
def test_a_decision_before_its_moment_equals_the_decision_now(snapshot: DisruptionSnapshot, part: float) -> None:
    now, until = snapshot.scheduling.now, holds_until(snapshot)
    one, other = decide(snapshot), decide(at(snapshot, now + part * max(until - now, 0.0)))
    event(f"{len(one.commands)} commands")
    assert [(item.nodes, item.reason, item.method) for item in one.commands] == [
        (item.nodes, item.reason, item.method) for item in other.commands
    ]
    assert (one.drifted, one.overdue, one.rehearsed, one.kept_awake) == (
        other.drifted,
        other.overdue,
        other.rehearsed,
        other.kept_awake,
    )
    assert [item.node for item in one.blocked] == [item.node for item in other.blocked]
