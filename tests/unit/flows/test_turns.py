"""Clusters that share an invocation: their order, their time, and what becomes of those whose turn does not come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from queue import Empty, Queue
from threading import Event
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.cluster.transport import left_s
from shiplap.errors import ClusterError, ClusterGone, ClusterUnreachable, TooManyRequests
from shiplap.flows import turns as module
from shiplap.flows.lifecycle import entry as lifecycle_entry
from shiplap.flows.turns import LEAST_TURN_S, RESERVE_S, Due, Turns
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.signals import FakeClock

START = 1_000.0


def settings_of(name: str) -> ClusterSettings:
    return ClusterSettings(name=name, region="eu-west-1")


def due(*names: str, named: bool = True) -> list[Due]:
    return [Due(settings_of(name), named=named) for name in names]


class Served:
    """Serves clusters, each for some seconds, and notes when its turn was to end."""

    def __init__(self, clock: FakeClock, seconds: float = 0.0) -> None:
        self.until: dict[str, float] = {}
        self._clock, self._seconds = clock, seconds

    def __call__(self, settings: ClusterSettings, until: float) -> None:
        self.until[settings.name] = until - START
        self._clock.advance(self._seconds)


def take(
    items: Sequence[Due], probe: Callable[[Due], bool] | None = None, *, seconds: float = 0.0, lasts_s: float = 300.0
) -> tuple[dict[str, float], list[str]]:
    clock = FakeClock(START)
    served = Served(clock, seconds)
    left = Turns(clock, START + lasts_s, probe).take(items, served)
    return served.until, [item.cluster.name for item in left]


def test_one_cluster_has_all_the_time_and_is_not_probed() -> None:
    probed: list[Due] = []

    def probe(item: Due) -> bool:
        probed.append(item)
        return True

    assert take(due("blue"), probe) == ({"blue": 300.0 - RESERVE_S}, [])
    assert probed == [], "one cluster that a message names needs no probe"
    assert list(take(due("blue", "green"))[0]) == ["blue", "green"], "nor does any where there is none"


def test_several_share_what_is_left_and_what_one_does_not_use_the_next_ones_have() -> None:
    until, left = take(due("a", "b", "c"), seconds=10.0)
    assert until == {"a": pytest.approx(295 / 3), "b": pytest.approx(10 + 285 / 2), "c": 295.0}
    assert left == []


def test_whoever_has_waited_longest_comes_first() -> None:
    items = [
        Due(settings_of("a"), 30.0),
        Due(settings_of("b"), 10.0),
        Due(settings_of("c"), 20.0),
        *due("0", named=False),
    ]
    until, _ = take(items)
    assert list(until) == ["b", "c", "a", "0"]


def test_no_turn_is_too_short_to_decide_and_who_is_left_over_comes_first_next_time() -> None:
    names = [f"c{number:02}" for number in range(20)]
    until, left = take([Due(settings_of(name), since=1.0 + n) for n, name in enumerate(names)], seconds=LEAST_TURN_S)
    number = int((300 - RESERVE_S) // LEAST_TURN_S)
    assert list(until) == names[:number]
    assert left == names[number:]
    assert all(end - number * LEAST_TURN_S >= LEAST_TURN_S for number, end in enumerate(until.values()))
    again = [Due(settings_of(name), since=1.0 + names.index(name)) for name in left] + due("new")
    again[-1] = again[-1]._replace(since=99.0)
    assert list(take(again, seconds=LEAST_TURN_S)[0])[: len(left)] == left[:number]


def test_the_first_turn_comes_however_late_it_is() -> None:
    assert list(take(due("a", "b"), lasts_s=20.0)[0]) == ["a"]


def test_a_turn_that_just_fits_is_taken() -> None:
    until, left = take(due("a", "b", "c"), seconds=10.0, lasts_s=10.0 + LEAST_TURN_S + RESERVE_S)
    assert until == {"a": pytest.approx(LEAST_TURN_S), "b": 10.0 + LEAST_TURN_S}
    assert left == ["c"]


def test_visits_of_four_clusters_fit_into_a_minute() -> None:
    """A visit takes two seconds, so that a turn of a visit need not be as long as one of a decision."""
    clock = FakeClock(START)
    served = Served(clock, 2.0)
    assert Turns(clock, START + 30, least_s=lifecycle_entry.LEAST_TURN_S).take(due("a", "b", "c", "d"), served) == []
    assert list(served.until) == ["a", "b", "c", "d"]
    assert lifecycle_entry.LEAST_TURN_S > 2.0


def test_nothing_begins_after_the_last_moment_for_it() -> None:
    clock = FakeClock(START)
    served = Served(clock, 20.0)
    left = Turns(clock, START + 300, begins_until=START + 40).take(due("a", "b", "c", "d"), served)
    assert list(served.until) == ["a", "b", "c"]
    assert [item.cluster.name for item in left] == ["d"]


def test_clusters_at_rest_are_done_with_by_a_probe_unless_a_message_names_them() -> None:
    items = [*due("named"), *due("busy", "rest", named=False)]
    assert list(take(items, lambda item: item.cluster.name == "busy")[0]) == ["named", "busy"]


def test_even_one_cluster_is_probed_when_no_message_names_it() -> None:
    assert take(due("rest", named=False), lambda _: False) == ({}, [])


@pytest.mark.parametrize("error", [ClusterUnreachable("timed out"), TooManyRequests("throttled", status=429)])
def test_a_cluster_that_does_not_answer_comes_last_however_long_it_has_waited(error: ClusterError) -> None:
    def probe(item: Due) -> bool:
        if item.cluster.name == "a":
            raise error
        return True

    assert list(take(due("a", "b", "c"), probe)[0]) == ["b", "c", "a"]


def test_an_answer_that_is_a_refusal_is_an_answer() -> None:
    def probe(item: Due) -> bool:
        raise ClusterGone(f"{item.cluster.name} is deleted")

    assert list(take(due("a", "b"), probe)[0]) == ["a", "b"]


@pytest.mark.parametrize("error", [ClusterGone("deleted"), ZeroDivisionError("a bug")])
def test_whatever_a_probe_meets_is_met_and_told_by_serving_the_cluster(error: Exception) -> None:
    def probe(item: Due) -> bool:
        if item.cluster.name == "a":
            raise error
        return False

    assert list(take(due("a", "b", named=False), probe)[0]) == ["a"]


def test_a_probe_that_never_ends_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that hangs below the time limit, such as in the resolver, holds up its own cluster only."""
    monkeypatch.setattr(module, "PROBE_S", -0.95)
    monkeypatch.setattr(module, "GATHER_S", 0.05)
    never = Event()

    def probe(item: Due) -> bool:
        return never.wait() if item.cluster.name == "a" else True

    until, left = take(due("a", "b", "c"), probe)
    assert (list(until), left) == (["b", "c", "a"], [])
    never.set()


