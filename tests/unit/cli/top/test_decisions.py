"""Tests the decisions in `shiplap top`: records that are read once, steps of claims, and their lines in frames."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import msgspec
import pytest

from shiplap.errors import InvalidInput, StoreError
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.records.disruption_record import Headline
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.commands.top import followed_install
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.commands.top.followed_install import (
    ClaimsRead,
    DecisionsRead,
    RecordedDecisions,
    claim_steps,
    decision_reader,
    decisions_source,
)
from shiplap_cli.commands.top.frame import Scene, frame
from shiplap_cli.commands.top.stream import StreamLine
from shiplap_cli.commands.top.view import View
from shiplap_cli.inputs.cluster_events import SourceProblem
from shiplap_cli.installs.followed_resources import FollowedResources
from shiplap_lab.fakes.stores import FakeRecorder
from tests.builders.claims import node_claim, with_fields
from tests.unit.cli.top.framed import NOON, THREE

DAY_S = 24 * 3600.0
FRAMES = Path(__file__).parents[1] / "frames"


class Opened(FakeRecorder):
    """Notes which records are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def stored(self, record_id: str) -> bytes:
        self.opened.append(record_id)
        return super().stored(record_id)

    def decided(self, at: float, epoch: int = 0) -> str:
        return self.record(Snapshot(cluster="prod", now=at, epoch=epoch), Plan())


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


def test_each_record_is_opened_once_and_those_of_a_day_at_first() -> None:
    kept, clock = Opened(), Clock()
    records = RecordedDecisions(kept, "prod", clock)
    kept.decided(NOON - DAY_S - 1)
    first = [kept.decided(NOON - n) for n in (600, 60)]
    assert [line.record for line in records.fresh()] == sorted(kept.opened) == first
    assert records.fresh() == []
    late, ahead = kept.decided(NOON - 300), kept.decided(NOON + 20)
    assert [line.record for line in records.fresh()] == [late, ahead]
    clock.now += 2 * 3600
    assert records.fresh() == []
    fresh = kept.decided(clock.now - 1)
    assert [line.record for line in records.fresh()] == [fresh]
    assert len(kept.opened) == len(set(kept.opened)) == 5


def test_of_many_records_the_newest_are_opened_at_first_and_later_all_in_turn() -> None:
    kept = Opened()
    records = RecordedDecisions(kept, "prod", Clock())
    old = [kept.decided(NOON - 600 + n) for n in range(50)]
    assert [line.record for line in records.fresh()] == old[-20:]
    new = [kept.decided(NOON - 100 + n) for n in range(30)]
    assert [line.record for line in records.fresh()] == new[:20]
    assert [line.record for line in records.fresh()] == new[20:]
    assert records.fresh() == []


def test_records_that_cannot_be_read_are_a_trouble_until_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_install, "EVERY_S", 0.001)
    line = Headline(NOON, "schedule", "nothing to launch", "prod/x/y")
    answers: list[Any] = [StoreError("refused"), InvalidInput("--stack", "there is none"), [line]]
    seen: Queue[Any] = Queue()

    def fresh() -> list[Headline]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [*answer]

    ended = Event()
    decisions_source(fresh).keep_polling(seen.put, ended)
    told = [seen.get(timeout=10) for _ in range(4)]
    ended.set()
    assert told[0] == SourceProblem("decisions", "recorded decisions are not seen: refused")
    assert told[1] == SourceProblem("decisions", "recorded decisions are not seen: --stack: there is none")
    assert told[2:] == [DecisionsRead((line,)), SourceProblem("decisions", "")]


def test_an_install_that_is_not_there_is_bad_input() -> None:
    def none() -> Any:
        raise InvalidInput("--stack", "there is none")

    with pytest.raises(InvalidInput, match="there is none"):
        decisions_source(decision_reader(FollowedResources(none), Clock())).poll_once([].append)


CLAIM = node_claim(cluster="prod", name="flex-1", node_pool="flex", node_class="default", changed_at=NOON)


def step(state: ClaimState, **fields: object) -> NodeClaim:
    return with_fields(CLAIM, state=state, **{"instance_id": "i-1", **fields})


@pytest.mark.parametrize(
    ("claim", "line"),
    [
        (
            step(ClaimState.LAUNCHED, instance_type="m5.large", capacity_type="spot", zone="a", hourly=0.08),
            ("launch", "flex-1 is Launched: m5.large spot in a, 0.0800 USD/h"),
        ),
        (
            step(ClaimState.FAILED, instance_id="", failure="InsufficientInstanceCapacity"),
            ("launch", "flex-1 is Failed: InsufficientInstanceCapacity"),
        ),
        (step(ClaimState.INITIALIZED, node_name="ip-1"), ("lifecycle", "flex-1 is Initialized, node ip-1")),
        (step(ClaimState.DRAINING, failure="SpotInterruption"), ("interrupt", "flex-1 is Draining: SpotInterruption")),
        (step(ClaimState.TERMINATING), ("lifecycle", "flex-1 is Terminating")),
    ],
)
def test_the_steps_of_a_claim(claim: NodeClaim, line: tuple[str, str]) -> None:
    (found,) = claim_steps((CLAIM,), (claim,))
    assert (found.at, found.kind, found.text) == (NOON, *line)
    assert claim_steps((claim,), (claim,)) == []


