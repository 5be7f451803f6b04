"""`shiplap disrupt` on files: the fixed format, exit codes and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap_cli.inputs.disruption_inputs import asked_settings
from tests.unit.cli.disrupted_files import POOL, Files
from tests.unit.cli.disrupted_files import disrupted_node as node
from tests.unit.cli.disrupted_files import disrupted_pod as pod


def claim(name: str, on: str, **status: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "labels": {"karpenter.sh/nodepool": "default"},
        "creationTimestamp": "2026-11-01T00:00:00Z",
    }
    conditions = [{"type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-01T00:05:00Z"}]
    body = {"nodeName": on, "conditions": conditions, **status}
    return {"kind": "NodeClaim", "metadata": metadata, "spec": {}, "status": body}


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_a_command_has_the_fixed_format(files: Files) -> None:
    answer = files.disrupt(node("a"), pod("p", node="a"))
    assert files.code == 0
    (command,) = answer["commands"]
    assert (command["reason"], command["nodes"], command["savingsHourly"]) == ("Underutilized", ["a"], 3.0)
    (replacement,) = command["replacements"]
    assert replacement["instanceTypes"] == ["small"]
    assert replacement["pods"] == ["shop/p"]
    assert answer["blocked"] == []


FULL = POOL.replace(
    "metadata: {name: default}", "metadata: {name: default, annotations: {shiplap.dev/terminate-first: %s}}"
).replace("spec:\n  template:", "spec:\n  replicas: 1\n  limits: {nodes: 1}\n  template:", 1)
FULL = FULL.replace("values: [on-demand]}", "values: [on-demand]}, {key: release, operator: DoesNotExist}")


def test_a_node_that_goes_first_has_the_seconds_of_its_gap(files: Files) -> None:
    old = node("a", labels={"karpenter.sh/nodepool": "default", "karpenter.sh/initialized": "true", "release": "1"})
    pool = FULL.replace("terminate-first: %s", "terminate-first: 10m")
    (command,) = files.disrupt(old, pod("p", node="a"), claim("c", "a"), pool=pool)["commands"]
    assert (command["method"], command["reason"], command["replacements"]) == ("terminate-first", "Drifted", [])
    gap = command["gap"]
    assert gap == {"pods": 1, "emptySeconds": 30, "freeSeconds": 180, "joinSeconds": 300, "mostSeconds": 600}
    page = files.disrupt(old, pod("p", node="a"), claim("c", "a"), pool=pool, output="table")
    assert "1 pod has no place for about 510 s" in " ".join(page.split())

    shorter = FULL.replace("terminate-first: %s", "terminate-first: 5m")
    answer = files.disrupt(old, pod("p", node="a"), claim("c", "a"), pool=shorter)
    assert answer["commands"] == []
    assert "allows 300 s" in answer["blocked"][0]["reason"]
    assert files.disrupt(old, pool=FULL.replace("terminate-first: %s", "terminate-first: soon")) == ""
    assert "shiplap.dev/terminate-first" in files.errors
    assert "'soon' is not a duration" in files.errors


def test_blocked_nodes_say_why_and_the_exit_code_is_one(files: Files) -> None:
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
    }
    answer = files.disrupt(node("a"), pod("p", node="a", labels={"app": "db"}), budget)
    assert files.code == 1
    assert answer["commands"] == []
    assert [entry["node"] for entry in answer["blocked"]] == ["a"]
    assert "shop/db" in answer["blocked"][0]["reason"]
    assert not any("PodDisruptionBudget" in note for note in answer.get("notes", ()))


def test_files_without_a_budget_may_lack_what_the_cluster_has(files: Files) -> None:
    said = "no PodDisruptionBudget is among the objects: if the cluster has some, fewer nodes may go"
    assert said in files.disrupt(node("a"), pod("p", node="a"))["notes"]
    assert not files.disrupt(node("a")).get("notes", ())  # no pod could be protected


def test_files_without_claims_keep_nodes_of_pods_that_have_some(files: Files) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    answer = files.disrupt(node("a"), pod("p", node="a", volumes=volumes))
    assert [entry["node"] for entry in answer["blocked"]] == ["a"]
    said = "no PersistentVolumeClaim is among the objects: 1 pod with claims cannot leave its node"
    assert any(note.startswith(said) for note in answer["notes"])


def test_where_there_are_nodeclaims_a_node_without_one_is_left_alone(files: Files) -> None:
    answer = files.disrupt(node("a"), node("b"), claim("claim-b", "b"))
    assert [command["nodes"] for command in answer["commands"]] == [["b"]]
    assert answer["blocked"] == [{"node": "a", "reason": "has no NodeClaim: it is left alone"}]


def test_the_times_of_a_nodeclaim_count(files: Files) -> None:
    answer = files.disrupt(node("a"), claim("c", "a", lastPodEventTime="2026-11-20T11:59:30Z"), after="60s")
    assert answer["commands"] == []
    assert "30 s ago" in answer["blocked"][0]["reason"]
    assert files.disrupt(node("a"), claim("c", "a", lastPodEventTime="2026-11-20T11:58:30Z"), after="60s")["commands"]


def test_a_malformed_time_is_refused(files: Files) -> None:
    files.disrupt(node("a"), claim("c", "a", lastPodEventTime="yesterday"))
    assert files.code == 2
    assert "status.lastPodEventTime" in files.errors


def test_the_page_shows_commands_and_what_stays(files: Files) -> None:
    page = files.disrupt(node("a"), pod("p", node="a"), output="table")
    assert "small on-demand in z" in page
    assert "$3.0000 per hour saved" in page
    page = files.disrupt(node("a"), pod("p", node="a"), after="Never", output="table")
    assert "consolidation disabled" in page


def test_a_floor_for_savings_can_be_given(files: Files) -> None:
    assert files.disrupt(node("a"), pod("p", node="a"), more=("--least-saving-per-pod", "3.5"))["commands"] == []


def test_a_node_that_goes_is_explained_with_its_command(files: Files) -> None:
    account = files.disrupt(node("a"), pod("p", node="a"), command=("explain", "node", "a"))
    assert files.code == 0
    assert (account["hourly"], account["disruptionCost"], account["pods"]) == (4.0, 2.0, ["shop/p"])
    assert account["command"]["replacements"][0]["instanceTypes"] == ["small"]
    page = files.disrupt(node("a"), pod("p", node="a"), command=("explain", "node", "a"), output="table")
    assert "large on-demand in z, $4.0000/h" in page
    assert "Goes now" in page


def test_a_node_that_stays_is_explained_with_the_reason(files: Files) -> None:
    case = (node("a"), pod("p", node="a"))
    account = files.disrupt(*case, after="Never", command=("explain", "node", "a"))
    assert account["command"] is None
    assert "consolidation disabled" in account["stays"]
    assert "Stays: " in files.disrupt(*case, after="Never", command=("explain", "node", "a"), output="table")


def test_a_node_that_does_not_exist_is_refused_with_those_of_like_names(files: Files) -> None:
    files.disrupt(node("node-a"), command=("explain", "node", "node-b"))
    assert files.code == 2
    assert "did you mean node-a?" in files.errors


@pytest.mark.parametrize(
    "wrong", ['nodes: "1000a%"', 'nodes: "1", schedule: "@wrongly", duration: 1h', 'nodes: "1", schedule: "@daily"']
)
def test_a_budget_that_cannot_be_read_blocks_its_pool_and_says_so(files: Files, wrong: str) -> None:
    answer = files.disrupt(node("a"), claim("c", "a"), budget=wrong)
    assert (files.code, answer["commands"]) == (1, [])
    assert "cannot be read" in answer["blocked"][0]["reason"]


def test_other_mistakes_in_a_budget_are_refused(files: Files) -> None:
    files.disrupt(node("a"), claim("c", "a"), budget='nodes: "1", reasons: [Whatever]')
    assert files.code == 2
    assert "budgets[0].reasons[0]" in files.errors


def test_a_node_of_an_unknown_pool_is_left_alone(files: Files) -> None:
    lost = node("lost")
    lost["metadata"]["labels"]["karpenter.sh/nodepool"] = "no-such"
    answer = files.disrupt(lost, claim("c", "lost"), node("unclaimed"), node("a"), claim("d", "a"))
    assert [name for command in answer["commands"] for name in command["nodes"]] == ["a"]
    assert {entry["node"]: entry["reason"] for entry in answer["blocked"]} == {
        "lost": "NodePool 'no-such' is not known: the node is left alone",
        "unclaimed": "has no NodeClaim: it is left alone",
    }


@pytest.mark.parametrize(("status", "methods"), [("True", ["drift"]), ("False", []), ("Unknown", [])])
def test_a_claim_that_is_said_to_have_drifted_has(files: Files, status: str, methods: list[str]) -> None:
    said = claim("c", "a")
    said["status"]["conditions"].append(
        {"type": "Drifted", "status": status, "reason": "AMIDrift", "lastTransitionTime": "2026-11-02T00:00:00Z"}
    )
    answer = files.disrupt(node("a", instance_type="small"), said, pod("p", node="a"), after="Never")
    assert [command["method"] for command in answer["commands"]] == methods
    assert all(command["detail"] == "AMIDrift" for command in answer["commands"])


INITIALIZED = {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-01T00:05:00Z"}


def says(name: str, on: str, kind: str, status: str = "True", **spec: str) -> dict[str, Any]:
    """The claim of a node, with one more condition."""
    more = {"type": kind, "status": status, "reason": "Said", "lastTransitionTime": "2026-11-01T00:06:00Z"}
    return {**claim(name, on, conditions=[INITIALIZED, more]), "spec": spec}


def test_what_claims_say_of_themselves_counts(files: Files) -> None:
    answer = files.disrupt(
        *(node(name) for name in "abcde"),
        says("a", "a", "DisruptionReason"),
        says("b", "b", "InstanceTerminating"),
        says("c", "c", "Consolidatable", "False"),
        claim("d", "d"),
        claim("e", "e"),
        budget="nodes: '50%'",
    )
    assert {entry["node"]: entry["reason"] for entry in answer["blocked"]} == {
        "a": "is part of a disruption command under way",
        "b": "is being deleted",
        "c": "its NodeClaim says that it is not consolidatable",
        "e": "no allowed disruptions for Empty: budgets[0] of NodePool default allows 50% of 4 nodes, that is 2 at a "
        "time, 1 is leaving or not ready; 1 goes now",
    }
    assert [command["nodes"] for command in answer["commands"]] == [["d"]]


@pytest.mark.parametrize(
    ("condition", "spec", "reason"),
    [("Launched", {"expireAfter": "24h"}, "Expired"), ("Drifted", {"terminationGracePeriod": "5m0s"}, "Drifted")],
)
def test_a_claim_expires_and_ends_by_its_own_words(
    files: Files, condition: str, spec: dict[str, str], reason: str
) -> None:
    held = pod("p", node="a")
    held["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"} if reason == "Drifted" else {}
    answer = files.disrupt(node("a"), held, says("a", "a", condition, **spec), after="Never")
    assert [(command["reason"], command["nodes"]) for command in answer["commands"]] == [(reason, ["a"])]


@pytest.mark.parametrize(
    ("field", "value"), [("expireAfter", "soon"), ("terminationGracePeriod", "Never"), ("expireAfter", "-1h")]
)
def test_a_duration_that_a_claim_cannot_have_is_refused(files: Files, field: str, value: str) -> None:
    files.disrupt(node("a"), says("a", "a", "Launched", **{field: value}))
    assert files.code == 2
    assert f"spec.{field}" in files.errors


def test_a_move_cost_that_is_asked_for_counts_where_the_install_has_the_deprecated_form() -> None:
    install = DisruptionSettings(least_saving_per_pod=0.2, settle_s=5.0)
    assert asked_settings(install, {}) == install
    assert asked_settings(install, {"move_cost": 1.0}) == DisruptionSettings(move_cost=1.0, settle_s=5.0)
    assert asked_settings(install, {"move_cost": 1.0, "least_saving_per_pod": 0.3}).least_saving_per_pod == 0.3
