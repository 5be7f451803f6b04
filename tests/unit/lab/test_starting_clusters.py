"""Clusters of `shiplap lab dev` as they start: manifests as files or objects, and what kubectl is told of roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import urllib3

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.transport import StaticToken, Transport
from shiplap_cdk.install_document import read
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.dev.starting_clusters import node_roles, starting_objects, warning_of_role, write_install
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.scenarios.workload import create_object
from tests.integration.lab.http_requests import HttpRequests
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, changed

ENDPOINTS = {"two-pools": "http://127.0.0.1:1", "tiers": "http://127.0.0.1:2"}


@pytest.fixture
def play() -> Play:
    return load("flex-first")


def own_class(role: str, **metadata: str) -> dict[str, Any]:
    return changed(changed(EC2_NODE_CLASS, "metadata", {"name": "own", **metadata}), "spec", {"role": role})


@pytest.mark.parametrize("live", [False, True])
def test_each_cluster_reads_its_own_manifests_from_files_or_from_its_objects(
    play: Play, tmp_path: Path, live: bool
) -> None:
    served = read(write_install(play, tmp_path / "install", "us-east-1", ENDPOINTS, live=live)).clusters
    assert {item.settings.name: item.settings.endpoint for item in served} == ENDPOINTS
    pools = {"tiers": {"general"}, "two-pools": {"flex", "fallback"}}
    for item in served:
        name = item.settings.name
        (cluster,) = (each for each in play.scenario.clusters if each.name == name)
        objects = [*starting_objects(play, cluster, live=live)]
        stored = {each["metadata"]["name"] for each in objects if each["kind"] == "NodePool"}
        filed = {each.metadata.name for each in item.settings.manifests.node_pools}
        assert (stored, filed) == ((pools[name], set()) if live else (set(), pools[name]))
        assert item.settings.live_manifests == live
        assert item.settings.allowed.node_roles == (("shiplap-node",) if live else ())


def test_a_cluster_starts_with_namespaces_and_a_default_storage_class(play: Play) -> None:
    (cluster, *_) = play.scenario.clusters
    server = ApiServer(FakeClock())
    for item in starting_objects(play, cluster, live=True):
        create_object(server, item, 0.0)
    assert server.get("namespaces", "default")["status"]["phase"] == "Active"
    server.create("persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": {}})
    assert server.get("persistentvolumeclaims", "data")["spec"]["storageClassName"] == "gp3"


def test_the_functions_find_the_definitions_of_the_manifests(play: Play) -> None:
    """Without them no status is written, and no deleted object is let go."""
    (cluster, *_) = play.scenario.clusters
    server = ApiServer(FakeClock())
    for item in starting_objects(play, cluster, live=True):
        create_object(server, item, 0.0)
    with KubeHttpServer(server) as http:
        pool = urllib3.connection_from_url(http.endpoint)
        transport = Transport(http.endpoint, StaticToken("any"), pool=pool, sleep=[].append)
        assert KubernetesClient(transport).ending_definitions() == ()
        pool.close()


def test_an_object_of_the_scenario_replaces_the_common_one_of_its_name(play: Play) -> None:
    (cluster, *_) = play.scenario.clusters
    own = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gp3"}}
    changed = type(cluster)(cluster.name, objects=(own,))
    found = [item for item in starting_objects(play, changed, live=False) if item["kind"] == "StorageClass"]
    assert found == [own]


def test_kubectl_is_told_of_a_role_that_does_not_exist() -> None:
    roles = node_roles([own_class("b"), own_class("a"), own_class(""), {"kind": "NodePool", "spec": {"role": "x"}}])
    assert roles == ("a", "b")
    with KubeHttpServer(ApiServer(FakeClock()), warns=lambda item: warning_of_role(item, roles)) as http:
        requests = HttpRequests(http.endpoint)
        where = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
        assert requests.ask("POST", where, own_class("a"))[0] == 201
        assert requests.warnings == []
        assert requests.ask("POST", where, own_class("mine", name="other"))[0] == 201
        assert requests.ask("GET", f"{where}/other")[0] == 200
        requests.pool.close()
    (warning,) = requests.warnings
    assert warning == '299 - "spec.role mine does not exist here, so nothing is launched: write a or b"'
