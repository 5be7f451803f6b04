"""The arrows between the states of a NodeClaim."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from shiplap.errors import ConditionFailed
from shiplap.manifests.nodeclaim import (
    FINAL,
    FORGET_AFTER_S,
    ClaimState,
    advanced_claim,
    check_new_claims,
    forgotten_at,
)
from tests.builders.claims import changes, node_claim, with_fields

S = ClaimState
ORDER = [
    S.PLANNED,
    S.LAUNCHING,
    S.LAUNCHED,
    S.REGISTERED,
    S.INITIALIZED,
    S.DISRUPTING,
    S.DRAINING,
    S.TERMINATING,
    S.GONE,
]


CLAIM = node_claim(cluster="blue", name="a", node_pool="p", node_class="c", state=S.PLANNED)


def allowed(start: ClaimState) -> set[ClaimState]:
    found = set()
    for to in ClaimState:
        try:
            advanced_claim(with_fields(CLAIM, state=start), to, {})
        except ConditionFailed:
            continue
        found.add(to)
    return found


def test_the_way_of_a_node_leads_from_planned_to_gone() -> None:
    for start, to in pairwise(ORDER):
        assert to in allowed(start), f"{start} → {to}"


def test_a_claim_fails_before_its_node_joins_and_when_its_instance_ends_before_that() -> None:
    failing = {start for start in ClaimState if S.FAILED in allowed(start)}
    assert failing == {S.PLANNED, S.LAUNCHING, S.LAUNCHED, S.TERMINATING}


def test_whatever_may_have_an_instance_can_be_ended_at_any_time() -> None:
    for start in ORDER[2:7]:
        assert S.TERMINATING in allowed(start)
        assert S.GONE in allowed(start)


def test_before_a_launch_nothing_is_terminated() -> None:
    assert allowed(S.PLANNED) == {S.PLANNED, S.LAUNCHING, S.FAILED}
    assert allowed(S.LAUNCHING) == {S.LAUNCHING, S.LAUNCHED, S.FAILED}


def test_nothing_follows_the_final_states() -> None:
    assert all(allowed(state) == set() for state in FINAL)


def test_only_a_disruption_that_is_given_up_and_a_drain_that_a_wake_ends_walk_back() -> None:
    back = {(start, to) for i, start in enumerate(ORDER) for to in ORDER[:i] if to in allowed(start)}
    assert back == {(S.DISRUPTING, S.INITIALIZED), (S.DRAINING, S.INITIALIZED)}


def test_a_move_raises_the_version_and_changes_what_it_is_told() -> None:
    after = advanced_claim(
        with_fields(CLAIM, version=4), S.LAUNCHING, changes(CLAIM, owner="request-1", changed_at=5.0)
    )
    assert after == with_fields(CLAIM, state=S.LAUNCHING, version=5, owner="request-1", changed_at=5.0)


def test_an_unknown_field_is_a_bug_of_the_caller() -> None:
    with pytest.raises(TypeError):
        advanced_claim(CLAIM, S.LAUNCHING, cast(Any, {"colour": "blue"}))


def test_ended_claims_are_forgotten_a_week_after_their_last_change() -> None:
    assert forgotten_at(with_fields(CLAIM, state=S.GONE, changed_at=100.0)) == 100.0 + FORGET_AFTER_S
    assert forgotten_at(with_fields(CLAIM, state=S.TERMINATING, changed_at=100.0)) is None


def test_what_can_be_committed_together() -> None:
    check_new_claims("blue", [])
    check_new_claims("blue", [CLAIM])
    with pytest.raises(ConditionFailed, match="one name"):
        check_new_claims("blue", [CLAIM, CLAIM])
    with pytest.raises(ConditionFailed, match="green"):
        check_new_claims("green", [CLAIM])
    with pytest.raises(ConditionFailed, match="Launching"):
        check_new_claims("blue", [with_fields(CLAIM, state=S.LAUNCHING)])
