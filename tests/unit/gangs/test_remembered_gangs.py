"""A gang that was short is tried again when what it needs may have come, or after a pause that grows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, convert
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from shiplap.policies.gangs import whole_gangs
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.memory.gang_tries import GANGS, LONGEST_PAUSE_S, MOST_REMEMBERED, GangTries
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.given import NOW
from tests.unit.gangs.gang_cases import TYPES, gang, homes, reasons, snapshot

TRAIN = gang("train", 4)
GONE = (fake_type("small", cpu="500m", price=1.0),)


def decided(*waiting: Pod, after_s: float = 0.0, tries: tuple[GangTries, ...] = (), **fields: Any) -> Plan:
    given = {"nodes": 3, **fields}
    return plan(snapshot(*waiting, known=KnownGangs(set_aside_s=1800.0, tries=tries), now=NOW + after_s, **given))


def tries(made: Plan) -> tuple[GangTries, ...]:
    assert made.remembered is not UNSET
    return convert(made.remembered[GANGS], tuple[GangTries, ...])


def tried(*waiting: Pod, **fields: Any) -> tuple[GangTries, ...]:
    return tries(decided(*(waiting or TRAIN), **fields))


def test_what_was_short_is_remembered_and_said_with_the_next_try() -> None:
    made = decided(*TRAIN)
    (found,) = tries(made)
    assert (found.gang, found.number, found.at) == ("default/train", 1, NOW)
    assert "short by at least 1 node in all under the limit of NodePool default" in found.short
    assert reasons(made)["train-0"].endswith("; tried once, next at 2027-01-15T08:00:50Z or when there is more room")
    again = decided(*TRAIN, after_s=45.0, tries=(found,))
    assert reasons(again) == reasons(made)
    assert tries(again) == (found,)


def test_pauses_grow_to_five_minutes() -> None:
    known, at, pauses = tried(), 0.0, []
    while len(pauses) < 12:
        pauses.append(known[0].next_at - NOW - at)
        at = known[0].next_at - NOW
        known = tried(after_s=at, tries=known)
    assert pauses == [50.0, 100.0, 200.0, *[LONGEST_PAUSE_S] * 9]
    assert known[0].number == 13
    assert "tried 13 times" in known[0].text


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": 4},
        {"nodes": 0},
        {"nodes": 0, "pools": [pool(limits={"cpu": "8"})]},
        {"existing": [node("free", cpu="2")]},
    ],
    ids=["a higher limit", "no limit", "another limit", "a node"],
)
def test_a_gang_is_tried_as_soon_as_it_may_have_room(fields: dict[str, Any]) -> None:
    assert homes(decided(*TRAIN, after_s=5.0, tries=tried())) == []
    made = decided(*TRAIN, after_s=5.0, tries=tried(), **fields)
    assert len(homes(made)) + sum(len(place.pods) for place in made.existing_nodes) == 4
    assert tries(made) == tried()  # a launch may yet be refused, and then this is one more try


def test_a_gang_is_tried_as_soon_as_an_offering_returns() -> None:
    known = tried(nodes=0, types=GONE)
    assert known[0].number == 1
    assert len(homes(decided(*TRAIN, after_s=5.0, tries=known, nodes=0, types=TYPES))) == 4


def test_a_gang_that_asks_for_something_else_or_is_a_new_one_is_tried() -> None:
    for changed in (gang("train", 3), gang("train", 4, created="2027-01-15T07:00:00Z", cpu="500m", ports=[])):
        assert len(homes(decided(*changed, after_s=5.0, tries=tried()))) == len(changed)
    (renewed,) = tried(*gang("train", 4, created="2027-01-15T07:00:00Z"), after_s=5.0, tries=tried())
    assert renewed.number == 1


def test_room_that_was_taken_and_is_free_again_is_noticed() -> None:
    free, waiting = [node(f"n{place}", cpu="2") for place in range(2)], gang("train", 3)
    first = tried(*waiting, existing=free, nodes=0, types=GONE)
    assert tried(*waiting, after_s=5.0, tries=first, existing=free, nodes=0, types=GONE) == first
    less = tried(*waiting, after_s=5.0, tries=first, existing=free[:1], nodes=0, types=GONE)
    assert [item.number for item in less] == [1]
    again = tried(*waiting, after_s=9.0, tries=less, existing=free, nodes=0, types=GONE)
    assert [item.number for item in again] == [2]


def test_gangs_that_rest_leave_the_plans_to_those_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_gangs, "_MOST_PLANS", 4)
    short = [pod for number in range(8) for pod in _mixed(f"g{number}", number)]
    waiting, known, served = [*short, *gang("last", 2)], (), list[int]()
    for number in range(9):  # all in one minute, in which the turn is not theirs
        made = decided(*waiting, after_s=5.0 * number, tries=known)
        known = tries(made)
        served.append(len(homes(made)))
        assert homes(plan(snapshot(*waiting, nodes=3, now=NOW + 5.0 * number))) == []
    assert max(served) == 2
    assert all(item.number == 1 for item in known)


def _mixed(name: str, number: int) -> list[Pod]:
    kinds = [gang(name, 4, memory=f"{number * 2 + kind + 1}Mi") for kind in range(2)]
    return [*kinds[0][:2], *kinds[1][2:]]


def test_what_a_resting_gang_lacks_stays_set_aside_from_gangs_behind_it_alone() -> None:
    old = "2027-01-15T07:00:00Z"
    large, small = gang("large", 4, created=old), gang("small", 2, created="2027-01-15T07:00:01Z")
    early = gang("early", 2, created="2027-01-15T06:00:00Z")
    busy = [node(f"n{place}", cpu="0", pool="default") for place in range(2)]
    given = {"existing": busy, "nodes": 5}
    known = tried(*large, *small, **given)
    assert [item.gang for item in known] == ["default/large"]
    assert known[0].lacks
    held = decided(*large, *small, after_s=5.0, tries=known, **given)
    assert homes(held) == []
    assert "set aside for gang default/large" in reasons(held)["small-0"]
    assert homes(decided(*early, *large, after_s=5.0, tries=known, **given)) == ["early-0", "early-1"]


def test_what_a_gang_has_lost_is_tried_in_each_decision() -> None:
    home = node("home", cpu="1", pool="default")
    placed = [replace(each, spec=replace(each.spec, node_name="home")) for each in TRAIN[:1]]
    given = {"existing": [home], "nodes": 1}
    known = tried(*placed, *TRAIN[1:], **given)
    assert [item.number for item in tried(*placed, *TRAIN[1:], after_s=5.0, tries=known, **given)] == [2]


def test_tries_of_the_future_hold_nothing_back() -> None:
    (known,) = tried()
    assert tried(tries=(replace(known, at=NOW + 3600),))[0].at == NOW


def test_so_many_gangs_are_remembered_and_those_behind_are_tried_all_the_same() -> None:
    waiting = [
        each for number in range(MOST_REMEMBERED + 5) for each in gang(f"g{number:03}", 4, memory=f"{number + 1}Mi")
    ]
    made = decided(*waiting)
    assert [item.gang for item in tries(made)] == [f"default/g{number:03}" for number in range(MOST_REMEMBERED)]
    later = tried(*waiting, *gang("a", 4), after_s=5.0, tries=tries(made))
    assert (len(later), later[0].gang) == (MOST_REMEMBERED, "default/a")
    assert len(homes(decided(*waiting, *gang("z", 3), after_s=5.0, tries=tries(made)))) == 3


def test_a_long_reason_is_cut() -> None:
    far = gang("train", 4, selector={f"example.com/{'a' * 50}{number}": "x" for number in range(9)})
    (known,) = tried(*far)
    assert len(known.short) == 401


def test_without_a_memory_nothing_is_said_of_tries() -> None:
    made = plan(snapshot(*TRAIN, nodes=3))
    assert made.remembered is UNSET
    assert "tried" not in reasons(made)["train-0"]
    assert homes(decided(pod("web", "1"), *TRAIN, after_s=5.0, tries=tried())) == ["web"]
