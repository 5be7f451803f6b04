"""`shiplap plan --arm`: what named workloads would cost on arm64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.pods import pod_object
from tests.builders.pools import rule
from tests.commands import Shiplap, listed
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

ARCH = "kubernetes.io/arch"
FAMILY = "karpenter.k8s.aws/instance-family"
AMD64 = rule(ARCH, "In", "amd64")


def owned(name: str, kind: str, owner: str, **spec: Any) -> dict[str, Any]:
    made = pod_object(name, "1", "2Gi", namespace="shop", **spec)
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner, "controller": True}]
    return made


def of_web(number: int, **spec: Any) -> dict[str, Any]:
    made = owned(f"web-7d9f-{number}", "ReplicaSet", "web-7d9f", **spec)
    made["metadata"]["labels"] = {"pod-template-hash": "7d9f"}
    return made


class ArmPlan:
    def __init__(self, folder: Path, shiplap: Shiplap) -> None:
        self.folder, self.shiplap = folder, shiplap
        self.pools("m6i", "m6g")

    def pools(self, *families: str) -> None:
        rules = [AMD64, rule("karpenter.sh/capacity-type", "In", "on-demand"), rule(FAMILY, "In", *families)]
        pool = changed(changed(NODE_POOL, "spec.template.spec.requirements", rules), "spec.template.spec.taints", [])
        (self.folder / "pool.json").write_text(listed(pool, EC2_NODE_CLASS))

    def arguments(self, *objects: dict[str, Any], arm: tuple[str, ...]) -> list[str | Path]:
        (self.folder / "state.json").write_text(listed(*objects))
        state = ["--cluster-state", self.folder / "state.json", "--manifests", self.folder / "pool.json", "--no-aws"]
        return ["plan", *state, "--now", "2026-01-31T12:00:00Z", *(part for name in arm for part in ("--arm", name))]


@pytest.fixture
def plan(tmp_path: Path, shiplap: Shiplap) -> ArmPlan:
    return ArmPlan(tmp_path, shiplap)


def test_the_same_pods_on_new_nodes_of_both_architectures(plan: ArmPlan) -> None:
    """Of web only, running pods and waiting ones alike, whatever they and their pool said of the architecture."""
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [AMD64]}],
            }
        }
    }
    objects = [
        of_web(1, nodeSelector={ARCH: "amd64"}),
        of_web(2, affinity=affinity),
        of_web(3, nodeName="somewhere"),
        owned("db-0", "StatefulSet", "db"),
    ]
    found = plan.shiplap.json(*plan.arguments(*objects, arm=("web",)))
    assert (found["pods"], found["workloads"]) == (3, ["web"])
    assert all(name.startswith("m6i.") for name in found["asTheyAre"]["instanceTypes"])
    assert all(name.startswith("m6g.") for name in found["arm64"]["instanceTypes"])
    assert 0 < found["arm64"]["hourly"] < found["asTheyAre"]["hourly"]
    assert found["arm64"]["leftOut"] == {}
    assert "architectures of images are not checked" in found["note"]


def test_a_page_says_the_difference_and_what_is_not_checked(plan: ArmPlan) -> None:
    page = plan.shiplap.page(*plan.arguments(of_web(1), arm=("deployment/shop/web",)))
    assert "1 pod of deployment/shop/web, on new nodes only" in page
    assert "arm64 costs -" in page
    assert "architectures of images are not checked" in page


def test_pools_without_arm_types_leave_the_pods_without_a_place(plan: ArmPlan) -> None:
    plan.pools("m6i")
    page = plan.shiplap.page(*plan.arguments(of_web(1), arm=("web",)), code=1)
    assert "without a place on arm64: shop/web-7d9f-1" in page


def test_a_workload_in_files_adds_its_own_pods(plan: ArmPlan) -> None:
    template = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "api", "namespace": "shop"},
        "spec": {"replicas": 4, "template": template},
    }
    found = json.loads(plan.shiplap(*plan.arguments(workload, of_web(1), arm=("api", "web")), "-o", "json"))
    assert found["pods"] == 5


@pytest.mark.parametrize(
    ("arm", "more", "said"),
    [
        ("nowhere", (), "nowhere has no pods"),
        ("statefulset/web", (), "web has no pods"),
        ("other/web", (), "web has no pods"),
        ("a/b/c/d", (), "is not of the form"),
        ("web", ("--from-scratch",), "leave --diff, --from-scratch and --html out"),
    ],
)
def test_what_cannot_be_asked(plan: ArmPlan, arm: str, more: tuple[str, ...], said: str) -> None:
    assert said in plan.shiplap.error(*plan.arguments(of_web(1), arm=(arm,)), *more)