def test_probes_and_turns_have_a_time_limit() -> None:
    limits: list[float] = []

    def probe(_: Due) -> bool:
        limits.append(left_s())
        return True

    clock = FakeClock(START)
    Turns(clock, START + 300, probe).take(due("a", "b"), lambda *_: limits.append(left_s()))
    assert len(limits) == 4
    assert max(limits[:2]) <= module.PROBE_S
    assert max(limits[2:]) <= 300 - RESERVE_S


def test_probes_may_run_one_after_the_other() -> None:
    ran: list[str] = []

    class InTurn:
        def submit(self, name: str, probe: Callable[[], None]) -> None:
            ran.append(name)
            probe()

    clock, served = FakeClock(START), Served(FakeClock(START))
    Turns(clock, START + 300, lambda item: item.cluster.name != "b", executor=InTurn()).take(
        due("a", "b", "c", named=False), served
    )
    assert ran == ["probe-a", "probe-b", "probe-c"]
    assert list(served.until) == ["a", "c"]


def test_a_cluster_that_answers_late_is_waited_for_a_moment_and_served_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first turn waits a second for probes, no longer: a probe may last five."""
    waited: list[float] = []

    class Results:
        def __init__(self) -> None:
            self.now = 0.0

        def get(self, *, block: bool, timeout: float | None) -> object:
            if block:
                waited.append(timeout or 0.0)
                clock[0] += timeout or 0.0
            raise module.Empty

        def put(self, item: object) -> None:
            """Comes too late."""

    class Never:
        def submit(self, name: str, probe: Callable[[], None]) -> None:
            """The probe hangs."""

    clock = [0.0]
    monkeypatch.setattr(module, "Queue", Results)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    waiting = module._Waiting(due("a", "b"), lambda _: True, Never())
    waiting.gather()
    assert sum(waited) == module.GATHER_S == 1.0
    assert module.PROBE_S == 5.0


@pytest.mark.parametrize("late", [None, True, False])
def test_who_is_ready_is_served_before_others_are_waited_for_and_those_no_longer_than_a_probe_may_last(
    monkeypatch: pytest.MonkeyPatch, late: bool | None
) -> None:
    """The probe of b hangs for good, or says after the wait whether there is work; that of c hangs."""
    waits: list[float] = []

    class Results(Queue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not block or not self.empty():
                return super().get(block=False)
            waits.append(timeout or 0.0)
            clock[0] += timeout or 0.0
            if len(waits) == 2 and late is not None:
                return "b", module.ProbeResult(work=late)
            raise Empty

    class First:
        def submit(self, name: str, probe: Callable[[], None]) -> None:
            if name == "probe-a":
                probe()

    clock = [0.0]
    monkeypatch.setattr(module, "Queue", Results)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    waiting = module._Waiting(due("a", "b", "c", named=False), lambda _: True, First())
    waiting.gather()
    served = waiting.next()
    assert served is not None
    assert (served.cluster.name, waits) == ("a", [module.GATHER_S])
    assert [item.cluster.name for item in waiting.rest()] == (["c"] if late is False else ["b", "c"])
    assert waits == [module.GATHER_S] + [module.PROBE_S + 1.0] * (1 if late is None else 2)


class OneHeld:
    """Runs probes as they are submitted, but keeps that of one cluster in `held`."""

    def __init__(self, cluster: str, held: list[Callable[[], None]]) -> None:
        self._name, self._held = f"probe-{cluster}", held

    def submit(self, name: str, probe: Callable[[], None]) -> None:
        if name == self._name:
            self._held.append(probe)
        else:
            probe()


def test_who_answers_while_another_is_served_takes_its_place_in_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Callable[[], None]] = []

    monkeypatch.setattr(module, "GATHER_S", 0.0)
    items = [Due(settings_of("a"), 2.0), Due(settings_of("b"), 1.0), Due(settings_of("c"), 3.0)]
    waiting = module._Waiting(items, lambda _: True, OneHeld("b", held))
    waiting.gather()
    first = waiting.next()
    held.pop()()
    names = [item.cluster.name for item in (first, *waiting.rest()) if item is not None]
    assert names == ["a", "b", "c"]


def test_whoever_has_waited_longest_comes_first_though_its_probe_takes_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[Callable[[], None]] = []

    class Results(Queue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if block and self.empty():
                held.pop()()
            return super().get(block, timeout)

    monkeypatch.setattr(module, "Queue", Results)
    clock, served = FakeClock(START), Served(FakeClock(START))
    items = [Due(settings_of(name), float(place)) for place, name in enumerate("abc")]
    assert Turns(clock, START + 300, lambda _: True, executor=OneHeld("a", held)).take(items, served) == []
    assert list(served.until) == ["a", "b", "c"]


def test_those_that_have_waited_equally_long_come_by_name() -> None:
    assert list(take(due("c", "a", "b"))[0]) == ["a", "b", "c"]


class Neighbourhood:
    """Clusters that share invocations in virtual time: each serves its turns in `seconds`, or uses them up (inf).

    Probes of `hanging` clusters are never answered, those of `refusing` ones are refused.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float], hanging: str = "", refusing: str = ""
    ) -> None:
        clock = self.clock = FakeClock(START)
        self.seconds, self._hanging, self._refusing = seconds, hanging, refusing
        self._times = module.TurnTimes()

        class Results(Queue[Any]):
            def get(self, block: bool = True, timeout: float | None = None) -> Any:
                if block and self.empty():
                    clock.advance(timeout or 0.0)
                return super().get(block=False)

        monkeypatch.setattr(module, "Queue", Results)
        monkeypatch.setattr(module.time, "monotonic", clock.now)

    def submit(self, name: str, probe: Callable[[], None]) -> None:
        if not self._hanging or name != f"probe-{self._hanging}":
            probe()

    def minute(self, names: Sequence[str], lasts_s: float = 300.0) -> dict[str, float]:
        """One invocation: how long after its start each turn began, in seconds."""
        began_at, begun = self.clock.now(), dict[str, float]()

        def probe(item: Due) -> bool:
            if item.cluster.name == self._refusing:
                raise TooManyRequests("throttled", status=429)
            return True

        def serve(settings: ClusterSettings, until: float) -> None:
            begun[settings.name] = self.clock.now() - began_at
            self.clock.advance(min(self.seconds[settings.name], until - self.clock.now()))

        turns = Turns(self.clock, began_at + lasts_s, probe, executor=self, times=self._times)
        turns.take([Due(settings_of(name), since=1.0) for name in names], serve)
        self.clock.set(max(began_at + 60.0, self.clock.now()))
        return begun


