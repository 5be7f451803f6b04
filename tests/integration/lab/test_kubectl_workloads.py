"""kubectl's commands for workloads, on a simulated cluster: by the requests it sends, and by a real kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.cluster_simulator.simulated_cluster import Runner
from tests.builders.pods import pod_object
from tests.builders.workloads import WorkloadWorld, workload_object
from tests.integration.lab.http_requests import HttpRequests

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STRICT = "fieldManager=kubectl&fieldValidation=Strict"
STRATEGIC, MERGE = "application/strategic-merge-patch+json", "application/merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


@pytest.fixture
def world() -> WorkloadWorld:
    return WorkloadWorld()


@pytest.fixture
def requests(world: WorkloadWorld) -> Iterator[HttpRequests]:
    with KubeHttpServer(world.server) as running:
        asking = HttpRequests(running.endpoint)
        yield asking
        asking.pool.close()


def test_the_requests_of_apply_scale_restart_and_undo(world: WorkloadWorld, requests: HttpRequests) -> None:
    status, made = requests.ask("POST", f"{DEPLOYMENTS}?{STRICT}", workload_object())
    assert (status, made["metadata"]["generation"], made["spec"]["strategy"]["type"]) == (201, 1, "RollingUpdate")
    world.settle()
    status, scale = requests.ask("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 5}}, MERGE)
    assert (status, scale["kind"], scale["spec"]) == (200, "Scale", {"replicas": 5})
    scale["spec"]["replicas"] = 4
    assert requests.ask("PUT", f"{DEPLOYMENTS}/web/scale", scale)[0] == 200
    world.settle()
    assert requests.ask("GET", f"{DEPLOYMENTS}/web/scale")[1]["status"] == {"replicas": 4}
    restarted = {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}
    patch = {"spec": {"template": {"metadata": restarted}}}
    status, changed = requests.ask("PATCH", f"{DEPLOYMENTS}/web?{STRICT}", patch, STRATEGIC)
    assert (status, changed["metadata"]["generation"]) == (200, 4)
    world.settle()
    sets = requests.ask("GET", "/apis/apps/v1/namespaces/default/replicasets?labelSelector=app%3Dweb")[1]["items"]
    (first,) = (item for item in sets if not item["spec"]["replicas"])
    back = first["spec"]["template"]
    del back["metadata"]["labels"]["pod-template-hash"]
    back["metadata"]["creationTimestamp"] = None
    undo = [
        {"op": "replace", "path": "/spec/template", "value": back},
        {"op": "replace", "path": "/metadata/annotations", "value": {}},
    ]
    assert requests.ask("PATCH", f"{DEPLOYMENTS}/web", undo, JSON_PATCH)[0] == 200
    world.settle()
    assert world.server.get("replicasets", first["metadata"]["name"])["spec"]["replicas"] == 4
    for policy in ("Orphan", "Foreground"):
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
        assert requests.ask("DELETE", f"{DEPLOYMENTS}/web", options)[0] == 200
        world.settle()
        assert len(world.names()) == (4 if policy == "Orphan" else 0)
        requests.ask("POST", f"{DEPLOYMENTS}?{STRICT}", workload_object())
        world.settle()


def test_server_side_apply_creates_changes_and_takes_back(world: WorkloadWorld, requests: HttpRequests) -> None:
    where = f"{DEPLOYMENTS}/web?fieldManager=kubectl&fieldValidation=Strict"
    body = workload_object(paused=False)
    status, made = requests.ask("PATCH", where, msgspec.yaml.encode(body), APPLY)
    assert (status, made["metadata"]["generation"], made["spec"]["paused"]) == (200, 1, False)
    world.settle()
    del body["spec"]["paused"]
    changed = requests.ask("PATCH", where, body, APPLY)[1]
    assert ("paused" in changed["spec"], changed["status"]["readyReplicas"]) == (False, 3)
    assert requests.ask("PATCH", where, body, APPLY)[1]["metadata"] == changed["metadata"]
    other = where.replace("fieldManager=kubectl", "fieldManager=other")
    body["spec"]["replicas"] = 5
    code, answer = requests.ask("PATCH", other, body, APPLY)
    assert (code, 'conflict with "kubectl": .spec.replicas' in answer["message"]) == (409, True)
    assert requests.ask("PATCH", f"{other}&force=true", body, APPLY)[1]["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status", "words"),
    [
        ("POST", f"{DEPLOYMENTS}?{STRICT}&dryRun=All", workload_object(), "application/json", 409, "already exists"),
        ("POST", f"{DEPLOYMENTS}?dryRun=All", workload_object("b", -1), "application/json", 422, "spec.replicas"),
        ("POST", "/api/v1/namespaces/default/pods/a/eviction?dryRun=All", {}, "application/json", 400, "dry run"),
        ("POST", DEPLOYMENTS, workload_object("b", -3), "application/json", 422, "Deployment.apps"),
        ("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": "many"}}, MERGE, 400, "spec.replicas"),
        ("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"selector": None}}, STRATEGIC, 422, "spec.selector"),
        ("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": -1}}, MERGE, 422, "spec.replicas"),
        ("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 1}}, JSON_PATCH, 415, "unsupported format"),
        ("PATCH", f"{DEPLOYMENTS}/web", [{"op": "remove", "path": "/none"}], JSON_PATCH, 422, "none"),
        ("PATCH", f"{DEPLOYMENTS}/web", [{"op": "add", "path": "/spec", "value": 3}], JSON_PATCH, 400, "spec"),
        ("PATCH", f"{DEPLOYMENTS}/web", [{"op": "add", "path": "", "value": 3}], JSON_PATCH, 400, "object"),
        ("PATCH", f"{DEPLOYMENTS}/web/exec", {}, MERGE, 405, "method"),
        ("POST", DEPLOYMENTS, b"[" * 100_000, "application/json", 400, "nested too deeply"),
        ("PATCH", f"{DEPLOYMENTS}/web", {}, APPLY, 400, "fieldManager"),
        ("PATCH", f"{DEPLOYMENTS}/web?fieldManager=a", b"{", APPLY, 400, "not a JSON object"),
        ("PATCH", f"{DEPLOYMENTS}/web?{STRICT}", {"spec": {"replica": 1}}, APPLY, 400, '"spec.replica"'),
        ("PATCH", f"{DEPLOYMENTS}/b?{STRICT}", {"spec": {}}, APPLY, 422, "spec.template: Required value"),
        ("POST", DEPLOYMENTS, b"k8s", "application/vnd.kubernetes.protobuf", 400, "protobuf"),
        ("DELETE", f"{DEPLOYMENTS}/none", {"propagationPolicy": "Orphan"}, "application/json", 404, "not found"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    world: WorkloadWorld,
    requests: HttpRequests,
    method: str,
    path: str,
    body: Any,
    kind: str,
    status: int,
    words: str,
) -> None:
    before = world.create("deployments", workload_object())
    code, answer = requests.ask(method, path, body, kind)
    assert (code, answer["kind"], words in answer["message"]) == (status, "Status", True), answer
    assert (world.server.get("deployments", "web"), world.names("deployments")) == (before, ["web"])


CROWD = [{"name": f"c{number}", "image": "pause"} for number in range(600)]
TWINS = [{"type": f"T{number}", "status": "True"} for number in range(200)]


def test_objects_that_would_end_the_cluster_are_refused(world: WorkloadWorld, requests: HttpRequests) -> None:
    world.server.create("pods", pod_object("a"))
    pods = "/api/v1/namespaces/default/pods"
    crowded = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": CROWD}}
    assert requests.ask("POST", pods, crowded)[0] == 422
    assert requests.ask("PATCH", f"{pods}/a", {"spec": {"containers": CROWD}}, MERGE)[0] == 422
    assert requests.ask("PATCH", f"{pods}/a/status", {"status": {"conditions": TWINS}}, STRATEGIC)[0] == 422
    assert (
        requests.ask("PUT", f"{pods}/a/status", {**world.server.get("pods", "a"), "status": {"conditions": TWINS}})[0]
        == 422
    )
    operations = [{"op": "add", "path": "/spec/containers", "value": CROWD}]
    assert requests.ask("PATCH", f"{pods}/a", operations, JSON_PATCH)[0] == 422
    many = {"metadata": {"ownerReferences": [{"uid": str(number)} for number in range(200)]}}
    assert requests.ask("PATCH", "/api/v1/nodes/ip-10-0-0-0", many, MERGE)[0] == 422
    world.settle()
    assert world.names() == ["a"]


def test_a_namespace_takes_what_is_in_it_along(world: WorkloadWorld, requests: HttpRequests) -> None:
    for name in ("shop", "shop-2"):
        requests.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        body = {**workload_object(), "metadata": {"name": "web", "namespace": name}}
        assert requests.ask("POST", f"/apis/apps/v1/namespaces/{name}/deployments?{STRICT}", body)[0] == 201
        requests.ask("POST", f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": "settings"}})
    world.settle()
    assert requests.ask("DELETE", "/api/v1/namespaces/shop")[0] == 200
    world.settle()
    for plural, left in (("pods", 3), ("deployments", 1), ("replicasets", 1), ("configmaps", 1)):
        found = world.server.list(plural).items
        assert [item["metadata"]["namespace"] for item in found] == left * ["shop-2"], plural


def test_a_bookmark_says_of_which_kind_it_is(world: WorkloadWorld) -> None:
    """Clients without types, such as `kubectl wait` and `delete`, give the watch up otherwise."""
    with KubeHttpServer(world.server, bookmark_s=0.0) as http:
        asking = HttpRequests(http.endpoint)
        path = "/api/v1/nodes?watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true&fieldSelector="
        response = asking.pool.request("GET", f"{path}metadata.name%3Dnone")
        (told, *_) = [msgspec.json.decode(line) for line in response.data.splitlines()]
        asking.pool.close()
    assert (told["type"], told["object"]["kind"], told["object"]["apiVersion"]) == ("BOOKMARK", "Node", "v1")


def test_a_dry_run_answers_and_changes_nothing(world: WorkloadWorld, requests: HttpRequests) -> None:
    before = world.create("deployments", workload_object())
    version, where = world.server.resource_version, f"{DEPLOYMENTS}/web?dryRun=All&fieldManager=a"
    assert requests.ask("POST", f"{DEPLOYMENTS}?dryRun=All", workload_object("b"))[1]["spec"]["replicas"] == 3
    for kind in (STRATEGIC, MERGE, APPLY):
        status, tried = requests.ask("PATCH", where, {"spec": {"replicas": 7}}, kind)
        assert (status, tried["spec"]["replicas"], tried["metadata"]["uid"]) == (200, 7, before["metadata"]["uid"])
    assert (
        requests.ask("PATCH", f"{DEPLOYMENTS}/new?dryRun=All&fieldManager=a", workload_object("new"), APPLY)[0] == 200
    )
    assert requests.ask("PUT", where, before | {"spec": before["spec"] | {"paused": True}})[1]["spec"]["paused"] is True
    assert requests.ask("DELETE", where)[0] == 200
    assert (world.server.resource_version, world.server.get("deployments", "web")) == (version, before)


MOST_MACHINES = 12

Kubectl = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(world: WorkloadWorld, tmp_path: Path) -> Iterator[Kubectl]:
    """A real one; the cluster under it goes on by itself, a second of its time at each look at the clock."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("there is no kubectl on PATH")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull}

    class _Moving:
        """Also plays the provisioner: while a pod waits, there is another machine."""

        def now(self) -> float:
            pods = world.server.list("pods").items
            if len(world.machines) < MOST_MACHINES and not all("nodeName" in pod["spec"] for pod in pods):
                world.machines = [*world.machines, world.machine(len(world.machines))]
            return world.clock.advance(1.0)

    with KubeHttpServer(world.server) as http:
        runner = Runner([world.cluster], _Moving(), step_s=0.005).start()

        def run(command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(  # noqa: S603 - the program that PATH names, with the test's own words
                [found, "-s", http.endpoint, *command.split()],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        yield run
        runner.stop()


ROLLOUTS = (
    ("create deployment other --image=pause", "deployment.apps/other created"),
    ("delete deployment other", "deleted"),
    ("apply --server-side -f agent.json", "daemonset.apps/agent serverside-applied"),
    ("apply --server-side -f agent.json", "daemonset.apps/agent serverside-applied"),
    ("delete ds agent", "deleted"),
    ("apply -f web.json", "deployment.apps/web created"),
    ("rollout status deploy/web --timeout=50s", "successfully rolled out"),
    ("diff -f web.json", ""),
    ("apply -f web.json --dry-run=server", "deployment.apps/web unchanged (server dry run)"),
    ("get deploy,rs,pods", "3/3"),
    ("scale deploy/web --replicas=12", "scaled"),
    ("wait --for=condition=Available deploy/web --timeout=50s", "condition met"),
    ("set image deploy/web main=pause:2", "image updated"),
    ("rollout status deploy/web --timeout=50s", "successfully rolled out"),
    ("rollout history deploy/web", "REVISION"),
    ("rollout undo deploy/web", "rolled back"),
    ("rollout status deploy/web --timeout=50s", "successfully rolled out"),
    ("rollout restart deploy/web", "restarted"),
    ("rollout status deploy/web --timeout=50s", "successfully rolled out"),
    ("rollout pause deploy/web", "paused"),
    ("rollout resume deploy/web", "resumed"),
    ("describe deploy web", "Scaled up replica set web-"),
    ("delete deploy web --cascade=foreground --timeout=50s", "deleted"),
    ("apply -f db.json", "statefulset.apps/db created"),
    ("rollout status sts/db --timeout=50s", "roll out complete: 3 new pods"),
    ("set image sts/db main=pause:2", "image updated"),
    ("rollout undo sts/db", "rolled back"),
    ("rollout status sts/db --timeout=50s", "complete"),
    ("apply -f agent.json", "daemonset.apps/agent created"),
    ("rollout status ds/agent --timeout=50s", "successfully rolled out"),
    ("create job work --image=pause -- sleep 5", "job.batch/work created"),
    ("wait --for=condition=complete job/work --timeout=50s", "condition met"),
    ("get jobs,sts,ds", "Complete"),
    ("delete sts,ds,jobs --all --cascade=foreground --timeout=50s", "deleted"),
    ("get all", ""),
)


def test_a_real_kubectl_rolls_out_and_back(world: WorkloadWorld, kubectl: Kubectl, tmp_path: Path) -> None:
    for body in (
        workload_object(cpu="100m"),
        workload_object("db", plural="statefulsets"),
        workload_object("agent", None, plural="daemonsets"),
    ):
        (tmp_path / f"{body['metadata']['name']}.json").write_bytes(msgspec.json.encode(body))
    for command, words in ROLLOUTS:
        done = kubectl(command)
        assert (done.returncode, words in done.stdout) == (0, True), (command, done.stdout, done.stderr)
    assert (done.stdout, done.stderr) == ("", "No resources found in default namespace.\n")


TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial" / "first-node.md"


def tutorial_commands() -> list[str]:
    """The kubectl commands of the playground, in their order, without what they say beside them."""
    playground = TUTORIAL.read_text().partition("## On a cluster")[0]
    lines = [line.partition("#")[0].strip() for line in playground.splitlines()]
    return [line.removeprefix("kubectl ") for line in lines if line.startswith("kubectl ")]


def test_the_tutorial_has_ten_commands_and_a_deployment() -> None:
    assert len(tutorial_commands()) == 10
    assert tutorial_commands()[0].startswith("create deployment")


def test_the_commands_of_the_tutorial_do_what_it_says(world: WorkloadWorld, kubectl: Kubectl) -> None:
    nodes = len(world.machines)
    shown = {}
    for command in tutorial_commands():
        done = kubectl(command)
        assert (done.returncode, done.stderr) == (0, ""), (command, done.stdout, done.stderr)
        shown[command.partition(" deployment")[0]] = done.stdout
    assert "successfully rolled out" in shown["rollout status"]
    assert "6/6" in shown["get"]
    assert len(shown["get nodes"].splitlines()) > nodes
    assert "condition met" in shown["wait --for=condition=Available"]
    assert "rolled back" in shown["rollout undo"]
    assert "first-" in shown["describe nodes"]
    assert len(world.names("replicasets")) == 3  # as created, with requests, with the image that was taken back
    assert len(world.names("nodes")) > nodes
    assert len(world.names()) >= 20
