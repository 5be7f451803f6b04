"""`shiplap plan`, `disrupt`, `explain`, `top` and `status` on a real cluster and the install that serves it.

The tests of this module share one world and run in the order in which they are written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shiplap.aws import session
from shiplap.errors import ShiplapError
from shiplap_cli.main import run
from shiplap_lab.emulated_aws import cdk
from tests.e2e import manifests, programs
from tests.e2e.control_plane import wait_until
from tests.e2e.world import CLUSTER, World

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_HUGE = """\
apiVersion: v1
kind: Pod
metadata: {name: huge, namespace: default, labels: {app: huge}}
spec: {containers: [{name: c, image: registry.k8s.io/pause, resources: {requests: {cpu: "64"}}}]}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        programs.find()
        cdk.executable()
    except (programs.ProgramsMissing, ShiplapError) as missing:
        pytest.skip(f"no whole system: {missing}")
    with World(tmp_path_factory.mktemp("world"), manifests.NODES, judged=True) as running:
        yield running


class Person:
    """Somebody with a kubeconfig and AWS credentials who runs commands."""

    def __init__(self, world: World, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._world, self._folder, self._capsys = world, folder, capsys

    def enters_as(self, service_account: str) -> None:
        plane = self._world.plane
        document = {
            "current-context": "real",
            "contexts": [{"name": "real", "context": {"cluster": "c", "user": "me", "namespace": "default"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": plane.endpoint,
                        "certificate-authority-data": plane.certificate_authority,
                    },
                }
            ],
            "users": [{"name": "me", "user": {"token": self._world.api.token_of(service_account, "default")}}],
        }
        (self._folder / "config").write_text(yaml.safe_dump(document))

    def asks(self, command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        config = ("--kubeconfig", str(self._folder / "config")) if "status" not in command else ()
        got = run([*command.split(), *config, *arguments, "-o", "json"])
        printed = self._capsys.readouterr()
        assert got == code, printed
        return dict(json.loads(printed.out))


@pytest.fixture
def person(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Person]:
    elsewhere = {f"AWS_ENDPOINT_URL_{name}": world.ec2.url for name in ("EC2", "SSM", "PRICING")}
    for name, value in (world.aws.environment() | elsewhere).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.session.cache_clear()
    found = Person(world, tmp_path, capsys)
    yield found
    session.session.cache_clear()


def _account(world: World, name: str, rules: list[dict[str, Any]]) -> None:
    world.api.create("serviceaccounts", {"metadata": {"name": name}}, "default")
    world.apply(
        yaml.safe_dump_all(
            [
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRole",
                    "metadata": {"name": name},
                    "rules": rules,
                },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
                },
            ]
        )
    )


def test_what_is_planned_is_what_is_launched(world: World, person: Person) -> None:
    """Before the functions have heard of the pods, and while their nodes are on their way."""
    _account(world, "reader", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}])
    person.enters_as("reader")
    assert person.asks("plan", "--cluster", CLUSTER)["nodeClaims"] == []
    world.apply(manifests.deployment("web", 6, "", cpu="900m", memory="2Gi"))
    wait_until(lambda: len(world.pods("web")) == 6, "the pods are made", told=world.told)
    planned = person.asks("plan", "--cluster", CLUSTER)
    assert "unseen" not in planned
    assert "notes" not in planned
    assert planned["nodeClaims"]
    world.await_running("web", 6)
    claims = {claim.name: claim for claim in world.claims()}
    assert {item["launch"]["instanceType"] for item in planned["nodeClaims"]} == {
        claim.known_instance.type for claim in claims.values()
    }
    assert len(claims) == len(planned["nodeClaims"])
    assert person.asks("plan", "--cluster", CLUSTER)["nodeClaims"] == []


def test_the_view_shows_what_the_claims_say(world: World, person: Person) -> None:
    person.enters_as("reader")
    wait_until(lambda: {str(claim.state) for claim in world.claims()} == {"Initialized"}, "in service", told=world.told)
    shown = {item["name"]: item for item in person.asks("top", "--cluster", CLUSTER)["nodes"]}
    assert {name: item["hourly"] for name, item in shown.items()} == {
        claim.node_name: claim.hourly for claim in world.claims()
    }
    (use,) = [item for item in person.asks("status")["poolUse"] if item["pool"] == "general"]
    assert use["nodes"] == len(world.claims())


def test_a_pod_without_a_place_is_explained_in_the_words_of_its_event(world: World, person: Person) -> None:
    person.enters_as("reader")
    world.apply(_HUGE)
    planned = person.asks("plan", "--cluster", CLUSTER, code=1)
    (left,) = planned["unschedulable"]
    account = person.asks("explain pod", "default/huge", "--cluster", CLUSTER, code=1)
    assert account["now"]["state"] == "unschedulable"

    def said() -> list[str]:
        events = world.api.list("events").items
        mine = [item for item in events if (item.get("reportingComponent") or "").startswith("shiplap")]
        mine += [item for item in events if ((item.get("source") or {}).get("component") or "") == "shiplap"]
        return [item["message"] for item in mine if item["involvedObject"]["name"] == "huge"]

    world.sweep()
    wait_until(lambda: said() != [], "the pod's event", told=world.told)
    assert any(left["message"][:80] in message for message in said())
    world.api.delete("pods", "huge", "default")


def test_what_is_disrupted_is_what_is_proposed(world: World, person: Person) -> None:
    person.enters_as("reader")
    world.api.scale("deployments", "web", 0, "default")
    wait_until(lambda: world.pods("web") == [], "the pods have ended", told=world.told)
    names = {claim.node_name for claim in world.claims()}
    proposed = person.asks("disrupt", "--cluster", CLUSTER)
    assert {name for command in proposed["commands"] for name in command["nodes"]} == names
    name = min(names)
    told = person.asks("explain node", name, "--cluster", CLUSTER)
    assert told["now"]["command"]["reason"] == "Empty"
    world.disrupt_until(lambda: world.instances() == [], "the empty nodes have ended")


def test_half_a_cluster_is_better_than_none(world: World, person: Person) -> None:
    """Each right that is missing is named; the rest is read."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["list"]},
    ]
    _account(world, "half", rules)
    person.enters_as("half")
    planned = person.asks("plan", "--cluster", CLUSTER)
    assert {item["resource"] for item in planned["unseen"]} == {"events", "poddisruptionbudgets"}
    assert {item["verb"] for item in planned["unseen"]} == {"list"}


def test_credentials_that_are_refused_are_one_line(
    world: World, person: Person, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person.enters_as("reader")
    document = yaml.safe_load((tmp_path / "config").read_text())
    document["users"][0]["user"]["token"] = "expired"
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert run(["plan", "--kubeconfig", str(tmp_path / "config"), "--cluster", CLUSTER]) == 2
    said = capsys.readouterr().err
    assert "log in again" in said
    assert said.count("\n") == 1
    document["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(b"no certificate").decode()
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    assert run(["top", "--kubeconfig", str(tmp_path / "config"), "--once"]) == 2
    assert "certificate-authority" in capsys.readouterr().err
