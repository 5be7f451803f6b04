"""`shiplap install uninstall`: the finalizers of an install leave a cluster, whether its stack is there or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shiplap.errors import ClusterDenied, ObjectConflict, ObjectNotFound
from shiplap.flows.sweep.manifest_statuses import publish_statuses
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL
from shiplap_cli.commands.install.finalizers import held_objects, release
from shiplap_cli.main import run
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.nodes import node_object
from tests.integration.flows.live_stage import LiveStage


def held(name: str, install: str = "one", *more: str) -> dict[str, Any]:
    return {"name": name, "labels": {INSTALL_LABEL: install}, "finalizers": [FINALIZER, *more]}


@pytest.fixture
def server() -> ApiServer:
    """A NodeClaim and a Node of install `one`, and those of somebody else."""
    server = ApiServer(FakeClock())
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "spec": {}}
    status = {"providerID": "aws:///eu-west-1a/i-0abc"}
    server.create("nodeclaims", {**claim, "metadata": held("a"), "status": status})
    server.create("nodeclaims", {**claim, "metadata": {"name": "karpenters", "finalizers": [FINALIZER]}})
    node = node_object("n1")
    server.create("nodes", {**node, "metadata": {**node["metadata"], **held("n1", "one", "other/finalizer")}})
    server.create("nodes", {"metadata": {"name": "foreign", "finalizers": [FINALIZER]}})
    return server


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> Iterator[str]:
    with KubeHttpServer(server) as http:
        document = {
            "current-context": "blue",
            "contexts": [{"name": "blue", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": http.endpoint}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(document))
        yield str(path)


def finalizers(server: ApiServer, plural: str, name: str) -> list[str]:
    return list(server.get(plural, name)["metadata"].get("finalizers", []))


def test_finalizers_of_the_install_go_and_others_stay(
    server: ApiServer, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "uninstall", "--finalizers", "--kubeconfig", kubeconfig, "--yes"]) == 0
    printed = capsys.readouterr().out
    assert "i-0abc" in printed
    assert finalizers(server, "nodeclaims", "a") == []
    assert finalizers(server, "nodes", "n1") == ["other/finalizer"]
    assert finalizers(server, "nodeclaims", "karpenters") == finalizers(server, "nodes", "foreign") == [FINALIZER]
    assert run(["install", "uninstall", "--finalizers", "--kubeconfig", kubeconfig, "--yes"]) == 0


def test_it_does_nothing_unless_somebody_agrees(
    server: ApiServer, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "uninstall", "--finalizers", "--kubeconfig", kubeconfig]) == 2
    assert "add --yes where nobody can answer" in capsys.readouterr().err
    assert finalizers(server, "nodeclaims", "a") == [FINALIZER]


def test_of_two_installs_one_is_to_be_named(
    server: ApiServer, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.create("nodes", {"metadata": held("n2", "two")})
    assert run(["install", "uninstall", "--finalizers", "--kubeconfig", kubeconfig, "--yes"]) == 2
    assert "the cluster has objects of one, two" in capsys.readouterr().err
    assert run(["install", "uninstall", "--finalizers", "--kubeconfig", kubeconfig, "--yes", "--install", "two"]) == 0
    assert finalizers(server, "nodes", "n2") == []
    assert finalizers(server, "nodes", "n1") == [FINALIZER, "other/finalizer"]


def test_a_cluster_that_cannot_be_asked_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "current-context": "blue",
        "contexts": [{"name": "blue", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert run(["install", "uninstall", "--finalizers", "--kubeconfig", str(tmp_path / "config"), "--yes"]) == 2
    assert "context blue" in capsys.readouterr().err


class TestOneByOne:
    def test_one_that_is_refused_holds_up_no_other(self, server: ApiServer) -> None:
        faults = Faults()
        cluster = FakeCluster(server, faults=faults)
        faults.on("before", "cluster.set_finalizers", ClusterDenied("a webhook says no", status=403))
        refused, released = release(cluster, held_objects(cluster, "one"))
        assert (refused.name, refused.failure) == ("a", "a webhook says no")
        assert (released.name, released.failure) == ("n1", "")

    def test_one_that_was_changed_meanwhile_is_read_again(self, server: ApiServer) -> None:
        faults = Faults()
        cluster = FakeCluster(server, faults=faults)
        changed = ObjectConflict("changed", status=409)
        faults.on("before", "cluster.set_finalizers", changed)
        assert [item.failure for item in release(cluster, held_objects(cluster, "one"))] == ["", ""]
        for _ in range(3):
            server.patch("nodeclaims", "a", {"metadata": {"finalizers": [FINALIZER]}})
        for number in range(1, 6):
            faults.on("before", "cluster.set_finalizers", changed, nth=number)
        (kept,) = release(cluster, held_objects(cluster, "one"))
        assert kept.failure == "changed"

    def test_one_that_is_gone_is_done(self, server: ApiServer) -> None:
        cluster = FakeCluster(server)
        found = held_objects(cluster, "one")
        for plural, name in (("nodeclaims", "a"), ("nodes", "n1")):
            server.patch(plural, name, {"metadata": {"finalizers": []}})
            server.delete(plural, name)
        assert [item.failure for item in release(cluster, found)] == ["", ""]

    def test_without_the_definition_there_are_nodes(self, server: ApiServer) -> None:
        faults = Faults()
        faults.on("before", "cluster.node_claim_objects", ObjectNotFound("no CRD", status=404))
        assert [item.kind for item in held_objects(FakeCluster(server, faults=faults), "one")] == ["Node"]


def test_an_install_that_still_runs_puts_none_back() -> None:
    stage = LiveStage()
    stage.add_pods(2, cpu="3")
    stage.play_on()
    stage.minute()
    stage.minute()
    cluster = stage.context.cluster
    assert len(held_objects(cluster, "")) >= 2
    release(cluster, held_objects(cluster, ""))
    for _ in range(3):
        stage.minute()
    publish_statuses(stage.settings, stage.context, stage.known)
    assert held_objects(cluster, "") == ()
    for plural in ("nodeclaims", "nodes"):  # nothing waits for an install that is gone
        for item in stage.server.list(plural).items:
            stage.server.delete(plural, item["metadata"]["name"])
        assert stage.server.list(plural).items == []
