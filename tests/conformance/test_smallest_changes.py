"""The smallest change that gives a pod a place: what is proposed has been planned, and one unit less does not do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import PodSpec
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import MAX_HOURLY_PRICE
from shiplap.scheduling.planner import solve
from shiplap_cli.accounts.smallest_changes import ChangeProposal, change_proposals
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type, incrementing_types
from tests.conformance.given import Outcome, Storage, claim_volumes, given, pv, pvc

ZONE, KIND, ARCH = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "kubernetes.io/arch"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
WEB = {"labels": {"app": "web"}}
ONLY = [fake_type("only", cpu="4", memory="8Gi")]
"""Allocatable: 3900m and 8182Mi."""


def asked(outcome: Outcome, name: str = "pod") -> tuple[ChangeProposal, ...]:
    assert outcome.home(name) == ""
    return change_proposals(outcome.snapshot, *solve(outcome.snapshot), f"default/{name}")


def spread(key: str = ZONE) -> dict[str, Any]:
    rules = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [rules | {"labelSelector": {"matchLabels": {"app": "web"}}}]}


def test_less_of_what_is_short_to_the_unit() -> None:
    (proposal,) = asked(given(pod(cpu="4", memory="9000Mi"), types=ONLY))
    assert proposal.changes == ("request 3900m cpu instead of 4, request 8182Mi memory instead of 9000Mi",)
    assert proposal.place.startswith("only spot in test-zone-1 of pool default")
    assert given(pod(cpu="3900m", memory="8182Mi"), types=ONLY).scheduled
    assert not given(pod(cpu="3901m", memory="8182Mi"), types=ONLY).scheduled
    assert not given(pod(cpu="3900m", memory="8183Mi"), types=ONLY).scheduled


def test_what_is_requested_now_is_said_as_it_was_written() -> None:
    (proposal,) = asked(given(pod(cpu="1", memory="240Gi"), types=[fake_type("only", cpu="32", memory="233Gi")]))
    assert proposal.changes == ("request 238582Mi memory instead of 240Gi",)


def test_a_toleration() -> None:
    (proposal,) = asked(given(pod(), pools=[pool(taints=[TAINT])], types=ONLY))
    assert proposal.changes == ("tolerate dedicated=x:NoSchedule",)


def test_preferences_need_no_toleration() -> None:
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    (proposal,) = asked(given(pod(), pools=[pool(taints=[soft, TAINT])], types=ONLY))
    assert proposal.changes == ("tolerate dedicated=x:NoSchedule",)


@pytest.mark.parametrize(
    "selecting", [{"selector": {ZONE: "z9"}}, {"requires": [[rule(ZONE, "In", "z9"), rule(ARCH, "In", "amd64")]]}]
)
def test_another_zone(selecting: dict[str, Any]) -> None:
    (proposal,) = asked(given(pod(**selecting), types=ONLY))
    assert proposal.changes == ("do not ask for topology.kubernetes.io/zone In [z9]",)
    assert "test-zone-1" in proposal.place


@pytest.mark.parametrize(
    "selecting", [{"selector": {ZONE: Z1}}, {"requires": [[rule(ZONE, "In", Z1), rule(ARCH, "In", "amd64")]]}]
)
def test_a_zone_that_its_volume_contradicts(selecting: dict[str, Any]) -> None:
    storage: list[Storage] = [pvc(volume="volume"), pv("volume", [rule(ZONE, "In", Z3)])]

    def with_volume(**fields: Any) -> Outcome:
        return given(pod(cpu="1", spec=claim_volumes("data"), **fields), types=ONLY, storage=storage)

    outcome = with_volume(**selecting)
    said = f"the pod asks for {ZONE} In [{Z1}], and its volumes for {ZONE} In [{Z3}]"
    assert outcome.left("pod").message == f"incompatible volume requirements: {said}"
    (proposal,) = asked(outcome)
    assert proposal.changes == (f"do not ask for {ZONE} In [{Z1}]",)
    assert Z3 in proposal.place
    assert with_volume().scheduled


def test_a_zone_that_its_volume_contradicts_and_a_toleration() -> None:
    storage: list[Storage] = [pvc(volume="volume"), pv("volume", [rule(ZONE, "In", Z3)])]
    asking = pod(cpu="1", spec=claim_volumes("data"), selector={ZONE: Z1})
    (proposal,) = asked(given(asking, pools=[pool(taints=[TAINT])], types=ONLY, storage=storage))
    assert proposal.changes == (f"do not ask for {ZONE} In [{Z1}]", "tolerate dedicated=x:NoSchedule")


@pytest.mark.parametrize("selecting", [{}, {"selector": {ZONE: Z1, "kubernetes.io/hostname": "a b"}}])
def test_nothing_is_proposed_for_volumes_apart_or_a_selector_that_cannot_be_read(selecting: dict[str, Any]) -> None:
    storage: list[Storage] = [pvc(name, volume=name) for name in ("a", "b")]
    storage += [pv(name, [rule(ZONE, "In", zone)]) for name, zone in (("a", Z1), ("b", Z3))]
    assert asked(given(pod(spec=claim_volumes("a", "b"), **selecting), types=ONLY, storage=storage)) == ()


def test_a_label_that_no_pool_has_is_added() -> None:
    outcome = given(pod(selector={"team": "checkout"}), pools=[pool("one"), pool("two", taints=[TAINT])], types=ONLY)
    first, *others = asked(outcome)
    assert first.changes == ("add team: checkout to the template's labels of pool one, whose nodes drift by that",)
    assert "pool one" in first.place
    assert [len(item.changes) for item in others] == [2]


def test_a_rule_of_a_pool_is_met_before_a_pod_gives_up_what_it_asks_for() -> None:
    pools = [pool("any", rule(ZONE, "In", Z2)), pool("own", rule(ZONE, "In", Z1), taints=[TAINT])]
    found = asked(given(pod(selector={ZONE: Z1}), pools=pools, types=ONLY))
    assert [item.changes for item in found] == [
        (f"allow {Z1} in requirement {ZONE} of pool any",),
        ("tolerate dedicated=x:NoSchedule",),
        (f"do not ask for {ZONE} In [{Z1}]",),
    ]


def test_of_the_values_that_a_pod_asks_for_a_pool_allows_no_more_than_it_has_to() -> None:
    """Both NodePools forbid the zone by two lines each; the second has no node in it."""
    lines = (rule(ZONE, "In", Z2), rule(ZONE, "NotIn", Z1))
    other = pool("other", *lines, limits={"cpu": "0"})
    outcome = given(
        pod(requires=[[rule(ZONE, "In", Z1, "nowhere")]]), pools=[pool("default", *lines), other], types=ONLY
    )
    first = asked(outcome)[0]
    assert first.changes == (f"allow {Z1} in requirement {ZONE} of pool default",)
    assert first.place.startswith(f"only spot in {Z1} of pool default")


def test_a_pool_allows_the_cheapest_type_that_holds_the_pod() -> None:
    name = "node.kubernetes.io/instance-type"
    types = [*ONLY, fake_type("big", cpu="8", memory="16Gi"), fake_type("huge", cpu="16", memory="16Gi", price=0.1)]
    proposals = asked(given(pod(cpu="4"), pools=[pool("default", rule(name, "In", "only"))], types=types))
    assert [item.changes for item in proposals] == [
        ("request 3900m cpu instead of 4",),
        (f"allow huge in requirement {name} of pool default",),
    ]
    for open_pool in (pool("default"), pool("default", rule(name, "Exists"))):
        (proposal,) = asked(given(pod(cpu="40"), pools=[open_pool], types=types))
        assert proposal.changes == ("request 15900m cpu instead of 40",)


def test_a_label_that_a_pool_gives_its_nodes_is_not_widened() -> None:
    of_web = pool("default", labels={"team": "web"})
    (proposal,) = asked(given(pod(selector={"team": "data"}), pools=[of_web], types=ONLY))
    assert proposal.changes == ("do not ask for team In [data]",)


@pytest.mark.parametrize(
    ("label", "value", "proposed"),
    [(ARCH, "arm64", []), ("kubernetes.io/os", "windows", ["allow windows in requirement kubernetes.io/os of pool a"])],
)
def test_a_pod_keeps_what_its_image_needs(label: str, value: str, proposed: list[str]) -> None:
    """No type of this account has the other architecture."""
    found = asked(given(pod(selector={label: value}), pools=[pool("a", rule(label, "NotIn", value))], types=ONLY))
    assert [text for item in found for text in item.changes] == proposed


def test_a_higher_limit_to_the_unit() -> None:
    def limited(cpu: str) -> Outcome:
        return given(pod(cpu="3"), pools=[pool(limits={"cpu": cpu})], types=incrementing_types(8))

    (proposal,) = asked(limited("2"))
    assert proposal.changes == ("raise the cpu limit of pool default from 2 to 4",)
    assert limited("4").scheduled
    assert not limited("3999m").scheduled


def test_a_limit_that_is_overrun_already_has_to_rise_by_more() -> None:
    old = node("old", pool="default", capacity={"cpu": "6"}, cpu="6", pods="0")
    (proposal,) = asked(
        given(pod(cpu="900m"), pools=[pool(limits={"cpu": "4"})], nodes=[old], types=incrementing_types(3))
    )
    assert proposal.changes == ("raise the cpu limit of pool default from 4 to 7",)


@pytest.mark.parametrize("name", ["pod-0", "pod-1"])
def test_a_limit_is_raised_from_what_the_manifest_says(name: str) -> None:
    def limited(cpu: str) -> Outcome:
        return given(*pods(2, cpu="7"), pools=[pool(limits={"cpu": cpu})], types=incrementing_types(8))

    first = limited("2")
    (proposal,) = asked(first, name)
    text, _, to = proposal.changes[0].rpartition(" ")
    assert text == "raise the cpu limit of pool default from 2 to"
    assert limited(to).home(name)
    assert not limited(f"{int(to) * 1000 - 1}m").home(name)
    others = [each for each in ("pod-0", "pod-1") if each != name and limited(to).home(each)]
    assert ("counting 1 other pod that had no place" in proposal.place) == bool(others)


def test_one_more_node() -> None:
    (proposal,) = asked(given(pod(), pools=[pool(limits={"nodes": "0"})], types=ONLY))
    assert proposal.changes == ("raise the nodes limit of pool default from 0 to 1",)


def test_waiting_for_an_offering() -> None:
    gone = [("spot", Z2)]
    types = [fake_type("only", offerings=gone, unavailable=gone), fake_type("tiny", cpu="200m")]
    (proposal,) = asked(given(pod(cpu="1"), types=types))
    assert proposal.changes == ("wait until only is available again (spot in test-zone-2)",)


def test_fewer_distinct_values() -> None:
    many = pool("default", rule("node.kubernetes.io/instance-type", "Exists", min_values=4))
    (proposal,) = asked(given(pod(cpu="10"), pools=[many]))
    assert proposal.changes == ("minValues as BestEffort",)


def test_several_obstacles_on_one_way() -> None:
    outcome = given(pod(cpu="5", selector={ZONE: "z9"}), pools=[pool(taints=[TAINT])], types=ONLY)
    (proposal,) = asked(outcome)
    assert set(proposal.changes) == {
        "tolerate dedicated=x:NoSchedule",
        "do not ask for topology.kubernetes.io/zone In [z9]",
        "request 3900m cpu instead of 5",
    }


def test_the_smaller_change_comes_first() -> None:
    name = "node.kubernetes.io/instance-type"
    pools = [pool("near", rule(name, "In", "only")), pool("far", rule(name, "In", "big"), taints=[TAINT])]
    types = [*ONLY, fake_type("big", cpu="8", memory="16Gi")]
    found = asked(given(pod(cpu="4"), pools=pools, types=types))
    assert [item.changes for item in found] == [
        ("request 3900m cpu instead of 4",),
        (f"allow big in requirement {name} of pool near",),
        ("tolerate dedicated=x:NoSchedule",),
    ]
    assert found[0].size < found[1].size


def test_a_part_that_is_not_needed_is_not_proposed() -> None:
    """On the way to the tainted pool the pod becomes small enough for the other one."""
    pools = [pool("near", rule(ZONE, "In", Z1)), pool("far", rule(ZONE, "In", Z2), taints=[TAINT])]
    (proposal,) = asked(given(pod(cpu="4"), pools=pools, types=ONLY))
    assert proposal.changes == ("request 3900m cpu instead of 4",)


def test_a_wider_spread() -> None:
    pools = [pool("default", rule(ZONE, "In", Z1))]
    here = [node(f"n-{zone}", labels={ZONE: zone}, pods="0") for zone in (Z2, Z3)]
    outcome = given(*pods(3, "web", cpu="1", metadata=WEB, spec=spread()), pools=pools, nodes=here, types=ONLY)
    left = outcome.plan.unschedulable[0].pod.name
    (proposal,) = asked(outcome, left)
    assert proposal.changes == ("maxSkew 2 over topology.kubernetes.io/zone",)


def test_affinity_to_nobody() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "gone"}}}
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    (proposal,) = asked(given(pod(spec=near), types=ONLY))
    assert proposal.changes == ("prefer rather than require pod affinity over topology.kubernetes.io/zone",)


def test_a_little_less_for_a_node_that_exists() -> None:
    outcome = given(pod(cpu="5", memory="1Gi"), nodes=[node("here", cpu="4500m")], pools=[], types=ONLY)
    (proposal,) = asked(outcome)
    assert (proposal.changes, proposal.place) == (("request 4500m cpu instead of 5",), "node here")
    assert proposal.size == pytest.approx(0.1)


def test_nothing_that_costs_another_pod_its_place_is_proposed() -> None:
    """Shrunk to fit, the newcomer would only take the one place under the limit from the other."""
    fits = pod("fits", cpu="3", ports=[80])
    outcome = given(fits, pod("pod", cpu="5", ports=[80]), pools=[pool(limits={"nodes": "1"})], types=ONLY)
    assert outcome.home("fits")
    for proposal in asked(outcome):
        assert len(proposal.changes) == 2
        assert "raise the nodes limit of pool default from 1 to 2" in proposal.changes


def test_a_pod_that_cannot_be_read_or_has_a_place_gets_no_proposal() -> None:
    assert asked(given(pod(selector={"kubernetes.io/hostname": "x"}))) == ()
    outcome = given(pod())
    for name in ("nobody", "pod"):
        assert change_proposals(outcome.snapshot, *solve(outcome.snapshot), f"default/{name}") == ()


def test_pods_with_overhead_and_init_containers_shrink_as_a_whole() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    greedy = pod(cpu="4")
    spec = msgspec.to_builtins(greedy.spec) | {"initContainers": [sidecar], "overhead": {"cpu": "250m"}}
    whole = msgspec.structs.replace(greedy, spec=msgspec.convert(spec, PodSpec))
    (proposal,) = asked(given(whole, types=ONLY))
    assert proposal.changes == ("request 3900m cpu instead of 5250m",)


def test_no_more_of_a_limit_than_it_takes() -> None:
    """The nearest type of the first try is larger than what is launched in the end."""
    gpu = "nvidia.com/gpu"
    types = [
        fake_type("four", cpu="32", memory="64Gi", extra={gpu: "4"}, price=4.0),
        fake_type("one", cpu="8", memory="16Gi", extra={gpu: "1"}, price=1.0),
    ]
    old = node("old", pool="default", capacity={gpu: "2"}, cpu="1", pods="0")
    outcome = given(pod(requests={gpu: "1"}), pools=[pool(limits={gpu: "2"})], nodes=[old], types=types)
    assert asked(outcome)[0].changes == (f"raise the {gpu} limit of pool default from 2 to 3",)


def test_limits_of_memory_rise_by_whole_gi() -> None:
    def limited(memory: str) -> Outcome:
        types = [fake_type("only", cpu="64", memory="1853631Mi")]
        return given(pod(memory="1Ti"), pools=[pool(limits={"memory": memory})], types=types)

    (proposal,) = asked(limited("1000Gi"))
    assert proposal.changes == ("raise the memory limit of pool default from 1000Gi to 1811Gi",)
    assert limited("1811Gi").scheduled
    assert not limited("1810Gi").scheduled


def test_of_several_constraints_only_the_one_that_matters_is_loosened() -> None:
    rules = [{**spread(key)["topologySpreadConstraints"][0]} for key in (ZONE, KIND)]
    pools = [pool("default", rule(ZONE, "In", Z1))]
    here = [node(f"n-{zone}", labels={ZONE: zone, KIND: "spot"}, pods="0") for zone in (Z2, Z3)]
    outcome = given(
        *pods(3, "web", cpu="1", metadata=WEB, spec={"topologySpreadConstraints": rules}),
        pools=pools,
        nodes=here,
        types=ONLY,
    )
    (proposal,) = asked(outcome, outcome.plan.unschedulable[0].pod.name)
    assert proposal.changes == ("maxSkew 2 over topology.kubernetes.io/zone",)


def in_dollars(limit: str, **fields: Any) -> NodePool:
    """A NodePool that may cost so much an hour."""
    return pool(annotations={MAX_HOURLY_PRICE: limit}, **fields)


def test_a_higher_limit_in_dollars_to_the_cent() -> None:
    """The type costs $0.4321 an hour; only the limits that hold the pod back are raised."""
    types = [fake_type("only", cpu="4", memory="8Gi", price=0.4321)]
    bought = {"capacity_types": ["on-demand"]}
    for limit, limits in (("0.01", {}), ("0.3", {"cpu": "100"}), ("0.3", {"cpu": "1"})):
        outcome = given(pod(cpu="3"), pools=[in_dollars(limit, limits=limits, **bought)], types=types)
        changes = [part for text in asked(outcome)[0].changes for part in text.split(", ")]
        more = ["raise the cpu limit of pool default from 1 to 4"] if limits.get("cpu") == "1" else []
        assert sorted(changes) == sorted([f"raise {MAX_HOURLY_PRICE} of pool default from {limit} to 0.44", *more])
    assert given(pod(cpu="3"), pools=[in_dollars("0.44", **bought)], types=types).scheduled
    assert not given(pod(cpu="3"), pools=[in_dollars("0.43", **bought)], types=types).scheduled


NIGHT = {"tier": "night"}


def test_a_change_of_the_pod_alone_for_a_node_that_exists_comes_before_pools_whose_nodes_drift() -> None:
    """The node has room, and the pod's labels fit it: a toleration costs nothing."""
    pools = [pool("general"), pool("mine"), pool("night", labels=NIGHT, taints=[TAINT])]
    here = node("here", pool="night", labels=NIGHT, taints=[TAINT])
    first, second, third = asked(given(pod(selector=NIGHT), pools=pools, nodes=[here], types=ONLY))
    assert (first.changes, first.place) == (("tolerate dedicated=x:NoSchedule",), "node here")
    assert all("nodes drift" in proposal.changes[0] for proposal in (second, third))


