"""`kubectl apply` with validation on the local API: by the requests it sends, and by a real kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap_lab.api_server.api_resources import PLURALS, RESOURCES
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.integration.lab.http_requests import HttpRequests

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
STRICT = "fieldManager=kubectl-client-side-apply&fieldValidation=Strict"
STRATEGIC = "application/strategic-merge-patch+json"
CONTAINER = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"}, "spec": {"containers": [CONTAINER]}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}},
    },
}


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(FakeClock())


@pytest.fixture
def http(server: ApiServer) -> Iterator[KubeHttpServer]:
    with KubeHttpServer(server) as running:
        yield running


@pytest.fixture
def requests(http: KubeHttpServer) -> Iterator[HttpRequests]:
    asking = HttpRequests(http.endpoint)
    yield asking
    asking.pool.close()


def test_openapi_says_of_each_kind_that_the_server_validates_fields(requests: HttpRequests) -> None:
    kinds = set()
    for root in requests.ask("GET", "/openapi/v3")[1]["paths"].values():
        for path in requests.ask("GET", root["serverRelativeURL"])[1]["paths"].values():
            assert [each["name"] for each in path["patch"]["parameters"]] == ["fieldValidation"]
            kinds.add(path["patch"]["x-kubernetes-group-version-kind"]["kind"])
    assert kinds == {resource.kind for resource in RESOURCES.values()}
    assert requests.ask("GET", "/openapi/v3/apis/none/v1")[0] == 404


FOLDER_OF_MANIFESTS = (
    ("v1", "ServiceAccount", {}),
    ("v1", "Secret", {"type": "Opaque", "data": {"key": "dmFsdWU="}}),
    ("v1", "ConfigMap", {"data": {"a": "b"}}),
    ("v1", "Service", {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
    ("v1", "LimitRange", {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}}),
    ("v1", "ResourceQuota", {"spec": {"hard": {"pods": "3"}}}),
    ("apps/v1", "Deployment", {"spec": DEPLOYMENT["spec"]}),
    (
        "batch/v1",
        "CronJob",
        {
            "spec": {
                "schedule": "@daily",
                "jobTemplate": {"spec": {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}},
            }
        },
    ),
    ("networking.k8s.io/v1", "Ingress", {"spec": {"rules": [{"host": "a.example"}]}}),
    ("networking.k8s.io/v1", "NetworkPolicy", {"spec": {"podSelector": {}}}),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        {"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}},
    ),
    ("policy/v1", "PodDisruptionBudget", {"spec": {"maxUnavailable": 1}}),
    ("rbac.authorization.k8s.io/v1", "Role", {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "o"}, "subjects": []},
    ),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", {"rules": []}),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"spec": {"group": "example.com"}}),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", {"spec": {"matchingPrecedence": 100}}),
)
"""Objects of the kinds that people's manifests hold beside workloads."""


def test_every_kind_of_peoples_manifests_is_stored_listed_and_deleted(requests: HttpRequests) -> None:
    for version, kind, body in FOLDER_OF_MANIFESTS:
        resource = RESOURCES[PLURALS[kind]]
        prefix = f"/apis/{version}" if resource.group else "/api/v1"
        where = f"{prefix}/{'namespaces/shop/' if resource.namespaced else ''}{resource.plural}"
        item = {"apiVersion": version, "kind": kind, "metadata": {"name": "o"}, **body}
        assert requests.ask("POST", f"{where}?{STRICT}", item)[0] == 201, kind
        found = requests.ask("GET", f"{where}/o")[1]
        assert {field: found.get(field) for field in item if field not in ("metadata", "spec")}.items() <= item.items()
        assert [each["metadata"]["name"] for each in requests.ask("GET", where)[1]["items"]] == ["o"]
        assert requests.ask("DELETE", f"{where}/o")[0] == 200


