"""More gangs than one decision has plans for: those behind many that are short are planned in turn."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.policies.gangs import whole_gangs
from shiplap.policies.gangs.whole_gangs import ITS_TURN
from shiplap.scheduling.planner import plan
from tests.conformance.given import NOW
from tests.rules import ZONE
from tests.unit.gangs.gang_cases import gang, homes, reasons, snapshot

SHARED_ZONE = {"kueue.x-k8s.io/podset-required-topology": ZONE}


def many(place: int, **fields: Any) -> list[list[Pod]]:
    """20 gangs, all different: one has room; the others lack a node, which only a plan tells."""

    def short(number: int) -> list[Pod]:
        kinds = (gang(f"g{number:02}", 4, memory=f"{number * 2 + kind + 1}Mi", **fields) for kind in range(2))
        return [pod for part, kind in zip((slice(0, 2), slice(2, 4)), kinds, strict=True) for pod in kind[part]]

    return [gang(f"g{number:02}", 2, **fields) if number == place else short(number) for number in range(20)]


@pytest.fixture(autouse=True)
def _four_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_gangs, "_MOST_PLANS", 4)


@pytest.mark.parametrize("place", [0, 1, 7, 19])
@pytest.mark.parametrize(("zones", "minutes"), [(False, 10), (True, 20)])
def test_each_gang_has_its_turn_and_is_told_when(place: int, minutes: int, *, zones: bool) -> None:
    fields = {"annotations": SHARED_ZONE} if zones else {}
    waiting = [pod for members in many(place, **fields) for pod in members]
    began = NOW // 60 * 60
    made = [plan(snapshot(*waiting, nodes=3, now=began + 60 * minute)) for minute in range(minutes)]
    served = [bool(homes(each)) for each in made]
    assert any(served)
    assert {name for each in made for name in homes(each)} == {f"g{place:02}-0", f"g{place:02}-1"}
    told = [reasons(each).get(f"g{place:02}-0", "") for each in made]
    assert all((ITS_TURN in why) is not has for why, has in zip(told, served, strict=True))
    assert len(set(told[: served.index(True)])) <= 1


def test_gangs_that_need_no_plan_have_no_turn() -> None:
    large = [pod for number in range(40) for pod in gang(f"a{number:02}", 9, memory=f"{number + 1}Mi")]
    waiting = [*large, *(pod for members in many(19) for pod in members)]
    made = [plan(snapshot(*waiting, nodes=3, now=NOW + 60 * minute)) for minute in range(10)]
    assert any(homes(each) for each in made)
