"""`shiplap explain provisioningrequest` on files: what a request has, lacks and waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import Shiplap
from tests.unit.cli.gangs_written import (
    ATOMIC,
    CHECK,
    arguments,
    consumer,
    pod_template,
    request,
    request_status,
)
from tests.unit.cli.planned_files import pod

NOW = ("--now", "2026-01-31T12:05:00Z")


def explained(shiplap: Shiplap, given: list[str], code: int = 0, name: str = "web/train") -> dict[str, Any]:
    return dict(shiplap.json("explain", "provisioningrequest", name, *given[1:], *NOW, code=code))


def test_a_request_that_waits_says_what_is_short_and_what_would_help(tmp_path: Path, shiplap: Shiplap) -> None:
    given = arguments(tmp_path, 1, pod_template(), request(3))
    found = explained(shiplap, given, 1)
    assert (found["request"], found["provisioningClass"], found["state"]) == ("web/train", ATOMIC, "waits")
    assert found["message"].startswith("1 of 3 members would have a place: short by at least 2 nodes in all")
    assert found["changes"][0]["changes"] == ["raise the nodes limit of pool default from 1 to 3"]
    assert [(each["template"], each["count"], each["requests"]["cpu"]) for each in found["podSets"]] == [
        ("worker", 3, "5")
    ]
    page = shiplap.page("explain", "provisioningrequest", "web/train", *given[1:], *NOW, code=1)
    assert "smallest change: raise the nodes limit of pool default from 1 to 3" in page
    assert "fails unless provisioned by 2026-02-07T12:05:00Z" in page
    assert "planned again" not in page


def test_a_request_with_room_says_what_is_launched(tmp_path: Path, shiplap: Shiplap) -> None:
    found = explained(shiplap, arguments(tmp_path, 9, pod_template(), request(3)))
    assert (found["state"], found["message"].partition(" for $")[0]) == ("planned", "3 pods with room, 3 new nodes")


def test_no_change_helps_a_check(tmp_path: Path, shiplap: Shiplap) -> None:
    for count in (1, 3):
        found = explained(shiplap, arguments(tmp_path, 9, pod_template(), request(count, of=CHECK)), 1)
        assert (found["state"], found["changes"]) == ("waits", [])
        assert f"0 of {count} pods have room on nodes that exist" in found["message"]


def test_booked_nodes_are_named_with_the_end_of_the_booking(tmp_path: Path, shiplap: Shiplap) -> None:
    booked = {
        **request(3),
        "status": request_status(("Provisioned", "True", "2026-01-31T12:00:00Z"), booked="0:n1=2,0:n2=1"),
    }
    taken = consumer()
    taken["spec"]["nodeName"] = "n1"
    given = arguments(tmp_path, 9, pod_template(), booked, taken, pod("alone", "5"))
    found = explained(shiplap, given)
    assert (found["state"], found["bookedUntil"], found["taken"]) == ("booked", "2026-01-31T12:10:00Z", 1)
    assert found["booked"] == [{"node": "n1", "pods": 1}, {"node": "n2", "pods": 1}]
    page = shiplap.page("explain", "provisioningrequest", "web/train", *given[1:], *NOW)
    assert "booked until 2026-01-31T12:10:00Z" in page
    assert "1 consumer with a node" in page


@pytest.mark.parametrize(
    ("kind", "state", "code"),
    [("Failed", "failed", 1), ("CapacityRevoked", "revoked", 1), ("BookingExpired", "expired", 0)],
)
def test_what_ended_a_request_is_its_state(tmp_path: Path, shiplap: Shiplap, kind: str, state: str, code: int) -> None:
    over = request_status(("Provisioned", "True", "2026-01-31T11:00:00Z"), (kind, "True", "2026-01-31T11:30:00Z"))
    found = explained(shiplap, arguments(tmp_path, 9, pod_template(), {**request(), "status": over}), code)
    assert (found["state"], found["message"], found["booked"]) == (state, f"{kind} it is", [])
    assert [(each["type"], each["since"]) for each in found["conditions"]] == [
        ("Provisioned", "2026-01-31T11:00:00Z"),
        (kind, "2026-01-31T11:30:00Z"),
    ]


def test_another_controllers_request_is_left_alone(tmp_path: Path, shiplap: Shiplap) -> None:
    found = explained(shiplap, arguments(tmp_path, 9, request(of="queued-provisioning.gke.io")))
    assert (found["state"], found["message"]) == ("left alone", "its class is served by another controller")


def test_each_of_two_requests_has_its_own_account(tmp_path: Path, shiplap: Shiplap) -> None:
    given = arguments(tmp_path, 3, pod_template(), request(2), request(2, name="tune"))
    states = {
        name: explained(shiplap, given, code, name)["state"] for name, code in (("web/train", 0), ("web/tune", 1))
    }
    assert states == {"web/train": "planned", "web/tune": "waits"}


def test_a_name_that_is_not_there_has_near_ones(tmp_path: Path, shiplap: Shiplap) -> None:
    given = arguments(tmp_path, 9, pod_template(), request())
    told = shiplap.error("explain", "provisioningrequest", "web/trian", *given[1:])
    assert "there is no ProvisioningRequest web/trian; did you mean web/train?" in told
    assert "there is no ProvisioningRequest default/other; there are 1" in shiplap.error(
        "explain", "provisioningrequest", "other", *given[1:]
    )
