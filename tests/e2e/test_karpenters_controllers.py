"""Karpenter's own controllers beside Shiplap, on the NodeClaims that Shiplap writes: how often they launch and end.

The tests of this module share one world and run in the order in which they are written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import boto3
import msgspec
import pytest
import yaml
from msgspec.structs import replace

from shiplap.cluster.kubeconfig import load
from shiplap.errors import ShiplapError, TooManyRequests
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.live.nodeclaim_objects import INSTALL_LABEL, claim_object_changes
from shiplap.settings import ClusterSettings
from shiplap_cli.commands.migrate.handover import HandoverDocument, HandoverWork, Owner, TaggedInstances
from shiplap_cli.inputs.context_access import enter_context
from shiplap_lab.emulated_aws import cdk as node
from tests.e2e import manifests, programs
from tests.e2e.beside import karpenter
from tests.e2e.beside.karpenter import Karpenter
from tests.e2e.client import real_client
from tests.e2e.control_plane import ADMINISTRATOR, wait_until
from tests.e2e.world import CLUSTER, REGION, World

pytestmark = [pytest.mark.e2e, pytest.mark.long]

NODE_CLASS, GENERAL = list(yaml.safe_load_all(manifests.NODES))[:2]
POD = {"cpu": "100m", "memory": "64Mi"}
FUNCTIONS = "system:serviceaccount:shiplap:shiplap"
GROUPS = ("karpenter.sh", "karpenter.k8s.aws", "autoscaling.x-k8s.io")
WRITES = ("create", "update", "patch", "delete")
LEASE = "karpenter-leader-election"
SWEEPS = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        programs.find()
        karpenter.find()
        node.executable()
    except (programs.ProgramsMissing, ShiplapError) as missing:
        pytest.skip(f"no whole system: {missing}")
    settings = {"manifests": "cluster", "nodeRoles": ["shiplap-node-real"]}
    pool = {**GENERAL, "spec": {**GENERAL["spec"], "disruption": {"consolidateAfter": "Never"}}}
    written = yaml.safe_dump_all([NODE_CLASS, pool])
    with World(tmp_path_factory.mktemp("world"), written, settings) as running:
        running.apply(manifests.deployment("web", 2, "", **POD))
        running.await_running("web", 2)
        await_shown(running)
        yield running


def node_claims(world: World) -> dict[str, dict[str, Any]]:
    """NodeClaims that Shiplap has written, by name."""
    items = world.api.list("nodeclaims").items
    return {each["metadata"]["name"]: each for each in items if INSTALL_LABEL in each["metadata"].get("labels", {})}


def is_ready(item: dict[str, Any]) -> bool:
    found = item.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def await_shown(world: World, timeout_s: float = 180.0) -> None:
    """Until every claim has a NodeClaim that is ready."""

    def shown() -> bool:
        world.sweep()
        try:
            return {name for name, item in node_claims(world).items() if is_ready(item)} == names(world)
        except TooManyRequests:  # so says an API server that has just been given the CRD
            return False

    wait_until(shown, "each claim has a NodeClaim that is ready", timeout_s=timeout_s, poll_s=2.0, told=world.told)


def names(world: World) -> set[str]:
    return {claim.name for claim in world.claims()}


def instances(world: World) -> set[str]:
    return {item.id for item in world.instances()}


def pods_on_nodes(world: World) -> dict[str, str]:
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in world.pods("web")}


def written_by_shiplap(world: World) -> list[tuple[str, str, str]]:
    """Every write to objects of Karpenter's groups that the functions have asked for so far."""
    found = []
    for line in world.plane.audit_log.read_text().splitlines():
        record = json.loads(line)
        about = record.get("objectRef", {})
        if record["user"]["username"] == FUNCTIONS and about.get("apiGroup") in GROUPS and record["verb"] in WRITES:
            found.append((record["verb"], about["resource"], about.get("name", "")))
    return found


def reconciled(world: World) -> bool:
    """True if every NodeClaim has the finalizer that upstream's lifecycle controller adds first."""
    return all(
        "karpenter.sh/termination" in item["metadata"].get("finalizers", ()) for item in node_claims(world).values()
    )


def sweep_for_a_while(world: World) -> None:
    for _ in range(SWEEPS):
        world.sweep()
        time.sleep(3)  # the control plane's clock is the real one


@pytest.mark.parametrize("knows_none", [False, True], ids=["it knows the instances", "it knows no instance"])
def test_for_our_node_claims_it_launches_nothing_and_ends_nothing(world: World, knows_none: bool) -> None:
    """Its garbage collection spares what it does not know while the Node is ready. Meanwhile Shiplap writes nothing."""
    before = (names(world), instances(world), pods_on_nodes(world))
    uids = {name: item["metadata"]["uid"] for name, item in node_claims(world).items()}
    with Karpenter(world.plane, knows_none=knows_none) as running:
        wait_until(lambda: reconciled(world), "Karpenter has looked at every NodeClaim", told=world.told)
        world.sweep()
        written = len(written_by_shiplap(world))
        sweep_for_a_while(world)
        assert (running.asked("create"), running.asked("delete"), running.asked("reboot")) == (0, 0, 0)
        assert written_by_shiplap(world)[written:] == []
    assert (names(world), instances(world), pods_on_nodes(world)) == before
    assert {name: item["metadata"]["uid"] for name, item in node_claims(world).items()} == uids


