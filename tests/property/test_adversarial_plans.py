"""Pods written to cost much: their plans keep every rule as well, however many attempts ran out.

Of topology constraints affinity and anti-affinity are judged: the judge of spreads tries few orders of binding, and
does not look at node affinity.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.scheduling.planner import plan
from tests.adversarial import drawn
from tests.checker import violations
from tests.thoroughness import draws
from tests.topology_checker import affinity_violations


@settings(derandomize=True, deadline=None, max_examples=draws(40), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 40), st.integers(30, 60))
def test_a_plan_keeps_every_rule(seed: int, pods: int) -> None:
    snapshot = drawn(seed, pods)
    result = plan(snapshot)
    assert violations(snapshot, result) == []
    assert affinity_violations(snapshot, result) == []
    placed = {entry for claim in result.node_claims for entry in claim.pods}
    placed |= {entry for place in result.existing_nodes for entry in place.pods}
    assert len(placed) + len(result.unschedulable) + len(result.ignored) == pods
