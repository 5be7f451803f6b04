"""One flow per cluster for a whole batch; no message holds up another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shiplap.errors import AwsError, ClustersNotServed, ClusterUnreachable, HintsFailed, StoreError
from shiplap.flows import batch
from shiplap.flows.messages import PodsPending, Sweep, for_schedule
from shiplap.flows.turns import Due, Turns
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock, FakeDeadLetters, FakeMeter

SETTINGS = Settings(tuple(ClusterSettings(name=name, region="eu-west-1") for name in ("blue", "green")))


class Calls:
    """A flow that notes what it is given and answers as told."""

    def __init__(self, answers: dict[str, str | Exception] | None = None) -> None:
        self.seen: list[tuple[str, int]] = []
        self._answers = answers or {}

    def __call__(self, cluster: ClusterSettings, hints: Sequence[PodsPending | Sweep], _until: float) -> str:
        self.seen.append((cluster.name, len(hints)))
        answer = self._answers.get(cluster.name, "")
        if isinstance(answer, Exception):
            raise answer
        return answer


def sweep(cluster: str) -> str:
    return f'{{"kind":"sweep","cluster":"{cluster}"}}'


def run(calls: Calls, *bodies: str, letters: FakeDeadLetters | None = None) -> tuple[list[str], FakeMeter]:
    meter = FakeMeter()
    arn = "arn:aws:sqs:eu-west-1:123456789012:shiplap-provisioning"
    records = [{"messageId": f"m{n}", "body": body, "eventSourceARN": arn} for n, body in enumerate(bodies)]
    answer = batch.run(
        records,
        for_schedule,
        calls,
        settings=SETTINGS,
        dead_letters=letters or FakeDeadLetters(),
        meter=meter,
        turns=Turns(FakeClock(), FakeClock().now() + 300),
    )
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]], meter


def test_each_cluster_is_served_once_for_all_its_messages() -> None:
    calls = Calls()
    failed, _ = run(calls, sweep("green"), sweep("blue"), sweep("green"))
    assert calls.seen == [("blue", 1), ("green", 2)]
    assert failed == []


NESTED = "[" * 10_000 + "]" * 10_000


@pytest.mark.parametrize(
    "body",
    [
        NESTED,
        f'{{"kind":"sweep","cluster":"blue","more":{NESTED}}}',
        f'{{"detail-type":"PodPending","detail":{NESTED}}}',
        f'{{"detail-type":"PodPending","detail":{{"cluster":"blue","pods":{NESTED}}}}}',
    ],
)
def test_a_message_nested_ten_thousand_levels_deep_holds_up_no_other(body: str) -> None:
    calls, letters = Calls(), FakeDeadLetters()
    failed, meter = run(calls, sweep("blue"), body, sweep("green"), letters=letters)
    assert failed == []
    assert calls.seen == [("blue", 1), ("green", 1)]
    assert meter.counts["MalformedMessages"] == len(letters.letters) == 1


def test_a_malformed_message_goes_to_the_dead_letters_and_the_rest_is_served() -> None:
    calls, letters = Calls(), FakeDeadLetters()
    failed, meter = run(calls, sweep("blue"), "{broken", sweep("blue"), letters=letters)
    assert failed == []
    assert calls.seen == [("blue", 2)]
    ((body, reason),) = letters.letters
    assert body == "{broken"
    assert reason.startswith("shiplap-provisioning: ")
    assert meter.counts["MalformedMessages"] == 1


def test_a_malformed_message_stays_when_the_dead_letters_refuse_it() -> None:
    faults = Faults()
    faults.on("before", "dead_letters.send", StoreError("queue is gone"))
    failed, _ = run(Calls(), sweep("blue"), "{broken", letters=FakeDeadLetters(faults))
    assert failed == ["m1"]


def test_a_cluster_that_is_not_configured_is_dropped_and_counted() -> None:
    calls = Calls()
    failed, meter = run(calls, sweep("red"), sweep("red"), sweep("blue"))
    assert failed == []
    assert calls.seen == [("blue", 1)]
    assert meter.counts["UnknownClusters"] == 2


@pytest.mark.parametrize(
    ("answer", "metric"),
    [
        (ClusterUnreachable("no route"), "ClusterUnreachable"),
        (StoreError("gone"), "StoreError"),
        (ZeroDivisionError("a bug"), "UnexpectedErrors"),
        ("launches are pending", "Unfinished"),
    ],
)
def test_messages_of_a_cluster_whose_flow_did_not_end_stay_and_others_do_not(
    answer: str | Exception, metric: str
) -> None:
    calls = Calls({"blue": answer})
    failed, meter = run(calls, sweep("blue"), sweep("green"), sweep("blue"))
    assert failed == ["m0", "m2"]
    assert calls.seen == [("blue", 2), ("green", 1)]
    assert meter.counts[metric] == 1


def test_only_the_messages_that_failed_are_delivered_again_where_the_flow_names_them() -> None:
    culprit = PodsPending("blue", id="odd")
    error = HintsFailed([culprit], "one pod is odd")
    error.__cause__ = AwsError("refused")
    odd = '{"detail-type":"PodPending","detail":{"cluster":"blue","id":"odd"}}'
    failed, meter = run(Calls({"blue": error}), sweep("blue"), odd, sweep("green"), odd)
    assert failed == ["m1", "m3"]
    assert meter.counts == {"AwsError": 1}


def test_a_sweep_without_a_cluster_is_for_all_of_them() -> None:
    calls = Calls()
    failed, _ = run(calls, '{"kind":"sweep"}', sweep("green"))
    assert calls.seen == [("green", 2), ("blue", 1)]  # the one that a message names comes first
    assert failed == []


def test_a_sweep_for_all_stays_when_one_cluster_is_not_done() -> None:
    calls = Calls({"blue": ClusterUnreachable("no route")})
    failed, _ = run(calls, '{"kind":"sweep"}')
    assert calls.seen == [("blue", 1), ("green", 1)]
    assert failed == ["m0"]


class Late:
    """Turns that serve the first cluster only."""

    def take(self, due: Sequence[Due], serve: Callable[[ClusterSettings, float], None]) -> list[Due]:
        serve(due[0].cluster, 300.0)
        return list(due[1:])


@pytest.mark.parametrize(
    ("hands_on", "failed", "handed"),
    [("gladly", [], [("green", 5.0)]), ("not", ["m1"], []), ("in vain", ["m1"], [("green", 5.0)])],
)
def test_a_cluster_whose_turn_did_not_come_is_counted_and_handed_on_or_its_messages_stay(
    hands_on: str, failed: list[str], handed: list[tuple[str, float]]
) -> None:
    told: list[tuple[str, float]] = []
    meter = FakeMeter()

    def hand_on(cluster: ClusterSettings, since: float) -> None:
        told.append((cluster.name, since))
        if hands_on == "in vain":
            raise StoreError("the bus refuses")

    late: Any = Late()
    answer = batch.run(
        [{"messageId": f"m{n}", "body": name} for n, name in enumerate(("blue", "green"))],
        lambda body, _: PodsPending(body, 5.0),
        Calls(),
        settings=SETTINGS,
        dead_letters=FakeDeadLetters(),
        meter=meter,
        turns=late,
        hand_on=None if hands_on == "not" else hand_on,
    )
    assert [item["itemIdentifier"] for item in answer["batchItemFailures"]] == failed
    assert (told, meter.counts) == (handed, {"TurnsMissed": 1.0})


@pytest.mark.parametrize(("times", "since"), [((9.0, 5.0, 7.0), 5.0), ((0.0, 7.0, 6.0), 6.0), ((0.0, 0.0), 0.0)])
def test_a_cluster_waits_since_its_oldest_message_of_a_known_time(times: tuple[float, ...], since: float) -> None:
    seen: list[tuple[str, float]] = []

    class Told:
        def take(self, due: Sequence[Due], serve: Callable[[ClusterSettings, float], None]) -> list[Due]:
            del serve
            seen.extend((item.cluster.name, item.since) for item in due)
            return []

    turns: Any = Told()
    batch.run(
        [{"messageId": f"m{n}", "body": str(time)} for n, time in enumerate(times)],
        lambda body, _: PodsPending("blue", float(body)),
        Calls(),
        settings=SETTINGS,
        dead_letters=FakeDeadLetters(),
        meter=FakeMeter(),
        turns=turns,
    )
    assert seen == [("blue", since)]


@pytest.mark.parametrize(("in_vain", "raises"), [(False, False), (True, True)])
def test_what_starts_for_all_clusters_fails_if_one_is_neither_served_nor_handed_on(in_vain: bool, raises: bool) -> None:
    served: list[str] = []
    meter = FakeMeter()

    def hand_on(cluster: ClusterSettings, since: float) -> None:
        if in_vain:
            raise StoreError("the bus refuses")

    late: Any = Late()

    def act() -> None:
        batch.serve_all(
            SETTINGS.clusters, lambda item: served.append(item.name), meter=meter, turns=late, hand_on=hand_on
        )

    if raises:
        with pytest.raises(ClustersNotServed, match="green"):
            act()
    else:
        act()
    assert (served, meter.counts) == (["blue"], {"TurnsMissed": 1.0})
