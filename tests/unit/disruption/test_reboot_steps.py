"""The steps of a reboot, its memory, and what makes one worth a try."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.disruption.repair.reboots import (
    LEAVE_S,
    REMEMBERED_S,
    RETURN_S,
    SEND_S,
    RebootStep,
    asked,
    ended,
    in_words,
    is_left_over,
    may_reboot,
    next_step,
    recent,
)
from shiplap.kubernetes.objects import Node, NodeSystemInfo
from shiplap.kubernetes.taints import REBOOTING
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, Reboots
from tests.builders.claims import running_claim
from tests.builders.nodes import node

NOW = 1_700_000_000.0


def booted(boot: str = "one", *, fenced: bool = False, initialized: bool = True) -> Node:
    taints = (REBOOTING,) if fenced else ()
    made = node("node-a", pool="general", initialized=initialized, ready=None, taints=taints)
    return replace(made, status=replace(made.status, node_info=NodeSystemInfo(boot)))


def rebooting(*, at: float = NOW, sent_at: float = 0.0, boot: str = "", **fields: Any) -> NodeClaim:
    known = {"reboots_at": (at,), "reboot_cause": "XID48", "reboot_sent_at": sent_at, "reboot_boot_id": boot}
    return running_claim("a", **known | fields)


FENCED = booted(fenced=True, initialized=False)


@pytest.mark.parametrize(
    ("claim", "seen", "after_s", "must_leave", "step"),
    [
        (rebooting(), booted(), 0.0, True, RebootStep.FENCE),
        (rebooting(), booted(fenced=True), 0.0, True, RebootStep.FENCE),
        (rebooting(), booted(initialized=False), 0.0, True, RebootStep.FENCE),
        (rebooting(), FENCED, 0.0, True, RebootStep.EMPTY),
        (rebooting(), FENCED, 0.0, False, RebootStep.SEND),
        (rebooting(), FENCED, LEAVE_S - 1, True, RebootStep.EMPTY),
        (rebooting(), FENCED, LEAVE_S, True, RebootStep.SEND),
        (rebooting(), FENCED, LEAVE_S + SEND_S - 1, True, RebootStep.SEND),
        (rebooting(), FENCED, LEAVE_S + SEND_S, False, RebootStep.REPLACE),
        (rebooting(), booted("", fenced=True, initialized=False), 0.0, False, RebootStep.REPLACE),
    ],
)
def test_pods_leave_before_ec2_is_asked(
    claim: NodeClaim, seen: Node, after_s: float, step: RebootStep, *, must_leave: bool
) -> None:
    assert next_step(claim, seen, NOW + after_s, missing="", must_leave=must_leave) is step


@pytest.mark.parametrize(
    ("seen", "after_s", "missing", "step"),
    [
        (FENCED, 1.0, "NodeNotReady", RebootStep.WAIT),
        (FENCED, 1.0, "", RebootStep.WAIT),
        (FENCED, RETURN_S - 1, "", RebootStep.WAIT),
        (FENCED, RETURN_S, "", RebootStep.REPLACE),
        (booted("", fenced=True, initialized=False), 1.0, "", RebootStep.WAIT),
        (booted("two", fenced=True, initialized=False), 1.0, "NodeNotReady", RebootStep.OPEN),
        (booted("two", initialized=False), 1.0, "NodeNotReady", RebootStep.WAIT),
        (booted("two", initialized=False), RETURN_S, "ResourceNotRegistered", RebootStep.REPLACE),
        (booted("two", initialized=False), RETURN_S, "", RebootStep.FINISH),
    ],
)
def test_a_node_is_back_with_another_boot_and_all_it_had(
    seen: Node, after_s: float, missing: str, step: RebootStep
) -> None:
    claim = rebooting(at=NOW - 100, sent_at=NOW, boot="one")
    assert next_step(claim, seen, NOW + after_s, missing=missing, must_leave=True) is step


def test_two_reboots_within_a_day_are_all_that_a_node_gets() -> None:
    claim = running_claim("a", reboots_at=(NOW,))
    assert may_reboot(claim, booted(), NOW)
    twice = running_claim("a", reboots_at=(NOW, NOW + 60))
    assert not may_reboot(twice, booted(), NOW + 120)
    assert not may_reboot(twice, booted(), NOW + REMEMBERED_S - 1)
    assert may_reboot(twice, booted(), NOW + REMEMBERED_S)
    assert recent(twice.reboots, NOW + REMEMBERED_S) == (NOW + 60,)


@pytest.mark.parametrize(
    ("claim", "seen"),
    [
        (running_claim("a"), None),
        (running_claim("a"), booted("")),
        (running_claim("a", state=ClaimState.REGISTERED), booted()),
        (running_claim("a", state=ClaimState.DISRUPTING), booted()),
        (running_claim("a", state=ClaimState.DRAINING), booted()),
        (rebooting(), booted()),
    ],
)
def test_a_node_that_was_never_in_service_or_shows_no_boot_is_not_rebooted(claim: NodeClaim, seen: Node | None) -> None:
    assert not may_reboot(claim, seen, NOW)


def test_what_is_remembered_is_bounded_by_a_day() -> None:
    old = running_claim("a", reboots_at=(NOW - REMEMBERED_S, NOW - 60), reboot_ended_at=NOW - 30)
    begun = asked(old, "XID48", NOW)
    assert begun == Reboots((NOW - 60, NOW), "XID48")
    assert ended(begun, NOW + 90) == Reboots((NOW - 60, NOW), ended_at=NOW + 90)


def test_only_a_node_in_service_is_rebooting() -> None:
    assert rebooting().is_rebooting
    assert not rebooting(state=ClaimState.DRAINING).is_rebooting
    assert not running_claim("a", reboots_at=(NOW,)).is_rebooting


def test_a_forgotten_reboot_shows_by_its_node() -> None:
    claim = running_claim("a")
    assert is_left_over(claim, FENCED)
    assert is_left_over(claim, booted(fenced=True))
    assert is_left_over(claim, booted(initialized=False))
    assert not is_left_over(claim, booted())
    assert not is_left_over(rebooting(), FENCED)
    assert not is_left_over(running_claim("a", state=ClaimState.REGISTERED), booted(initialized=False))


def test_the_words_have_the_number_the_cause_and_the_end() -> None:
    assert in_words(rebooting()) == (
        "is rebooted since 2023-11-14T22:13:20Z (reboot 1 of 2 a day): XID48; it is replaced unless it is being "
        "rebooted by 2023-11-14T22:23:20Z"
    )
    again = rebooting(reboots_at=(NOW - 3600, NOW - 60), sent_at=NOW)
    assert "(reboot 2 of 2 a day)" in in_words(again)
    assert in_words(again).endswith("unless it is back by 2023-11-14T22:33:20Z")