def test_two_changes_that_make_no_node_drift_come_before_one_that_does() -> None:
    pools = [pool("general"), pool("night", labels=NIGHT, taints=[TAINT], limits={"nodes": "0"})]
    first, second = asked(given(pod(selector=NIGHT), pools=pools, types=ONLY))
    assert set(first.changes) == {"tolerate dedicated=x:NoSchedule", "raise the nodes limit of pool night from 0 to 1"}
    assert "nodes drift" in second.changes[0]


def test_less_than_half_of_a_request_is_no_small_change_even_for_a_node_that_exists() -> None:
    here = node("here", cpu="1", labels=NIGHT)
    first, second = asked(given(pod(cpu="3500m", selector=NIGHT), pools=[pool("general")], nodes=[here], types=ONLY))
    assert "nodes drift" in first.changes[0]
    assert (second.changes, second.place) == (("request 1 cpu instead of 3500m",), "node here")


@pytest.mark.parametrize("taints", [[], [TAINT]], ids=["tolerated", "tainted"])
def test_a_pool_that_fits_and_is_blocked_is_mended_before_others_are_relabelled(taints: list[dict[str, str]]) -> None:
    pools = [pool("general"), pool("night", node_class="bare", labels=NIGHT, taints=taints)]
    first, second = asked(given(pod(selector=NIGHT), pools=pools, types=ONLY, not_ready={"bare": "no subnet"}))
    too = ", and the pod does not tolerate taint dedicated=x:NoSchedule" if taints else ""
    assert first.changes == (f"mend what blocks pool night (EC2NodeClass bare is not ready: no subnet{too})",)
    assert first.place == "a node of pool night, if one of its types holds the pod"
    assert "nodes drift" in second.changes[0]


def test_a_node_of_a_blocked_pool_is_a_place_for_a_pod_that_tolerates_its_taint() -> None:
    pools = [pool("general"), pool("night", node_class="bare", labels=NIGHT, taints=[TAINT])]
    here = node("here", pool="night", labels=NIGHT, taints=[TAINT])
    unready = {"bare": "no subnet"}
    first, *_ = asked(given(pod(selector=NIGHT), pools=pools, nodes=[here], types=ONLY, not_ready=unready))
    assert (first.changes, first.place) == (("tolerate dedicated=x:NoSchedule",), "node here")