def test_what_a_record_tells_is_not_told_of_its_claim() -> None:
    planned, going = (step(state) for state in (ClaimState.PLANNED, ClaimState.DISRUPTING))
    assert claim_steps((), (planned,)) == claim_steps((CLAIM,), (going,)) == []
    cordoned = step(ClaimState.INITIALIZED, cordoned="RebalanceRecommendation")
    (line,) = claim_steps((step(ClaimState.INITIALIZED),), (cordoned,))
    assert (line.kind, line.text) == ("interrupt", "flex-1 takes no more pods: RebalanceRecommendation")


def test_of_the_claims_of_a_cluster_the_latest_steps_are_told_at_first() -> None:
    many = [step(ClaimState.INITIALIZED, name=f"flex-{n}", changed_at=NOON - n) for n in range(30)]
    assert [line.at for line in claim_steps(None, many)] == [NOON - n for n in range(19, -1, -1)]


def test_decisions_and_steps_are_one_stream_in_order_of_time() -> None:
    following = FollowedCluster("prod", lambda _region: (NodePrices(), ""))
    late = Headline(NOON - 5, "schedule", "late", "prod/b")
    following.apply(DecisionsRead((Headline(NOON - 1, "schedule", "first", "prod/a"),)))
    following.apply(ClaimsRead((step(ClaimState.INITIALIZED, changed_at=NOON - 2),)))
    following.apply(DecisionsRead((late,)))
    assert [line.text for line in following.decisions(0.0)] == ["late", "flex-1 is Initialized", "first"]
    assert [line.text for line in following.decisions(NOON - 1)] == ["first"]
    following.apply(DecisionsRead(tuple(Headline(NOON + n, "schedule", str(n)) for n in range(300))))
    assert (len(following.decisions(0.0)), following.decisions(0.0)[-1].text) == (200, "299")


DECISIONS = (
    Headline(NOON - DAY_S, "disrupt", "Empty: 1 node removed", "prod/2025-12-31/120000-40-disrupt-00aa11bb22cc"),
    Headline(NOON - 20, "schedule", "3 pods → 2 nodes, 0.21 USD/h, flex", "prod/2026-01-01/115940-41-3fb2c1d0aa51"),
    Headline(NOON - 12, "lifecycle", "flex-887mq4xd is Initialized, node b"),
    Headline(NOON - 4, "interrupt", "flex-21hx9w5k is Draining: SpotInterruption"),
)
NEWS = (StreamLine(NOON - 5, "node b (flex, m5.large, spot, 0.0500 USD/h) was launched", "new"),)


def text(size: tuple[int, int], view: View | None = None, decided: tuple[Headline, ...] | None = DECISIONS) -> str:
    return "\n".join(line.plain.rstrip() for line in frame(Scene(THREE, decided), view or View(), NEWS, *size))


@pytest.mark.parametrize(
    ("name", "size", "view"),
    [
        ("decided-80x24", (80, 24), View()),
        ("decided-200x50", (200, 50), View()),
        ("decisions-80x24", (80, 24), View(decisions=True)),
        ("decisions-200x50", (200, 50), View(decisions=True)),
    ],
)
def test_frames(name: str, size: tuple[int, int], view: View) -> None:
    assert text(size, view) + "\n" == (FRAMES / f"{name}.txt").read_text()


def test_the_screen_of_decisions_is_scrolled_to_the_oldest() -> None:
    assert "Empty: 1 node removed" in text((80, 24), View(decisions=True, scroll=99)).splitlines()[4]


def test_without_an_install_or_decisions_it_says_so() -> None:
    assert "--cluster, --stack or --dev" in text((80, 24), View(decisions=True), None)
    assert "Nothing was decided" in text((80, 24), View(decisions=True), ())
    blind = msgspec.structs.replace(THREE, missing=("recorded decisions are not seen: " + "refused " * 12,))
    shown = "\n".join(line.plain for line in frame(Scene(blind, ()), View(decisions=True), (), 80, 24))
    assert shown.count("refused") > 13, "in the head, where it is cut, and in full below"
    assert "Nothing was decided" not in shown
    assert "decided" not in text((80, 24), decided=()).replace("d decisions", "")
