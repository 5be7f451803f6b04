"""Sleep beside nodes that leave for other reasons, of other NodePools: what protects pods counts all of them."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.sleep.sleep_input import SleepInput
from tests.builders.pools import pool
from tests.conformance.disruptions import BOTH, disrupted, pdb, small
from tests.conformance.sleep_cases import owned, scope, state


@pytest.mark.parametrize("why", [{"deleting": True}, {"state": ClaimState.DRAINING}], ids=["deleted", "drained"])
@pytest.mark.parametrize(("allowed", "leaves"), [(1, False), (2, True)])
def test_a_sleeping_node_counts_pods_that_leave_with_others_against_their_budget(
    why: dict[str, Any], allowed: int, leaves: bool
) -> None:
    """A PodDisruptionBudget counts them until they have gone, whatever makes them go."""
    web = {"metadata": {"labels": {"app": "web"}}}
    verdict = disrupted(
        small("going", pool="other", **why),
        small("a"),
        pods=[owned("p", "going", **web), owned("q", "a", **web)],
        pools=[pool("default", budgets=[{"nodes": "100%"}]), pool("other", budgets=[{"nodes": "1"}])],
        types=BOTH,
        budgets=[pdb("web", allowed, app="web")],
        policies=(SleepInput(state(scope(), scope("other"))),),
    )
    assert verdict.removed == ({"a"} if leaves else set())
