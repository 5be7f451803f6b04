"""The line of `shiplap top` about this month's dollars."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import StoreError
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.spending.ledger import HOUR_S, MonthOfSpending, SpendingLedger
from shiplap_cli.top.followed_cluster import FollowedCluster
from shiplap_cli.top.followed_install import SpendingRead, spending_reader, spending_source
from shiplap_cli.top.frame import Scene, frame
from shiplap_cli.top.view import View
from shiplap_lab.fakes.state import FakeState
from tests.node_claims import node_claim

NOW = datetime(2026, 11, 29, tzinfo=UTC).timestamp()


def reading(state: FakeState) -> str:
    install: Any = SimpleNamespace(state=lambda: state)
    return spending_reader(lambda: (install, "prod"), lambda: NOW)()


def test_what_is_spent_reserved_and_forecast() -> None:
    state = FakeState()
    known = {"cluster": "prod", "instance_id": "i-1", "hourly": 0.5, "state": ClaimState.INITIALIZED}
    state.adopt(node_claim(name="a", created_at=NOW - 10 * HOUR_S, **known))
    month = MonthOfSpending("2026-11", 300_000_000, by_pool={"default": 300_000_000})
    state.post_ledger("prod", SpendingLedger(1, int(NOW), month, hours=(500_000,) * 30))
    words = reading(state)
    assert words == "this month $300.00 spent, $24.00 reserved, forecast $324.00"
    following = FollowedCluster("prod", lambda _: (NodePrices(), ""))
    following.apply(SpendingRead(words))
    lines = [str(line) for line in frame(Scene(following.picture(NOW)), View(), (), 80, 24)]
    assert words in lines
    assert max(map(len, lines)) <= 80


def test_a_table_that_cannot_be_read_is_reported_with_its_claims_only() -> None:
    state = FakeState()
    state.faults.on("before", "state.read", StoreError("refused"))
    assert reading(state) == ""


def test_without_a_ledger_there_is_no_line() -> None:
    assert reading(FakeState()) == ""
    shown: list[Any] = []
    spending_source(lambda: reading(FakeState())).poll_once(shown.append)
    assert shown[0] == SpendingRead("")
    empty = frame(Scene(ClusterPicture(cluster="prod", taken_at=NOW)), View(), (), 80, 24)
    assert not any("this month" in str(line) for line in empty)
