"""NodePools and EC2NodeClasses as objects of a real API server with upstream's CRDs: edits, statuses, deletions.

The tests of this module share one world and run in the order in which they are written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import cdk as node
from tests.e2e import manifests, measures, programs
from tests.e2e.control_plane import wait_until
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.long]

EDITS = 20

NODE_CLASS, GENERAL = list(yaml.safe_load_all(manifests.NODES))[:2]
POD = {"cpu": "100m", "memory": "64Mi"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        programs.find()
        node.executable()
    except (programs.ProgramsMissing, ShiplapError) as missing:
        pytest.skip(f"no whole system: {missing}")
    settings = {"manifests": "cluster", "nodeRoles": ["shiplap-node-real"]}
    written = yaml.safe_dump_all([NODE_CLASS, GENERAL])
    with World(tmp_path_factory.mktemp("world"), written, settings) as running:
        yield running


def conditions(world: World, plural: str, name: str) -> dict[str, tuple[str, str]]:
    found = world.api.get(plural, name).get("status", {}).get("conditions", [])
    return {each["type"]: (each["status"], each["message"]) for each in found}


def await_condition(world: World, plural: str, name: str, type_: str, status: str) -> str:
    def holds() -> bool:
        world.sweep()
        return conditions(world, plural, name).get(type_, ("", ""))[0] == status

    wait_until(holds, f"{plural} {name} is {type_}={status}", timeout_s=120, poll_s=2.0, told=world.told)
    return conditions(world, plural, name)[type_][1]


def deployment(name: str, team: str) -> str:
    return manifests.deployment(name, 1, f"nodeSelector: {{team: {team}}}", **POD)


def pool(name: str, **labels: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load(yaml.safe_dump(GENERAL))
    body["metadata"]["name"] = name
    body["spec"]["template"]["metadata"] = {"labels": labels}
    return body


def test_pods_get_nodes_from_objects_of_the_api_server(world: World) -> None:
    world.apply(manifests.deployment("web", 2, "", **POD))
    world.await_running("web", 2)
    assert {claim.plan.node_pool for claim in world.claims()} == {"general"}


def test_statuses_show_readiness_and_nodes(world: World) -> None:
    await_condition(world, "ec2nodeclasses", "default", "Ready", "True")
    await_condition(world, "nodepools", "general", "Ready", "True")
    assert world.api.get("nodepools", "general")["status"]["nodes"] == len(world.nodes())
    status = world.api.get("ec2nodeclasses", "default")["status"]
    assert status["amis"]
    assert status["subnets"]


def test_node_claims_show_the_nodes(world: World) -> None:
    def shown() -> bool:
        world.sweep()
        items = world.api.list("nodeclaims").items
        ready = {item["metadata"]["name"] for item in items if is_ready(item)}
        return ready == {claim.name for claim in world.claims()}

    wait_until(shown, "each claim has a NodeClaim that is ready", timeout_s=120, poll_s=2.0, told=world.told)
    (item, *_) = world.api.list("nodeclaims").items
    assert item["status"]["nodeName"] in world.nodes()
    assert item["metadata"]["ownerReferences"][0]["uid"] == world.api.get("nodepools", "general")["metadata"]["uid"]


def is_ready(item: dict[str, Any]) -> bool:
    found = item.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def test_an_applied_pool_decides_within_seconds(world: World) -> None:
    """Pods wait for a label that no pool gives; then one is applied that does."""
    spans = []
    for number in range(EDITS):
        name = f"team-{number:02d}"
        world.apply(deployment(name, name))
        wait_until(lambda name=name: unschedulable(world, name), f"kube-scheduler has judged {name}", told=world.told)
        applied = time.monotonic()
        world.api.apply(pool(name, team=name))
        planned = lambda name=name: any(claim.plan.node_pool == name for claim in world.claims())  # noqa: E731
        wait_until(planned, f"a claim of {name}", timeout_s=60, poll_s=0.02, told=world.told)
        spans.append(time.monotonic() - applied)
    measures.figure("from an applied NodePool to the claim of a waiting pod, s", spans)
    assert len(spans) == EDITS


def unschedulable(world: World, app: str) -> bool:
    found = [each for pod in world.pods(app) for each in pod["status"].get("conditions", [])]
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in found)


def test_a_role_of_another_cluster_is_refused_and_the_status_says_so(world: World) -> None:
    foreign = yaml.safe_load(yaml.safe_dump(NODE_CLASS))
    foreign["metadata"]["name"], foreign["spec"]["role"] = "foreign", "shiplap-node-another"
    world.api.apply(foreign)
    body = pool("foreign", team="foreign")
    body["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "foreign"
    world.api.apply(body)
    world.apply(deployment("foreign", "foreign"))
    message = await_condition(world, "ec2nodeclasses", "foreign", "ValidationSucceeded", "False")
    assert "spec.role: shiplap-node-another is not allowed in this cluster" in message
    await_condition(world, "nodepools", "foreign", "Ready", "False")
    assert all(claim.plan.node_pool != "foreign" for claim in world.claims())


@pytest.mark.parametrize("plural", ["nodeclaims", "nodes", "nodepools"])
def test_what_kubectl_delete_removes_is_drained(world: World, plural: str) -> None:
    """The pod moves to a new node within its PodDisruptionBudget, the instance ends, both objects go."""
    team = f"drained-{plural}"
    for name in (team, f"{team}-next"):
        world.api.apply(pool(name, team=team))
    world.apply(deployment(team, team))
    world.await_running(team, 1)
    (claim,) = [each for each in world.claims() if each.plan.node_pool.startswith(team)]
    named = {"nodeclaims": claim.name, "nodes": claim.node_name, "nodepools": claim.plan.node_pool}
    wait_until(lambda: is_guarded(world, claim.node_name), "the Node has its finalizer", told=world.told)
    world.api.delete(plural, named[plural])

    def left() -> bool:
        world.sweep()
        gone = claim.name not in names(world, "nodeclaims") and claim.node_name not in names(world, "nodes")
        return gone and claim.instance_id not in {each.id for each in world.instances()}

    wait_until(left, f"the node of {claim.name} is gone", timeout_s=240, poll_s=2.0, told=world.told)
    world.await_running(team, 1)


def is_guarded(world: World, node_name: str) -> bool:
    world.sweep()
    found = [item for item in world.api.list("nodes").items if item["metadata"]["name"] == node_name]
    return bool(found) and found[0]["metadata"].get("finalizers") == ["karpenter.sh/termination"]


def names(world: World, plural: str) -> set[str]:
    return {item["metadata"]["name"] for item in world.api.list(plural).items}


def test_definitions_that_are_deleted_end_no_node(world: World) -> None:
    before = {item.id for item in world.instances()}
    for name in ("nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):
        world.api.delete("customresourcedefinitions", name)
    wait_until(lambda: defined(world) == 0, "the definitions are gone", told=world.told)
    for _ in range(3):
        world.sweep()
        world.invoke("disrupt", {"cluster": "real"})
    assert {item.id for item in world.instances()} == before


def defined(world: World) -> int:
    names = [item["metadata"]["name"] for item in world.api.list("customresourcedefinitions").items]
    return sum(name.startswith(("nodepools.", "ec2nodeclasses.")) for name in names)
