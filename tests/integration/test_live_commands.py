"""`shiplap plan`, `disrupt` and `explain` on a cluster that is asked: missing rights, credentials, failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shiplap.errors import ClusterUnreachable
from shiplap_cli.main import run
from shiplap_lab.cluster_simulator.access import READ_ONLY, PolicyRule
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.nodes import node_object
from tests.integration.live_pods import pod
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS as NODE_CLASS

HALF = (
    PolicyRule(("list",), ("nodes", "daemonsets"), ("", "apps")),
    PolicyRule(("list",), ("pods",), ("",)),
)


class Cluster:
    """An API server over HTTP and a kubeconfig for it; commands run on it."""

    def __init__(self, http: KubeHttpServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.http = http
        self.folder = folder
        self._capsys = capsys
        self.kubeconfig()

    def kubeconfig(self, token: str = "all", **user: Any) -> None:  # noqa: S107 - it is none
        document = {
            "current-context": "blue",
            "contexts": [{"name": "blue", "context": {"cluster": "c", "user": "me", "namespace": "web"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.http.endpoint}}],
            "users": [{"name": "me", "user": user or {"token": token}}],
        }
        (self.folder / "config").write_text(yaml.safe_dump(document))

    def says(self, command: str, *arguments: str, code: int = 0) -> str:
        config = ("--kubeconfig", str(self.folder / "config"))
        assert run([*command.split(), *config, *arguments]) == code
        printed = self._capsys.readouterr()
        assert (printed.err == "") == (code != 2)
        return printed.err if code == 2 else printed.out

    def document(self, command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.says(command, "-o", "json", *arguments, code=code)))

    @property
    def given(self) -> tuple[str, ...]:
        """Manifests and a catalogue from files."""
        (self.folder / "pool.json").write_text(json.dumps(POOL))
        return ("--manifests", str(self.folder / "pool.json"), *self.catalog)

    @property
    def catalog(self) -> tuple[str, str]:
        (self.folder / "catalog.json").write_text(json.dumps(CATALOG))
        return ("--catalog", str(self.folder / "catalog.json"))


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    api = ApiServer(FakeClock())
    api.create("nodes", node_object("old", "2", "4Gi", "5", region="eu-west-1"))
    for name in ("a", "b", "c"):
        api.create("pods", pod(name))
    api.create("pods", pod("elsewhere", namespace="other"))
    access = {
        "all": READ_ONLY,
        "half": HALF,
        "nodes only": HALF[:1],
        "nothing": (),
        "no pods": (PolicyRule(("list",), ("nodes",), ("",)),),
    }
    with KubeHttpServer(api, access=access) as http:
        yield Cluster(http, tmp_path, capsys)


def test_a_plan_of_a_cluster_that_is_asked(cluster: Cluster) -> None:
    found = cluster.document("plan", *cluster.given)
    placed = [pod for place in found["existingNodes"] for pod in place["pods"]]
    launched = [pod for claim in found["nodeClaims"] for pod in claim["pods"]]
    assert sorted(placed + launched) == ["other/elsewhere", "web/a", "web/b", "web/c"]
    assert len(placed) == 2
    assert "unseen" not in found
    assert found["totals"] == {
        "now": {"nodes": 1, "hourly": 0.0, "estimated": False},
        "then": {"nodes": 1 + len(found["nodeClaims"]), **found["cost"]},
        "unpriced": 1,
    }
    assert {verb for verb, _, _ in cluster.http.seen} == {"list"}
    assert "1 node of unknown price" in cluster.says("plan", *cluster.given)


def test_the_cluster_has_its_own_pools(cluster: Cluster) -> None:
    assert "holds no NodePool; give files" in cluster.says("plan", code=2)
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster.http.api.create("nodepools", POOL | {"status": status})
    cluster.http.api.create("ec2nodeclasses", NODE_CLASS | {"status": status})
    found = cluster.document("plan", "--no-aws")
    assert found["nodeClaims"][0]["nodePool"] == "default"
    assert found["nodeClaims"][0]["launch"]["zone"].startswith("eu-west-1")
    assert found["notes"] == [
        "embedded catalogue of eu-west-1: prices are estimates of us-east-1's, AMIs and subnets are not looked at"
    ]
    assert "! embedded catalogue" in cluster.says("plan", "--no-aws")
    wrong = json.loads(json.dumps(POOL))
    wrong["metadata"]["name"], wrong["spec"]["limits"] = "wrong", {"cpu": "many"}
    cluster.http.api.create("nodepools", wrong)
    assert "context blue: NodePool/wrong: spec.limits" in cluster.says("plan", "--no-aws", code=2)


def test_without_aws_credentials_it_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from shiplap.aws import session  # noqa: PLC0415 - botocore

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    session.session.cache_clear()
    cluster.http.api.create("nodepools", POOL)
    cluster.http.api.create("ec2nodeclasses", NODE_CLASS)
    (note,) = cluster.document("plan")["notes"]
    assert note.endswith("there are no AWS credentials")
    assert "aws sts get-caller-identity" in cluster.says("plan", "--aws", code=2)
    session.session.cache_clear()


def test_claims_on_their_way_count(cluster: Cluster) -> None:
    labels = {"karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "large"}
    claim = {
        "metadata": {"name": "default-1", "labels": {**labels, "topology.kubernetes.io/zone": "z1"}},
        "spec": {"nodeClassRef": {"name": "default"}, "taints": POOL["spec"]["template"]["spec"]["taints"]},  # type: ignore[index]
        "status": {
            "providerID": "aws:///z1/i-1",
            "allocatable": {"cpu": "7", "memory": "7Gi", "pods": "10"},
            "conditions": [{"type": "Launched", "status": "True"}],
        },
    }
    cluster.http.api.create("nodeclaims", claim)
    found = cluster.document("plan", *cluster.given)
    assert found["nodeClaims"] == []
    assert {place["name"] for place in found["existingNodes"]} >= {"default-1"}


def test_rights_that_are_missing_are_named_and_the_rest_goes_on(cluster: Cluster) -> None:
    cluster.kubeconfig("half")
    found = cluster.document("plan", *cluster.given)
    missing = {(item["verb"], item["group"], item["resource"]) for item in found["unseen"]}
    assert missing == {
        ("list", "", "events"),
        ("list", "policy", "poddisruptionbudgets"),
        ("list", "karpenter.sh", "nodeclaims"),
    }
    assert len(found["nodeClaims"]) == 2
    page = cluster.says("plan", *cluster.given)
    assert "the right to list poddisruptionbudgets.policy is missing" in " ".join(page.split())
    assert "unseen" in cluster.document("disrupt", *cluster.given, code=1)
    assert "is missing" in " ".join(cluster.says("explain pod web/a", *cluster.given).split())


def test_half_a_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights in one namespace only: RBAC of a Role, which the server here has no word for."""
    from shiplap_lab.cluster_simulator import http_server  # noqa: PLC0415 - patched here only

    def within(rules: Any, request: Any) -> bool:
        return request.namespace == "web" or request.resource == "nodes"

    monkeypatch.setattr(http_server, "allowed", within)
    found = cluster.document("plan", *cluster.given)
    assert {item["resource"]: item["namespace"] for item in found["unseen"]}["pods"] == "web"
    planned = [name for claim in found["nodeClaims"] + found["existingNodes"] for name in claim["pods"]]
    assert sorted(planned) == ["web/a", "web/b", "web/c"]
    page = " ".join(cluster.says("plan", *cluster.given).split())
    assert "not seen beyond namespace web: pods" in page


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (
            "nothing",
            "pods may be listed neither in the cluster nor in namespace web; the right to list pods is missing",
        ),
        ("no pods", "the right to list pods is missing"),
        ("unknown", "the credentials of user me were refused: log in again"),
    ],
)
def test_what_cannot_be_gone_on_from(cluster: Cluster, token: str, words: str) -> None:
    cluster.kubeconfig(token)
    said = cluster.says("plan", *cluster.given, code=2)
    assert said.startswith("shiplap: context blue: ")
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.usefixtures("unpaused")
def test_other_failures_are_one_line(cluster: Cluster) -> None:
    assert "known are blue" in cluster.says("plan --context red", *cluster.given, code=2)
    both = ("--cluster-state", str(cluster.folder / "state.json"))
    assert "give one of them" in cluster.says("plan", *cluster.given, *both, code=2)
    cluster.http.refusals.extend([ClusterUnreachable("down", status=503)] * 40)
    assert "kubectl --context blue version" in cluster.says("plan", *cluster.given, code=2)
    cluster.http.refusals.clear()
    cluster.kubeconfig(exec={"command": "false", "apiVersion": "client.authentication.k8s.io/v1"})
    assert "`false` failed with exit code 1" in cluster.says("plan", *cluster.given, code=2)
    (cluster.folder / "config").write_text("contexts: [")
    assert ": not YAML: " in cluster.says("plan", *cluster.given, code=2)


