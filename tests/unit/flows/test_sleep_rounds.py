"""One round of sleep: what is noted before nodes leave, what may begin, and who is told of rehearsals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.errors import ClusterUnreachable, ConditionFailed, ShiplapError, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.policies.sleep_round import MOST_TOLD, SleepRound
from shiplap.kubernetes.objects import Event
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import NODE_POOL, SleepingScope, SleepNotes, SleepState, sleep_digest
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.policies.sleep_fakes import FakeSleep
from tests.builders.nodes import node

OPENS = int(datetime(2026, 1, 5, 19, tzinfo=UTC).timestamp())
ENDS = OPENS + 12 * 3600
SETTINGS = SleepSettings(("dev",), 3, (WindowSettings("daily 19:00-07:00 UTC"),))
POOL = msgspec.convert(
    {"metadata": {"name": "dev"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "default"}}}}}, NodePool
)
DIGEST = sleep_digest(SETTINGS, [POOL])
ASLEEP = SleepState(("dev",), (SleepingScope(NODE_POOL, "dev", OPENS, ENDS, ENDS - 360),), 3)
REHEARSED = SleepNotes(DIGEST, {"0": OPENS - 1})


class _Cluster:
    """Keeps the events that it is told to publish."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.events: list[Event] = []

    def publish(self, event: Event) -> None:
        with self._faults.effect("cluster.publish"):
            self.events.append(event)

    @property
    def told(self) -> list[str]:
        return [event.involved_object.name for event in self.events]


class _Night:
    """The cluster `blue`, whose NodePool `dev` may sleep."""

    def __init__(self, notes: SleepNotes | None = None, sleep: SleepSettings | None = SETTINGS, **known: Any) -> None:
        self.faults, self.meter, self.clock = Faults(), FakeMeter(), FakeClock(OPENS + 1200.0)
        self.store, self.cluster = FakeSleep(self.faults), _Cluster(self.faults)
        if notes is not None:
            self.store.save("blue", notes, OPENS)
        self.faults.clear()
        unused = dict.fromkeys(("compute", "state", "capacity", "catalog", "bus", "timers", "recorder"))
        ports: dict[str, Any] = {"clock": self.clock, "cluster": self.cluster, "meter": self.meter}
        ports["policy_ports"] = {"sleep": self.store}
        manifests = Manifests(node_pools=(POOL,))
        settings = ClusterSettings(
            name="blue", region="eu-west-1", policies=chosen(*(() if sleep is None else (sleep,))), manifests=manifests
        )
        self.round = SleepRound(settings, FlowContext(**(unused | ports | known)))

    @property
    def saves(self) -> int:
        return self.faults.points.count("after sleep.save")


def leave(*nodes: str, reason: Reason = Reason.ASLEEP) -> DisruptionProposal:
    return DisruptionProposal(reason, Method.SLEEP if reason is Reason.ASLEEP else Method.EMPTINESS, nodes)


EMPTY = leave("e", reason=Reason.EMPTY)


@pytest.mark.parametrize(
    ("before", "leaving", "begins", "taken"),
    [
        pytest.param(0, (1,), True, 1, id="one"),
        pytest.param(0, (2, 1), True, 3, id="as many as may leave, of all proposals"),
        pytest.param(0, (2, 2), False, 0, id="one more"),
        pytest.param(2, (1,), True, 3, id="the last"),
        pytest.param(2, (2,), False, 2, id="too many after those of before"),
        pytest.param(3, (), True, 3, id="nobody"),
    ],
)
def test_nodes_are_counted_before_they_leave(before: int, leaving: tuple[int, ...], begins: bool, taken: int) -> None:
    night = _Night(msgspec.structs.replace(REHEARSED, taken=before, taken_until=ENDS if before else 0))
    asleep = tuple(leave(*(f"n{place}-{index}" for index in range(count))) for place, count in enumerate(leaving))
    proposals = (EMPTY, *asleep)
    assert night.round.noted(proposals, ASLEEP) == (proposals if begins else (EMPTY,))
    known = night.store.read("blue")
    assert (known.taken, known.taken_until) == (taken, ENDS if taken else 0)
    assert night.saves == (1 if begins and leaving else 0)
    assert known.rehearsed == REHEARSED.rehearsed


