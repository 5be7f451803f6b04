"""Seeds in which the manifests are objects of the cluster, and planted defects that some of them find."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap.flows import live_settings
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.live_campaign import CHANGES, draw_changes, run_live_seed

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept_while_manifests_come_and_go(seed: int) -> None:
    outcome = run_live_seed(load("mixed"), seed)
    assert outcome.violations == ()
    assert outcome.settled_at > 0


def test_the_seeds_draw_every_change() -> None:
    assert {change.kind for seed in SEEDS for change in draw_changes(["demo"], seed)} == set(CHANGES)


def found(seeds: range) -> Iterator[str]:
    """What broken promises say, seed by seed: no further seed is played once a test has what it looks for."""
    for seed in seeds:
        yield from (violation.detail for violation in run_live_seed(load("mixed"), seed).violations)


def test_suspension_that_is_ignored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_settings, "_suspended", lambda settings, _reason, _context: settings)
    assert any(detail.endswith("is suspended") for detail in found(range(40)))


def test_specs_that_are_taken_at_once_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveManifests, "unsettled_pools", lambda *_: ())
    assert any(detail.endswith("has stood for a minute") for detail in found(range(40)))
