"""A month with ceilings, played to its end: prices change, faults come all along, what passed a ceiling is printed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap_cli.commands.lab.simulate import CeilingOvershoot, document
from shiplap_cli.main import run as shiplap
from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge.promises import Promise
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation import campaign
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.mutants import planted
from shiplap_lab.simulation.run import RunOutcome, Simulation


def _end_of_month() -> Play:
    """The last hour of the bundled month, and the beginning of the next one; ceilings are as much lower."""
    play = load("ceilings-monthly")
    scenario = play.scenario

    def sixth(ceilings: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple(each | {"monthly": round(each["monthly"] / 6, 2)} for each in ceilings)

    clusters = tuple(replace(item, ceilings=sixth(item.ceilings)) for item in scenario.clusters)
    return replace(
        play,
        scenario=replace(
            scenario,
            begins=datetime(2026, 1, 31, 23, tzinfo=UTC),
            waves=tuple(wave for wave in scenario.waves if wave.at < 75),
            ceilings=sixth(scenario.ceilings),
            clusters=clusters,
            hours=1.5,
        ),
    )


def test_a_month_ends_below_its_ceilings_and_a_whole_one_begins() -> None:
    play = _end_of_month()
    faults = (Fault("reprice", 5, 200, "*", 1.6), Fault("terminate", 40, 0, amount=1), Fault("interrupt", 50, 5))
    simulation = Simulation(play, 3, faults, play.scenario.hours)
    outcome = simulation.play()

    assert outcome.violations == ()
    assert outcome.effects["reprice"] == 1
    assert outcome.metrics["CeilingsReached"] > 0
    assert datetime.fromtimestamp(simulation.loop.now(), UTC).month == 2
    at = [machine.launched_at for machine in simulation.instances.values()]
    assert max(at) < datetime(2026, 2, 1, tzinfo=UTC).timestamp(), "a node to the end of a whole month fits nowhere"


@pytest.mark.parametrize("mutant", ["", "takes any for the cheapest"])
def test_above_a_ceiling_of_mode_cheapest_no_node_on_demand_takes_the_place_of_spot(mutant: str) -> None:
    play = _end_of_month()
    sold_out = (Fault("no-capacity", 0, 90, "*/spot", 0),)
    with planted(mutant):
        outcome = Simulation(play, 3, sold_out, play.scenario.hours).play()
    broken = {item.promise for item in outcome.violations}
    assert broken == ({Promise.CEILINGS} if mutant else set())


def test_spot_costs_what_the_stored_catalogue_says() -> None:
    play = _end_of_month()
    simulation = Simulation(play, 3, (Fault("reprice", 20, 25, "m6i.*/eu-west-1a", 2.0),), 0.1)
    before = simulation.sold.prices["m6i.large"]
    simulation.loop.run_until(simulation.loop.now())
    (install,) = simulation.installs.values()
    simulation.faults.active[0] = Fault("reprice", target="m6i.*/eu-west-1a", amount=2.0)
    install.catalog.save(install.source.fetch(None))

    after = simulation.charged.prices["m6i.large"]
    assert after.on_demand == before.on_demand
    assert [round(now.price / was.price, 3) for now, was in zip(after.spot, before.spot, strict=True)] == [
        2.0,
        1.0,
        1.0,
    ]
    assert simulation.charged.prices["c7i.large"] == simulation.sold.prices["c7i.large"]
    assert simulation.faults.effects["reprice"] == 1
    install.catalog.save(install.source.fetch(None))
    assert simulation.faults.effects["reprice"] == 1


def test_faults_may_begin_all_through_a_long_run_and_last_no_longer() -> None:
    scenario = load("ceilings-monthly").scenario
    faults = [fault for seed in range(40) for fault in draw_faults(scenario, seed)]
    assert max(fault.at for fault in faults) > 5 * 60
    assert max(fault.minutes for fault in faults) <= scenario.chaos_minutes / 2
    assert {fault.kind for fault in faults} == set(scenario.chaos_kinds)


OVER = (("account", 0.0123, 0.02), ("cluster left", 0.4, 0.3))


def test_months_that_passed_a_ceiling_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = RunOutcome(scenario="mixed", seed=1, trace="", overshoots=OVER)
    assert document(outcome).overshoots[1] == CeilingOvershoot("cluster left", 0.4, 0.3)
    monkeypatch.setattr(campaign, "_one", lambda *_: outcome)
    assert shiplap(["lab", "simulate", "mixed", "--seeds", "2", "--processes", "1"]) == 0
    told = capsys.readouterr().out
    assert "4 ceilings of a month passed, by $0.4000 at most: cluster left, where prices rose by $0.3000" in told
