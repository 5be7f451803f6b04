"""`shiplap plan` from the outside: its fixed format, its page for people, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap_cli.inputs.learned.learned_file import dump_learned
from shiplap_lab.catalogue import embedded
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS as NODE_CLASS
from tests.unit.manifests.manifest_samples import changed


def pinned(instance_type: str) -> dict[str, Any]:
    """The pool, of one instance type."""
    pool: dict[str, Any] = json.loads(json.dumps(POOL))
    rule = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]}
    pool["spec"]["template"]["spec"]["requirements"].append(rule)
    return pool


class Plan:
    """`shiplap plan` on objects, the manifests `pool.json` and, unless `catalog` is false, a catalogue of two types."""

    def __init__(self, folder: Path, shiplap: Shiplap) -> None:
        self.folder, self._shiplap = folder, shiplap

    def __call__(self, *objects: dict[str, Any], code: int = 0, **options: Any) -> Any:
        """The plan as data."""
        return self._shiplap.json(*self._arguments(objects, **options), code=code)

    def printed(self, *objects: dict[str, Any], code: int = 0, **options: Any) -> str:
        """Return the output for people, unless `more` asks for another form."""
        return self._shiplap(*self._arguments(objects, **options), code=code)

    def page(self, *objects: dict[str, Any], code: int = 0, **options: Any) -> str:
        """Its words."""
        return " ".join(self.printed(*objects, code=code, **options).split())

    def error(self, *objects: dict[str, Any], **options: Any) -> str:
        """Return the error for bad input."""
        return self._shiplap.error(*self._arguments(objects, **options))

    def write(self, name: str, *manifests: dict[str, Any]) -> Path:
        """A file of manifests."""
        path = self.folder / name
        path.write_text(listed(*manifests))
        return path

    def _arguments(
        self, objects: Sequence[dict[str, Any]], more: tuple[str | Path, ...] = (), *, catalog: bool = True
    ) -> list[str | Path]:
        given: list[str | Path] = ["plan", "--cluster-state", self.write("state.json", *objects)]
        given += ["--manifests", self.folder / "pool.json", "--now", "2026-01-31T12:00:00Z"]
        return [*given, *(("--catalog", self.folder / "catalog.json") if catalog else ()), *more]


@pytest.fixture
def plan(tmp_path: Path, shiplap: Shiplap) -> Plan:
    made = Plan(tmp_path, shiplap)
    made.write("pool.json", POOL)
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    return made


def test_the_fixed_format(plan: Plan) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "here"},
        "status": {"allocatable": {"cpu": "500m", "memory": "1Gi", "pods": "3"}},
    }
    gated = pod("gated", "1", schedulingGates=[{"name": "wait"}])
    objects = [pod("a", "1"), pod("b", "300m"), pod("c", "50"), gated, node]
    result = plan(*objects, code=1)
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


def _storage(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    named = {"name": name, "namespace": "web"} if kind == "PersistentVolumeClaim" else {"name": name}
    return {"kind": kind, "metadata": named} | fields


CLAIM = _storage("PersistentVolumeClaim", "data", spec={"volumeName": "vol"})
CLASS = _storage("StorageClass", "gp3", provisioner="ebs.csi.aws.com")
UNBOUND = _storage("PersistentVolumeClaim", "data", spec={"storageClassName": "gp3"})
HERE = {"kind": "Node", "metadata": {"name": "here"}, "status": {"allocatable": {"cpu": "1m", "pods": "3"}}}
OTHER = _storage("PersistentVolumeClaim", "other", spec={})
ADD = "add pv,pvc,storageclasses,csinodes,csidrivers to what kubectl gets"


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([], ["no PersistentVolumeClaim is among the objects: 2 pods with claims are left alone"]),
        ([OTHER], []),  # the cluster has claims, and not this one
        ([CLAIM], ["no PersistentVolume is among the objects: 2 pods with claims are left alone"]),
        ([CLAIM, _storage("PersistentVolume", "another", spec={})], []),
        ([UNBOUND], ["no StorageClass is among the objects: 2 pods with claims are left alone"]),
        ([UNBOUND, CLASS], []),
        ([UNBOUND, CLASS, HERE], ["no CSINode is among the objects: the volumes a node takes are not counted"]),
    ],
)
def test_kinds_of_storage_that_the_files_lack_are_told(
    plan: Plan, objects: list[dict[str, Any]], said: list[str]
) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    asking = [pod(name, "1", volumes=volumes) for name in ("a", "b")]
    gated = pod("gated", "1", volumes=volumes, schedulingGates=[{"name": "wait"}])
    notes = plan(*asking, gated, pod("plain", "1"), *objects).get("notes", [])
    assert [note for note in notes if "among the objects" in note] == [f"{each}; {ADD}" for each in said]


def test_the_policy_for_preferences(plan: Plan) -> None:
    wanted = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}
    term = {"weight": 1, "preference": {"matchExpressions": [wanted]}}
    picky = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}
    answers = [plan(pod("a", "1", **picky), more=("--preference-policy", policy)) for policy in ("Respect", "Ignore")]
    launched = [answer["nodeClaims"][0]["launch"]["instanceType"] for answer in answers]
    assert launched == ["large", "small"]


def test_default_spread_constraints(plan: Plan) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    config = plan.folder / "scheduler.json"
    config.write_text(json.dumps({"podTopologySpread": {"defaultConstraints": [constraint]}}))
    service = {"kind": "Service", "metadata": {"name": "s", "namespace": "web"}, "spec": {"selector": {"app": "web"}}}
    waiting = [pod(name, "100m") for name in "ab"]
    for item in waiting:
        item["metadata"]["labels"] = {"app": "web"}
    more = ("--scheduler-config", config)
    assert len(plan(*waiting, service, more=more)["nodeClaims"]) == 2


def test_claim_rules_leave_other_pods_alone(plan: Plan) -> None:
    rules = plan.folder / "rules.yaml"
    rules.write_text("claimRules:\n  - tolerates: dedicated\n  - namespaces: [team-*]\n")
    other = pod("b", "1")
    more = ("--claim-rules", rules)
    answer = plan({**other, "spec": {**other["spec"], "tolerations": []}}, more=more)
    assert answer["ignored"] == [{"pod": "web/b", "message": "outside the cluster's claim rules"}]

    rules.write_text("claimRules:\n  - tolerates: dedicated\n  - namespaces: []\n")
    assert f"{rules}:3: claimRules[1]: says nothing" in plan.error(other, more=more)


def test_exit_code_zero_when_everything_has_a_place(plan: Plan) -> None:
    first = plan(pod("a", "1"))["nodeClaims"]
    assert plan(pod("a", "1"))["nodeClaims"] == first


def test_yaml_says_the_same(plan: Plan) -> None:
    as_yaml = yaml.safe_load(plan.printed(pod("a", "1"), more=("-o", "yaml")))
    assert as_yaml["nodeClaims"] == plan(pod("a", "1"))["nodeClaims"]


def test_the_page_for_people(plan: Plan) -> None:
    objects = [pod("a", "1"), pod("huge", "50"), pod("gated", "1", schedulingGates=[{"name": "wait"}])]
    page = plan.page(*objects, code=1, more=("--details",))
    for words in (
        "+ default-",
        "small on-demand in z1, $0.1000/h",
        "cpu 1 of 1.9, pods 1 of 10 (the least of its 2 types)",
        "web/a",
        "Without a place",
        "- web/huge",
        "cpu short by 42100m",
        "Left alone",
        "scheduling gate wait",
        "Plan: 1 to launch for 1 pod, 0 pods on nodes that exist, 1 without a place, 1 left alone. $0.1000 per hour",
    ):
        assert words in " ".join(page.split()), page


def test_launches_that_are_alike_have_one_line(plan: Plan) -> None:
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["nowhere"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    alone = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
    alone["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] = {}
    apart = [pod(f"p{number}", "1", affinity={"podAntiAffinity": alone}) for number in range(3)]
    picky = pod("picky", "1", affinity={"nodeAffinity": preferred, "podAntiAffinity": alone})
    lines = [" ".join(line.split()) for line in plan.printed(*apart, picky).splitlines()]
    launches = [line for line in lines if line.startswith("+")]
    assert [line.partition(" default-")[0] for line in launches] == [
        "+3 small on-demand z1 $0.1000",
        "+1 small on-demand z1 $0.1000",
    ]
    assert launches[0].endswith(" and 2 more 3 pods")
    assert launches[1].endswith(" web/picky")
    assert sum(": gave up node affinity topology.kubernetes.io/zone In [nowhere]" in line for line in lines) == 1


def test_the_page_shows_static_pools_buffers_and_preferences_given_up(plan: Plan) -> None:
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
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["nowhere"]}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    picky = pod("picky", "1", affinity={"nodeAffinity": preferred})
    more = ("--manifests", plan.write("more.json", static, template, buffer))
    page = plan.page(picky, more=(*more, "--details"))
    for words in (
        "gave up node affinity topology.kubernetes.io/zone In [nowhere]",
        "keeps room web/spare-0000",
        "static pool replicas there launched missing too many",
        "static 3 0 2 1: limits.nodes is 2",
        "buffer pods on nodes on new nodes without room",
        "web/spare 2 0 2 0",
    ):
        assert words in page, page
    claims = plan(picky, more=more)["nodeClaims"]
    assert [claim["gaveUp"] for claim in claims if claim["pods"]] == [
        ["node affinity topology.kubernetes.io/zone In [nowhere]"]
    ]


def test_real_types_and_their_overhead(plan: Plan) -> None:
    plan.write("pool.json", pinned("r5a.8xlarge"), NODE_CLASS)
    worker = pod("worker", "29", memory="246400Mi")
    record = plan(worker, code=1, catalog=False)["unschedulable"][0]
    assert (
        "memory short by 6846Mi: 246400Mi needed, 239554Mi allocatable, predicted from 7.5 % overhead"
        in (record["message"])
    )
    assert record["nearest"]["short"] == "6846Mi"
    plan(worker, more=("--vm-memory-overhead-percent", "0.048"), catalog=False)


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "time": (("--now", "yesterday"), "--now"),
    "policy": (("--min-values-policy", "Sometimes"), "none of Strict, BestEffort"),
    "prefix delegation": (("--prefix-delegation", "maybe"), "none of auto, on, off"),
    "catalogue": (("--catalog", "/no/such/file.json"), "/no/such/file.json"),
    "learned": (("--capacity", "/no/such/capacity.json"), "capacity.json"),
}


@pytest.mark.parametrize(("more", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exit_code_two(plan: Plan, more: tuple[str, ...], words: str) -> None:
    assert words in plan.error(pod("a", "1"), more=more, catalog=False)


def test_manifests_without_a_pool(plan: Plan) -> None:
    plan.write("pool.json", NODE_CLASS)
    assert "no NodePool" in plan.error(pod("a", "1"))


def test_without_any_node_class_one_is_assumed_and_said(plan: Plan) -> None:
    other = changed(changed(POOL, "metadata.name", "second"), "spec.template.spec.nodeClassRef.name", "arm")
    plan.write("pool.json", POOL, other)
    assert "default is assumed to be al2023@latest" not in plan.printed(pod("a", "1"))
    said = plan.printed(pod("a", "1"), catalog=False)
    assert "1 to launch for 1 pod" in said
    assert "no EC2NodeClass among the manifests: arm, default is assumed to be al2023@latest" in said


def test_a_catalogue_makes_up_for_a_missing_node_class(plan: Plan) -> None:
    plan.write("pool.json", POOL, NODE_CLASS | {"metadata": {"name": "other"}})
    plan(pod("a", "1"))
    assert "nodeClassRef.name" in plan.error(pod("a", "1"), catalog=False)


def test_learned_capacity_makes_a_pod_fit(plan: Plan) -> None:
    plan.write("pool.json", pinned("r5a.8xlarge"), NODE_CLASS)
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
    learned = plan.folder / "learned.json"
    learned.write_bytes(dump_learned([LearnedCapacity("ami-1", item.name, item.kubelet_hash, (seen,), 1)]))
    worker = pod("worker", "29", memory="246400Mi")
    plan(worker, code=1, catalog=False)
    (claim,) = plan(worker, more=("--capacity", learned), catalog=False)["nodeClaims"]
    assert claim["instanceTypes"] == ["r5a.8xlarge"]


def test_overlays_that_conflict_are_listed(plan: Plan) -> None:
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
    more = ("--manifests", plan.write("overlays.json", *items))
    assert plan(pod("a", "1"), more=more)["rejectedOverlays"] == ["first"]
    page = plan.page(pod("a", "1"), more=more)
    assert "NodeOverlays applied nowhere, for they conflict with others of equal weight: first" in page
