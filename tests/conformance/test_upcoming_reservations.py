"""Reservations that have not started: nothing is launched into them, and who waits is told for which and until when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes import labels
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2
from tests.conformance.given import given
from tests.conformance.sold_reservations import held, sold

AT = 1_700_000_000.0
RESERVED_ONLY = rule(labels.CAPACITY_TYPE, "In", "reserved")


def upcoming(name: str, starts_at: float, *, state: str = "scheduled", zone: str = Z1) -> Offering:
    offering = held(name, 0, zone=zone, kind="capacity-block")
    return msgspec.structs.replace(offering, available=False, reservation_state=state, starts_at=starts_at)


def told(*reserved: Offering, cpu: str = "1", selector: dict[str, str] | None = None, **fields: Any) -> str:
    pools = [pool("training", RESERVED_ONLY)]
    plan = given(pod(cpu=cpu, selector=selector or {}), pools=pools, types=[sold("only", *reserved)], **fields)
    assert not plan.claims
    return plan.plan.unschedulable[0].message


def waits_for(name: str, when: str, state: str = "scheduled") -> str:
    return f"waits for capacity reservation {name} ({state}), which {when}"


def test_the_first_to_start_is_named_with_its_time() -> None:
    message = told(upcoming("cr-2", AT), upcoming("cr-1", AT + 60, zone=Z2))
    assert waits_for("cr-2", "starts at 2023-11-14T22:13:20Z") in message
    assert "cr-1" not in message


def test_ties_break_by_name_and_a_start_that_is_not_known_comes_last() -> None:
    message = told(upcoming("cr-b", AT), upcoming("cr-a", AT), upcoming("cr-0", 0.0, state="assessing"))
    assert waits_for("cr-a", "starts at 2023-11-14T22:13:20Z") in message
    assert waits_for("cr-0", "has no start yet", "assessing") in told(upcoming("cr-0", 0.0, state="assessing"))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"selector": {labels.RESERVATION_ID: "cr-2"}}, "cr-2"),
        ({"selector": {labels.ZONE: Z2}}, "cr-2"),
        ({"selector": {labels.ZONE: Z1}}, "cr-1"),
        ({"cpu": "64"}, ""),
        ({"selector": {labels.INSTANCE_TYPE: "another"}}, ""),
    ],
)
def test_only_one_that_would_have_a_place_for_the_pod_is_waited_for(asked: dict[str, Any], named: str) -> None:
    message = told(upcoming("cr-1", AT), upcoming("cr-2", AT + 60, zone=Z2), **asked)
    assert (f"waits for capacity reservation {named}" in message) is bool(named)


def test_a_pod_that_may_use_something_else_does_not_wait() -> None:
    plan = given(pod(cpu="1"), types=[sold("only", upcoming("cr-1", AT))])
    assert plan.claim.launch.capacity_type == "on-demand"
    active = given(
        pod(cpu="1"),
        pools=[pool("training", RESERVED_ONLY)],
        types=[sold("only", upcoming("cr-1", AT), held("cr-2", 1))],
    )
    assert active.claim.launch.reservation_id == "cr-2"


def test_an_instance_that_is_left_counts_for_the_other_reservations_of_its_type() -> None:
    types = [sold("only", upcoming("cr-1", AT), held("cr-2", 1))]
    both = [pod(name, cpu="3") for name in ("a", "b")]
    plan = given(*both, pools=[pool("training", RESERVED_ONLY)], types=types, reserved_policy="Fallback")
    assert [claim.launch.reservation_id for claim in plan.claims] == ["cr-2"]
    assert len(plan.plan.unschedulable) == 1


def test_a_static_pool_says_what_it_waits_for() -> None:
    plan = given(pools=[pool("fixed", RESERVED_ONLY, replicas=2)], types=[sold("only", upcoming("cr-1", AT))])
    (fixed,) = plan.plan.static_pools
    assert (fixed.missing, len(plan.claims)) == (2, 0)
    assert waits_for("cr-1", "starts at 2023-11-14T22:13:20Z") in fixed.reason
