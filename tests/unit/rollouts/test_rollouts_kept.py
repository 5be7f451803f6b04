"""Consolidation leaves the nodes of a Deployment alone for a day after a restart."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.kubernetes.related_objects import RolledWorkload
from shiplap.policies.rollouts.rollout_steps import RESTARTED_AT, restarted_at
from shiplap.policies.rollouts.rollouts_input import RESTARTS_APART_S, MovedPod, RolloutsInUse

NOW = 1_767_268_800.0
WEB = MovedPod("shop/web-1", "n1", "Deployment shop/web", 900.0, evicts=True, restarted_at=NOW)
API = MovedPod("shop/api-1", "n2", "Deployment shop/api", 900.0, evicts=True)


def test_the_nodes_of_a_deployment_are_kept_for_a_day() -> None:
    rollouts = RolloutsInUse((WEB, API, replace(WEB, pod="shop/web-2", node="n3")))
    why = (
        "Deployment shop/web was restarted at 2026-01-01T12:00:00Z as a node left; consolidation restarts it once a day"
    )
    assert rollouts.kept_from_consolidation(NOW + RESTARTS_APART_S - 1) == {"n1": why, "n3": why}
    assert rollouts.kept_from_consolidation(NOW + RESTARTS_APART_S) == {}


@pytest.mark.parametrize(
    ("annotations", "at"),
    [({}, 0.0), ({RESTARTED_AT: "2026-01-01T12:00:00Z"}, NOW), ({RESTARTED_AT: "soon"}, 0.0)],
)
def test_the_time_of_a_restart_is_read_from_the_template(annotations: dict[str, str], at: float) -> None:
    spec = {"replicas": 1, "template": {"metadata": {"annotations": annotations}}}
    deployment = msgspec.convert({"metadata": {"name": "web"}, "spec": spec}, RolledWorkload)
    assert restarted_at(deployment) == at
