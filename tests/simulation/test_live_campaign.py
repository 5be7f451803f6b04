"""Seeds in which the manifests are objects of the cluster, and planted defects that some of them find."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.manifests.live.nodeclaim_objects import ClaimObjectChanges
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kinds import FAULTS
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation import manifest_promises
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.mutants import planted
from shiplap_lab.simulation.run import Simulation

pytestmark = pytest.mark.thorough

CAMPAIGN = load("live-manifests")


@pytest.mark.parametrize("seed", [*range(12), 1544000120])
def test_every_promise_is_kept_while_manifests_come_and_go(seed: int) -> None:
    outcome = run_seed(CAMPAIGN, seed)
    assert outcome.violations == ()
    assert outcome.settled_at > 0


Shown = tuple[int, str, str, int]
"""Of a cluster: NodePools, what the first one expires after, its label, and NodeClaims that users wrote."""


def shown(simulation: Simulation) -> Shown:
    server = simulation.clusters["demo"].server
    pools = {item["metadata"]["name"]: item["spec"]["template"] for item in server.list("nodepools").items}
    first = pools.get("flex", {"spec": {"expireAfter": ""}})
    label = first.get("metadata", {}).get("labels", {}).get("wobble", "")
    own = [item for item in server.list("nodeclaims").items if item["metadata"]["name"].startswith("own-")]
    return len(pools), first["spec"]["expireAfter"], label, len(own)


@pytest.mark.parametrize(
    ("kind", "during"),
    [
        ("pools-deleted", (0, "", "", 0)),
        ("invalid-manifest", (2, "soon", "", 0)),
        ("edit-and-back", (2, "720h", "a", 0)),
        ("own-nodeclaim", (2, "720h", "", 1)),
    ],
)
def test_a_fault_shows_in_the_objects_until_it_is_over(kind: str, during: Shown) -> None:
    simulation = Simulation(CAMPAIGN, 1, (Fault(kind, at=4, minutes=4),), 0.2)
    start, seen = simulation.loop.now(), dict[int, Shown]()
    simulation.observers.append(lambda: seen.update({round(simulation.loop.now() - start): shown(simulation)}))
    outcome = simulation.play()
    assert outcome.violations == ()
    usual = (2, "720h", "", 0)
    assert {seen[at] for at in range(30, 240, 10)} == {usual}
    assert {seen[at] for at in range(250, 470, 10)} == {during, usual} if kind == "edit-and-back" else {during}
    assert {seen[at] for at in range(900, 1200, 10)} == {usual}
    assert outcome.effects[kind] == 1


@pytest.mark.parametrize("kind", ["manifests-denied", "karpenter-lease", "pools-deleted"])
def test_nothing_is_launched_while_a_cluster_is_suspended(kind: str) -> None:
    simulation = Simulation(CAMPAIGN, 1, (Fault(kind, minutes=6),), 0.2)
    started = simulation.loop.now()
    outcome = simulation.play()
    assert outcome.violations == ()
    assert min(instance.launched_at for instance in simulation.instances.values()) > started + 6 * 60


@pytest.mark.parametrize(("kind", "plural"), [("nodeclaims-deleted", "nodeclaims"), ("nodes-deleted", "nodes")])
def test_what_users_delete_goes_and_its_pods_get_another_node(kind: str, plural: str) -> None:
    simulation = Simulation(CAMPAIGN, 1, (Fault(kind, at=4, amount=2),), 0.2)
    outcome = simulation.play()
    deleted = {line["name"] for line in map(json.loads, outcome.lines) if line["what"] == "deleted by a user"}
    left = {item["metadata"]["name"] for item in simulation.clusters["demo"].server.list(plural).items}
    assert len(deleted) == 2
    assert outcome.violations == ()
    assert not deleted & left


def test_nodes_that_ec2_recommends_to_leave_are_replaced() -> None:
    simulation = Simulation(CAMPAIGN, 1, (Fault("rebalance", at=6, minutes=1),), 0.2)
    outcome = simulation.play()
    assert outcome.violations == ()
    assert outcome.effects["rebalance"] == outcome.metrics["RebalanceRecommendations"] > 0
    assert {claim.failure for claim in simulation.installs["shiplap"].state.written.values()} >= {NoticeKind.REBALANCE}


def test_faults_of_objects_are_drawn_only_where_manifests_are_objects() -> None:
    drawn = {
        is_live: {
            fault.kind
            for seed in range(60)
            for fault in draw_faults(replace(CAMPAIGN.scenario, chaos_kinds=(), live_manifests=is_live), seed)
        }
        for is_live in (True, False)
    }
    of_manifests = {kind.name for kind in FAULTS if kind.is_of_manifests}
    assert drawn[True] >= of_manifests
    assert not drawn[False] & of_manifests


@pytest.mark.parametrize(
    ("mutant", "fault", "said"),
    [
        ("serves suspended clusters", Fault("karpenter-lease", minutes=12), "is suspended"),
        ("serves suspended clusters", Fault("manifests-denied", at=1, minutes=12), "is suspended"),
        ("takes specs at once", Fault("edit-and-back", at=3, minutes=12), "has stood for a minute"),
    ],
)
def test_planted_defects_are_found(mutant: str, fault: Fault, said: str) -> None:
    with planted(mutant):
        outcome = Simulation(CAMPAIGN, 1, (fault,), 0.2).play()
    assert [violation.detail for violation in outcome.violations if violation.detail.endswith(said)]


def test_objects_that_do_not_show_the_claims_at_the_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = {"metadata": {"name": "left-out"}}
    monkeypatch.setattr(manifest_promises, "claim_object_changes", lambda *_: ClaimObjectChanges(created=(lacking,)))
    outcome = run_seed(load("live-manifests"), 1, faults=())
    assert [violation.detail for violation in outcome.violations] == [
        "NodeClaim objects do not show the claims: ['left-out']"
    ]
