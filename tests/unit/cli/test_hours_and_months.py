"""Money and limits as people read them: an hour beside its month, an estimate in two digits, one unit per limit."""

from __future__ import annotations

import pytest

from shiplap.instances.offerings.node_prices import Price, total_price
from shiplap_cli.installs.install_metrics import PoolUsage
from shiplap_cli.money import hour_and_month, per_hour_and_month


@pytest.mark.parametrize(
    ("price", "text"),
    [
        (Price(0.096), "$0.0960/h, $70.08 a month"),
        (Price(0.096, estimated=True), "~$0.0960/h, ~$70 a month"),
        (Price(1.6911), "$1.6911/h, $1,235 a month"),
        (Price(1.6911, estimated=True), "~$1.6911/h, ~$1,200 a month"),
    ],
)
def test_an_hour_stands_beside_its_month(price: Price, text: str) -> None:
    assert hour_and_month(price) == text


def test_one_estimate_makes_the_sum_an_estimate() -> None:
    real, estimated = Price(0.4), Price(0.1, estimated=True)
    assert per_hour_and_month(total_price([real, real])) == "$0.8000 per hour, $584 a month"
    assert per_hour_and_month(total_price([real, estimated]), "saved") == "~$0.5000 per hour saved, ~$360 a month"


def test_each_pool_tells_its_own_limits_in_one_unit() -> None:
    usage = [
        PoolUsage("prod", "default", 9, 0, 0, 1.0, {"cpu": "99120m"}, {"memory": "4Gi", "cpu": "1000"}),
        PoolUsage("prod", "spot", 1, 0, 0, 0.1, {"cpu": "500m", "memory": "1536Mi"}, {"cpu": "8", "memory": "4Gi"}),
    ]
    assert [pool.limits_in_words for pool in usage] == [
        ("cpu 99.12 of 1000", "memory 0Gi of 4Gi"),
        ("cpu 0.5 of 8", "memory 1.5Gi of 4Gi"),
    ]
