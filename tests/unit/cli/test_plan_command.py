"""`shiplap plan` from the outside: its fixed format, its page for people, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap_cli.inputs.learned_file import dump_learned
from shiplap_cli.main import run
from shiplap_lab.catalogue import embedded

POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
            }
        }
    },
}
NODE_CLASS = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        "role": "node",
    },
}
CATALOG = {
    "instanceTypes": [
        {
            "name": name,
            "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
            "overhead": {"cpu": "100m"},
            "offerings": [
                {"zone": "z1", "capacityType": "on-demand", "price": price},
                {"zone": "z2", "capacityType": "spot", "price": price / 2},
            ],
        }
        for name, cpu, price in (("small", "2", 0.1), ("large", "8", 0.4))
    ]
}


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "web"},
        "spec": {"containers": [container], "tolerations": tolerations, **spec},
    }


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "pool.json").write_text(json.dumps(POOL))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    return tmp_path


def plan(files: Path, *objects: dict[str, Any], more: tuple[str, ...] = (), output: str = "json") -> int:
    state = files / "state.json"
    state.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)}))
    arguments = ["plan", "--cluster-state", str(state), "--manifests", str(files / "pool.json"), "-o", output]
    return run([*arguments, "--now", "2026-01-31T12:00:00Z", *more])


def with_catalog(files: Path) -> tuple[str, str]:
    return ("--catalog", str(files / "catalog.json"))


def test_the_fixed_format(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "here"},
        "status": {"allocatable": {"cpu": "500m", "memory": "1Gi", "pods": "3"}},
    }
    gated = pod("gated", "1", schedulingGates=[{"name": "wait"}])
    objects = [pod("a", "1"), pod("b", "300m"), pod("c", "50"), gated, node]
    assert plan(files, *objects, more=with_catalog(files)) == 1
    result = json.loads(capsys.readouterr().out)
    assert list(result) == ["nodeClaims", "existingNodes", "unschedulable", "ignored", "cost", "stats"]
    (claim,) = result["nodeClaims"]
    assert claim == {
        "name": claim["name"],
        "nodePool": "default",
        "tier": 0,
        "requirements": [
            {"key": "karpenter.k8s.aws/ec2nodeclass", "operator": "In", "values": ["default"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large", "small"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]},
        ],
        "taints": [{"key": "dedicated", "effect": "NoSchedule"}],
        "labels": {
            "karpenter.k8s.aws/ec2nodeclass": "default",
            "karpenter.sh/capacity-type": "on-demand",
            "karpenter.sh/nodepool": "default",
            "topology.kubernetes.io/zone": "z1",
        },
        "instanceTypes": ["small", "large"],
        "launch": {
            "instanceType": "small",
            "zone": "z1",
            "capacityType": "on-demand",
            "price": 0.1,
            "priceEstimated": False,
        },
        "requests": {"cpu": "1", "pods": "1"},
        "pods": ["web/a"],
        "reasons": [],
    }
    assert claim["name"].startswith("default-")
    assert result["existingNodes"] == [{"name": "here", "pods": ["web/b"]}]
    (left,) = result["unschedulable"]
    assert left["pod"] == "web/c"
    assert left["message"].startswith("large in pool default: cpu short by 42100m: 50 needed, 7900m allocatable")
    assert left["nearest"] == {"instanceType": "large", "nodePool": "default", "resource": "cpu", "short": "42100m"}
    assert result["ignored"] == [{"pod": "web/gated", "message": "scheduling gate wait"}]
    assert result["cost"] == {"hourly": 0.1, "estimated": False}
    assert result["stats"]["pods"] == 3
    assert result["stats"]["classes"] == 3
    assert result["stats"]["solveSeconds"] >= 0


def test_the_policy_for_preferences(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}
    term = {"weight": 1, "preference": {"matchExpressions": [wanted]}}
    picky = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}
    launched = []
    for policy in ("Respect", "Ignore"):
        assert plan(files, pod("a", "1", **picky), more=(*with_catalog(files), "--preference-policy", policy)) == 0
        launched.append(json.loads(capsys.readouterr().out)["nodeClaims"][0]["launch"]["instanceType"])
    assert launched == ["large", "small"]


def test_default_spread_constraints(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    config = files / "scheduler.json"
    config.write_text(json.dumps({"podTopologySpread": {"defaultConstraints": [constraint]}}))
    service = {"kind": "Service", "metadata": {"name": "s", "namespace": "web"}, "spec": {"selector": {"app": "web"}}}
    waiting = [pod(name, "100m") for name in "ab"]
    for item in waiting:
        item["metadata"]["labels"] = {"app": "web"}
    more = (*with_catalog(files), "--scheduler-config", str(config))
    assert plan(files, *waiting, service, more=more) == 0
    assert len(json.loads(capsys.readouterr().out)["nodeClaims"]) == 2


def test_claim_rules_leave_other_pods_alone(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = files / "rules.yaml"
    rules.write_text("claimRules:\n  - tolerates: dedicated\n  - namespaces: [team-*]\n")
    other = pod("b", "1")
    more = (*with_catalog(files), "--claim-rules", str(rules))
    assert plan(files, {**other, "spec": {**other["spec"], "tolerations": []}}, more=more) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ignored"] == [{"pod": "web/b", "message": "outside the cluster's claim rules"}]

    rules.write_text("claimRules:\n  - tolerates: dedicated\n  - namespaces: []\n")
    assert plan(files, other, more=more) == 2
    assert f"{rules}:3: claimRules[1]: says nothing" in capsys.readouterr().err


def test_exit_code_zero_when_everything_has_a_place(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(files, pod("a", "1"), more=with_catalog(files)) == 0
    first = json.loads(capsys.readouterr().out)["nodeClaims"]
    assert plan(files, pod("a", "1"), more=with_catalog(files)) == 0
    assert json.loads(capsys.readouterr().out)["nodeClaims"] == first


def test_yaml_says_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(files, pod("a", "1"), more=with_catalog(files))
    as_json = json.loads(capsys.readouterr().out)
    plan(files, pod("a", "1"), more=with_catalog(files), output="yaml")
    as_yaml = yaml.safe_load(capsys.readouterr().out)
    assert as_yaml["nodeClaims"] == as_json["nodeClaims"]


def test_the_page_for_people(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [pod("a", "1"), pod("huge", "50"), pod("gated", "1", schedulingGates=[{"name": "wait"}])]
    assert plan(files, *objects, more=with_catalog(files), output="table") == 1
    page = capsys.readouterr().out
    for words in (
        "+ default-",
        "small on-demand in z1, $0.1000/h",
        "cpu 1 of 1900m",
        "web/a",
        "Without a place",
        "- web/huge",
        "cpu short by 42100m",
        "Left alone",
        "scheduling gate wait",
        "Plan: 1 to launch for 1 pod, 0 pods on nodes that exist, 1 without a place, 1 left alone. $0.1000 per hour",
    ):
        assert words in " ".join(page.split()), page


def test_the_page_shows_static_pools_buffers_and_preferences_given_up(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    static = json.loads(json.dumps(POOL)) | {"metadata": {"name": "static"}}
    static["spec"] |= {"replicas": 3, "limits": {"nodes": "2"}}
    template: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "small", "namespace": "web"},
    }
    template["template"] = {"spec": pod("small", "1")["spec"]}
    buffer: dict[str, Any] = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"}
    buffer["metadata"] = {"name": "spare", "namespace": "web"}
    buffer["spec"] = {"podTemplateRef": {"name": "small"}, "replicas": 2}
    (files / "more.json").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [static, template, buffer]})
    )
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["nowhere"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    picky = pod("picky", "1", affinity={"nodeAffinity": preferred})
    more = (*with_catalog(files), "--manifests", str(files / "more.json"))
    assert plan(files, picky, more=more, output="table") == 0
    page = " ".join(capsys.readouterr().out.split())
    for words in (
        "gave up node affinity topology.kubernetes.io/zone In [nowhere]",
        "keeps room web/spare-0000",
        "static pool replicas there launched missing too many",
        "static 3 0 2 1: limits.nodes is 2",
        "buffer pods on nodes on new nodes without room",
        "web/spare 2 0 2 0",
    ):
        assert words in page, page
    assert plan(files, picky, more=more) == 0
    claims = json.loads(capsys.readouterr().out)["nodeClaims"]
    assert [claim["gaveUp"] for claim in claims if claim["pods"]] == [
        ["node affinity topology.kubernetes.io/zone In [nowhere]"]
    ]


def test_real_types_and_their_overhead(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pinned = json.loads(json.dumps(POOL))
    pinned["spec"]["template"]["spec"]["requirements"].append(
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["r5a.8xlarge"]}
    )
    manifests = {"kind": "List", "apiVersion": "v1", "items": [pinned, NODE_CLASS]}
    (files / "pool.json").write_text(json.dumps(manifests))
    worker = pod("worker", "29")
    worker["spec"]["containers"][0]["resources"]["requests"]["memory"] = "246400Mi"
    assert plan(files, worker) == 1
    record = json.loads(capsys.readouterr().out)["unschedulable"][0]
    assert (
        "memory short by 6846Mi: 246400Mi needed, 239554Mi allocatable, predicted from 7.5 % overhead"
        in (record["message"])
    )
    assert record["nearest"]["short"] == "6846Mi"
    assert plan(files, worker, more=("--vm-memory-overhead-percent", "0.048")) == 0


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "time": (("--now", "yesterday"), "--now"),
    "policy": (("--min-values-policy", "Sometimes"), "none of Strict, BestEffort"),
    "prefix delegation": (("--prefix-delegation", "maybe"), "none of auto, on, off"),
    "catalogue": (("--catalog", "/no/such/file.json"), "/no/such/file.json"),
    "learned": (("--capacity", "/no/such/capacity.json"), "capacity.json"),
    "no node class": ((), "there is no EC2NodeClass 'default' among the manifests"),
}


@pytest.mark.parametrize(("more", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_code_two(
    files: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], words: str
) -> None:
    assert plan(files, pod("a", "1"), more=more) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_manifests_without_a_pool(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "pool.json").write_text(json.dumps(NODE_CLASS))
    assert plan(files, pod("a", "1"), more=with_catalog(files)) == 2
    assert "no NodePool" in capsys.readouterr().err


def test_a_catalogue_makes_up_for_a_missing_node_class(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = json.loads(json.dumps(NODE_CLASS))
    other["metadata"]["name"] = "other"
    (files / "pool.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [POOL, other]}))
    assert plan(files, pod("a", "1"), more=with_catalog(files)) == 0
    assert plan(files, pod("a", "1")) == 2
    assert "nodeClassRef.name" in capsys.readouterr().err


def test_learned_capacity_makes_a_pod_fit(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pinned = json.loads(json.dumps(POOL))
    pinned["spec"]["template"]["spec"]["requirements"].append(
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["r5a.8xlarge"]}
    )
    manifests = {"kind": "List", "apiVersion": "v1", "items": [pinned, NODE_CLASS]}
    (files / "pool.json").write_text(json.dumps(manifests))
    node_class = msgspec.convert(NODE_CLASS, EC2NodeClass)
    (item,) = (
        found
        for found in instance_types(
            embedded.load("us-east-1"), node_class, CapacitySetting(), resolved=None, learned=(), unavailable=()
        )
        if found.name == "r5a.8xlarge"
    )
    capacity = item.capacity | {"memory": 253755 * 2**20}
    allocatable = {name: amount - item.overhead.get(name, 0) for name, amount in capacity.items()}
    seen = Observation("ami-1", item.name, item.kubelet_hash, capacity, allocatable, 1.0, "c", "n")
    (files / "learned.json").write_bytes(
        dump_learned([LearnedCapacity("ami-1", item.name, item.kubelet_hash, (seen,), 1)])
    )
    worker = pod("worker", "29")
    worker["spec"]["containers"][0]["resources"]["requests"]["memory"] = "246400Mi"
    assert plan(files, worker) == 1
    capsys.readouterr()
    assert plan(files, worker, more=("--capacity", str(files / "learned.json"))) == 0
    (claim,) = json.loads(capsys.readouterr().out)["nodeClaims"]
    assert claim["instanceTypes"] == ["r5a.8xlarge"]


def test_overlays_that_conflict_are_listed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "node.kubernetes.io/instance-type"
    items = [
        {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": name},
            "spec": {"requirements": [{"key": key, "operator": "In", "values": ["small"]}], "price": "0.2"},
        }
        for name in ("first", "last")
    ]
    (files / "overlays.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    more = (*with_catalog(files), "--manifests", str(files / "overlays.json"))
    assert plan(files, pod("a", "1"), more=more) == 0
    assert json.loads(capsys.readouterr().out)["rejectedOverlays"] == ["first"]
    assert plan(files, pod("a", "1"), more=more, output="table") == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "NodeOverlays applied nowhere, for they conflict with others of equal weight: first" in page
