"""Functions about to run where pods or requests are gangs, on a stage on which optional calls may hang."""

from __future__ import annotations

from typing import Any

from tests.integration.flows.gangs_request_stage import CHECK, add_request, add_template, stage_of_requests
from tests.integration.flows.gangs_stage import add_members, add_pod_group, stage_of_gangs
from tests.integration.flows.hanging_plays import Played, done, prepared
from tests.integration.flows.stage import Stage


def scheduling_beside_gangs() -> Played:
    """Two pods get a node; a gang lacks members, as its PodGroup says."""
    stage = stage_of_gangs()
    add_members(stage)
    add_pod_group(stage, 4)
    stage.add_pods(2, cpu="1200m", memory="2Gi")

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)


def scheduling_beside_requests() -> Played:
    """Two pods get a node; a ProvisioningRequest finds no room, and is answered."""
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2, of=CHECK)
    stage.add_pods(2, cpu="1200m", memory="2Gi")

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)


STORIES = (scheduling_beside_gangs, scheduling_beside_requests)
