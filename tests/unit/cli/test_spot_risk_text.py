from __future__ import annotations

import pytest

from shiplap.scheduling.model.scheduling_plan import OfferingRisk, RiskOfLaunch
from shiplap_cli.policies.spot_risk_view import risk_text


@pytest.mark.parametrize(("observed", "words"), [(True, "would be left out"), (False, "left out")])
def test_the_risk_of_a_launch_is_one_line(*, observed: bool, words: str) -> None:
    before = OfferingRisk("m5.large/a", 123_400, 10, 400, mean_of_list=100)
    after = OfferingRisk("m5.large/b", 124_000, 10, 40, mean_of_list=40)

    text = risk_text(RiskOfLaunch(180, before, after, left_out=12, observed=observed))

    assert text == f"12 of 180 {words}: 7.3 -> 2.9 %/month, $0.1234 -> $0.1240"
    assert len(text) <= 80