def test_nodes_of_an_earlier_sleep_count_no_more() -> None:
    night = _Night(msgspec.structs.replace(REHEARSED, taken=3, taken_until=OPENS))
    assert night.round.noted((leave("n"),), ASLEEP) == (leave("n"),)
    assert night.store.read("blue").taken == 1


@pytest.mark.parametrize(("seconds", "is_noted"), [(0, True), (900, True), (901, False)])
def test_a_rehearsal_is_noted_if_it_is_seen_from_its_beginning(seconds: float, is_noted: bool) -> None:
    night = _Night()
    night.clock.set(OPENS + seconds)
    assert night.round.noted((EMPTY,), ASLEEP) == (EMPTY,)
    assert night.store.read("blue") == (SleepNotes(DIGEST, {"0": ENDS}, version=1) if is_noted else SleepNotes())
    night.round.noted((EMPTY,), ASLEEP)
    assert night.saves == is_noted


def test_a_rehearsal_is_noted_even_if_too_many_would_leave() -> None:
    night = _Night()
    night.clock.set(OPENS)
    assert night.round.noted((leave("a", "b", "c", "d"), EMPTY), ASLEEP) == (EMPTY,)
    assert night.store.read("blue") == SleepNotes(DIGEST, {"0": ENDS}, version=1)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        pytest.param({"sleep": None}, ASLEEP, id="nothing may sleep"),
        pytest.param({}, None, id="nothing is known of sleep"),
        pytest.param({}, SleepState(("dev",), (), 3), id="nothing sleeps now"),
    ],
)
def test_where_nothing_sleeps_nothing_leaves_for_it(known: dict[str, Any], state: SleepState | None) -> None:
    night = _Night(**known)
    assert night.round.noted((leave("n"), EMPTY), state) == (EMPTY,)
    assert night.faults.points == []


def test_a_function_without_the_store_lets_nothing_leave() -> None:
    unused = dict.fromkeys(("compute", "cluster", "state", "capacity", "catalog", "bus", "timers", "recorder"))
    ports: dict[str, Any] = {"clock": FakeClock(OPENS), "meter": FakeMeter()}
    settings = ClusterSettings(name="blue", region="eu-west-1", policies=chosen(SETTINGS))
    assert SleepRound(settings, FlowContext(**(unused | ports))).noted((leave("n"), EMPTY), ASLEEP) == (EMPTY,)


@pytest.mark.parametrize("effect", ["sleep.read", "sleep.save"])
@pytest.mark.parametrize("error", [StoreError("not now"), ConditionFailed("changed")])
def test_what_is_not_noted_does_not_begin(effect: str, error: ShiplapError) -> None:
    night = _Night(REHEARSED)
    night.faults.on("before", effect, error)
    assert night.round.noted((EMPTY, leave("n")), ASLEEP) == (EMPTY,)
    assert night.meter.counts == {"SleepNotNoted": 1}
    assert night.store.read("blue").taken == 0


def test_of_two_functions_that_count_at_once_one_waits() -> None:
    night = _Night(REHEARSED)
    night.faults.on("after", "sleep.read", lambda: night.round.noted((leave("a", "b"),), ASLEEP))
    assert night.round.noted((leave("c", "d"), EMPTY), ASLEEP) == (EMPTY,)
    assert night.store.read("blue").taken == 2


@pytest.mark.parametrize(("doubts", "counted"), [((), {}), (("x", "y"), {"SleepInDoubt": 2})])
def test_doubts_are_counted_even_where_nothing_sleeps(doubts: tuple[str, ...], counted: dict[str, float]) -> None:
    night = _Night()
    night.round.noted((), SleepState(doubts=doubts))
    assert night.meter.counts == counted


