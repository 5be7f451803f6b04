"""Shiplap learns from existing nodes, whoever launched them: the first plan of a new install uses the true figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shiplap.errors import AwsThrottled
from shiplap.kubernetes.quantity import MEMORY, PODS
from shiplap.ports import Instance
from tests.integration.flows.stage import MIB, Stage
from tests.integration.flows.strangers import AMI, TRUE_MEMORY, TYPE, found


def learned(stage: Stage) -> list[int]:
    return [item.recent[-1].capacity[MEMORY] for item in stage.capacity.all()]


def test_the_first_plan_relies_on_what_a_strangers_node_reports() -> None:
    stage = found()
    assert len(stage.schedule().launched) == 1
    assert learned(stage) == [TRUE_MEMORY]
    (claim,) = stage.claims()
    assert claim.plan.relies_on_estimate == ()
    assert claim.plan.allocatable[MEMORY] == TRUE_MEMORY - stage.types[TYPE].overhead[MEMORY]
    assert stage.meter.counts["TypesLearnedFromOthers"] == 1


def test_it_is_learned_once() -> None:
    stage = found()
    stage.schedule()
    stage.faults.clear()
    stage.add_pods(1, memory="6Gi", prefix="more")
    stage.schedule()
    assert "before compute.images" not in stage.faults.points


@pytest.mark.parametrize(
    "changes",
    [
        {"ami": "ami-of-theirs"},
        {"capacity": {PODS: 110}},
        {"overhead": {MEMORY: 1024 * MIB}},
    ],
    ids=["another AMI", "other pods", "other reservations"],
)
def test_a_node_that_is_not_like_ours_teaches_nothing(changes: dict[str, Any]) -> None:
    stage = found(**changes)
    stage.schedule()
    assert learned(stage) == []


def test_estimates_do_when_ec2_is_not_to_be_asked() -> None:
    stage = found()
    stage.faults.on("before", "compute.images", AwsThrottled("slow down"))
    assert len(stage.schedule().launched) == 1
    assert (learned(stage), stage.meter.counts["StrangersNotRead"]) == ([], 1)


def test_of_many_nodes_of_a_type_ec2_is_asked_for_the_newest_few(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = found(ami="ami-of-last-year")
    (theirs,) = stage.server.list("nodes").items
    newest = Instance(
        id="i-0000000000000cafe",
        instance_type=TYPE,
        zone="eu-west-1a",
        capacity_type="on-demand",
        ami=AMI,
        state="running",
        cluster="somebody-elses",
    )
    stage.compute.add(newest)

    def join(name: str, provider_id: str) -> None:
        metadata = {"name": name, "labels": theirs["metadata"]["labels"]}
        spec = {**theirs["spec"], "providerID": provider_id}
        stage.server.create("nodes", {"metadata": metadata, "spec": spec, "status": theirs["status"]})

    for number in range(100):
        join(f"old-{number}", f"aws:///eu-west-1a/i-{number:017x}")
    stage.clock.advance(60)
    join("young", newest.provider_id)
    asked: list[str] = []
    images = stage.compute.images

    def counted(instance_ids: Sequence[str]) -> dict[str, str]:
        asked.extend(instance_ids)
        return images(instance_ids)

    monkeypatch.setattr(stage.compute, "images", counted)
    stage.schedule()
    assert len(asked) == 8
    assert learned(stage) == [TRUE_MEMORY]