def test_it_ends_the_instance_of_a_node_claim_whose_node_is_gone_if_it_does_not_know_it(world: World) -> None:
    """Shiplap therefore writes no NodeClaim while the Lease is held. It is still held: Karpenter has just ended.

    Without the finalizer the NodeClaim alone would go; after the first run it has one in any case.
    """
    pool = world.api.get("nodepools", "general")
    claim = next(iter(world.claims()))
    lost = replace(claim, name="general-lost", node_name="", instance=replace(claim.known_instance, id="i-0lost"))
    about = {"name": "general", "uid": pool["metadata"]["uid"]}
    owner = msgspec.convert({"metadata": about, "spec": GENERAL["spec"]}, NodePool)
    install = node_claims(world)[claim.name]["metadata"]["labels"][INSTALL_LABEL]
    changes = claim_object_changes([lost], [], [owner], [], install, time.time())
    (body,) = changes.created
    real_client(world.plane, ADMINISTRATOR).create_node_claim(body)
    with Karpenter(world.plane):
        wait_until(lambda: reconciled(world), "Karpenter has looked at every NodeClaim", told=world.told)
    with Karpenter(world.plane, knows_none=True) as running:
        wait_until(lambda: running.names("delete")["general-lost"], "Karpenter ends the instance", told=world.told)
        wait_until(lambda: "general-lost" not in node_claims(world), "the NodeClaim is gone", told=world.told)
        assert running.asked("create") == 0
        assert set(running.names("delete")) == {"general-lost"}


def test_it_launches_for_a_wiped_status_and_shiplap_mends_it_only_afterwards(world: World) -> None:
    before = (names(world), instances(world), pods_on_nodes(world))
    wiped = min(node_claims(world))
    uid = node_claims(world)[wiped]["metadata"]["uid"]
    with Karpenter(world.plane) as running:
        written = len(written_by_shiplap(world))
        world.api.patch("nodeclaims", wiped, {"status": None}, subresource="status")
        wait_until(lambda: running.names("create")[wiped], "Karpenter launches for it", timeout_s=60, told=world.told)
        sweep_for_a_while(world)
        assert written_by_shiplap(world)[written:] == []
        assert (names(world), instances(world), pods_on_nodes(world)) == before
    world.api.delete("leases", LEASE, "kube-system")  # or else it counts for another minute
    await_shown(world)
    assert node_claims(world)[wiped]["metadata"]["uid"] == uid
    assert (names(world), instances(world), pods_on_nodes(world)) == before


def handover_to_karpenter(world: World) -> HandoverDocument:
    """`shiplap migrate handover --to karpenter`, but for the look-up of the stack."""
    access = load(world.plane.folder / "kubeconfig.json", "", environment={}, home=world.plane.folder)
    transport = enter_context(access, clock=time.time, environment={}, sleep=time.sleep)
    settings = ClusterSettings(name=CLUSTER, region=REGION, install="shiplap", live_manifests=True)
    ec2 = boto3.client(
        "ec2",
        endpoint_url=world.ec2.url,
        region_name=REGION,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
    work = HandoverWork(settings, transport, TaggedInstances(ec2), world.state, time.time())
    work.require_no_karpenter()
    return work.hand(work.found(Owner.KARPENTER), Owner.KARPENTER)


def test_nodes_that_are_given_back_are_karpenters_and_neither_ends_them(world: World) -> None:
    world.api.patch("nodepools", "general", {"spec": {"limits": {"cpu": "0"}}})  # no node is launched meanwhile
    before = (instances(world), pods_on_nodes(world))
    uids = {name: item["metadata"]["uid"] for name, item in node_claims(world).items()}
    document = handover_to_karpenter(world)
    assert {node.claim for node in document.nodes if not node.failure} == set(uids)
    assert document.left == ()
    written = len(written_by_shiplap(world))
    sweep_for_a_while(world)
    assert names(world) == set()
    assert [write for write in written_by_shiplap(world)[written:] if write[1] == "nodeclaims"] == []
    with Karpenter(world.plane) as running:
        sweep_for_a_while(world)
        assert (running.asked("create"), running.asked("delete"), running.asked("reboot")) == (0, 0, 0)
    now = {item["metadata"]["name"]: item["metadata"]["uid"] for item in world.api.list("nodeclaims").items}
    assert {name: uid for name, uid in now.items() if name in uids} == uids
    running_now = {item.id for item in world.ec2.control.instances() if item.state == "running"}
    assert (running_now, pods_on_nodes(world)) == before
