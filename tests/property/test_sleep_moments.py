"""Until when a decision on disruption holds in a cluster of which a part sleeps."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_state import SleepingScope, SleepState
from tests.decision_moments import NIGHT, snapshots, unnamed_moments


@st.composite
def sleep_states(draw: st.DrawFn) -> SleepState:
    wakes_at, rehearsal = int(NIGHT) + draw(st.integers(0, 3600)), draw(st.booleans())
    scope = SleepingScope("NodePool", "default", int(NIGHT) - 600, wakes_at + 60, wakes_at, rehearsal)
    return SleepState(armed=("default",), scopes=(scope,), nodes_left=3)


@given(snapshots(), sleep_states())
def test_each_moment_at_which_a_comparison_with_the_time_comes_out_otherwise_is_named(
    snapshot: DisruptionSnapshot, state: SleepState
) -> None:
    asleep = replace(snapshot, scheduling=replace(snapshot.scheduling, policies=(SleepInput(state),)))
    event(f"{len(decide(asleep).commands)} commands")
    assert unnamed_moments(asleep) == []
