"""Tests the explanation for a pod that was left out: the nearest miss in numbers, for every reason there is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.explain import refusal_words, unschedulable
from shiplap.scheduling.model.scheduling_plan import NearestMiss
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import GPU_A, Z1, Z2, Z3, fake_type, incrementing_types
from tests.conformance.given import Storage, claim_volumes, csi_node, daemon_set, given, pv, pvc

ZONE, KIND, TYPE = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "node.kubernetes.io/instance-type"
ARCH, HOST = "kubernetes.io/arch", "kubernetes.io/hostname"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
OWN_NODE = [80]
WEB = {"labels": {"app": "web"}}


def spread(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    constraint = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": "web"}}}]}


def test_a_resource_that_no_type_has_names_no_type() -> None:
    record = given(pod(requests={"example.com/fpga": "2"})).left("pod")
    assert record.message.startswith("pool default: no type that suits the pod has example.com/fpga (2 needed) (")
    assert record.nearest == NearestMiss("", "default", "example.com/fpga", 2)


def test_types_that_have_the_resource_but_do_not_suit_are_named() -> None:
    record = given(pod(requests={GPU_A: "1"}, selector={ARCH: "arm64"})).left("pod")
    assert "has fake.com/vendor-a (1 needed); gpu-vendor-instance-type would have it" in record.message


def test_a_pool_kept_off_by_a_taint_is_nearer_than_one_without_the_resource() -> None:
    gpus = [fake_type("plain"), fake_type("gpu", extra={GPU_A: "1"})]
    pools = [pool("gpus", rule(TYPE, "In", "gpu"), taints=[TAINT]), pool("plain", rule(TYPE, "In", "plain"))]
    record = given(pod(requests={GPU_A: "1"}), pools=pools, types=gpus).left("pod")
    assert record.message.startswith(
        "gpu in pool gpus: would hold the pod, but it does not tolerate taint dedicated=x:NoSchedule"
    )
    assert record.nearest == NearestMiss("gpu", "gpus")


def test_a_pod_that_would_have_to_shrink_by_more_than_half_is_farther_than_a_toleration() -> None:
    pools = [pool("tainted", taints=[TAINT]), pool("tiny", rule(TYPE, "In", "small-instance-type"))]
    assert given(pod(cpu="3500m"), pools=pools).left("pod").message.startswith("small-instance-type in pool tiny: cpu")
    assert "does not tolerate taint" in given(pod(cpu="3900m"), pools=pools).left("pod").message.partition("(")[0]


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        (
            {KIND: "spot", ZONE: Z3},
            "it is not sold as spot in test-zone-3; it is spot in test-zone-1, ",
        ),
        ({ZONE: "z9"}, "it is not sold in any zone and capacity type asked for"),
    ],
    ids=["combination", "zone"],
)
def test_an_offering_that_does_not_exist_is_not_called_unavailable(selector: dict[str, str], words: str) -> None:
    record = given(pod(selector=selector), types=[fake_type("only")]).left("pod")
    assert words in record.message
    assert "none of its offerings is available" not in record.message


def test_a_label_that_no_pool_has_is_answered_with_the_line_to_add_and_the_pools_that_lack_it() -> None:
    pools = [pool("batch", weight=10), pool("web")]
    message = given(pod(selector={"intent": "apps"}), types=[fake_type("t")], pools=pools).left("pod").message
    assert "NodePool batch lacks the label: add `intent: apps` to its spec.template.metadata.labels" in message
    assert '(pool batch, pool web: incompatible requirements, label "intent" does not have known values)' in message
    labelled = [pools[0], pool("web", labels={"intent": "apps"})]
    assert given(pod(selector={"intent": "apps"}), types=[fake_type("t")], pools=labelled).claim.node_pool == "web"


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ({"zone": Z1}, "(typo of "),
        ({"karpenter.k8s.aws/own": "a"}, 'label "karpenter.k8s.aws/own" does not have known values'),
        ({"intent": "apps", KIND: "on-demand"}, 'label "intent" does not have known values and '),
    ],
    ids=["typo", "reserved", "not alone"],
)
def test_no_label_is_to_be_added_that_would_not_do(selector: dict[str, str], words: str) -> None:
    message = (
        given(pod(selector=selector), types=[fake_type("t")], pools=[pool("web", rule(KIND, "In", "spot"))])
        .left("pod")
        .message
    )
    assert words in message
    assert "add `" not in message


TEAM = {"team": "web"}
Z_ONLY = rule(TYPE, "In", "z")
NEAR_NOBODY = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "gone"}}}


def test_a_blocked_pool_that_the_pod_selects_comes_before_one_without_its_label() -> None:
    pools = [pool("general"), pool("mine", node_class="mine", labels=TEAM)]
    record = given(pod(selector=TEAM), pools=pools, types=[fake_type("t")], not_ready={"mine": "no subnet"}).left("pod")
    assert record.message == (
        "pool mine: EC2NodeClass mine is not ready: no subnet "
        '(pool general: incompatible requirements, label "team" does not have known values)'
    )
    assert record.nearest == NearestMiss("", "mine")


def test_a_blocked_pool_names_the_taint_that_would_keep_the_pod_off_too() -> None:
    pools = [pool("general"), pool("mine", node_class="mine", labels=TEAM, taints=[TAINT])]
    record = given(pod(selector=TEAM), pools=pools, types=[fake_type("t")], not_ready={"mine": "no subnet"}).left("pod")
    assert record.message.startswith(
        "pool mine: EC2NodeClass mine is not ready: no subnet, and the pod does not tolerate taint dedicated=x:NoSched"
    )


def test_a_blocked_pool_with_other_labels_is_no_near_miss() -> None:
    pools = [pool("general"), pool("other", node_class="other", labels={"team": "db"})]
    unready = {"other": "no subnet"}
    message = given(pod(selector=TEAM), pools=pools, types=[fake_type("t")], not_ready=unready).left("pod").message
    assert message.startswith("t in pool general: would hold the pod, but NodePool general lacks the label")


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (pool("mine", Z_ONLY, labels=TEAM, taints=[TAINT]), "z in pool mine: would hold the pod, but it does not tol"),
        (pool("mine", Z_ONLY, labels=TEAM, limits={"nodes": "0"}), "z in pool mine: nodes limit short by 1"),
        (pool("mine", Z_ONLY, labels=TEAM, limits={"cpu": "1"}), "z in pool mine: cpu limit short by 3"),
        (pool("mine", Z_ONLY, rule(ARCH, "In", "riscv"), labels=TEAM), "pool mine: nodepool requirements filtered out"),
        (pool("mine", rule(TYPE, "In", "gone"), labels=TEAM), "pool mine: nodepool requirements filtered out"),
        (pool("mine", rule(TYPE, "Exists", min_values=4), labels=TEAM), "pool mine: node.kubernetes.io/instance-type"),
    ],
    ids=["taint", "nodes", "limit", "filtered out", "sold out", "minValues"],
)
def test_the_pool_that_the_pod_selects_comes_first_whatever_keeps_it_off(mine: NodePool, words: str) -> None:
    types = [fake_type("a"), fake_type("gone", offerings=[("spot", Z1)], unavailable=[("spot", Z1)]), fake_type("z")]
    pools = [pool("general", rule(TYPE, "In", "a")), mine]
    assert given(pod(selector=TEAM), pools=pools, types=types).left("pod").message.startswith(words)


def test_a_spread_over_the_pool_that_the_pod_selects_comes_before_a_label() -> None:
    near = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR_NOBODY]}}}
    pools = [pool("general"), pool("mine", labels=TEAM)]
    message = given(pod(selector=TEAM, spec=near), pools=pools, types=[fake_type("t")]).left("pod").message
    assert message.startswith("pool mine: ")
    assert message.count("pool mine: ") == 1


def test_offerings_that_are_gone_for_now_are_listed() -> None:
    gone = [("spot", Z1), ("spot", Z2)]
    record = given(pod(selector={KIND: "spot"}), types=[fake_type("only", unavailable=gone)]).left("pod")
    assert "none of its offerings is available now (spot in test-zone-1, test-zone-2)" in record.message


def test_a_large_type_that_is_sold_out_is_nearer_than_a_small_one_that_is_not() -> None:
    types = [
        fake_type("small", cpu="2"),
        fake_type("large", cpu="16", unavailable=[("spot", Z1)], offerings=[("spot", Z1)]),
    ]
    record = given(pod(cpu="10"), types=types).left("pod")
    assert record.message.startswith(
        "large in pool default: would hold the pod, but none of its offerings is available"
    )


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([rule(ARCH, "In", "riscv")], "no type has kubernetes.io/arch In [riscv] (they have amd64, arm64)"),
        ([rule(TYPE, "In", "m5.none")], "no type has node.kubernetes.io/instance-type In [m5.none] among the 6 that"),
        ([rule(ARCH, "In", "arm64"), rule("size", "In", "small")], "1 of 6 types have kubernetes.io/arch In [arm64]"),
        ([rule(ZONE, "In", "z9")], "none of its 6 types is sold in the zones and capacity types it asks for"),
    ],
    ids=["arch", "type", "together", "zone"],
)
def test_a_pool_that_excludes_everything_says_by_which_label(rules: list[dict[str, Any]], words: str) -> None:
    message = given(pod(), pools=[pool("default", *rules)]).left("pod").message
    assert "nodepool requirements filtered out all available instance types" in message
    assert words in message


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([rule(ARCH, "In", "riscv")], "no type has kubernetes.io/arch In [riscv] (they have amd64, arm64)"),
        ([rule(ARCH, "In", "arm64"), rule("size", "In", "small")], "1 of 6 types have kubernetes.io/arch In [arm64], "),
    ],
)
def test_labels_that_no_type_has(rules: list[dict[str, Any]], words: str) -> None:
    assert words in given(pod(requires=[rules])).left("pod").message


def test_every_conflicting_label_is_named_whatever_their_order() -> None:
    pools = [pool("default", rule(ZONE, "In", Z1), labels={"team": "red"})]
    one = given(pod(selector={"team": "blue", ZONE: Z2}), pools=pools).left("pod").message
    other = given(pod(selector={ZONE: Z2, "team": "blue"}), pools=pools).left("pod").message
    assert one == other
    assert "team In [blue] does not meet team In [red] and topology.kubernetes.io/zone In [test-zone-2]" in one


def test_a_conflict_that_volumes_bring_is_said_to_be_theirs() -> None:
    storage: list[Storage] = [pvc(volume="v"), pv("v", [rule(ZONE, "In", Z2)])]
    pools = [pool("default", rule(ZONE, "In", Z1))]
    message = given(pod(spec=claim_volumes("data")), pools=pools, storage=storage).left("pod").message
    assert "(asked for by its volumes: topology.kubernetes.io/zone)" in message


def test_the_term_that_came_closest_is_explained() -> None:
    terms = [[rule(ARCH, "In", "arm64"), rule(ZONE, "In", Z1)], [rule("no-such-label", "Exists")]]
    record = given(pod(cpu="20", requires=terms)).left("pod")
    assert record.message.startswith("arm-instance-type in pool default: cpu short by 4100m: 20 needed")


def test_limits_say_what_is_left_and_what_is_needed() -> None:
    record = given(pod(cpu="3"), pools=[pool(limits={"cpu": "2"})], types=incrementing_types(8)).left("pod")
    assert record.message.startswith("fake-it-3 in pool default: cpu limit short by 2: 4 needed, 2 left (")
    assert record.nearest == NearestMiss("fake-it-3", "default", "cpu", 2000)


def test_a_limit_with_nothing_left_names_the_smallest_type_that_would_do() -> None:
    sizes = {"a-large": "8", "b-medium": "4", "c-small": "2"}
    types = [fake_type(name, cpu=cpu, price=1.0) for name, cpu in sizes.items()]
    old = node("old", pool="default", capacity={"cpu": "4"}, cpu="4", pods="0")
    for cpu, limit, name in (("1", "4", "c-small"), ("3", "4", "b-medium"), ("1", "3", "c-small")):
        record = given(pod(cpu=cpu), pools=[pool(limits={"cpu": limit})], nodes=[old], types=types).left("pod")
        assert record.message.startswith(f"{name} in pool default: cpu limit short by ")


def test_a_limit_on_nodes_says_how_many_there_may_be() -> None:
    outcome = given(*pods(3, ports=OWN_NODE), pools=[pool(limits={"nodes": "2"})])
    record = outcome.plan.unschedulable[0]
    assert "nodes limit short by 1: would hold the pod (0 of 2 left)" in record.message
    assert record.nearest is not None
    assert (record.nearest.resource, record.nearest.short) == ("nodes", 1)


def test_a_pod_no_type_holds_is_not_told_that_nodes_ran_out() -> None:
    record = given(pod(cpu="100"), pools=[pool(limits={"nodes": "0"})]).left("pod")
    assert record.message.startswith("arm-instance-type in pool default: cpu short by 84100m")


def test_min_values_say_how_many_are_left() -> None:
    pools = [pool("default", rule(TYPE, "Exists", min_values=4))]
    message = given(pod(cpu="10"), pools=pools).left("pod").message
    assert "node.kubernetes.io/instance-type needs 4 values, the types that hold the pod have 1" in message


def test_a_host_port_that_a_daemon_takes_everywhere() -> None:
    message = given(pod(ports=[80]), daemon_sets=[daemon_set(ports=[80])]).left("pod").message
    assert "host port 80/TCP is taken by a DaemonSet on every type that suits" in message


def test_a_spread_lists_its_domains_and_their_counts() -> None:
    nodes = [node(f"n{zone}", labels={ZONE: zone}, pods="1") for zone in (Z1, Z2)]
    old = [pod(f"old-{zone}", node=f"n{zone}", metadata=WEB) for zone in (Z1, Z2)]
    pools = [pool("default", rule(ZONE, "In", Z1))]
    outcome = given(
        *old, *pods(2, "web", metadata=WEB, spec=spread(ZONE)), pools=pools, nodes=nodes, types=[fake_type("t")]
    )
    message = outcome.plan.unschedulable[0].message
    assert (
        "topology spread over topology.kubernetes.io/zone (maxSkew 1; counted now: test-zone-1 2, test-zone-2 1; "
        "a domain may hold 2)"
    ) in message


def test_where_topology_leaves_a_domain_the_reason_there_is_given() -> None:
    types = [fake_type("t", unavailable=[("on-demand", Z3)])]
    keepers = [pod(f"keeper-{zone}", cpu="2", selector={ZONE: zone}, spec=_away()) for zone in (Z1, Z2)]
    message = given(*keepers, pod("web", cpu="1", metadata=WEB), types=types).left("web").message
    assert message.startswith(
        "t in pool default: would hold the pod, but none of its offerings is available now (on-demand in test-zone-3)"
    )
    keeping = "anti-affinity of other pods over topology.kubernetes.io/zone (they are in test-zone-1 1, test-zone-2 1)"
    assert keeping in message


def _away() -> dict[str, Any]:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_nodes_that_suit_are_measured_too() -> None:
    here = [node(f"n{n}", cpu=cpu, labels={"team": "red"}) for n, cpu in enumerate(("1", "2"))]
    record = given(pod(cpu="2500m", selector={"team": "red"}), nodes=here).left("pod")
    assert record.message.startswith(
        "of 2 nodes 2 suit its constraints, none has room: n1 is nearest, cpu short by 500m: 2500m needed, 2 free ("
    )


def test_a_node_with_room_whose_volumes_are_full() -> None:
    storage: list[Storage] = [
        csi_node("n0", ebs_csi_aws_com=1),
        *(pvc(name, volume=name) for name in "ab"),
        *(pv(n) for n in "ab"),
    ]
    bound = pod("old", node="n0", spec=claim_volumes("a"))
    here = node("n0", labels={"team": "red"})
    waiting = pod(selector={"team": "red"}, spec=claim_volumes("b"))
    message = given(bound, waiting, nodes=[here], storage=storage).left("pod").message
    assert "n0 has the resources, but not room for its volumes" in message


def test_pools_that_say_the_same_are_named_together() -> None:
    pools = [pool(f"p{n}", taints=[TAINT]) for n in range(7)]
    message = given(pod(), pools=pools).left("pod").message
    assert "pool p6, pool p5, pool p4, pool p3, pool p2 and 2 more: did not tolerate taint dedicated=x:NoSchedule" in (
        message
    )


def test_without_any_pool_the_nearest_node_is_measured() -> None:
    record = given(pod(cpu="5"), pools=[], nodes=[node("n", cpu="4")]).left("pod")
    assert record.message == (
        "no dynamic nodepools found; of 1 nodes 1 suit its constraints, none has room: n is nearest, "
        "cpu short by 1: 5 needed, 4 free"
    )


def test_claims_opened_together_share_their_reasons() -> None:
    pools = [pool("tainted", taints=[TAINT], weight=9), pool("default")]
    outcome = given(*pods(3, ports=OWN_NODE), pools=pools)
    assert len(outcome.claims) == 3
    assert {claim.reasons for claim in outcome.claims} == {
        ("pool tainted: did not tolerate taint dedicated=x:NoSchedule",)
    }


def test_a_price_ceiling_is_named_with_what_is_above_it() -> None:
    types = [fake_type("cheap", price=1.0), fake_type("dear", price=2.0, cpu="8")]
    capped = pool()
    capped = replace(capped, metadata=replace(capped.metadata, annotations={"shiplap.dev/max-node-price": "0.75"}))
    message = given(pod(), pools=[capped], types=types).left("pod").message
    assert "no offering within its price ceilings is available now; " in message
    assert message.endswith("cheap costs $1.0000 per hour, $0.2500 above max-node-price")
    by_vcpu = replace(capped, metadata=replace(capped.metadata, annotations={"shiplap.dev/max-vcpu-price": "0.25"}))
    assert given(pod(selector={TYPE: "cheap"}), pools=[by_vcpu], types=types).scheduled
    tight = replace(capped, metadata=replace(capped.metadata, annotations={"shiplap.dev/max-node-price": "1.5"}))
    message = given(pod(cpu="6"), pools=[tight], types=types).left("pod").message
    assert "dear in pool default: would hold the pod, but none of its offerings is available now" in message
    assert "; dear costs $2.0000 per hour, $0.5000 above max-node-price" in message


def test_a_claim_names_the_preferences_its_pods_gave_up() -> None:
    likes = {
        "nodeAffinity": [{"weight": 1, "preference": {"matchExpressions": [rule(ZONE, "In", "nowhere")]}}],
        "podAffinity": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "none"}}}}
        ],
    }
    spec = {
        "affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms} for kind, terms in likes.items()}
    }
    assert given(pod(spec=spec)).claim.gave_up == (
        f"node affinity {ZONE} In [nowhere]",
        f"pod affinity over {HOST}",
    )
    soft = pool(taints=[{"key": "soft", "effect": "PreferNoSchedule"}])
    assert given(pod(), pools=[soft]).claim.gave_up == ("keeping off taint soft:PreferNoSchedule",)
    anyway = {"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "nowhere", "maxSkew": 1}
    spread_spec = {"topologySpreadConstraints": [anyway | {"labelSelector": {"matchLabels": {"app": "web"}}}]}
    assert given(pod(metadata=WEB, spec=spread_spec)).claim.gave_up == ("topology spread over nowhere (maxSkew 1)",)
    kept = [[rule(ZONE, "In", Z1)]]
    assert given(pod(prefers=kept)).claim.gave_up == ()


def test_of_many_terms_a_bounded_number_of_labels_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod of a tenant may name a thousand labels in its terms."""
    asked: list[PlacementAttempt] = []

    def counted(template: NodeClaimTemplate, attempt: PlacementAttempt) -> dict[str, str]:
        asked.append(attempt)
        return refusal_words.conflicting(template, attempt)

    monkeypatch.setattr(unschedulable, "conflicting", counted)
    terms = [[rule(f"example.com/{term}-{place}", "In", "x") for place in range(20)] for term in range(40)]
    left = given(pod(requires=terms), pools=[pool("a"), pool("b")]).plan.unschedulable
    assert len(left) == 1
    assert "example.com/0-0" in left[0].message
    assert len(asked) == 2 * (256 // 20)


def test_of_many_taints_the_first_are_named() -> None:
    taints = [{"key": f"t{number:04d}", "effect": "NoSchedule"} for number in range(3000)]
    [left] = given(pod(), pools=[pool(taints=taints)]).plan.unschedulable
    assert "t0000:NoSchedule, t0001:NoSchedule" in left.message
    assert "t0019" in left.message
    assert "t0020" not in left.message
