"""`shiplap plan`, `explain` and `validate` on files with gangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.scheduling.planner import plan
from shiplap_cli.policies.gangs_view import VIEW
from tests.commands import Shiplap
from tests.unit.cli.gangs_written import arguments, members
from tests.unit.cli.planned_files import pod
from tests.unit.gangs.gang_cases import gang, snapshot


def test_a_gang_in_files_has_all_or_nothing(tmp_path: Path, shiplap: Shiplap) -> None:
    whole = shiplap(*arguments(tmp_path, 9, *members()))
    assert "web/train: 3 of 3 members have a place" in whole
    assert "as an install with `gangs: {mode: whole}` plans them" in whole
    short = " ".join(shiplap(*arguments(tmp_path, 0, *members()), code=1).split())
    assert "nothing is launched for gang web/train: 0 of 3 members would have a place" in short
    assert "web/train: 0 of 3 members have a place; nothing is launched: 0 of 3 members would have a place:" in short
    assert "again every minute" not in short


def test_explain_names_the_smallest_change_for_the_whole_gang(tmp_path: Path, shiplap: Shiplap) -> None:
    given = arguments(tmp_path, 1, *(item | {"spec": pod("x", "5")["spec"]} for item in members()))
    page = shiplap.page("explain", "pod", "web/train-1", *given[1:], code=1)
    assert "short by at least 2 nodes in all under the limit of NodePool default; " in page
    change = "smallest change: raise the nodes limit of pool default from 1 to 3 → large"
    assert change in page
    assert "with 3 that start together" in page
    waits = shiplap.page("explain", "pod", "web/train-1", *arguments(tmp_path, 9, *members(total=4))[1:], code=1)
    assert "smallest change" not in waits


def test_of_an_install_it_is_said_when_a_gang_is_planned_again() -> None:
    short = snapshot(*gang(size=4, minimum=3), nodes=2)
    lines = [*VIEW.of_plan(replace(short, install="shiplap"), plan(short))]
    assert lines[0] == ""
    assert lines[1].startswith(
        "  default/train: 0 of 3 members have a place; nothing is launched: 2 of 3 members would "
    )
    assert lines[1].endswith("; it is planned again every minute")


def test_unequal_nodes_are_at_risk(tmp_path: Path, shiplap: Shiplap) -> None:
    equal = [pod(f"train-{number}", "7") for number in range(3)]
    unequal = [pod("train-0", "1500m"), pod("train-1", "7"), pod("train-2", "7")]
    for waiting, said in ((equal, False), (unequal, True)):
        for item in waiting:
            item["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": "train"}
            item["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "3"}
        page = shiplap.page(*arguments(tmp_path, 9, *waiting))
        assert ("in several requests: at most $0.8000 an hour at risk if the last is refused" in page) == said


def test_the_document_lists_gangs_that_wait(tmp_path: Path, shiplap: Shiplap) -> None:
    answer = shiplap.json(*arguments(tmp_path, 9, *members(total=4)), code=1)
    (gang,) = answer["gangs"]["waiting"]
    assert (gang["namespace"], gang["name"], gang["minimum"], gang["waiting"]) == ("web", "train", 4, 3)
    assert "3 of 4 members exist" in gang["problem"]
    assert answer["nodeClaims"] == []


@pytest.mark.parametrize(
    ("nodes", "verdict"), [(9, (3, True, "", 3, 1.2)), (2, (0, False, "2 of 3 members would have a place: ", 0, 0.0))]
)
def test_the_document_has_the_verdict_on_each_gang(
    tmp_path: Path, shiplap: Shiplap, nodes: int, verdict: tuple[int, bool, str, int, float]
) -> None:
    given = arguments(tmp_path, nodes, pod_group(minMember=3), *grouped())
    (gang,) = shiplap.json(*given, code=0 if verdict[1] else 1)["gangs"]["waiting"]
    reason = gang["reason"][: len(verdict[2])]
    found = (gang["withPlace"], gang["launched"], reason, gang["newNodes"], round(gang["hourly"], 6))
    assert (found, gang["estimated"], gang["problem"]) == (verdict, False, "")
    assert bool(gang["reason"]) != gang["launched"]


def test_files_without_gangs_say_nothing_of_them(tmp_path: Path, shiplap: Shiplap) -> None:
    assert "Gangs" not in shiplap(*arguments(tmp_path, 9, pod("web", "1")))
    assert "gangs" not in shiplap.json(*arguments(tmp_path, 9, pod("web", "1")))


PLUGINS = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}


def grouped(total: int = 3, **metadata: Any) -> list[dict[str, Any]]:
    found = [pod(f"train-{number}", "5") for number in range(total)]
    for item in found:
        item["metadata"] |= metadata or PLUGINS
    return found


def pod_group(
    api_version: str = "scheduling.x-k8s.io/v1alpha1", namespace: str = "web", name: str = "train", **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": None}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def test_a_pod_group_in_files_makes_a_gang_of_the_pods_that_name_it(tmp_path: Path, shiplap: Shiplap) -> None:
    whole = shiplap(*arguments(tmp_path, 9, pod_group(minMember=3), *grouped()))
    assert "web/train: 3 of 3 members have a place, 3 new nodes" in whole
    assert "as an install with `gangs: {mode: whole}` plans them" in whole
    short = shiplap.page(*arguments(tmp_path, 2, pod_group(minMember=3), *grouped()), code=1)
    assert "nothing is launched for gang web/train: 2 of 3 members would have a place" in short
    enough = shiplap.page(*arguments(tmp_path, 2, pod_group(minMember=2), *grouped()), code=1)
    assert "web/train: 2 of 2 members have a place, 2 new nodes" in enough
    core = [pod(f"train-{number}", "5", spec={"schedulingGroup": {"podGroupName": "train"}}) for number in range(3)]
    group = pod_group("scheduling.k8s.io/v1beta1", schedulingPolicy={"gang": {"minCount": 3}})
    assert "web/train: 2 of" not in shiplap.page(*arguments(tmp_path, 2, group, *core), code=1)


@pytest.mark.parametrize(
    ("metadata", "api_version"),
    [
        ({"annotations": {"scheduling.k8s.io/group-name": "train"}}, "scheduling.volcano.sh/v1beta1"),
        ({"annotations": {"pod-group-name": "train"}}, "scheduling.run.ai/v2alpha2"),
    ],
)
def test_volcano_and_kai_have_pod_groups_too(
    tmp_path: Path, shiplap: Shiplap, metadata: dict[str, Any], api_version: str
) -> None:
    answer = shiplap.json(*arguments(tmp_path, 9, pod_group(api_version, minMember=3), *grouped(**metadata)))
    assert [(item["name"], item["minimum"]) for item in answer["gangs"]["waiting"]] == [("train", 3)]
    other = pod_group(minMember=3)
    told = shiplap.page(*arguments(tmp_path, 9, other, *grouped(**metadata)), code=1)
    assert f"there is no PodGroup web/train of {api_version.partition('/')[0]} among the files" in told


def test_pods_are_told_of_a_pod_group_that_is_not_there(tmp_path: Path, shiplap: Shiplap) -> None:
    given = arguments(tmp_path, 9, *grouped())
    answer = shiplap.json(*given, code=1)
    assert answer["nodeClaims"] == []
    reason = "there is no PodGroup web/train of scheduling.x-k8s.io among the files"
    assert [item["problem"] for item in answer["gangs"]["waiting"]] == [reason]
    assert reason in shiplap.page("explain", "pod", "web/train-0", *given[1:], code=None)
    elsewhere = shiplap.page(*arguments(tmp_path, 9, pod_group(namespace="ml", minMember=3), *grouped()), code=1)
    assert "namespace ml has one, whose members are in its namespace only" in elsewhere


def test_members_that_do_not_exist_are_missed(tmp_path: Path, shiplap: Shiplap) -> None:
    (gang,) = shiplap.json(*arguments(tmp_path, 9, pod_group(minMember=2**31 - 1), *grouped()), code=1)["gangs"][
        "waiting"
    ]
    assert gang["problem"] == "3 of 2147483647 members exist, nobody makes the others"


def test_a_pod_group_that_asks_for_nothing_changes_nothing(tmp_path: Path, shiplap: Shiplap) -> None:
    others = (pod_group(name="other", minMember=8), pod_group("scheduling.example.com/v1", minMember=-8))
    cases = [
        *((group, [pod("web", "5")]) for group in others),
        (pod_group(), grouped()),
        (pod_group(minMember=0), grouped()),
    ]
    for group, waiting in cases:
        answer = shiplap.json(*arguments(tmp_path, 9, group, *waiting))
        assert "gangs" not in answer
        assert len(answer["nodeClaims"]) == len(waiting)


def test_the_class_of_a_pod_group_is_looked_up(tmp_path: Path, shiplap: Shiplap) -> None:
    first = [pod(f"first-{number}", "5", labels={"scheduling.x-k8s.io/pod-group": "first"}) for number in range(2)]
    group = pod_group(name="first", minMember=2)
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    for name, places in (("urgent", 2), ("unknown", 0)):
        later = pod_group(minMember=2, priorityClassName=name)
        page = shiplap.page(*arguments(tmp_path, 2, urgent, group, later, *first, *grouped(2)), code=1)
        assert f"web/train: {places} of 2 members have a place" in page


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"minMember": -1}, "spec.minMember", "must be from 0 to 2147483647, is -1"),
        ({"minMember": 2**31}, "spec.minMember", "must be from 0 to 2147483647, is 2147483648"),
        ({"minMember": 10**30}, "spec.minMember", "must be from 0 to 2147483647, is 1000000"),
        ({"minMember": "four"}, "spec.minMember", "Expected int"),
    ],
)
def test_what_is_wrong_with_a_pod_group_is_named(
    tmp_path: Path, shiplap: Shiplap, spec: dict[str, Any], field: str, reason: str
) -> None:
    given = arguments(tmp_path, 9, pod_group(**spec), *grouped())
    told = shiplap.error(*given)
    assert f"{tmp_path / 'state.json'}:1: PodGroup/train: {field}: {reason}" in told
    answer = shiplap.json("validate", tmp_path, code=2)
    (problem,) = answer["problems"]
    assert (problem["file"], problem["document"], problem["field"]) == (given[2], "PodGroup/train", field)
    assert reason in problem["reason"]


def test_two_pod_groups_of_one_name(tmp_path: Path, shiplap: Shiplap) -> None:
    two = (pod_group(minMember=3), pod_group(minMember=2))
    given = arguments(tmp_path, 9, *two, *grouped())
    assert f"there is already one of this name, in {given[2]}:1" in shiplap.error(*given)
    assert "there is already one of this name" in shiplap.json("validate", given[2], code=2)["problems"][0]["reason"]
    unlike = (pod_group("scheduling.volcano.sh/v1beta1", minMember=9), pod_group(namespace="ml", minMember=9))
    assert "3 of 3 members" in shiplap(*arguments(tmp_path, 9, pod_group(minMember=3), *unlike, *grouped()))


def test_pod_groups_are_valid_and_counted(tmp_path: Path, shiplap: Shiplap) -> None:
    file = arguments(tmp_path, 9, pod_group(minMember=3), pod_group("scheduling.example.com/v1"), *grouped(1))[2]
    assert shiplap("validate", file) == "1 manifest valid; passed over 2 objects of other kinds\n"
