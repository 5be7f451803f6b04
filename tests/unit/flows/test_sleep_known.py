"""Tests a decision's knowledge of sleep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.policies.sleep_inputs import read_sleep
from shiplap.flows.policies.sleep_round import tell_doubts
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepState
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.fakes.state import FakeJoins
from shiplap_lab.policies.sleep_fakes import FakeSleep

OPENS = datetime(2026, 1, 5, 19, tzinfo=UTC).timestamp()
POOL = msgspec.convert(
    {"metadata": {"name": "dev"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "default"}}}}}, NodePool
)


class _Sleeping:
    """The ports that tell what sleeps, one hour into the window unless told otherwise."""

    def __init__(self, after_s: float = 3600.0, **ports: Any) -> None:
        self.faults, self.meter = Faults(), FakeMeter()
        unused = dict.fromkeys(("compute", "cluster", "state", "capacity", "catalog", "bus", "timers", "recorder"))
        known: dict[str, Any] = {
            "clock": FakeClock(OPENS + after_s),
            "meter": self.meter,
            "policy_ports": {"sleep": FakeSleep(self.faults)},
            "joins": FakeJoins(self.faults),
        }
        self.context = FlowContext(**(unused | known | ports))

    def read(self, joins: JoinHistory | None = None, **settings: Any) -> SleepState | None:
        known: dict[str, Any] = {
            "policies": chosen(SleepSettings(("dev",), 3, (WindowSettings("daily 19:00-07:00 UTC"),))),
            "manifests": Manifests(node_pools=(POOL,)),
        }
        return read_sleep(ClusterSettings(name="blue", region="eu-west-1", **known | settings), self.context, joins)

    @property
    def asked(self) -> list[str]:
        return [point for point in self.faults.points if point.startswith("before")]


@pytest.mark.parametrize(
    ("ports", "settings"),
    [({}, {"policies": ()}), ({"policy_ports": {}}, {}), ({}, {"disruption": DisruptionSettings(enabled=False)})],
    ids=["not wanted", "no store", "no disruption"],
)
def test_where_nothing_may_sleep_nothing_is_read(ports: dict[str, Any], settings: dict[str, Any]) -> None:
    sleeping = _Sleeping(**ports)
    assert sleeping.read(**settings) is None
    assert sleeping.faults.points == []


def test_outside_of_the_windows_nothing_is_read() -> None:
    sleeping = _Sleeping(-3600.0)
    state = sleeping.read()
    assert state is not None
    assert (state.scopes, sleeping.faults.points) == ((), [])


def test_in_a_window_notes_are_read_and_joins_unless_they_are_known() -> None:
    sleeping = _Sleeping()
    state = sleeping.read()
    assert state is not None
    assert [scope.name for scope in state.scopes] == ["dev"]
    assert sleeping.asked == ["before sleep.read", "before joins.read"]
    sleeping.faults.clear()
    assert sleeping.read(JoinHistory()) == state
    assert sleeping.asked == ["before sleep.read"]
    assert _Sleeping(joins=None).read() == state


@pytest.mark.parametrize("effect", ["sleep.read", "joins.read"])
def test_what_cannot_be_read_is_counted(effect: str) -> None:
    sleeping = _Sleeping()
    sleeping.faults.on("before", effect, StoreError("down"))
    assert sleeping.read() is not None
    assert sleeping.meter.counts == {"SleepNotesNotRead": 1}


@pytest.mark.parametrize(
    ("state", "counts"), [(None, {}), (SleepState(), {}), (SleepState(doubts=("x", "y")), {"SleepInDoubt": 2})]
)
def test_doubts_are_told_where_there_are_any(state: SleepState | None, counts: dict[str, float]) -> None:
    sleeping = _Sleeping()
    tell_doubts(ClusterSettings(name="blue", region="eu-west-1"), state, sleeping.context)
    assert sleeping.meter.counts == counts