@pytest.mark.usefixtures("unpaused")
def test_an_unreachable_server_is_one_line(cluster: Cluster) -> None:
    cluster.http.stop()
    said = cluster.says("plan", *cluster.given, code=2)
    assert "see whether `kubectl --context blue version` is answered" in said
    cluster.http.stop = lambda: None  # type: ignore[method-assign]  # the fixture would stop it once more


@pytest.fixture
def manifests(cluster: Cluster) -> Callable[..., str]:
    def written(name: str, **limits: str) -> str:
        pool = json.loads(json.dumps(POOL))
        pool["spec"]["limits"] = limits
        (cluster.folder / name).write_text(json.dumps(pool))
        return str(cluster.folder / name)

    return written


def test_two_sets_of_manifests_compared(cluster: Cluster, manifests: Callable[..., str]) -> None:
    old, new = manifests("old.json"), manifests("new.json", cpu="0")
    found = cluster.document("plan", *cluster.catalog, "--diff", old, new, code=1)
    assert (found["old"]["unschedulable"], found["new"]["unschedulable"]) == (0, 2)
    assert found["old"]["nodes"] > found["new"]["nodes"] == 0
    assert found["old"]["pools"]["default"]["hourly"] == pytest.approx(found["old"]["hourly"])
    assert len(found["newlyLeftOut"]) == 2
    assert found["newlyPlaced"] == []
    assert cluster.http.seen["list", "", "pods"] == 1
    page = cluster.says("plan", *cluster.catalog, "--diff", new, old)
    assert "Left out by OLD, placed by NEW" in page
    assert "leave --manifests out" in cluster.says("plan", *cluster.given, "--diff", old, new, code=2)


