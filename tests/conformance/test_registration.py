"""Tests the facts that a node gets when it joins, and the facts that it must have before it is complete."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.flows.lifecycle.registration import not_initialized
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Taint
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.claims import node_claim
from tests.builders.pods import pod_object
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

DEDICATED = {"key": "team", "value": "data", "effect": "NoSchedule"}
STARTING = {"key": "example.com/agent", "effect": "NoSchedule"}
OWN = {"key": "example.com/own", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def dressed() -> NodePool:
    """A pool whose nodes have a label, an annotation, a taint and a startup taint."""
    plain = msgspec.to_builtins(family_pool("any", ("m6i",)))
    plain["spec"]["template"]["metadata"] = {
        "labels": {"example.com/tier": "gold"},
        "annotations": {"example.com/owner": "data", labels.DO_NOT_DISRUPT: "true"},
    }
    plain["spec"]["template"]["spec"] |= {"taints": [DEDICATED], "startupTaints": [STARTING]}
    return msgspec.convert(plain, NodePool)


def joining(**marks: str) -> Stage:
    """A node of that pool has joined, with labels of its own, and nobody has looked at it yet."""
    stage = Stage((dressed(),))
    web = pod_object("web", "1", "1Gi", waits=True, metadata={"uid": "web"}, tolerations=[{"operator": "Exists"}])
    stage.server.create("pods", web)
    stage.schedule()
    stage.join()
    for node in stage.cluster.nodes():
        stage.server.patch("nodes", node.metadata.name, {"metadata": {"labels": marks}})
    return stage


def taints(stage: Stage) -> list[str]:
    return sorted(taint.key for taint in stage.cluster.nodes()[0].spec.taints)


def set_taints(stage: Stage, *items: dict[str, str]) -> None:
    stage.server.patch("nodes", stage.cluster.nodes()[0].metadata.name, {"spec": {"taints": list(items)}})


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, ["example.com/agent", "team"]),
        ({labels.DO_NOT_SYNC_TAINTS: "false"}, ["example.com/agent", "team"]),
        ({labels.DO_NOT_SYNC_TAINTS: "true"}, []),
    ],
    ids=["plain", "said to be synced", "said not to be"],
)
def test_a_node_gets_what_its_claim_says(marks: dict[str, str], expected: list[str]) -> None:
    stage = joining(**marks)
    assert len(stage.attend().registered) == 1
    (node,) = stage.cluster.nodes()
    assert taints(stage) == expected
    assert node.metadata.labels["example.com/tier"] == "gold"
    assert node.metadata.labels[labels.REGISTERED] == "true"
    assert node.metadata.annotations["example.com/owner"] == "data"
    assert node.metadata.annotations[labels.DO_NOT_DISRUPT] == "true"


def test_a_node_that_was_never_closed_is_not_registered() -> None:
    """As in Karpenter: any kubelet could have written the providerID of the instance into its own Node."""
    stage = joining()
    set_taints(stage, OWN)
    assert stage.attend().registered == ()
    assert taints(stage) == ["example.com/own"]
    assert [claim.state for claim in stage.claims()] == [ClaimState.LAUNCHED]


def test_a_startup_taint_that_was_taken_away_does_not_come_back() -> None:
    stage = joining()
    stage.attend()
    set_taints(stage, DEDICATED)
    for _ in range(3):
        stage.attend()
        stage.sweep()
    assert taints(stage) == ["team"]
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]


def test_a_node_becomes_complete_step_by_step() -> None:
    stage = joining()
    stage.attend()
    readiness = {"key": "readiness.k8s.io/network", "effect": "NoSchedule"}
    for held in ([DEDICATED, STARTING, readiness], [DEDICATED, readiness, NOT_READY], [DEDICATED, readiness]):
        set_taints(stage, *held)
        stage.attend()
        assert [claim.state for claim in stage.claims()] == [ClaimState.REGISTERED]
        assert labels.INITIALIZED not in stage.cluster.nodes()[0].metadata.labels
    set_taints(stage, DEDICATED)
    assert len(stage.attend().initialized) == 1
    assert stage.cluster.nodes()[0].metadata.labels[labels.INITIALIZED] == "true"


GPU = "nvidia.com/gpu"
LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "not ready": ({"ready": "False"}, "NodeNotReady"),
    "unknown": ({"ready": "Unknown"}, "NodeNotReady"),
    "a startup taint": ({"taints": [STARTING]}, "StartupTaintsExist"),
    "a startup taint with another effect": ({"taints": [{**STARTING, "effect": "NoExecute"}]}, ""),
    "its cloud provider": (
        {
            "taints": [
                {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule", "value": "true"}
            ]
        },
        "KnownEphemeralTaintsExist",
    ),
    "its network": ({"taints": [NOT_READY]}, "KnownEphemeralTaintsExist"),
    "the order is upstream's": ({"taints": [NOT_READY, STARTING], "ready": "False", "gpus": None}, "NodeNotReady"),
    "its device plugin": ({"gpus": None}, "ResourceNotRegistered"),
    "its devices": ({"gpus": "0"}, "ResourceNotRegistered"),
    "taints of others": ({"taints": [OWN, DEDICATED]}, ""),
}


@pytest.mark.parametrize(("given", "expected"), LACKS.values(), ids=LACKS.keys())
def test_what_a_node_lacks_until_it_is_complete(given: dict[str, Any], expected: str) -> None:
    gpus = given.get("gpus", "1")
    node = msgspec.convert(
        {
            "metadata": {"name": "n"},
            "spec": {"taints": given.get("taints", [])},
            "status": {
                "allocatable": {"cpu": "4", **({GPU: gpus} if gpus is not None else {})},
                "conditions": [{"type": "Ready", "status": given.get("ready", "True")}],
            },
        },
        Node,
    )
    claim = node_claim(
        cluster="c",
        name="n",
        node_pool="p",
        node_class="n",
        requests={"cpu": 1000, GPU: 1, "example.com/none": 0},
        startup_taints=msgspec.convert([STARTING], tuple[Taint, ...]),
    )
    assert not_initialized(claim, node) == expected
