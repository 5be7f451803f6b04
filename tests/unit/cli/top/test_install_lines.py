"""The lines of `shiplap top` about this month's dollars and about sleep."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import AwsError, StoreError
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode
from shiplap.policies.ceilings.ledger import HOUR_S, MonthOfSpending, SpendingLedger
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_digest
from shiplap.settings import ClusterSettings
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.commands.top.followed_install import (
    FollowedResources,
    LinesRead,
    lines_source,
    sleep_reader,
    spending_reader,
)
from shiplap_cli.commands.top.frame import Scene, frame
from shiplap_cli.commands.top.view import View
from shiplap_cli.inputs.cluster_events import SourceProblem
from shiplap_cli.installs import installed
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.state import FakeJoins, FakeState
from shiplap_lab.policies.sleep_fakes import FakeSleep
from tests.builders.claims import node_claim
from tests.conformance.priced_pools import priced

NOW = datetime(2026, 11, 29, tzinfo=UTC).timestamp()
WORDS = "this month $300.00 spent, $24.00 reserved, forecast $324.00"


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[ClusterSettings | AwsError]:
    """The last one is what the functions have."""
    found: list[ClusterSettings | AwsError] = [ClusterSettings(name="prod", region="eu-west-1")]

    def look_up(*_: object) -> ClusterSettings:
        if isinstance(found[-1], AwsError):
            raise found[-1]
        return found[-1]

    monkeypatch.setattr(installed, "cluster_settings_of", look_up)
    return found


def spent() -> FakeState:
    state = FakeState()
    known = {"cluster": "prod", "instance_id": "i-1", "hourly": 0.5, "state": ClaimState.INITIALIZED}
    state.adopt(node_claim(name="a", created_at=NOW - 10 * HOUR_S, **known))
    month = MonthOfSpending("2026-11", 300_000_000, by_pool={"default": 300_000_000})
    state.post_ledger("prod", SpendingLedger(1, int(NOW), month, hours=(500_000,) * 30))
    return state


def reading(state: FakeState) -> list[str]:
    install: Any = SimpleNamespace(state=lambda: state)
    return list(spending_reader(FollowedResources(lambda: (install, "prod")), lambda: NOW)())


def test_what_is_spent_reserved_and_forecast(settings: list[ClusterSettings | AwsError]) -> None:
    (words,) = reading(spent())
    assert words == WORDS
    following = FollowedCluster("prod", lambda _: (NodePrices(), ""))
    following.apply(LinesRead("spending", (words,)))
    following.apply(LinesRead("sleep", ("sleep: 1 more node may leave",)))
    lines = [str(line) for line in frame(Scene(following.picture(NOW)), View(), (), 80, 24)]
    assert [line for line in lines if line.startswith(("sleep", "this"))] == ["sleep: 1 more node may leave", words]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("hourly", "nearest"),
    [
        (4.0, "54% of cluster prod, $600.00 per month, mode warn"),
        (0.625, "80% of cluster prod, $0.63 per hour, mode stop"),
    ],
)
def test_the_ceiling_of_which_most_is_used(
    settings: list[ClusterSettings | AwsError], hourly: float, nearest: str
) -> None:
    ceilings = (Ceiling(monthly=600.0), Ceiling(hourly=hourly, mode=CeilingMode.STOP))
    settings.append(ClusterSettings(name="prod", region="eu-west-1", ceilings=ceilings))
    assert reading(spent()) == [WORDS, nearest]


def test_the_hourly_ceiling_of_a_node_pool_may_be_the_most_used_one(
    settings: list[ClusterSettings | AwsError],
) -> None:
    manifests = Manifests(node_pools=(priced("default", max_hourly_price="0.8"),))
    ceilings = (Ceiling(monthly=600.0),)
    settings.append(ClusterSettings(name="prod", region="eu-west-1", ceilings=ceilings, manifests=manifests))
    assert reading(spent()) == [WORDS, "62% of NodePool default, $0.80 per hour, mode stop"]


def test_ceilings_that_cannot_be_looked_up_are_said_beside_what_is_spent(
    settings: list[ClusterSettings | AwsError],
) -> None:
    settings.append(AwsError("not authorized"))
    assert reading(spent()) == [WORDS, "ceilings are not seen: not authorized"]


def test_a_table_that_cannot_be_read_is_reported_with_its_claims_only() -> None:
    state = FakeState()
    state.faults.on("before", "state.read", StoreError("refused"))
    assert reading(state) == []


def test_without_a_ledger_there_is_no_line() -> None:
    assert reading(FakeState()) == []
    shown: list[Any] = []
    lines_source("spending", "unseen", lambda: reading(FakeState())).poll_once(shown.append)
    assert shown[0] == LinesRead("spending", ())
    empty = frame(Scene(ClusterPicture(cluster="prod", taken_at=NOW)), View(), (), 80, 24)
    assert not any("this month" in str(line) for line in empty)


class TestSleep:
    SLEEP = SleepSettings(("dev",), 5, (WindowSettings("daily 22:00-06:00 UTC"),))
    POOL = msgspec.convert(
        {"metadata": {"name": "dev"}, "spec": {"template": {"spec": {"nodeClassRef": {"name": "default"}}}}}, NodePool
    )

    def reading(self, store: FakeSleep) -> list[str]:
        install: Any = SimpleNamespace(sleep_notes=lambda: store, joins=FakeJoins)
        return list(sleep_reader(FollowedResources(lambda: (install, "prod")), lambda: NOW)())

    def asleep(self, **fields: Any) -> ClusterSettings:
        return ClusterSettings(
            name="prod",
            region="eu-west-1",
            policies=chosen(self.SLEEP),
            manifests=Manifests(node_pools=(self.POOL,)),
            **fields,
        )

    def slept(self, faults: Faults | None = None) -> FakeSleep:
        store = FakeSleep(faults)
        store.save("prod", SleepNotes(sleep_digest(self.SLEEP, (self.POOL,)), {"0": 1}), NOW)
        return store

    def test_what_sleeps_until_when_and_how_many_nodes_may_leave(
        self, settings: list[ClusterSettings | AwsError]
    ) -> None:
        settings.append(self.asleep())
        assert self.reading(self.slept()) == [
            "sleep: NodePool dev until 2026-11-29T06:00:00Z, woken 6 min before",
            "sleep: 5 more nodes may leave",
        ]

    def test_nothing_is_looked_up_where_nothing_has_slept(self, settings: list[ClusterSettings | AwsError]) -> None:
        settings.append(AwsError("not authorized"))
        assert self.reading(FakeSleep()) == []

    def test_nothing_is_said_where_nothing_may_sleep_now_or_pools_are_read_from_the_cluster(
        self, settings: list[ClusterSettings | AwsError]
    ) -> None:
        assert self.reading(self.slept()) == []
        settings.append(self.asleep(live_manifests=True))
        assert self.reading(self.slept()) == []

    @pytest.mark.parametrize("unread", ["settings", "notes"])
    def test_what_cannot_be_read_is_said(self, settings: list[ClusterSettings | AwsError], unread: str) -> None:
        settings.append(AwsError("not authorized") if unread == "settings" else self.asleep())
        faults = Faults()
        if unread == "notes":
            faults.on("before", "sleep.read", StoreError("not authorized"))
        store, shown = self.slept(faults), list[Any]()
        lines_source("sleep", "what sleeps is not seen", lambda: self.reading(store)).poll_once(shown.append)
        assert shown == [SourceProblem("sleep", "what sleeps is not seen: not authorized")]
