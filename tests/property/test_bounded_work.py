"""Pods that each differ from all others: what planning them takes is counted, and does not grow with its square."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model import topology_constraints
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.topology_constraints import UNREAD_PREFERENCES
from shiplap.scheduling.packing import pack
from shiplap.scheduling.planner import plan, solve
from shiplap.scheduling.supply import open_claims, openings
from tests.adversarial import PREFERRED, REQUIRED, ZONE, drawn
from tests.builders.pods import pod
from tests.builders.pools import rule
from tests.conformance.catalogues import incrementing_types
from tests.conformance.given import given

PODS = 80


def own_labels(*, ports: tuple[int, ...] = (), cpu: str = "3") -> list[Pod]:
    """Pods that each prefer that a node lacks a label of the pod's own, and ask for much of a node."""
    return [
        pod(f"p{number:03}", cpu=cpu, ports=ports, prefers=[[rule(f"example.com/own-{number}", "DoesNotExist")]])
        for number in range(PODS)
    ]


def net_of(group: open_claims.ClaimGroup) -> open_claims.Ints:
    return group.net


def test_groups_that_differ_in_labels_alone_share_their_rows() -> None:
    _, packing = solve(given(*own_labels(), types=incrementing_types(4)).snapshot)
    groups = packing.openings.open.groups.all
    assert len(groups) >= PODS
    assert len({id(group.row_set) for group in groups}) < 5
    assert len({id(group.allowed) for group in groups}) < 5


def test_pods_of_one_host_port_are_compared_with_no_claim() -> None:
    _, packing = solve(given(*own_labels(ports=(80,)), types=incrementing_types(4)).snapshot)
    assert len(packing.claims) == PODS
    assert not packing.openings.merges


def test_a_class_is_compared_with_its_share_of_groups_and_a_claim_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = given(*own_labels(cpu="100m"), types=incrementing_types(1)).snapshot
    monkeypatch.setattr(openings, "BOUNDS", replace(BOUNDS, group_comparisons=0))
    monkeypatch.setattr(openings, "_LEAST_MERGES", 0)
    compiled, packing = solve(snapshot)
    assert len(packing.openings._merged) == 0
    assert not packing.unplaced
    decided = plan(snapshot)
    assert any("compared with 0 kinds of planned nodes" in reason for c in decided.node_claims for reason in c.reasons)
    assert len({id(group) for group in packing.openings.open.groups.all}) <= 2 * len(compiled.classes)


def test_a_share_of_comparisons_leaves_ordinary_batches_alone() -> None:
    _, packing = solve(given(*own_labels(cpu="100m"), types=incrementing_types(8)).snapshot)
    assert max(packing.openings.merges.values(), default=0) <= openings._LEAST_MERGES


def test_net_resources_of_row_sets_are_forgotten_beyond_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = drawn(61128155, 60)
    before = plan(snapshot)
    monkeypatch.setattr(open_claims, "BOUNDS", replace(BOUNDS, net_bytes=10_000))
    _, packing = solve(snapshot)
    groups = packing.openings.open.groups.all
    kept = groups[0].row_set.nets
    assert all(group.row_set.nets is kept for group in groups)
    assert sum(net.nbytes for net in kept.values()) <= 10_000 < sum(net.nbytes for net in map(net_of, groups))
    assert msgspec.json.encode(plan(snapshot)) == msgspec.json.encode(before)


@pytest.mark.parametrize("seed", [61128114, 61128155, 61128418])
def test_levels_without_a_domain_are_counted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "ALL_DEAD_ENDS", 200)
    compiled, packing = solve(drawn(seed, 100))
    found = packing.attempt_budget.dead_ends
    assert max(found.values(), default=0) <= max(pack.LEAST_DEAD_ENDS, 200 // len(compiled.classes))


@pytest.mark.parametrize("seed", [61128155, 61128114])
def test_a_laborious_packing_that_leaves_limits_aside_is_stopped(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failed attempts are hardly more than make it laborious, since it is repeated with all limits anyway."""
    monkeypatch.setattr(pack, "_MANY_FAILURES", 100)
    packings: list[tuple[bool, int]] = []
    run = pack.Packer.run

    def watched(self: pack.Packer, *given: object, **how: object) -> pack.Packing:
        aside = bool(self._aside)
        packing = run(self, *given, **how)  # type: ignore[arg-type]
        packings.append((aside, sum(packing.attempt_budget.failures.values())))
        return packing

    monkeypatch.setattr(pack.Packer, "run", watched)
    plan(drawn(seed, 100))
    assert any(aside for aside, _ in packings)
    assert all(failed < 100 + pack.MOST_REQUIRING for aside, failed in packings if aside)
    assert any(not aside for aside, _ in packings)


def test_spreads_of_many_classes_are_not_compared_with_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        pytest.fail("late domains were looked for")

    monkeypatch.setattr(pack, "BOUNDS", replace(BOUNDS, late_comparisons=-1))
    monkeypatch.setattr(pack, "late_domains", asked)
    plan(drawn(61128155, 60))


def _spread_out(number: int, terms: int, *, preferred: bool) -> Pod:
    own = [
        {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": f"other-{number}-{term}"}}}
        for term in range(terms)
    ]
    weighed = [{"weight": 1, "podAffinityTerm": term} for term in own]
    affinity = {"podAntiAffinity": {PREFERRED: weighed} if preferred else {REQUIRED: own}}
    return pod(f"p{number:03}", cpu="100m", spec={"affinity": affinity})


@pytest.mark.parametrize("preferred", [True, False])
def test_a_decision_reads_so_many_topology_constraints(preferred: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision reads the constraints of pods with few. Pods left out, and what claims gave up, show the reason."""
    monkeypatch.setattr(topology_constraints, "BOUNDS", replace(BOUNDS, topology_constraints=50))
    waiting = [_spread_out(number, 20 if number % 4 == 3 else 2, preferred=preferred) for number in range(16)]
    snapshot = given(*waiting, types=incrementing_types(4)).snapshot
    compiled, _ = solve(snapshot)
    assert len(compiled.base_counts.terms.all) == 12 * 2 + 20
    decided = plan(snapshot)
    left = {entry.pod.name for entry in decided.unschedulable}
    if preferred:
        assert not left
        assert any(UNREAD_PREFERENCES in claim.gave_up for claim in decided.node_claims)
    else:
        assert left == {"p007", "p011", "p015"}
        assert all("topology constraints" in entry.message for entry in decided.unschedulable)


def test_equal_constraints_count_once_towards_what_a_decision_reads() -> None:
    assert not topology_constraints.beyond_the_bound([BOUNDS.topology_constraints] * 3, lambda _: "the same")
    assert topology_constraints.beyond_the_bound([BOUNDS.topology_constraints] * 3, lambda place: place) == {1, 2}