def test_from_scratch_plans_the_pods_of_pool_nodes_anew(cluster: Cluster) -> None:
    labels = {
        "karpenter.sh/nodepool": "default",
        "node.kubernetes.io/instance-type": "large",
        "topology.kubernetes.io/zone": "z1",
        "karpenter.sh/capacity-type": "on-demand",
    }
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
    cluster.http.api.create("nodes", {"metadata": {"name": "dear", "labels": labels}, "status": status})
    running = pod("running", nodeName="dear")
    running["status"] = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    cluster.http.api.create("pods", running)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}
    agent = pod("agent", nodeName="dear")
    agent["metadata"]["ownerReferences"] = [owner]
    cluster.http.api.create("pods", agent)
    as_is = cluster.document("plan", *cluster.given)
    assert as_is["nodeClaims"] == []
    assert as_is["totals"]["now"] == {"nodes": 2, "hourly": 0.4, "estimated": False}
    anew = cluster.document("plan", *cluster.given, "--from-scratch")
    planned = {name for claim in anew["nodeClaims"] + anew["existingNodes"] for name in claim["pods"]}
    assert planned == {"other/elsewhere", "web/a", "web/b", "web/c", "web/running"}
    assert anew["totals"]["then"]["hourly"] == pytest.approx(anew["cost"]["hourly"])


def test_a_whole_cluster_on_standard_input(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from io import StringIO  # noqa: PLC0415 - only here

    objects = [pod("one"), POOL, NODE_CLASS]
    monkeypatch.setattr("sys.stdin", StringIO(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects})))
    assert run(["plan", "-f", "-", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodeClaims"][0]["pods"] == ["web/one"]


def test_a_cluster_that_an_install_may_serve_says_that_its_tables_were_not_looked_at(cluster: Cluster) -> None:
    assert "notes" not in cluster.document("plan", *cluster.given)
    marks = {"karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "small"}
    cluster.http.api.create("nodes", {"metadata": {"name": "ours", "labels": marks}})
    (note,) = cluster.document("plan", *cluster.given)["notes"]
    assert "name it by --cluster" in note
