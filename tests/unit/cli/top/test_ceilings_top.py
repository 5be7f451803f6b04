"""The lines of `shiplap top` about this month's dollars."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.drawing.picture import ClusterPicture
from shiplap.errors import AwsError, StoreError
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.policies.policy_settings import chosen
from shiplap.settings import ClusterSettings
from shiplap.spending.ledger import HOUR_S, MonthOfSpending, SpendingLedger
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.commands.top.followed_install import (
    LinesRead,
    lines_source,
)
from shiplap_cli.commands.top.frame import Scene, frame
from shiplap_cli.commands.top.view import View
from shiplap_cli.installs.followed_resources import FollowedResources
from shiplap_cli.policies.ceilings_top import lines_reader
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import node_claim
from tests.conformance.priced_pools import priced

NOW = datetime(2026, 11, 29, tzinfo=UTC).timestamp()
WORDS = "this month $300.00 spent, $24.00 reserved, forecast $324.00"


def spent() -> FakeState:
    state = FakeState()
    known = {"cluster": "prod", "instance_id": "i-1", "hourly": 0.5, "state": ClaimState.INITIALIZED}
    state.adopt(node_claim(name="a", created_at=NOW - 10 * HOUR_S, **known))
    month = MonthOfSpending("2026-11", 300_000_000, by_pool={"default": 300_000_000})
    state.post_ledger("prod", SpendingLedger(1, int(NOW), month, hours=(500_000,) * 30))
    return state


def reading(state: FakeState) -> list[str]:
    install: Any = SimpleNamespace(state=lambda: state)
    return list(lines_reader(FollowedResources(lambda: (install, "prod")), lambda: NOW)())


def test_what_is_spent_reserved_and_forecast(settings: list[ClusterSettings | AwsError]) -> None:
    (words,) = reading(spent())
    assert words == WORDS
    following = FollowedCluster("prod", lambda _: (NodePrices(), ""))
    following.apply(LinesRead("ceilings", (words,)))
    following.apply(LinesRead("sleep", ("sleep: 1 more node may leave",)))
    lines = [str(line) for line in frame(Scene(following.picture(NOW)), View(), (), 80, 24)]
    assert [line for line in lines if line.startswith(("sleep", "this"))] == [words, "sleep: 1 more node may leave"]
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
    settings.append(ClusterSettings(name="prod", region="eu-west-1", policies=chosen(CeilingSettings(ceilings))))
    assert reading(spent()) == [WORDS, nearest]


def test_the_hourly_ceiling_of_a_node_pool_may_be_the_most_used_one(
    settings: list[ClusterSettings | AwsError],
) -> None:
    manifests = Manifests(node_pools=(priced("default", max_hourly_price="0.8"),))
    ceilings = (Ceiling(monthly=600.0),)
    settings.append(
        ClusterSettings(
            name="prod", region="eu-west-1", policies=chosen(CeilingSettings(ceilings)), manifests=manifests
        )
    )
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
    lines_source("ceilings", "unseen", lambda: reading(FakeState())).poll_once(shown.append)
    assert shown[0] == LinesRead("ceilings", ())
    empty = frame(Scene(ClusterPicture(cluster="prod", taken_at=NOW)), View(), (), 80, 24)
    assert not any("this month" in str(line) for line in empty)
