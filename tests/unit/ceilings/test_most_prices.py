"""The most that a claim may cost, which bounds what it is launched as."""

from __future__ import annotations

from shiplap.flows.policies.ceilings_inputs import with_most_prices
from shiplap.policies.ceilings.ceilings import WantedLaunch
from tests.builders.claims import node_claim


def test_a_claim_may_cost_as_much_as_the_dearest_that_it_may_be_launched_as() -> None:
    records = [node_claim(name=name, cluster="demo") for name in ("a", "b", "c")]
    prices: dict[str, dict[str, int]] = {"a": {"small": 100_000, "large": 250_000}, "b": {}}
    wanted = [WantedLaunch(name=name, node_pool="p", prices=found) for name, found in prices.items()]
    assert [claim.most_hourly for claim in with_most_prices(records, wanted)] == [0.25, 0.0, 0.0]
