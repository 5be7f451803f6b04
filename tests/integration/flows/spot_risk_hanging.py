"""Functions about to run where evidence about spot is kept, on a stage on which optional calls may hang."""

from __future__ import annotations

from typing import Any

from tests.integration.flows.hanging_plays import Played, done, prepared, run_dry
from tests.integration.flows.leaving import first, warning
from tests.integration.flows.spot_risk_stage import stage_with
from tests.integration.flows.stage import Stage


def spot_scheduling() -> Played:
    """Spot is asked for, with evidence about it, and some of it is refused."""
    stage = stage_with("observe", 2)
    for name in stage.types:
        if name.startswith("c7i"):
            run_dry(stage, name, "spot")

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)


def interrupting() -> Played:
    """Spot takes an instance back."""
    stage = stage_with("observe", 1)
    stage.play_on()
    _, instance = first(stage)
    body = warning(stage, instance.id)

    def act(stage: Stage) -> Any:
        stage.interrupt(body)
        return done(stage)

    return prepared(stage, act)


STORIES = (spot_scheduling, interrupting)
