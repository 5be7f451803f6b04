"""The judge of commitments: claims of all clusters count on no more dollars an hour than commitments pay."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.raw_json import ClaimItem
from shiplap_lab.policies.commitments_account import OwnedCommitments, owned_commitments
from shiplap_lab.scenarios.scenario import ScenarioSavingsPlan, load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.mutants import planted
from shiplap_lab.simulation.run import Simulation
from shiplap_lab.virtual_time.supply import catalog, price
from tests.simulation.plays import Play

WHOLE = "commitments pay $0.1000 of $0.1000 an hour"
LARGE = "m6i.large"


@pytest.mark.parametrize(
    ("reasons", "launched_as", "usd"),
    [
        (("first", WHOLE), "", 0.1),
        ((WHOLE,), LARGE, 0.1),
        ((WHOLE,), "c7i.large", 0.0),
        (("commitments pay $0.0500 of $0.1000 an hour",), "", 0.05),
        (("static pool",), "", 0.0),
    ],
)
def test_a_claim_says_what_it_counts_on(reasons: tuple[str, ...], launched_as: str, usd: float) -> None:
    claim = ClaimItem("demo", "a", instance_types=(LARGE, "c7i.large"), instance_type=launched_as, reasons=reasons)
    assert claim.counted_on == pytest.approx(usd, abs=1e-4)
    assert claim.counted_on <= usd


def write(play: Play, name: str, kind: str = LARGE, state: str = "Planned", cluster: str = "demo") -> None:
    item = {"cluster": cluster, "name": name, "instance_types": [kind], "reasons": [WHOLE], "state": state}
    play.judge.claim_written("shiplap", msgspec.json.encode(item).decode())


@pytest.mark.parametrize("family", ["", "m6i"])
def test_dollars_that_claims_of_two_clusters_count_on_break_the_promise_until_one_has_ended(family: str) -> None:
    play = Play()
    play.judge.dollars.commitments = {family: 0.1}
    for name, state, cluster in (("a", "Planned", "demo"), ("a", "Failed", "demo"), ("b", "Planned", "other")):
        write(play, name, state=state, cluster=cluster)
    assert Promise.COMMITMENTS not in play.told
    write(play, "c")
    assert Promise.COMMITMENTS in play.told


@pytest.mark.parametrize(
    ("commitments", "kinds", "kept"),
    [
        ({"m6i": 0.1}, ["c7i.large"], False),
        ({"m6i": 0.1, "": 0.1}, [LARGE, "c7i.large"], True),
        ({"m6i": 0.1, "": 0.1}, [LARGE, LARGE], True),
        ({"m6i": 0.1, "": 0.1}, [LARGE, "c7i.large", LARGE], False),
        ({"m6i": 0.2, "": 0.1}, ["c7i.large", "c7i.large"], False),
        ({"m6i": 0.1, "": 0.15}, [LARGE, LARGE, "c7i.large"], False),
        ({}, [LARGE], False),
    ],
)
def test_what_is_of_a_family_pays_for_it_first_and_for_no_other(
    commitments: dict[str, float], kinds: list[str], *, kept: bool
) -> None:
    play = Play()
    play.judge.dollars.commitments = commitments
    for number, kind in enumerate(kinds):
        write(play, f"claim-{number}", kind)
    assert (Promise.COMMITMENTS not in play.told) == kept


def test_seeds_draw_reserved_instances_savings_plans_or_both() -> None:
    scenario = load("commitments").scenario
    drawn = {tuple(map(bool, owned_commitments(scenario, seed))) for seed in range(20)}
    assert drawn == {(True, True), (True, False), (False, True)}
    alone = msgspec.structs.replace(scenario, savings_plans=())
    assert {owned_commitments(alone, seed) == (scenario.reserved_instances, ()) for seed in range(20)} == {True}


def test_what_an_account_has_pays_at_list_prices_and_is_shown_at_its_rates() -> None:
    plans = (ScenarioSavingsPlan(0.36, 28.0), ScenarioSavingsPlan(0.03, 40.0, "m6i"))
    owned, sold = OwnedCommitments({"m6i.xlarge": 2}, plans), catalog()
    assert owned.paid(partial(price, sold, zone="", capacity_type="on-demand")) == pytest.approx(
        {"": 0.5, "m6i": 0.05 + 2 * 0.192}
    )
    known = owned.shown(5.0, sold)
    assert [(plan.family, plan.commitment) for plan in known.savings_plans] == [("", 360_000), ("m6i", 30_000)]
    assert [plan.rate("m6i.large", 96_000) for plan in known.savings_plans] == [69_120, 57_600]
    assert [(item.instance_type, item.count) for item in known.reserved_instances] == [("m6i.xlarge", 2)]


def test_a_seed_with_savings_plans_alone_uses_them_and_a_dollar_counted_by_two_clusters_is_found() -> None:
    play = load("commitments")
    plans = next(seed for seed in range(20) if not owned_commitments(play.scenario, seed)[0])
    simulation = Simulation(play, plans, draw_faults(play.scenario, plans), play.scenario.hours)
    assert simulation.play().violations == ()
    (install,) = simulation.installs.values()
    reasons = {(claim.cluster, reason) for claim in install.state.written.values() for reason in claim.plan.reasons}
    assert {cluster for cluster, reason in reasons if reason.startswith("commitments pay")} == {"left", "right"}
    with planted("counts plans alone"):
        found = run_seed(play, plans).violations
    assert found[0].promise == Promise.COMMITMENTS
