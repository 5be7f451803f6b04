"""PodGroups in flows: the functions read those that pods name, and a gang whose PodGroup cannot be read waits."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied
from shiplap.flows.policies.gangs_inputs import read_pod_groups
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.gangs.running_gangs import torn_without
from shiplap.policies.policy_settings import chosen
from shiplap.ports import NamedObjects
from shiplap.records.scheduling_record import decode
from shiplap.scheduling.planner import plan
from tests.integration.flows.disrupted import Disrupted, decided_on
from tests.integration.flows.gangs_stage import (
    APIS,
    KUBERNETES,
    PLUGINS,
    add_members,
    add_pod_group,
    only,
    stage_of_gangs,
)
from tests.integration.flows.stage import Stage


def told(stage: Stage) -> list[str]:
    return sorted({event["message"] for event in stage.objects("events").values()})


def lists(stage: Stage) -> int:
    return Counter(stage.faults.points)["before cluster.named_objects"]


@pytest.mark.parametrize("api", APIS)
def test_a_pod_group_makes_a_gang(api: str) -> None:
    stage = stage_of_gangs()
    only(stage, 3, 3, 2)
    add_members(stage, 3, api)
    add_pod_group(stage, 3, api)
    add_pod_group(stage, 9, api, namespace="other")
    add_pod_group(stage, 9, api, name="other")
    assert len(stage.schedule().launched) == 3
    assert {(request.wanted, request.at_least) for request in stage.compute.requests} == {(3, 3)}
    stage.play_on()
    assert stage.pending() == 0


@pytest.mark.parametrize("api", APIS)
def test_missing_members_of_a_pod_group_are_waited_for(api: str) -> None:
    stage = stage_of_gangs()
    add_members(stage, 3, api)
    add_pod_group(stage, 4, api)
    assert stage.schedule().launched == ()
    assert any("gang default/train: 3 of 4 members exist" in message for message in told(stage))


def test_a_pod_group_is_one_list_for_each_decision_and_none_where_no_pod_names_one() -> None:
    stage = stage_of_gangs()
    add_pod_group(stage)
    stage.add_pods(2)
    stage.schedule()
    assert lists(stage) == 0
    add_members(stage, 4)
    add_members(stage, 2, name="second")
    add_pod_group(stage, 2, name="second")
    stage.faults.clear()
    report = stage.schedule()
    assert (lists(stage), report.rounds) == (report.rounds, report.rounds)
    off = stage_of_gangs("off")
    add_members(off)
    off.schedule()
    assert lists(off) == 0


def test_a_gang_without_its_pod_group_waits_until_it_is_there() -> None:
    stage = stage_of_gangs()
    stage.server.undefined.add(f"podgroups.{PLUGINS}")
    add_members(stage)
    assert stage.schedule().launched == ()
    assert any(f"there is no PodGroup default/train of {PLUGINS} in the cluster" in text for text in told(stage))
    stage.server.undefined.clear()
    add_pod_group(stage)
    assert len(stage.sweep().launched) == 3


def test_a_pod_group_that_cannot_be_read_keeps_no_other_pod_waiting() -> None:
    stage = stage_of_gangs()
    add_members(stage)
    add_pod_group(stage, "many")
    add_members(stage, 2, name="well")
    add_pod_group(stage, 2, name="well")
    add_members(stage, 2, name="negative")
    add_pod_group(stage, -1, name="negative")
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    assert len(stage.schedule().launched) == 3
    said = " ".join(told(stage))
    assert "gang default/train: its PodGroup cannot be read: Expected `int | null`" in said
    assert "gang default/negative: its PodGroup cannot be read: spec.minMember: must be from 0" in said


def test_a_pod_group_that_was_not_looked_for_to_the_end_may_exist() -> None:
    stage = stage_of_gangs()
    add_members(stage)
    add_pod_group(stage)
    cut_off = SimpleNamespace(named_objects=lambda _kind, names: NamedObjects(unlisted=tuple(sorted(names))))
    (facts,) = read_pod_groups("demo", stage.cluster.pending_pods(), replace(stage.context, cluster=cut_off))
    assert (facts.name, facts.unread) == ("train", True)
    assert facts.problem == "its PodGroup cannot be read: it is not among the first that are listed"


def test_without_the_right_to_list_pod_groups_gangs_wait_and_other_pods_do_not() -> None:
    stage = stage_of_gangs()
    add_members(stage)
    add_pod_group(stage)
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.faults.always("cluster.named_objects", ClusterDenied("podgroups is forbidden", status=403))
    assert len(stage.schedule().launched) == 1
    assert stage.meter.counts["PodGroupsNotRead"] >= 1
    assert any("its PodGroup cannot be read: podgroups is forbidden" in text for text in told(stage))
    stage.faults.clear()
    assert len(stage.sweep().launched) == 3


def staged() -> Disrupted:
    """A stage with gangs, on which the disrupt function is played."""
    stage = Disrupted()
    stage.settings = replace(stage.settings, policies=chosen(GangSettings(WHOLE)))
    stage.with_policies()
    return stage


def test_nodes_of_a_gang_that_runs_stay_as_its_pod_group_says() -> None:
    stage = staged()
    add_members(stage, 2, cpu="7")
    add_pod_group(stage, 2)
    stage.play_on()
    stage.faults.clear()
    found = protected(stage)
    assert set(found.values()) == {"runs members of gang default/train, which needs 2 together"}
    assert (len(found), lists(stage)) == (2, 1)
    stage.server.patch(f"podgroups.{PLUGINS}", "train", {"spec": {"minMember": 1}})
    assert protected(stage) == {}
    stage.faults.always("cluster.named_objects", ClusterDenied("podgroups is forbidden", status=403))
    assert set(protected(stage).values()) == {"runs members of gang default/train, whose PodGroup cannot be read"}


def protected(stage: Disrupted) -> dict[str, str]:
    scheduling = decided_on(stage).scheduling
    known = scheduling.policy(GangInput)
    assert known is not None
    return torn_without(scheduling.view, known.known, frozenset())


def test_a_pod_group_that_is_deleted_in_mid_launch_leaves_nothing_running() -> None:
    stage = staged()
    add_members(stage)
    add_pod_group(stage)
    assert stage.schedule().launched
    stage.server.delete(f"podgroups.{PLUGINS}", "train")
    for number in range(3):
        stage.server.delete("pods", f"train-{number}", grace_s=0)
    stage.minutes(15)
    assert stage.compute.alive() == ()


def test_recorded_decisions_hold_what_pod_groups_said() -> None:
    stage = stage_of_gangs()
    add_members(stage, 3, KUBERNETES)
    add_pod_group(stage, 3, KUBERNETES)
    stage.schedule()
    (recorded,) = stage.recorder.records.values()
    record = decode(recorded)
    assert plan(record.snapshot) == record.plan
    known = record.snapshot.policy(GangInput)
    assert known is not None
    assert [(each.api, each.name, each.minimum) for each in known.known.pod_groups] == [(KUBERNETES, "train", 3)]
