"""`shiplap explain claim` with a cluster: how the claim stands now beside its story, and what could not be seen."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shiplap.errors import ClusterUnreachable
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap_cli.main import run
from shiplap_lab.cluster_simulator.access import PolicyRule
from tests.builders.claims import changes, node_claim
from tests.commands import Shiplap
from tests.integration.contracts.in_process_aws import REGION
from tests.integration.live_install import LiveInstall
from tests.integration.live_pods import pod

pytestmark = pytest.mark.thorough

NODE = "ip-1"
MARKS = {
    labels.NODE_POOL: "default",
    labels.INITIALIZED: "true",
    labels.INSTANCE_TYPE: "m5.large",
    labels.ZONE: f"{REGION}b",
    labels.CAPACITY_TYPE: "on-demand",
}


def join(live: LiveInstall, *, running: bool = True, **labels: str) -> None:
    """A node that is full with one pod."""
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure", "message": "[red]full[/red]"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"},
    ]
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    node = {
        "metadata": {"name": NODE, "labels": MARKS | labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"providerID": f"aws:///{REGION}b/i-1", "taints": [taint]},
        "status": {"allocatable": {"cpu": "1", "memory": "7Gi", "pods": "29"}, "conditions": conditions},
    }
    live.http.api.create("nodes", node)
    if running:
        bound = pod("running", nodeName=NODE)
        bound["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
        bound["status"] = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        live.http.api.create("pods", bound)


def claimed(live: LiveInstall, until: ClaimState = ClaimState.INITIALIZED, node_name: str = NODE) -> NodeClaim:
    claim = node_claim(cluster="blue", name="default-1", node_pool="default", node_class="default", created_at=1.0)
    live.state.commit("blue", 0, [claim])
    for state in (ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED):
        facts: dict[str, Any] = {"instance_id": "i-1", "instance_type": "m5.large", "hourly": 0.1}
        if state in (ClaimState.REGISTERED, ClaimState.INITIALIZED):
            facts["node_name"] = node_name
        claim = live.state.advance(claim, state, changed_at=time.time(), **changes(claim, **facts))
        if state is until:
            break
    return claim


def told(live: LiveInstall, *arguments: str, name: str = "default-1") -> dict[str, Any]:
    found = live.says("explain claim", name, "--cluster", "blue", *arguments)
    assert found["story"]["name"] == "default-1"
    return dict(found["now"])


def test_its_node_conditions_pods_and_what_keeps_it(live: LiveInstall) -> None:
    join(live)
    claimed(live)
    now = told(live)
    assert now["standing"] == "the claim is Initialized, and its Node ip-1 is there"
    assert now["conditions"] == [
        "Ready is True since 2026-01-01T00:01:00Z",
        "DiskPressure is True (KubeletHasDiskPressure: [red]full[/red])",
    ]
    assert now["taints"] == ["team=a:NoSchedule"]
    assert (now["node"], now["pods"], now["moving"]) == (NODE, ["web/running"], ["web/running"])
    assert now["disruption"].startswith("stays: ")
    assert "do-not-disrupt" in now["disruption"]
    assert told(live, name=NODE) == told(live, name="i-1") == now


def test_the_page(live: LiveInstall, shiplap: Shiplap) -> None:
    join(live)
    claimed(live)
    config = str(live.folder / "config")
    page = shiplap("explain", "claim", "default-1", "--cluster", "blue", "--kubeconfig", config)
    for words in ("Now:", "[red]full[/red]", "1 on it; 1 would have to move: web/running", "stays: "):
        assert words in page


def test_a_node_that_is_cordoned(live: LiveInstall) -> None:
    join(live, running=False)
    claimed(live)
    live.http.api.patch("nodes", NODE, {"spec": {"unschedulable": True}})
    now = told(live)
    assert now["standing"].endswith("is there; it is cordoned")
    assert now["pods"] == []


def test_a_node_that_is_cordoned_by_a_disruption(live: LiveInstall) -> None:
    join(live, running=False)
    claimed(live)
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    live.http.api.patch("nodes", NODE, {"spec": {"taints": [taint]}})
    assert told(live)["standing"].endswith("is there; it is cordoned, as it is about to go")


@pytest.mark.parametrize(
    ("until", "node_name", "words"),
    [
        (
            ClaimState.LAUNCHED,
            "",
            "the claim is Launched, and there is no Node of it: instance i-1 has not joined in the",
        ),
        (ClaimState.INITIALIZED, "gone", "the claim is Initialized, and there is no Node of it: it has gone"),
    ],
)
def test_without_a_node(live: LiveInstall, until: ClaimState, node_name: str, words: str) -> None:
    claimed(live, until, node_name)
    now = told(live)
    assert now["standing"].startswith(words)
    assert now["node"] == ""


def test_a_claim_on_its_way_out_has_lost_its_node(live: LiveInstall) -> None:
    claim = live.state.advance(claimed(live), ClaimState.DRAINING)
    assert told(live)["standing"] == "the claim is Draining, and there is no Node of it any more: it is on its way out"
    live.state.advance(live.state.advance(claim, ClaimState.TERMINATING), ClaimState.GONE)


@pytest.mark.usefixtures("unpaused")
def test_what_could_not_be_seen_is_said(live: LiveInstall) -> None:
    join(live)
    claimed(live)
    access = live.http.access
    assert access is not None
    access["me"] = (PolicyRule(("list",), ("pods",), ("",)),)
    now = told(live)
    assert now["standing"] == "its Node could not be looked for"
    assert any("the right to list nodes is missing" in line for line in now["unseen"])
    live.http.refusals.extend([ClusterUnreachable("down", status=503)] * 40)
    assert "kubectl --context me version" in told(live)["unseen"][0]
    live.http.refusals.clear()
    access["me"] = ()
    now = told(live)
    assert now["standing"] == "how it stands now was not seen"
    assert "the right to list pods is missing" in now["unseen"][0]


def test_the_story_of_a_node_that_has_gone_is_told(live: LiveInstall, shiplap: Shiplap) -> None:
    claimed(live)
    found = live.says("explain node", NODE, "--cluster", "blue")
    assert found["now"] is None
    assert found["story"]["name"] == "default-1"
    assert found["unseen"] == ["node: there is no node ip-1; of 0 none is called so"]
    config = str(live.folder / "config")
    assert "! now: node: there is no node ip-1" in shiplap(
        "explain", "node", NODE, "--cluster", "blue", "--kubeconfig", config
    )


@pytest.mark.usefixtures("unpaused")
def test_a_cluster_that_does_not_answer_takes_nothing_from_the_story(live: LiveInstall) -> None:
    claimed(live)
    live.http.refusals.extend([ClusterUnreachable("down", status=503)] * 80)
    for kind, name in (("node", NODE), ("pool", "default")):
        found = live.says(f"explain {kind}", name, "--cluster", "blue")
        assert found["story"]["state"]
        assert "kubectl --context me version" in found["unseen"][0]


def test_of_a_pod_that_nothing_is_known_of_there_is_no_story(live: LiveInstall, shiplap: Shiplap) -> None:
    config = str(live.folder / "config")
    assert "there is no pod web/nobody" in shiplap.error(
        "explain", "pod", "web/nobody", "--cluster", "blue", "--kubeconfig", config
    )


def test_a_wrong_context_is_bad_input(live: LiveInstall, shiplap: Shiplap) -> None:
    claimed(live)
    config = str(live.folder / "config")
    arguments = ["explain", "claim", "default-1", "--cluster", "blue", "--kubeconfig", config, "--context", "red"]
    assert "known are me" in shiplap.error(*arguments)


def test_a_node_that_no_install_is_asked_about(live: LiveInstall) -> None:
    """Karpenter's own, or without --cluster: the Node says of which claim it is."""
    join(live, **{labels.NODE_CLAIM: "default-9"})
    given = ("--manifests", str(live.folder / "pools.json"), "--no-aws")
    now = live.says("explain claim", "default-9", *given)
    assert now["standing"] == "no claim of it is known, and its Node ip-1 is there"
    assert now["disruption"].startswith("stays: ")
    config = str(live.folder / "config")
    assert run(["explain", "claim", "nobody", "--kubeconfig", config, *given]) == 2


def test_json_is_one_document(live: LiveInstall, shiplap: Shiplap) -> None:
    join(live)
    claimed(live)
    config = str(live.folder / "config")
    assert set(shiplap.json("explain", "claim", "default-1", "--cluster", "blue", "--kubeconfig", config)) == {
        "story",
        "now",
    }
