"""Evictions that an invocation still asks for once a PodDisruptionBudget has refused one: those of unlike pods."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.flows.lifecycle.drain import MOST_EVICTIONS, Drains
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.claims import node_claim
from tests.builders.pods import owned_by, pod
from tests.integration.flows.stage import Stage

DRAINING = node_claim(name="a", state=ClaimState.DRAINING, instance_id="i-a")
URGENT = node_claim(name="b", state=ClaimState.DRAINING, instance_id="i-b", deadline_at=1.0)
READY, NOT_READY = (
    {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]} for status in ("True", "False")
)


def of(owner: str, name: str = "p", status: dict[str, Any] = READY, **fields: Any) -> Pod:
    """A pod of a ReplicaSet, or of none."""
    return pod(f"{owner}-{name}", status=status, metadata=owned_by("ReplicaSet", owner) if owner else None, **fields)


def drains_that_refused(*refused: Pod) -> Drains:
    stage = Stage()
    drains = Drains(stage.settings, stage.context)
    for each in refused:
        drains.refused(each)
    return drains


@pytest.mark.parametrize(
    ("refused", "asked", "may"),
    [
        (of("web", "1"), of("web", "2"), False),
        (of("web", "1"), of("web", "2", NOT_READY), True),
        (of("web", "1", NOT_READY), of("web", "2"), True),
        (of("web", "1", NOT_READY), of("web", "2", NOT_READY), False),
        (of("web"), of("db"), True),
        (of("web", namespace="one"), of("web", namespace="two"), True),
        (of("", "1"), of("", "1"), False),
        (of("", "1"), of("", "2"), True),
    ],
    ids=["alike", "unready", "ready", "both unready", "other owner", "other namespace", "itself", "without owner"],
)
def test_a_budget_that_refuses_a_pod_refuses_those_like_it(refused: Pod, asked: Pod, may: bool) -> None:
    """A budget may let pods go that are not ready while it keeps those that are, and the other way round."""
    assert drains_that_refused(refused).may_evict(DRAINING, asked) is may


def test_a_refusal_leaves_the_others_their_evictions() -> None:
    """What is not asked for takes none of those that an invocation has."""
    drains = drains_that_refused(of("web"))

    assert not any(drains.may_evict(DRAINING, of("web", str(place))) for place in range(2 * MOST_EVICTIONS))
    allowed = [drains.may_evict(DRAINING, of("db", str(place))) for place in range(MOST_EVICTIONS + 1)]
    assert allowed == [True] * MOST_EVICTIONS + [False]


def test_a_deadline_asks_whatever_was_refused_and_takes_no_eviction_of_others() -> None:
    drains = drains_that_refused(of("web"))

    assert all(drains.may_evict(URGENT, of("web", str(place))) for place in range(2 * MOST_EVICTIONS))
    assert drains.may_evict(DRAINING, of("db"))
