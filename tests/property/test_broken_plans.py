"""The judge of plans is worth its trust: valid plans broken in every way are caught, each for its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Placement, Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.model.snapshot import Snapshot
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.checker import violations
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.topology_checker import topology_violations

ZONE, KIND, HOST = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "kubernetes.io/hostname"
TYPE, TEAM, FAMILY = "node.kubernetes.io/instance-type", "example.com/team", "example.com/family"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
EVERY = [{"operator": "Exists"}]
replace = msgspec.structs.replace


def app(name: str) -> dict[str, Any]:
    return {"labels": {"app": name}}


def near_or_away(field: str, key: str, other: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": other}}}
    return {"affinity": {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(key: str) -> dict[str, Any]:
    rule = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": "spread"}}}]}


def _types() -> list[Any]:
    types = []
    for name, cpu, family in (("small", "4", "a"), ("medium", "8", "b"), ("large", "16", "c")):
        item = fake_type(name, cpu=cpu, memory=f"{2 * int(cpu)}Gi", pods="20")
        types.append(replace(item, requirements=(*item.requirements, requirement(FAMILY, "In", (family,)))))
    unknown = fake_type("unknown", cpu="4", memory="16Gi", pods="20", price=0.9)
    careful = unknown.capacity | {"memory": 10 * 2**30}
    unknown = replace(unknown, requirements=(*unknown.requirements, requirement(FAMILY, "In", ("d",))))
    return [*types, replace(unknown, verified=False, careful=careful, ami="ami", kubelet_hash="k")]


@pytest.fixture(scope="module")
def sound() -> tuple[Snapshot, Plan]:
    """A plan that uses nearly every rule there is, and breaks none."""
    storage: list[case.Storage] = [case.pvc("data", volume="v"), case.pv("v", [rule(ZONE, "In", Z2)])]
    storage += [*(case.pvc(f"d{n}", volume=f"v{n}") for n in range(2)), *(case.pv(f"v{n}") for n in range(2))]
    here = node("here", cpu="2", memory="4Gi", pods="4", labels={ZONE: Z1, KIND: "spot"})
    kept = node("kept", cpu="2", memory="4Gi", labels={ZONE: Z1, KIND: "spot"}, taints=[TAINT])
    waiting = [
        pod("tolerant", cpu="2500m", tolerations=EVERY, selector={TEAM: "red"}),
        *pods(3, "zonal", cpu="3", memory="2Gi", selector={ZONE: Z1}),
        *pods(3, "spread", cpu="900m", metadata=app("spread"), spec=spread(ZONE)),
        *pods(2, "apart", cpu="700m", metadata=app("apart"), spec=near_or_away("podAntiAffinity", HOST, "apart")),
        pod("target", cpu="3500m", metadata=app("target"), selector={ZONE: Z3}),
        pod("follower", cpu="600m", spec=near_or_away("podAffinity", ZONE, "target")),
        *pods(2, "port", cpu="300m", ports=[80]),
        pod("volume", cpu="1100m", spec=case.claim_volumes("data")),
        pod("on-demand", cpu="5200m", requires=[[rule(KIND, "NotIn", "spot")]]),
        pod("pilot", cpu="1", memory="14Gi", selector={TEAM: "new"}),
        pod("modest", cpu="1", memory="9Gi", selector={TEAM: "new"}),
        *pods(2, "little", cpu="200m", spec=case.claim_volumes("d0")),
        pod("huge", cpu="100"),
        pod("bound", cpu="1", node="here", ports=[90]),
    ]
    pools = [
        pool("red", labels={TEAM: "red"}, taints=[TAINT], weight=5),
        pool("new", rule(TYPE, "In", "unknown"), labels={TEAM: "new"}),
        pool("varied", rule(FAMILY, "Exists", min_values=2), limits={"cpu": "300", "nodes": "30"}),
    ]
    outcome = case.given(
        *waiting,
        pools=pools,
        types=_types(),
        nodes=[here, kept],
        storage=[*storage, case.csi_node("here", ebs_csi_aws_com=1)],
        daemon_sets=[case.daemon_set("agent", cpu="200m", memory="200Mi", tolerations=EVERY, ports=[99])],
    )
    assert {entry.pod.name for entry in outcome.plan.unschedulable} == {"huge"}
    assert violations(outcome.snapshot, outcome.plan) == []
    assert topology_violations(outcome.snapshot, outcome.plan) == []
    return outcome.snapshot, outcome.plan


def claim_of(plan: Plan, pod: str) -> PlannedClaim:
    return next(claim for claim in plan.node_claims if any(entry.name == pod for entry in claim.pods))


def with_claim(plan: Plan, old: PlannedClaim, **changes: Any) -> Plan:
    new = replace(old, **changes)
    claims = tuple(new if claim is old else claim for claim in plan.node_claims)
    return replace(plan, node_claims=claims, hourly=sum(claim.launch.price for claim in claims))


def entry_of(plan: Plan, pod: str) -> PodReference:
    places: Sequence[Any] = (*plan.node_claims, *plan.existing_nodes)
    named: list[PodReference] = [entry for place in places for entry in place.pods] + [
        record.pod for record in plan.unschedulable
    ]
    return next(entry for entry in named if entry.name == pod)


def without(plan: Plan, pod: str) -> Plan:
    claims = tuple(replace(c, pods=tuple(e for e in c.pods if e.name != pod)) for c in plan.node_claims)
    nodes = tuple(replace(p, pods=tuple(e for e in p.pods if e.name != pod)) for p in plan.existing_nodes)
    left = tuple(record for record in plan.unschedulable if record.pod.name != pod)
    return replace(plan, node_claims=claims, existing_nodes=nodes, unschedulable=left)


def moved(plan: Plan, pod: str, beside: str) -> Plan:
    """A pod on the claim of another."""
    entry, rest = entry_of(plan, pod), without(plan, pod)
    target = claim_of(rest, beside)
    return with_claim(rest, target, pods=(*target.pods, entry))


def onto(plan: Plan, pod: str, node: str) -> Plan:
    """A pod on a node that exists."""
    entry, rest = entry_of(plan, pod), without(plan, pod)
    others = tuple(place for place in rest.existing_nodes if place.name != node)
    before = next((place.pods for place in rest.existing_nodes if place.name == node), ())
    return replace(rest, existing_nodes=(*others, Placement(node, (*before, entry))))


def narrowed(plan: Plan, pod: str, key: str, *values: str) -> Plan:
    """The claim of a pod with one requirement replaced, its label too."""
    claim = claim_of(plan, pod)
    rules = tuple(rule for rule in claim.requirements if rule.key != key)
    written = (*rules, RequirementSpec(key, "In", values)) if values else rules
    labels = {name: value for name, value in claim.labels.items() if name != key}
    return with_claim(plan, claim, requirements=written, labels=labels)


def on_claim(pod: str, **changes: Any) -> Callable[[Plan], Plan]:
    return lambda plan: with_claim(plan, claim_of(plan, pod), **changes)


def twice(plan: Plan) -> Plan:
    return with_claim(plan, claim_of(plan, "zonal-0"), pods=(*claim_of(plan, "zonal-0").pods, entry_of(plan, "target")))


def cheaper(plan: Plan) -> Plan:
    claim = claim_of(plan, "target")
    return with_claim(plan, claim, launch=replace(claim.launch, price=claim.launch.price / 2))


def doubled_limits(plan: Plan) -> Plan:
    """Thirty more claims like one of the limited pool."""
    claim = claim_of(plan, "target")
    more = tuple(replace(claim, name=f"{claim.name}-{n}", pods=()) for n in range(30))
    return replace(plan, node_claims=(*plan.node_claims, *more))


def second_pilot(plan: Plan) -> Plan:
    return with_claim(plan, claim_of(plan, "modest"), relies_on_estimate=("unknown",))


def unpiloted(plan: Plan) -> Plan:
    return with_claim(plan, claim_of(plan, "pilot"), relies_on_estimate=())


def renamed(plan: Plan) -> Plan:
    first, second = plan.node_claims[:2]
    return with_claim(plan, second, name=first.name)


def dearest_first(plan: Plan) -> Plan:
    claim = claim_of(plan, "on-demand")
    return with_claim(plan, claim, instance_types=claim.instance_types[::-1])


def sold_elsewhere(plan: Plan) -> Plan:
    claim = claim_of(plan, "target")
    return with_claim(plan, claim, launch=LaunchChoice(claim.launch.instance_type, Z3, "spot", claim.launch.price))


BROKEN: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a pod is dropped": (lambda plan: without(plan, "target"), "is named 0 times"),
    "a pod is placed twice": (twice, "is named 2 times"),
    "a stranger is placed": (
        lambda plan: replace(
            plan, unschedulable=(*plan.unschedulable, Unschedulable(PodReference("default", "ghost"), ""))
        ),
        "is not in the snapshot",
    ),
    "a bound pod is placed": (
        lambda plan: with_claim(
            plan,
            claim_of(plan, "target"),
            pods=(*claim_of(plan, "target").pods, PodReference("default", "bound", "uid-bound")),
        ),
        "which is not waiting",
    ),
    "a pod moves where it has no room": (lambda plan: moved(plan, "huge", "target"), "cpu"),
    "a pod moves to a pool whose taint it does not tolerate": (
        lambda plan: moved(plan, "apart-0", "tolerant"),
        "does not tolerate the taints",
    ),
    "the taints of a pool are dropped": (on_claim("tolerant", taints=()), "taints differ"),
    "a pod moves to another zone": (lambda plan: moved(plan, "target", "volume"), "does not suit"),
    "a claim's zone is swapped": (lambda plan: narrowed(plan, "target", ZONE, Z1), "does not suit"),
    "a claim's zone is open": (lambda plan: narrowed(plan, "target", ZONE), "does not suit"),
    "a claim's zone is unknown": (lambda plan: narrowed(plan, "target", ZONE, "z9"), "no available offering"),
    "a claim may be spot": (lambda plan: narrowed(plan, "on-demand", KIND, "spot"), "does not suit"),
    "a claim's pool label is lost": (on_claim("tolerant", labels={}), "label example.com/team is None"),
    "a volume is in another zone": (lambda plan: moved(plan, "volume", "target"), "volumes of"),
    "host ports collide": (lambda plan: moved(plan, "port-0", "port-1"), "both take host port 80/TCP"),
    "a type too small is listed": (
        lambda plan: with_claim(
            plan, claim_of(plan, "zonal-0"), pods=tuple(entry_of(plan, f"zonal-{n}") for n in range(3))
        ),
        "cpu",
    ),
    "an unknown type is listed": (on_claim("target", instance_types=("small", "none")), "not in the catalogue"),
    "no type is listed": (on_claim("target", instance_types=()), "0 instance types"),
    "a type is listed twice": (on_claim("target", instance_types=("medium", "medium")), "lists a type twice"),
    "types are in the wrong order": (dearest_first, "not cheapest first"),
    "the price is wrong": (cheaper, "cheapest is"),
    "the launch is not offered": (sold_elsewhere, "which is not offered"),
    "the sum is wrong": (lambda plan: replace(plan, hourly=plan.hourly + 1), "costs"),
    "a name is used twice": (renamed, "2 claims are called"),
    "an empty claim is launched": (
        lambda plan: replace(
            plan, node_claims=(*plan.node_claims, replace(plan.node_claims[0], name="empty", pods=()))
        ),
        "holds no pod",
    ),
    "a limit is exceeded": (doubled_limits, "over limit"),
    "the pool does not exist": (on_claim("target", node_pool="none"), "takes no part"),
    "minValues are not kept": (on_claim("target", instance_types=("medium",)), "1 values, 2 wanted"),
    "minValues are forgotten": (
        lambda plan: with_claim(
            plan,
            claim_of(plan, "target"),
            requirements=tuple(replace(r, min_values=None) for r in claim_of(plan, "target").requirements),
        ),
        "lost minValues",
    ),
    "minValues are relaxed though strict": (
        on_claim("target", annotations={"karpenter.sh/nodeclaim-min-values-relaxed": "true"}),
        "which are strict",
    ),
    "two claims are pilots": (second_pilot, "2 claims rely on the estimate"),
    "an estimate is relied on in silence": (unpiloted, "memory"),
    "a claim says too little of its pods": (on_claim("target", requests={"pods": 1}), "requests 0 cpu"),
    "a claim promises too little": (on_claim("target", allocatable={"pods": 20}), "allocatable 0 cpu"),
    "a pod joins a full node": (lambda plan: onto(plan, "zonal-0", "here"), "cpu"),
    "a pod joins a tainted node": (lambda plan: onto(plan, "port-0", "kept"), "does not tolerate the taints"),
    "a pod joins a node in another zone": (lambda plan: onto(plan, "target", "here"), "does not suit its labels"),
    "a pod joins a node that is not there": (lambda plan: onto(plan, "port-0", "nowhere"), "there is no node"),
    "a volume too many": (
        lambda plan: replace(
            plan,
            existing_nodes=(*(p for p in plan.existing_nodes if p.name != "here"), Placement("here", _volumes(plan))),
        ),
        "2 volumes of ebs.csi.aws.com, at most 1",
    ),
    "a spread is uneven": (lambda plan: moved(plan, "spread-0", "spread-1"), "evenly"),
    "pods that stay apart are together": (lambda plan: moved(plan, "apart-0", "apart-1"), "has to stay away"),
    "a follower is elsewhere": (lambda plan: moved(plan, "follower", "volume"), "lacks company"),
}


def _volumes(plan: Plan) -> tuple[PodReference, ...]:
    return (entry_of(plan, "little-0"), PodReference("default", "volume", "uid-volume"))


@pytest.mark.parametrize(("breaking", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_plan_is_caught(sound: tuple[Snapshot, Plan], breaking: Callable[[Plan], Plan], words: str) -> None:
    snapshot, plan = sound
    broken = breaking(plan)
    assert broken != plan
    found = [*violations(snapshot, broken), *topology_violations(snapshot, broken)]
    assert any(words in text for text in found), found


@pytest.mark.parametrize(("beside", "is_even"), [(2, True), (0, False)])
def test_workloads_that_count_each_other_have_an_order(beside: int, is_even: bool) -> None:
    """`web-0` is bound to a node before the pods that it counts there; nothing can be bound last onto a fuller node."""
    ours, theirs = spread(HOST), spread(HOST)
    ours["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {"app": "db"}}
    theirs["topologySpreadConstraints"][0] |= {"labelSelector": {"matchLabels": {"app": "web"}}, "minDomains": 3}
    web = pod("web-0", cpu="100m", metadata=app("web"), spec=ours)
    waiting = pods(beside, "db", cpu="100m", metadata=app("db"), spec=theirs)
    standing = pods(2 - beside, "old", cpu="100m", metadata=app("db"), node="a")
    nodes = [node("a", labels={HOST: "a"}), node("b", labels={HOST: "b"})]
    snapshot = case.snapshot_of([*waiting, web, *standing], nodes, types=_types())
    references = tuple(PodReference("default", item.metadata.name, item.metadata.uid) for item in (*waiting, web))
    plan = replace(case.given(types=_types()).plan, existing_nodes=(Placement("a", references),))
    assert (topology_violations(snapshot, plan) == []) is is_even


def test_a_claim_that_takes_another_pod_in_silence_is_caught(sound: tuple[Snapshot, Plan]) -> None:
    """Even a move that keeps every constraint leaves a claim that requests less than its pods do."""
    snapshot, plan = sound
    for claim in plan.node_claims:
        for entry in claim.pods:
            others = (other for other in plan.node_claims if other is not claim)
            for other in others:
                broken = moved(plan, entry.name, other.pods[0].name)
                assert violations(snapshot, broken), (entry.name, other.name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: replace(s, missed_pods=frozenset(["uid-pilot"])), "for a pod that was missed before"),
        (lambda s: replace(s, piloted=frozenset(["ami/unknown#k"])), "may not rely on the estimate of unknown"),
        (lambda s: replace(s, catalogs=tuple(_sold_out(c) for c in s.catalogs)), "no available offering"),
        (lambda s: replace(s, manifests=_deleting(s)), "takes no part"),
        (lambda s: replace(s, view=replace(s.view, nodes=_cordoned(s))), "is cordoned"),
        (lambda s: replace(s, view=replace(s.view, nodes=())), "there is no node"),
        (lambda s: replace(s, view=replace(s.view, daemon_sets=_heavier())), "cpu"),
        (lambda s: replace(s, settings=replace(s.settings, max_instance_types=1)), "instance types"),
    ],
    ids=["missed", "piloted", "sold out", "deleting", "cordoned", "no node", "daemons", "long lists"],
)
def test_a_plan_for_another_world_is_caught(
    sound: tuple[Snapshot, Plan], change: Callable[[Snapshot], Snapshot], words: str
) -> None:
    snapshot, plan = sound
    assert any(words in text for text in violations(change(snapshot), plan))


def _sold_out(catalog: Any) -> Any:
    types = tuple(
        replace(item, offerings=tuple(replace(offer, available=False) for offer in item.offerings))
        for item in catalog.instance_types
    )
    return replace(catalog, instance_types=types)


def _deleting(snapshot: Snapshot) -> Any:
    pools = tuple(
        replace(pool, metadata=replace(pool.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
        for pool in snapshot.manifests.node_pools
    )
    return replace(snapshot.manifests, node_pools=pools)


def _cordoned(snapshot: Snapshot) -> Any:
    return tuple(replace(node, spec=replace(node.spec, unschedulable=True)) for node in snapshot.view.nodes)


def _heavier() -> Any:
    return (case.daemon_set("agent", cpu="14", tolerations=EVERY),)
