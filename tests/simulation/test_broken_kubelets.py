"""A kubelet that reports next to nothing, in a Region of two clusters that share what is learned."""

from __future__ import annotations

import msgspec
import pytest

from shiplap_lab.faults.fault import Fault
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.campaign import run_seed

pytestmark = pytest.mark.thorough

BROKEN = Fault("broken-node", 0, 10, "left", 1.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("amount", [0.3, 1.0])
def test_broken_nodes_of_a_cluster_leave_no_pod_of_either_waiting(seed: int, amount: float) -> None:
    outcome = run_seed(load("two-clusters"), seed, faults=(msgspec.structs.replace(BROKEN, amount=amount),))
    assert outcome.violations == ()
    assert outcome.settled_at >= 0
    broken = [fact for fact in map(msgspec.json.decode, outcome.lines) if fact["what"] == "is broken"]
    assert len(broken) == outcome.effects.get("broken-node", 0)
    assert broken or amount < 1
