"""`shiplap plan` and `disrupt` with an install that has gangs: they read PodGroups as its functions do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.policy_settings import chosen
from shiplap_cli.money import Money
from shiplap_cli.render.decision_documents import plan_document
from shiplap_lab.cluster_simulator.access import PolicyRule
from tests.integration.live_install import LiveInstall, without_times

GROUP = "podgroups.scheduling.x-k8s.io"
LABEL = {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}}


def with_gangs(live: LiveInstall, minimum: int) -> None:
    """Let the three pods of an install name a PodGroup that needs so many."""
    live.settings = replace(live.settings, policies=chosen(GangSettings(WHOLE)))
    for item in live.http.api.list("pods").items:
        live.http.api.patch("pods", item["metadata"]["name"], LABEL, item["metadata"]["namespace"])
    namespace = item["metadata"]["namespace"]
    live.http.api.create(GROUP, {"metadata": {"name": "train", "namespace": namespace}, "spec": {"minMember": minimum}})


def test_a_command_and_the_functions_read_the_same_pod_groups(live: LiveInstall) -> None:
    assert live.says("plan", "--cluster", "blue")["nodeClaims"]
    with_gangs(live, 4)
    snapshot, decided = live.decided()
    assert decided.node_claims == ()
    answer = live.says("plan", "--cluster", "blue", code=1)
    assert without_times(answer) == without_times(plan_document(decided, 0, Money(snapshot)))
    assert "3 of 4 members exist" in str(answer["unschedulable"])
    for item in live.http.api.list(GROUP).items:
        live.http.api.patch(GROUP, "train", {"spec": {"minMember": 3}}, item["metadata"]["namespace"])
    snapshot, decided = live.decided()
    answer = live.says("plan", "--cluster", "blue")
    assert answer["nodeClaims"]
    assert without_times(answer) == without_times(plan_document(decided, 0, Money(snapshot)))


def test_without_the_right_to_list_pod_groups_a_command_says_what_it_cannot_know(live: LiveInstall) -> None:
    with_gangs(live, 3)
    others = (PolicyRule(("get", "list", "watch"), ("pods", "nodes"), ("",)),)
    live.http.access["me"] = others
    answer = live.says("plan", "--cluster", "blue", code=1)
    assert answer["nodeClaims"] == []
    assert "you may not list podgroups.scheduling.x-k8s.io" in str(answer["unschedulable"])
    assert [each["consequence"] for each in answer["unseen"] if each["resource"] == "podgroups"] == [
        "pods that name one wait in this answer"
    ]


def with_a_request(live: LiveInstall, count: int) -> None:
    """Ask for so many further pods, and let the three pods of an install consume them."""
    live.settings = replace(live.settings, policies=chosen(GangSettings(WHOLE, provisioning_requests=True)))
    consumes = {"metadata": {"annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "train"}}}
    for item in live.http.api.list("pods").items:
        live.http.api.patch("pods", item["metadata"]["name"], consumes, item["metadata"]["namespace"])
    meta = {"namespace": item["metadata"]["namespace"]}
    container = {"name": "main", "resources": {"requests": {"cpu": "500m"}}}
    template = {"metadata": {**meta, "name": "worker"}, "template": {"spec": {"containers": [container]}}}
    live.http.api.create("podtemplates", template)
    sets = [{"podTemplateRef": {"name": "worker"}, "count": count}]
    spec = {
        "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "podSets": sets,
        "parameters": {"ValidUntilSeconds": "999999999"},  # the server's clock stands in the past
    }
    live.http.api.create("provisioningrequests", {"metadata": {**meta, "name": "train"}, "spec": spec})


def test_a_command_and_the_functions_read_the_same_provisioning_requests(live: LiveInstall) -> None:
    with_a_request(live, 3)
    snapshot, decided = live.decided()
    answer = live.says("plan", "--cluster", "blue", code=1)  # the template tolerates no taint of the NodePool
    assert without_times(answer) == without_times(plan_document(decided, 0, Money(snapshot)))
    waiting = [entry["pod"] for entry in answer["unschedulable"]]
    assert waiting == [f"web/ProvisioningRequest/train/0-{number}" for number in range(3)]
    held = {entry["pod"]: entry["message"] for entry in answer["ignored"]}
    why = "it consumes ProvisioningRequest web/train, which is not provisioned yet"
    assert held == dict.fromkeys(("web/a", "web/b", "web/c"), why)


def test_requests_are_asked_for_where_they_are_served_only(live: LiveInstall) -> None:
    for serves in (False, True):
        live.settings = replace(live.settings, policies=chosen(GangSettings(WHOLE, provisioning_requests=serves)))
        live.http.seen.clear()
        live.says("plan", "--cluster", "blue")
        asked = {resource for _, _, resource in live.http.seen}
        assert (
            {"provisioningrequests", "podtemplates"} <= asked
            if serves
            else asked.isdisjoint({"provisioningrequests", "podtemplates"})
        )


def test_a_request_of_an_install_is_explained_beside_one_that_cannot_be_read(live: LiveInstall) -> None:
    with_a_request(live, 3)
    stored = live.http.api.list("provisioningrequests").items[0]
    live.http.api.create(
        "provisioningrequests",
        {"metadata": {**stored["metadata"], "name": "odd", "uid": "odd"}, "spec": {"podSets": 7}},
    )
    found = live.says("explain provisioningrequest web/train", "--cluster", "blue", code=1)
    assert (found["state"], found["pods"]) == ("waits", 3)
    assert found["message"].startswith("0 of 3 members would have a place")
    assert found["nextTry"]
    live.settings = replace(live.settings, policies=chosen(GangSettings(WHOLE)))
    with pytest.raises(AssertionError, match="no install that serves them was asked"):
        live.says("explain provisioningrequest web/train", "--cluster", "blue")