REHEARSING = msgspec.structs.replace(
    ASLEEP, scopes=tuple(msgspec.structs.replace(scope, rehearsal=True) for scope in ASLEEP.scopes)
)
NODES = tuple(node(name) for name in "abc")


@pytest.mark.parametrize(
    ("rehearsed", "before", "publishes", "after"),
    [
        (("a", "b"), (), ["a", "b"], ("a", "b")),
        (("a", "b"), ("a",), ["b"], ("a", "b")),
        (("a", "b"), ("a", "b"), [], ("a", "b")),
        (("a",), ("a", "z"), [], ("a",)),
        (("a", "gone"), (), ["a"], ("a",)),
        ((), ("a",), [], ()),
    ],
)
def test_each_node_is_told_of_once(
    rehearsed: tuple[str, ...], before: tuple[str, ...], publishes: list[str], after: tuple[str, ...]
) -> None:
    night = _Night()
    assert night.round.tell(Decision(rehearsed=rehearsed), REHEARSING, NODES, before) == after
    assert night.cluster.told == publishes
    of_cluster = (("cluster", "blue"),)
    assert night.meter.seen == ({"NodesRehearsed": [(len(rehearsed), of_cluster)]} if rehearsed else {})


def test_what_has_been_told_before_the_cluster_failed_is_remembered() -> None:
    night, decision = _Night(), Decision(rehearsed=("a", "b", "c", "d"))
    nodes = (*NODES, node("d"))
    night.faults.on("before", "cluster.publish", ClusterUnreachable("not now"), nth=2)
    told = night.round.tell(decision, REHEARSING, nodes, ("a", "z"))
    assert (told, night.cluster.told) == (("a", "b"), ["b"])
    assert night.meter.counts["NodeEventsNotPublished"] == 1
    assert night.round.tell(decision, REHEARSING, nodes, told) == ("a", "b", "c", "d")
    assert night.cluster.told == ["b", "c", "d"]


def test_a_round_tells_of_so_many_and_the_next_one_of_the_rest() -> None:
    night, names = _Night(), tuple(f"n{number:03}" for number in range(MOST_TOLD + 2))
    nodes, decision = tuple(node(name) for name in names), Decision(rehearsed=names)
    told = night.round.tell(decision, REHEARSING, nodes, ())
    assert told == names[:MOST_TOLD]
    assert night.round.tell(decision, REHEARSING, nodes, told) == names
    assert night.cluster.told == list(names)


def test_an_event_says_until_when_at_the_latest() -> None:
    night = _Night()
    longer = SleepingScope(NODE_POOL, "other", OPENS, ENDS + 3600, ENDS, rehearsal=True)
    state = msgspec.structs.replace(REHEARSING, scopes=(longer, *REHEARSING.scopes))
    made = node("a", metadata={"uid": "u-1"})
    night.round.tell(Decision(rehearsed=("a",)), state, (made,), ())
    (event,) = night.cluster.events
    assert (event.involved_object.api_version, event.type) == ("v1", "Normal")
    assert event.source.component == event.reporting_component == "shiplap"
    assert (event.involved_object.kind, event.involved_object.uid, event.reason) == ("Node", "u-1", "SleepRehearsal")
    assert event.message.endswith("until 2026-01-06T08:00:00Z at the latest")
    assert event.last_timestamp == "2026-01-05T19:20:00Z"


@pytest.mark.parametrize(
    ("kept", "expected"),
    [(UNSET, {}), ((), {"NodesKeptAwake": [(0, "blue")]}), (("a", "b"), {"NodesKeptAwake": [(2, "blue")]})],
)
def test_nodes_that_stay_are_measured_wherever_something_sleeps(kept: Any, expected: dict[str, Any]) -> None:
    night = _Night()
    assert night.round.tell(Decision(kept_awake=kept), None, NODES, ("a",)) == ()
    seen = {name: [(value, dict(of)["cluster"]) for value, of in values] for name, values in night.meter.seen.items()}
    assert seen == expected
    assert night.cluster.events == []
