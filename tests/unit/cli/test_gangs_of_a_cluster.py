"""`shiplap plan` asks a cluster for PodGroups where pods that wait name one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import ClusterDenied, ObjectNotFound
from shiplap_cli.inputs import context_access
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod

PLUGINS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
KUBERNETES = [f"/apis/scheduling.k8s.io/{version}/podgroups" for version in ("v1beta1", "v1alpha3", "v1alpha2")]
KUBECONFIG = {
    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    "clusters": [{"name": "here", "cluster": {"server": "https://cluster.example.com"}}],
    "users": [{"name": "me", "user": {"token": "t"}}],
    "current-context": "here",
}


class Server:
    """An API server with these pods and PodGroups; other lists are empty, and those of `denied` are refused."""

    most_bytes = 2**20

    def __init__(self, pods: list[dict[str, Any]], groups: Mapping[str, list[dict[str, Any]]]) -> None:
        self._lists = {"/api/v1/pods": pods, **groups}
        self.denied: set[str] = set()
        self.asked: list[str] = []

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        if path == "/version":
            return b'{"major": "1", "minor": "37"}'
        if path.endswith("podgroups"):
            self.asked.append(path)
            if path in self.denied or "/namespaces/" in path:
                raise ClusterDenied("no", status=403)
            if path not in self._lists:
                raise ObjectNotFound(path)
        items = self._lists.get(path, [])
        return json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode()


def members(count: int = 3, **fields: Any) -> list[dict[str, Any]]:
    given = fields or {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}
    return [pod(f"train-{number}", "5", waits=True, metadata={"uid": f"u{number}"}, **given) for number in range(count)]


def group(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": spec}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    for name, text in (
        ("config", json.dumps(KUBECONFIG)),
        ("pool.json", listed(POOL)),
        ("catalog.json", json.dumps(CATALOG)),
    ):
        (tmp_path / name).write_text(text)
    given = {"kubeconfig": "config", "manifests": "pool.json", "catalog": "catalog.json"}
    return ["plan", *(part for option, name in given.items() for part in (f"--{option}", str(tmp_path / name)))]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    def serve(pods: list[dict[str, Any]], groups: Mapping[str, list[dict[str, Any]]]) -> Server:
        server = Server(pods, groups)
        monkeypatch.setattr(context_access, "enter_context", lambda *_, **__: server)
        return server

    return serve


def test_a_pod_group_of_the_cluster_makes_a_gang(arguments: list[str], served: Any, shiplap: Shiplap) -> None:
    server = served(members(), {PLUGINS: [group(minMember=3)]})
    assert "web/train: 3 of 3 members have a place" in shiplap(*arguments)
    assert server.asked == [PLUGINS]
    served(members(), {PLUGINS: [group(minMember=4)]})
    told = shiplap.page(*arguments, code=1)
    assert "3 of 4 members exist" in told


def test_an_absent_definition_leaves_its_pods_waiting(arguments: list[str], served: Any, shiplap: Shiplap) -> None:
    server = served(members(schedulingGroup={"podGroupName": "train"}), {})
    assert "there is no PodGroup web/train of scheduling.k8s.io in the cluster" in shiplap.page(*arguments, code=1)
    assert server.asked == KUBERNETES


def test_an_older_version_is_read_where_it_is_all_there_is(arguments: list[str], served: Any, shiplap: Shiplap) -> None:
    older = group(schedulingPolicy={"gang": {"minCount": 3}})
    server = served(members(schedulingGroup={"podGroupName": "train"}), {KUBERNETES[1]: [older]})
    assert "web/train: 3 of 3 members have a place" in shiplap(*arguments)
    assert server.asked == KUBERNETES[:2]


def test_nothing_is_asked_where_no_pod_that_waits_names_a_pod_group(
    arguments: list[str], served: Any, shiplap: Shiplap
) -> None:
    running = pod("runs", "1", node="n1", metadata={"uid": "r"}, labels={"scheduling.x-k8s.io/pod-group": "train"})
    server = served([running, pod("web", "5", waits=True, metadata={"uid": "w"})], {PLUGINS: [group(minMember=9)]})
    assert "Gangs" not in shiplap(*arguments)
    assert server.asked == []


def test_without_the_right_pods_are_planned_one_by_one_and_that_is_said(
    arguments: list[str], served: Any, shiplap: Shiplap
) -> None:
    server = served(members(), {PLUGINS: [group(minMember=9)]})
    server.denied.add(PLUGINS)
    answer = shiplap.json(*arguments)
    assert len(answer["nodeClaims"]) == 3
    (unseen,) = answer["unseen"]
    assert (unseen["resource"], unseen["group"]) == ("podgroups", "scheduling.x-k8s.io")
    assert unseen["consequence"] == "pods that name one are planned one by one"


def test_what_is_wrong_with_a_pod_group_keeps_no_other_pod_waiting(
    arguments: list[str], served: Any, shiplap: Shiplap
) -> None:
    other = pod("web", "5", waits=True, metadata={"uid": "w"})
    broken = {"metadata": "none", "spec": {}}
    served([*members(), other], {PLUGINS: [group(minMember=-3), broken]})
    answer = shiplap.json(*arguments, code=1)
    assert [item["problem"] for item in answer["gangs"]["waiting"]] == [
        "its PodGroup cannot be read: spec.minMember: must be from 0 to 2147483647, is -3"
    ]
    assert [claim["pods"] for claim in answer["nodeClaims"]] == [["web/web"]]