HONEST = {"b": 0.3, "d": 1.9, "f": 0.1, "h": 1.0}
HOSTILE = {"drips": {"a-drips": inf}, "is huge": {"c-huge": 17.0}, "hangs": {"e-hangs": inf}, "refuses": {"g-no": 8.0}}
HOSTILE |= {"all": {name: seconds for item in list(HOSTILE.values()) for name, seconds in item.items()}}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_cluster_delays_no_honest_one_by_more_than_two_seconds(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known in the first invocation: there each hostile one delays the others by the least turn at most."""
    hostile = HOSTILE[kind]
    alone = Neighbourhood(monkeypatch, HONEST).minute(list(HONEST))
    street = Neighbourhood(monkeypatch, HONEST | hostile, hanging="e-hangs", refusing="g-no")
    for invocation in range(90):
        begun = street.minute(sorted(HONEST | hostile))
        most_s = 2.0 if invocation else module.GATHER_S + len(hostile) * LEAST_TURN_S
        assert max(begun[name] - alone[name] for name in HONEST) <= most_s


def test_quick_turns_do_not_make_up_for_a_slow_one_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    street = Neighbourhood(monkeypatch, {"a-slow": 20.0, "b": 1.0})
    assert street.minute(["a-slow", "b"]) == {"a-slow": 0.0, "b": 20.0}
    street.seconds["a-slow"] = 0.1
    firsts = [next(iter(street.minute(["a-slow", "b"]))) for _ in range(62)]
    assert firsts == ["b"] * 60 + ["a-slow"] * 2, "an hour later its turns are known as quick"


@pytest.mark.parametrize(
    ("seconds", "rank"), [(-50.0, 0), (0.0, 0), (1.9, 0), (2.0, 1), (3.9, 1), (4.0, 2), (8.0, 3), (30.0, 4), (300.0, 8)]
)
def test_a_turn_ranks_one_lower_for_each_doubling(seconds: float, rank: int) -> None:
    times = module.TurnTimes()
    times.note("a", seconds, START)
    assert times.rank("a", START) == rank
    assert times.rank("b", START) == 1


def test_clusters_whose_turns_take_about_as_long_come_in_the_order_in_which_they_have_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    street = Neighbourhood(monkeypatch, {"a": 7.0, "b": 4.1, "c": 3.9, "d": 1.9, "e": 0.1})
    street.minute(list("abcde"))
    assert list(street.minute(list("ebdca"))) == ["d", "e", "c", "a", "b"]


def test_a_cluster_that_has_had_no_turn_comes_after_those_with_short_ones_and_before_those_with_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    street = Neighbourhood(monkeypatch, {"a-new": inf, "b": 1.5, "c": 9.0, "d-new": 1.0})
    street.minute(["b", "c"])
    begun = street.minute(["a-new", "b", "c", "d-new"])
    assert begun == {"b": 0.0, "a-new": 1.5, "d-new": 31.5, "c": 32.5}, "the first turn is as short as can be"
    assert street.minute(["a-new"]) == {"a-new": 0.0}
    assert street.clock.now() == START + 60 + 60 + 295, "alone it has all the time"


def test_a_busy_cluster_waits_a_moment_only_for_a_quick_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    street = Neighbourhood(monkeypatch, {"a": 1.0, "b": 9.0, "c-hangs": 0.5})
    street.minute(["a", "b", "c-hangs"])
    street._hanging = "c-hangs"
    begun = street.minute(["a", "b", "c-hangs"])
    assert begun["a"] == module.GATHER_S
    assert begun["b"] == 2 * module.GATHER_S + 1.0


class Moving:
    """The ports that tell whether a cluster is at rest; each question is noted."""

    def __init__(self, claims: Sequence[str] = (), commands: Sequence[str] = (), pods: Sequence[str] = ()) -> None:
        self.clock, self.number, self.asked = FakeClock(START), 7, list[object]()
        self.found: dict[str, Sequence[str]] = {"claims": claims, "commands": commands}
        self.pods = pods
        self.state = self.cluster = self

    def epoch(self, cluster: str) -> int:
        self.asked.append(("epoch", cluster))
        return self.number

    def claims(self, cluster: str) -> Sequence[str]:
        self.asked.append(("claims", cluster))
        return self.found["claims"]

    def commands(self, cluster: str) -> Sequence[str]:
        self.asked.append(("commands", cluster))
        return self.found["commands"]

    def pending_pods(self, *, most: int) -> Sequence[str]:
        self.asked.append(("pods", most))
        return self.pods

    def takes(self) -> list[object]:
        asked, self.asked = self.asked, []
        return asked


READ = [("epoch", "blue"), ("claims", "blue"), ("commands", "blue")]


def holds(idle: module.IdleClusters, ports: Moving) -> bool:
    return idle.holds("blue", ports)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("claims", "commands", "rests", "asked"),
    [((), (), True, READ), (("c",), (), False, READ[:2]), ((), ("d",), False, READ), (("c",), ("d",), False, READ[:2])],
)
def test_a_cluster_rests_that_has_neither_claims_nor_commands(
    claims: Sequence[str], commands: Sequence[str], rests: bool, asked: Sequence[object]
) -> None:
    ports, idle = Moving(claims, commands), module.IdleClusters()
    assert holds(idle, ports) is rests
    assert ports.takes() == asked
    assert holds(idle, ports) is rests
    assert ports.takes() == (READ[:1] if rests else asked), "what is busy is looked at each time"


@pytest.mark.parametrize(
    ("seconds", "moves", "looks"),
    [
        (0.0, 0, False),
        (module.FULL_SWEEP_S - 0.1, 0, False),
        (module.FULL_SWEEP_S, 0, True),
        (0.0, 1, True),
        (0.0, -7, True),
        (module.FULL_SWEEP_S, 1, True),
    ],
)
def test_what_rests_is_looked_at_again_when_its_epoch_moves_or_after_a_while(
    seconds: float, moves: int, looks: bool
) -> None:
    ports, idle = Moving(), module.IdleClusters()
    assert holds(idle, ports)
    ports.takes()
    ports.clock.advance(seconds)
    ports.number += moves
    assert holds(idle, ports)
    assert ports.takes() == (READ if looks else READ[:1])
    assert holds(idle, ports)
    assert ports.takes() == READ[:1]


@pytest.mark.parametrize("number", [0, 1])
def test_nothing_is_known_of_a_cluster_that_was_not_looked_at(number: int) -> None:
    ports, idle = Moving(("c",)), module.IdleClusters()
    ports.number = number
    ports.clock.set(0.0)
    assert not holds(idle, ports)


def test_a_cluster_that_was_busy_rests_no_more_on_what_was_known_before() -> None:
    ports, idle = Moving(), module.IdleClusters()
    assert holds(idle, ports)
    ports.number, ports.found = 8, {"claims": ("c",), "commands": ()}
    assert not holds(idle, ports)
    ports.number = 7
    assert not holds(idle, ports), "a table that was restored has an epoch of before"


STATIC = msgspec.convert(
    {"metadata": {"name": "p"}, "spec": {"replicas": 1, "template": {"spec": {"nodeClassRef": {"name": "default"}}}}},
    NodePool,
)


@pytest.mark.parametrize(
    ("fields", "found", "sweeps"),
    [
        ({}, {}, False),
        ({"paused": True}, {}, True),
        ({"live_manifests": True}, {}, True),
        ({}, {"pods": ("p",)}, True),
        ({}, {"claims": ("c",)}, True),
        ({}, {"commands": ("d",)}, True),
        ({"manifests": Manifests(node_pools=(STATIC,))}, {}, True),
    ],
    ids=["at rest", "paused", "live manifests", "a pod waits", "a claim", "a command", "a static pool"],
)
def test_a_cluster_is_swept_that_has_or_wants_something(
    fields: dict[str, Any], found: dict[str, Sequence[str]], sweeps: bool
) -> None:
    ports: Any = Moving(**found)
    assert module.needs_sweep(replace(settings_of("blue"), **fields), ports, module.IdleClusters()) is sweeps
    said = fields.get("paused") or fields.get("live_manifests")
    assert ports.asked[:1] == ([] if said else [("pods", 1)]), "the smallest list"


@pytest.mark.parametrize(
    ("found", "looks", "asked"),
    [
        ({}, False, READ),
        ({"pods": ("p",)}, False, READ),
        ({"claims": ("c",)}, True, [*READ[:2], ("pods", 1)]),
        ({"commands": ("d",)}, True, [*READ, ("pods", 1)]),
    ],
)
def test_disruption_looks_at_clusters_with_nodes_or_commands_that_answer(
    found: dict[str, Sequence[str]], looks: bool, asked: Sequence[object]
) -> None:
    ports: Any = Moving(**found)
    assert module.needs_disruption(settings_of("blue"), ports, module.IdleClusters()) is looks
    assert ports.asked == asked
