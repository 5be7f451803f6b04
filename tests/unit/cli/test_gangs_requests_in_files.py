"""`shiplap plan` and `validate` read ProvisioningRequests in files, with their PodTemplates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiplap_cli.policies import gangs_view
from tests.commands import Shiplap, listed
from tests.unit.cli.gangs_written import (
    ATOMIC,
    CHECK,
    MINIMUM,
    arguments,
    consumer,
    gpu_pool,
    pod_template,
    request,
    template,
)
from tests.unit.cli.planned_files import pod

AS_AN_INSTALL = "as an install with `gangs: {mode: whole}` plans them"


def test_a_request_in_files_is_planned_whole_or_not_at_all(tmp_path: Path, shiplap: Shiplap) -> None:
    whole = shiplap.page(*arguments(tmp_path, 9, pod_template(), request()))
    assert AS_AN_INSTALL in whole
    assert "ProvisioningRequest web/train: 3 pods with room, 3 new nodes for $" in whole
    short = shiplap.page(*arguments(tmp_path, 2, pod_template(), request()), code=1)
    assert "ProvisioningRequest web/train: no room for its 3 pods; nothing is launched: 2 of 3 members would" in short
    for nodes, places, reason in ((9, 3, ""), (2, 0, "2 of 3 members would have a place: ")):
        answer = shiplap.json(*arguments(tmp_path, nodes, pod_template(), request()), code=int(not places))
        (found,) = answer["gangs"]["requests"]
        assert (found["withPlace"], found["launched"], found["newNodes"]) == (places, bool(places), places)
        assert (len(answer["nodeClaims"]), bool(found["hourly"])) == (places, bool(places))
        assert found["reason"].startswith(reason)
        assert bool(reason) == bool(found["reason"])


def test_requests_are_read_once(tmp_path: Path, shiplap: Shiplap, monkeypatch: pytest.MonkeyPatch) -> None:
    read, times = gangs_view.requests_of_files, list[float]()
    monkeypatch.setattr(gangs_view, "requests_of_files", lambda *given: times.append(given[1]) or read(*given))
    assert "web/train: 3 pods with room" in shiplap.page(*arguments(tmp_path, 9, pod_template(), request()))
    assert len(times) == 1


def test_a_request_of_one_pod_has_a_line_too(tmp_path: Path, shiplap: Shiplap) -> None:
    assert "web/train: 1 pod with room, 1 new node for $" in shiplap.page(
        *arguments(tmp_path, 9, pod_template(), request(1))
    )


def test_a_check_launches_nothing_and_says_what_is_missing(tmp_path: Path, shiplap: Shiplap) -> None:
    said = shiplap.page(*arguments(tmp_path, 9, pod_template(), request(of=CHECK)), code=1)
    assert "web/train: no room for its 3 pods; nothing is launched: 0 of 3 pods have room on nodes that exist" in said


def test_two_requests_share_one_limit_and_a_gang_goes_on_beside_them(tmp_path: Path, shiplap: Shiplap) -> None:
    said = shiplap.page(
        *arguments(tmp_path, 3, pod_template(), request(2), request(2, name="tune"), pod("alone", "5")), code=1
    )
    assert said.count("with room, 2 new nodes") == 1
    assert said.count("no room for its 2 pods") == 1


def test_consumers_of_a_request_wait_for_it(tmp_path: Path, shiplap: Shiplap) -> None:
    answer = shiplap.json(*arguments(tmp_path, 9, pod_template(), request(1), consumer()))
    assert len(answer["nodeClaims"]) == 1
    assert [entry["message"] for entry in answer["ignored"]] == [
        "it consumes ProvisioningRequest web/train, which is not provisioned yet"
    ]
    listed_requests = answer["gangs"]["requests"]
    assert [(item["name"], item["class"], item["pods"], item["booked"]) for item in listed_requests] == [
        ("train", ATOMIC, 1, 0)
    ]


def test_a_gang_that_consumes_a_request_is_told_why_nothing_is_launched_for_it(
    tmp_path: Path, shiplap: Shiplap
) -> None:
    waiting = [consumer(f"train-{number}") for number in range(2)]
    for item in waiting:
        item["metadata"]["annotations"][MINIMUM] = "2"
        item["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "uid": "1", "controller": True}]
    page = shiplap.page(*arguments(tmp_path, 9, pod_template(), request(2), *waiting))
    why = "it consumes ProvisioningRequest web/train, which is not provisioned yet"
    assert f"web/train: its 2 members are not planned: {why} ProvisioningRequest web/train: 2 pods with room" in page


def test_a_foreign_class_is_left_alone(tmp_path: Path, shiplap: Shiplap) -> None:
    foreign = request(of="queued-provisioning.gke.io")
    answer = shiplap.json(*arguments(tmp_path, 9, foreign, pod("alone", "5")))
    assert len(answer["nodeClaims"]) == 1
    assert "requests" not in answer.get("gangs", {})


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"count": 0}, "spec.podSets[0].count is 0: at least 1 is possible"),
        ({"count": "three"}, "Expected int, got str"),
        ({"podSets": []}, "it has 0 podSets: 1 to 32 are possible"),
        ({"parameters": {"ValidUntilSeconds": "soon"}}, "parameter ValidUntilSeconds is 'soon'"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(
    tmp_path: Path, shiplap: Shiplap, spec: dict[str, Any], reason: str
) -> None:
    given = arguments(tmp_path, 9, pod_template(), request(**spec))
    assert reason in shiplap.error(*given)
    (problem,) = shiplap.json("validate", given[2], code=2)["problems"]
    assert (problem["file"], problem["document"]) == (given[2], "ProvisioningRequest/train")
    assert reason in problem["reason"]


def test_a_template_that_is_not_there_is_named_by_plan_and_may_come_for_validate(
    tmp_path: Path, shiplap: Shiplap
) -> None:
    given = arguments(tmp_path, 9, pod_template(namespace="ml"), request())
    assert "PodTemplate worker does not exist in namespace web" in shiplap.error(*given)
    assert shiplap.json("validate", tmp_path)["problems"] == []


def test_a_limit_below_what_a_request_needs_is_said(tmp_path: Path, shiplap: Shiplap) -> None:
    gpus = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "worker", "namespace": "web"}}
    gpus["template"] = template(None)
    for limit, said in (("16", True), ("32", False)):
        for of, warns in ((ATOMIC, said), (CHECK, False)):
            (tmp_path / "all.json").write_text(listed(gpu_pool(gpus=limit), gpus, request(4, of=of)))
            reasons = [item["reason"] for item in shiplap.json("validate", tmp_path)["warnings"]]
            found = [
                text for text in reasons if text.startswith("ProvisioningRequest web/train can never start: its 4")
            ]
            assert bool(found) == warns
            told = "`shiplap explain provisioningrequest web/train` names what suffices"
            assert all(text.endswith(told) for text in found)