def test_what_has_no_effect_is_said_once(requests: HttpRequests) -> None:
    where = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    for name in ("a", "b"):
        assert requests.ask("POST", where, {"metadata": {"name": name}, "spec": {}})[0] == 201
    assert requests.ask("PATCH", f"{where}/a", {"spec": {"rules": []}}, "application/merge-patch+json")[0] == 200
    (warning,) = requests.warnings
    assert warning.startswith('299 - "Ingress is stored and has no effect here: ')
    assert requests.ask("POST", DEPLOYMENTS, DEPLOYMENT)[0] == 201
    assert requests.ask("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})[0] == 201
    assert requests.warnings == [warning]  # of what has its effect nothing is said


def test_a_claim_without_a_class_gets_the_default_one(server: ApiServer, requests: HttpRequests) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    requests.ask("POST", claims, {"metadata": {"name": "before"}, "spec": {}})
    for name, default in (("plain", "false"), ("gp3", "true")):
        marks = {"storageclass.kubernetes.io/is-default-class": default}
        server.create("storageclasses", {"metadata": {"name": name, "annotations": marks}})
    for name, spec in (("none", {"storageClassName": ""}), ("own", {"storageClassName": "plain"}), ("open", {})):
        requests.ask("POST", claims, {"metadata": {"name": name}, "spec": spec})
    found = {each["metadata"]["name"]: each["spec"] for each in requests.ask("GET", claims)[1]["items"]}
    assert {name: spec.get("storageClassName") for name, spec in found.items()} == {
        "before": None,
        "none": "",
        "own": "plain",
        "open": "gp3",
    }


def test_an_applied_deployment_is_changed_by_the_patch_that_kubectl_computes(requests: HttpRequests) -> None:
    assert requests.ask("POST", f"{DEPLOYMENTS}?{STRICT}", DEPLOYMENT)[0] == 201
    order = {"$setElementOrder/containers": [{"name": "main"}, {"name": "beside"}]}
    changed = {"name": "main", "image": "pause:2"}
    spec = {**order, "containers": [{"name": "beside", "image": "pause"}, changed]}
    patch = {"spec": {"$retainKeys": ["replicas", "selector", "template"], "template": {"spec": spec}}}
    status, answer = requests.ask("PATCH", f"{DEPLOYMENTS}/web?{STRICT}", patch, STRATEGIC)
    assert (status, answer["spec"]["replicas"]) == (200, 3)
    pods = answer["spec"]["template"]["spec"]
    assert pods == {"containers": [{**CONTAINER, "image": "pause:2"}, {"name": "beside", "image": "pause"}]}
    removed = {"spec": {"template": {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}}}
    answer = requests.ask("PATCH", f"{DEPLOYMENTS}/web?{STRICT}", removed, STRATEGIC)[1]
    assert [each["name"] for each in answer["spec"]["template"]["spec"]["containers"]] == ["beside"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"spec": {"containers": [CONTAINER], "nodeNam": "a"}}, 400, 'unknown field "spec.nodeNam"'),
        ({"sepc": {}}, 400, 'unknown field "sepc"'),
        ({"metadata": {"name": "first", "lables": {}}}, 400, 'unknown field "metadata.lables"'),
        ({"kind": "Node"}, 400, "does not match the kind"),
        ({"apiVersion": "v2"}, 400, "does not match the apiVersion"),
        ({"spec": "none"}, 400, "spec is a str"),
        ({"metadata": []}, 400, "metadata is a list"),
        ({"spec": None}, 422, "spec.containers: Required value"),
        ({"spec": {"containers": []}}, 422, "spec.containers: Required value"),
        ({"spec": {"containers": ["main"]}}, 400, "string into Go struct field spec.containers[0] of type Container"),
    ],
)
def test_a_broken_manifest_is_answered_with_a_status(
    change: Any, status: int, words: str, requests: HttpRequests, server: ApiServer
) -> None:
    code, answer = requests.ask("POST", f"{PODS}?{STRICT}", {**POD, **change})
    assert (code, answer["kind"], answer["code"]) == (status, "Status", status)
    assert words in answer["message"]
    assert server.list("pods").items == []
    assert requests.ask("POST", f"{PODS}?{STRICT}", POD)[0] == 201
    code, answer = requests.ask("PATCH", f"{PODS}/first?{STRICT}", change, STRATEGIC)
    assert (code, answer["kind"]) == (status, "Status")
    assert words in answer["message"]
    assert server.get("pods", "first")["spec"]["containers"] == [CONTAINER]


def test_a_patch_of_labels_needs_no_containers(requests: HttpRequests) -> None:
    requests.ask("POST", f"{PODS}?{STRICT}", POD)
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"priority": 1}}
    status, answer = requests.ask("PATCH", f"{PODS}/first?{STRICT}", patch, STRATEGIC)
    assert (status, answer["metadata"]["labels"], answer["spec"]["priority"]) == (200, {"a": "b"}, 1)


def test_an_unknown_directive_is_refused(requests: HttpRequests) -> None:
    requests.ask("POST", f"{DEPLOYMENTS}?{STRICT}", DEPLOYMENT)
    status, answer = requests.ask("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"$other": 1}}, STRATEGIC)
    assert (status, answer["kind"], answer["reason"]) == (422, "Status", "Invalid")


COMMANDS = (
    ("apply -f pod.json", "pod/first created"),
    ("apply -f pod.json", "pod/first unchanged"),
    ("apply -f deployment.json", "deployment.apps/web created"),
    ("apply -f changed.json", "deployment.apps/web configured"),
    ("get pods,deploy -A", "deployment.apps/web"),
    ("get pods -o wide", "NOMINATED NODE"),
    ("scale deploy/web --replicas=5", "deployment.apps/web scaled"),
    ("get deploy web", "0/5"),
    ("describe node n1", "Non-terminated Pods"),
    ("cordon n1", "node/n1 cordoned"),
    ("get nodes", "SchedulingDisabled"),
)


def test_a_real_kubectl_applies_gets_scales_and_describes(http: KubeHttpServer, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl on PATH")
    http.api.create("nodes", {"metadata": {"name": "n1"}, "status": {"conditions": []}})
    changed = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 4}}  # type: ignore[dict-item]
    for name, body in (("pod", POD), ("deployment", DEPLOYMENT), ("changed", changed)):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(body))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": os.devnull}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        line = [kubectl, "-s", http.endpoint, *command.split()]
        return subprocess.run(  # noqa: S603 - the program that PATH names, with the words above
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    for command, words in COMMANDS:
        done = run(command)
        assert (done.returncode, words in done.stdout) == (0, True), (command, done.stdout, done.stderr)
        assert done.stderr == "", command
    (tmp_path / "broken.json").write_bytes(msgspec.json.encode({**POD, "sepc": {}}))
    broken = run("apply -f broken.json")
    assert broken.returncode == 1
    assert 'unknown field "sepc"' in broken.stderr
    logs = run("logs first")
    assert (logs.returncode, "run no containers" in logs.stderr) == (1, True)
    assert 'pod "first" deleted' in run("delete pod first --wait=false").stdout
    assert http.api.list("pods").items == []
