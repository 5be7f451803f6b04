"""Plans and disruption below ceilings in dollars: what is left out, for whom, and what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes.labels import HOSTNAME, INSTANCE_TYPE
from shiplap.manifests.custom_resources import CapacityBuffer, Manifests, PodTemplate
from shiplap.manifests.shiplap_annotations import MAX_NODE_PRICE
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import (
    CEILING_REACHED,
    CRITICAL_PRIORITY,
    HOURLY_PERIOD,
    MONTHLY_PERIOD,
    CeilingMode,
    CeilingScope,
    CeilingUse,
    SpendingView,
)
from shiplap.policies.ceilings.launch_costs import wanted_launches
from shiplap.records.scheduling_record import SchedulingRecord, decode, encode
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import SchedulingSettings
from shiplap.scheduling.planner import plan
from tests.builders.buffers import buffer, template
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pods import pod_on as running
from tests.builders.pools import pool, rule
from tests.builders.pools import pool as quick_pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.disruptions import disrupted, large
from tests.conformance.given import daemon_set, snapshot_of

DOLLAR = 1_000_000
BOTH = (("on-demand", Z1), ("spot", Z1))


def typed(name: str, price: float, cpu: str = "4", **fields: Any) -> InstanceType:
    return fake_type(name, price=price, cpu=cpu, **{"memory": "16Gi", "offerings": (("on-demand", Z1),), **fields})


TYPES = (typed("m.large", 1.0), typed("m.xlarge", 2.0, "8"), typed("m.2xlarge", 4.0, "16"))


def view(limit: float, used: float = 0.0, **fields: Any) -> SpendingView:
    known = CeilingUse(CeilingScope.CLUSTER, HOURLY_PERIOD, int(limit * DOLLAR), int(used * DOLLAR), "test")
    return SpendingView((replace(known, **{"mode": CeilingMode.STOP, "recovery_percent": 0, **fields}),))


def decided(
    *waiting: Any,
    spending: SpendingView | None,
    types: Sequence[InstanceType] = TYPES,
    **fields: Any,
) -> Plan:
    ceilings = () if spending is None else (CeilingInput(spending),)
    return plan(snapshot_of(waiting, types=types, policies=ceilings, **fields))


def served(made: Plan) -> set[str]:
    return {entry.name for claim in made.node_claims for entry in claim.pods}


def test_a_roomy_ceiling_changes_nothing_to_the_byte() -> None:
    waiting = pods(9, cpu="3")
    without = decided(*waiting, spending=None)
    assert msgspec.json.encode(decided(*waiting, spending=view(1000))) == msgspec.json.encode(without)


def test_pods_of_what_is_left_out_say_which_ceiling() -> None:
    made = decided(*pods(4, cpu="3"), spending=view(2.5))
    assert made.hourly <= 2.5
    left = [entry for entry in made.unschedulable if entry.message.startswith(CEILING_REACHED)]
    assert len(left) == 4 - len(served(made)) > 0
    assert "cluster test, $2.50 per hour" in left[0].message


def test_a_record_is_replayed_exactly() -> None:
    snapshot = snapshot_of(pods(4, cpu="3"), types=TYPES, policies=(CeilingInput(view(2.5)),))
    record = SchedulingRecord(snapshot, plan(snapshot))
    again = decode(encode(record))
    assert again == record
    assert plan(again.snapshot) == record.plan


def test_a_launch_list_is_narrowed_to_what_fits() -> None:
    made = decided(pod(cpu="3"), spending=view(2.0))
    (claim,) = made.node_claims
    assert claim.instance_types == ("m.large", "m.xlarge")
    assert claim.launch.instance_type == "m.large"


def test_a_ceiling_with_room_keeps_types_that_are_sold_as_another_capacity_type() -> None:
    """The claim is planned as spot; should none be left at the launch, the other type is there."""
    spot = typed("m.large", 1.0, offerings=(("spot", Z1), ("on-demand", Z1)))
    steady = typed("m.xlarge", 1.5, "8", offerings=(("on-demand", Z1),))
    assert decided(pod(cpu="3"), spending=view(100.0), types=(spot, steady)) == decided(
        pod(cpu="3"), spending=None, types=(spot, steady)
    )


def test_lists_are_shortened_before_a_node_is_refused() -> None:
    """Each of three could become a node of $4.00; of that there is not enough for two."""
    made = decided(*pods(3, cpu="3", ports=[8080]), spending=view(6.0))
    assert served(made) == {"pod-0", "pod-1", "pod-2"}
    assert [claim.instance_types for claim in made.node_claims] == [("m.large", "m.xlarge")] * 3


def test_pods_that_a_limit_left_out_get_what_refused_nodes_leave_of_it() -> None:
    """The large pods come first and fill the limit; none of their nodes fits below the ceiling."""
    waiting = [*pods(2, "large", cpu="6"), pod("small", cpu="2")]
    fields: dict[str, Any] = {"pools": [pool("default", limits={"cpu": "16"})], "types": TYPES[:2]}
    assert served(decided(*waiting, spending=None, **fields)) == {"large-0", "large-1"}
    assert served(decided(*waiting, spending=view(1.5), **fields)) == {"small"}
    none = decided(*waiting, spending=view(0.5), **fields)
    assert served(none) == set()
    assert all(entry.message.startswith(CEILING_REACHED) for entry in none.unschedulable)


def test_pods_wait_for_the_ceiling_if_only_nodes_that_it_refuses_fill_the_limit() -> None:
    """Two of them would fill the limit. A higher limit would give none of them a node."""
    fields: dict[str, Any] = {"pools": [pool("default", limits={"cpu": "16"})], "types": TYPES[:2]}
    for waiting in (pods(5, cpu="6"), [pod(f"web-{cpu}", cpu=f"{cpu}00m") for cpu in (50, 55, 60, 65, 70)]):
        reasons = [entry.message for entry in decided(*waiting, spending=view(0.5), **fields).unschedulable]
        assert len(reasons) == 5
        assert all(reason.startswith(CEILING_REACHED) for reason in reasons)


def test_a_smaller_node_is_found_beside_pods_that_keep_their_places() -> None:
    """With a place for db instead, three other pods would lose theirs."""
    kinds = (("m.small", 0.5, "2", "8Gi"), ("m.large", 0.8, "4", "16Gi"), ("m.xlarge", 0.9, "8", "32Gi"))
    away = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}}
    made = decided(
        pod("db", cpu="3", memory="1Gi", metadata={"labels": {"app": "db"}}),
        *pods(6, "job", cpu="100m", memory="3Gi", spec=apart),
        spending=view(0.6),
        types=[typed(name, price, cpu, memory=memory) for name, price, cpu, memory in kinds],
        nodes=[node("old", cpu="4", memory="16Gi", labels={HOSTNAME: "old"})],
        pools=[pool("default", rule(INSTANCE_TYPE, "Exists", min_values=3))],
        settings=SchedulingSettings(min_values_policy="BestEffort"),
    )
    assert [[entry.name for entry in place.pods] for place in made.existing_nodes] == [[f"job-{n}" for n in range(5)]]
    assert [(claim.launch.instance_type, len(claim.pods)) for claim in made.node_claims] == [("m.small", 1)]
    assert [entry.pod.name for entry in made.unschedulable] == ["db"]


def test_cheaper_nodes_are_found_beside_a_pod_that_no_node_holds() -> None:
    """The spread of the others counts that pod, so that they are planned once more without it."""
    spread = {
        "topologyKey": HOSTNAME,
        "maxSkew": 3,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    fields: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"topologySpreadConstraints": [spread]},
    }
    wide = typed("m.xlarge", 1.9, "8", offerings=(("on-demand", Z1), ("on-demand", Z2)))
    dear = tuple(replace(offer, price=5.0) if offer.zone == Z2 else offer for offer in wide.offerings)
    types = (typed("m.large", 1.0), replace(wide, offerings=dear))
    waiting = pods(2, "web", cpu="3", **fields)
    assert served(decided(*waiting, spending=view(2.5), types=types)) == {"web-0", "web-1"}
    beside = decided(*waiting, pod("huge", cpu="40", **fields), spending=view(2.5), types=types)
    assert served(beside) == {"web-0", "web-1"}


def test_pods_wait_for_the_limit_that_is_full_with_admitted_nodes_too() -> None:
    """The ceiling has room for one node, the limit for a small one beside it: only the small pod waits for money."""
    waiting = [pod("first", cpu="7", priority=10), pod("second", cpu="6"), pod("small", cpu="3")]
    fields: dict[str, Any] = {"pools": [pool("default", limits={"cpu": "12"})], "types": TYPES[:2]}
    made = decided(*waiting, spending=view(2.5), **fields)
    assert served(made) == {"first"}
    reasons = {entry.pod.name: entry.message.startswith(CEILING_REACHED) for entry in made.unschedulable}
    assert reasons == {"second": False, "small": True}


def test_the_dearest_zone_counts_and_the_cheapest_type_may_have_to_go() -> None:
    """It could be launched in the zone where it is dear; a launch takes nothing dearer than was counted."""
    uneven = typed("m.large", 1.0, offerings=(("on-demand", Z1), ("on-demand", Z2)))
    dear = tuple(Offering(item.zone, item.capacity_type, 5.0 if item.zone == Z2 else 1.0) for item in uneven.offerings)
    made = decided(pod(cpu="3"), spending=view(2.0), types=(replace(uneven, offerings=dear), typed("c.large", 1.5)))
    (claim,) = made.node_claims
    assert claim.instance_types == ("c.large",)
    assert (claim.launch.instance_type, claim.launch.price, made.hourly) == ("c.large", 1.5, 1.5)


def test_important_pods_do_not_take_the_others_along() -> None:
    """They would share a node that the others alone may not have."""
    spending = view(1.0, 1.0, mode=CeilingMode.PRIORITY, above_priority=100)
    made = decided(pod("low", cpu="1"), pod("high", cpu="1", priority=101), spending=spending)
    assert served(made) == {"high"}
    assert [entry.pod.name for entry in made.unschedulable] == ["low"]
    assert "only pods of a priority above 100 get nodes" in made.unschedulable[0].message


def test_critical_pods_draw_on_the_recovery_reserve() -> None:
    spending = view(2.0, recovery_percent=50)
    waiting = [pod("low", cpu="3"), pod("dns", cpu="3", priority=CRITICAL_PRIORITY), *pods(3, cpu="3")]
    assert served(decided(*waiting, spending=spending)) == {"dns"}


def test_cheapest_waits_for_the_cheapest_offering() -> None:
    spot_is_half = typed("m.large", 1.0, offerings=BOTH, unavailable=(("spot", Z1),))
    spot_is_half = replace(
        spot_is_half,
        offerings=tuple(
            replace(item, price=0.5) if item.capacity_type == "spot" else item for item in spot_is_half.offerings
        ),
    )
    spending = view(1.0, 1.0, mode=CeilingMode.CHEAPEST)
    sold_out = decided(pod(cpu="3"), spending=spending, types=(spot_is_half,))
    assert served(sold_out) == set()
    assert "only m.large as spot, $0.50 per hour, would be launched" in sold_out.unschedulable[0].message
    there = replace(spot_is_half, offerings=tuple(replace(item, available=True) for item in spot_is_half.offerings))
    (claim,) = decided(pod(cpu="3"), spending=spending, types=(there, typed("m.xlarge", 2.0, "8"))).node_claims
    assert (claim.launch.capacity_type, claim.instance_types) == ("spot", ("m.large",))


def test_no_node_is_dearer_than_its_pool_allows_though_a_ceiling_leaves_more() -> None:
    """Critical pods would share nodes with pods that may have none. Alone, two would fit a node that is too dear."""
    plain = pool()
    capped = replace(plain, metadata=replace(plain.metadata, annotations={MAX_NODE_PRICE: "1.5"}))
    dns = pods(2, "dns", cpu="3", priority=CRITICAL_PRIORITY)
    types = (typed("small", 1.0), typed("middle", 1.8, "8"))
    made = decided(
        *dns, *pods(2, "low", cpu="900m"), spending=view(4.0, 1.5, recovery_percent=50), types=types, pools=[capped]
    )
    assert on(made) == {"small": 2}
    assert served(made) == {item.metadata.name for item in dns}


def test_of_buffers_of_one_name_in_two_namespaces_each_lacks_its_own() -> None:
    def of(namespace: str, priority: int) -> tuple[CapacityBuffer, PodTemplate]:
        spare, small = buffer(replicas=2), template(cpu="3", priority=priority)
        where = {"namespace": namespace}
        return (
            replace(spare, metadata=replace(spare.metadata, **where)),
            replace(small, metadata=replace(small.metadata, **where)),
        )

    (first, of_first), (second, of_second) = of("first", 0), of("second", 0)
    manifests = Manifests(node_pools=(pool(),), capacity_buffers=(first, second), pod_templates=(of_first, of_second))
    made = plan(snapshot_of((), types=TYPES[:1], manifests=manifests, policies=(CeilingInput(view(3.0)),)))
    lacking = {known.namespace: (known.new, known.missing) for known in made.buffers}
    assert sorted(lacking) == ["first", "second"]
    assert all(new + missing == 2 for new, missing in lacking.values())
    assert {name: new for name, (new, _) in lacking.items()} == dict(
        Counter(pod.namespace for claim in made.node_claims for pod in claim.virtual_pods)
    )


def test_a_static_pool_says_what_it_lacks() -> None:
    made = decided(pools=(pool(replicas=3),), spending=view(2.0))
    (static,) = made.static_pools
    assert static.missing == 3 - len(made.node_claims) > 0
    assert static.reason.startswith(CEILING_REACHED)


def test_of_two_static_pools_only_that_of_the_ceiling_lacks_nodes() -> None:
    spending = view(1.0, scope=CeilingScope.NODE_POOL, name="first")
    made = decided(pools=(pool("first", replicas=3), pool("second", replicas=2)), spending=spending)
    lacking = {
        known.node_pool: (known.missing, known.reason.startswith(CEILING_REACHED)) for known in made.static_pools
    }
    assert lacking == {"first": (2, True), "second": (0, False)}


def test_pods_of_another_namespace_hold_down_no_spread() -> None:
    """They have the same labels, and are on a node in a zone that this spread has nothing in."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    marked = {"labels": {"app": "web"}}
    waiting = pods(2, cpu="3", metadata=marked, spec={"topologySpreadConstraints": [constraint]})
    others = pods(3, "theirs", cpu="100m", node="here", metadata={**marked, "namespace": "theirs"})
    here = node("here", labels={"topology.kubernetes.io/zone": Z1}, cpu="1")
    types = (typed("m.large", 1.0, offerings=(("on-demand", Z1), ("on-demand", Z2))),)
    snapshot = snapshot_of([*waiting, *others], [here], types=types, policies=(CeilingInput(view(9.0)),))
    levels = [launch.level for launch in wanted_launches(snapshot, view(9.0), plan(snapshot).node_claims)]
    assert [level.before for level in levels if level is not None] == [0, 0]


def test_a_buffer_lacks_what_a_ceiling_refuses() -> None:
    manifests = Manifests(
        node_pools=(pool(),), capacity_buffers=(buffer(replicas=6),), pod_templates=(template(cpu="3"),)
    )
    made = plan(snapshot_of((), types=TYPES[:1], manifests=manifests, policies=(CeilingInput(view(2.0)),)))
    (state,) = made.buffers
    assert (state.replicas, state.new, state.missing) == (6, 2, 4)
    assert state.reason.startswith(CEILING_REACHED)


CHEAPER = (
    fake_type("small", price=1.0, cpu="4", memory="8Gi", pods="20", offerings=BOTH),
    fake_type("large", price=4.0, cpu="16", memory="32Gi", pods="50", offerings=BOTH),
)


def test_a_replacement_is_refused_by_stop_only() -> None:
    """A half empty node would become a smaller one: for minutes both are there."""
    for mode, removed in ((CeilingMode.STOP, set()), (CeilingMode.PRIORITY, {"a"}), (CeilingMode.CHEAPEST, {"a"})):
        verdict = disrupted(
            large("a"),
            pods=[running("one", "a", cpu="2")],
            pools=[quick_pool()],
            types=CHEAPER,
            policies=[CeilingInput(view(4.0, 4.0, mode=mode))],
        )
        assert verdict.removed == removed
        if not removed:
            assert verdict.blocked("a").startswith(CEILING_REACHED)


def test_a_replacement_draws_on_the_recovery_reserve() -> None:
    verdict = disrupted(
        large("a"),
        pods=[running("one", "a", cpu="2")],
        pools=[quick_pool()],
        types=CHEAPER,
        policies=[CeilingInput(view(5.0, 4.0, recovery_percent=50))],
    )
    assert verdict.removed == {"a"}


BULK = (typed("small", 1.0), typed("big", 3.0, "16"))
"""Four pods of 3 CPUs are cheaper on one big node than on four small ones."""


def on(made: Plan) -> dict[str, int]:
    """Return the number of pods on nodes of each type."""
    found: dict[str, int] = {}
    for claim in made.node_claims:
        found[claim.launch.instance_type] = found.get(claim.launch.instance_type, 0) + len(claim.pods)
    return found


def test_smaller_nodes_take_the_place_of_one_that_a_ceiling_refuses() -> None:
    assert on(decided(*pods(4, cpu="3"), spending=view(3.0), types=BULK)) == {"big": 4}
    made = decided(*pods(4, cpu="3"), spending=view(2.5), types=BULK)
    assert on(made) == {"small": 2}
    assert [entry.message for entry in made.unschedulable] == [
        f"{CEILING_REACHED} cluster test, $2.50 per hour: $2.00 in use, a node takes $3.00"
    ] * 2
    assert made.stats.pods == 4
    assert made.hourly == 2.0


def test_what_is_left_beside_admitted_nodes_goes_to_smaller_ones() -> None:
    made = decided(*pods(12, cpu="3"), spending=view(8.5), types=BULK)
    assert on(made) == {"big": 10, "small": 2}


def test_a_plan_of_smaller_nodes_is_replayed_exactly() -> None:
    snapshot = snapshot_of(pods(4, cpu="3"), types=BULK, policies=(CeilingInput(view(2.5)),))
    record = SchedulingRecord(snapshot, plan(snapshot))
    assert plan(decode(encode(record)).snapshot) == record.plan


def test_a_pod_that_needs_the_refused_node_waits() -> None:
    made = decided(pod("large", cpu="12"), *pods(2, cpu="1"), spending=view(1.5), types=BULK)
    assert served(made) == {entry.metadata.name for entry in pods(2, cpu="1")}
    assert [entry.pod.name for entry in made.unschedulable] == ["large"]
    assert "a node takes $3.00" in made.unschedulable[0].message


def test_critical_pods_leave_to_others_what_is_not_kept_for_them() -> None:
    """They would share a big node; apart, one draws on the reserve and the others on the rest."""
    waiting = [pod("dns", cpu="3", priority=CRITICAL_PRIORITY), *pods(3, cpu="3")]
    made = decided(*waiting, spending=view(2.8, recovery_percent=25), types=BULK)
    assert on(made) == {"small": 2}
    assert "dns" in served(made)
    assert "in use, $0.70 kept for replacements" in made.unschedulable[0].message


def test_a_critical_pod_whose_shared_node_is_refused_goes_before_others() -> None:
    """Each node holds two, and the ceiling has room for one node and a part of another."""
    waiting = [pod("dns", cpu="1500m", priority=CRITICAL_PRIORITY), *pods(3, cpu="1500m")]
    made = decided(*waiting, spending=view(2.2), types=BULK[:1])
    assert len(made.node_claims) == 2
    spending = view(2.2, recovery_percent=10)
    made = decided(*waiting, spending=spending, types=BULK[:1])
    assert served(made) == {"dns"}
    assert {entry.message for entry in made.unschedulable} == {
        f"{CEILING_REACHED} cluster test, $2.20 per hour: $1.00 in use, $0.22 kept for replacements, a node takes $1.00"
    }


def test_a_month_has_room_for_a_smaller_node() -> None:
    spending = replace(view(30.0, period=MONTHLY_PERIOD), month_left_s=12 * 3600)
    assert on(decided(*pods(4, cpu="3"), spending=spending, types=BULK)) == {"small": 2}


def test_a_node_of_another_pool_takes_the_place_of_one_that_its_ceiling_refuses() -> None:
    spending = view(1.0, 1.0, scope=CeilingScope.NODE_POOL, name="first")
    made = decided(*pods(2, cpu="3"), spending=spending, pools=(pool("first", weight=10), pool("second")))
    assert {claim.node_pool for claim in made.node_claims} == {"second"}
    assert not made.unschedulable


def test_daemons_of_some_types_take_no_room_of_pods_that_have_a_node() -> None:
    """The launch list has types on which the DaemonSet runs, and others. What it takes there is no pod's room."""
    types = (typed("m.large", 1.0), typed("z.arm", 1.0, arch="arm64"))
    agents = daemon_set(cpu="500m", selector={"kubernetes.io/arch": "amd64"})
    spending = view(1.0, 0.0, scope=CeilingScope.NODE_POOL, name="first")
    both = (pool("first", weight=10), pool("second"))
    made = decided(*pods(2, cpu="3"), spending=spending, pools=both, types=types, daemon_sets=(agents,))
    assert {claim.node_pool for claim in made.node_claims} == {"first", "second"}
    assert not made.unschedulable


def test_a_cheaper_type_is_sought_where_one_zone_is_dear() -> None:
    """A type that is cheap enough in one zone may be launched in the other one, where it is too dear."""
    zones = (("on-demand", Z1), ("on-demand", Z2))
    uneven, even = (typed(name, price, offerings=zones) for name, price in (("small", 0.9), ("even", 0.95)))
    dear = tuple(replace(item, price=1.6) if item.zone == Z2 else item for item in uneven.offerings)
    types = (replace(uneven, offerings=dear), even, BULK[1])
    assert on(decided(*pods(4, cpu="3"), spending=view(1.5), types=types)) == {"even": 1}


def test_a_zone_too_dear_for_what_a_ceiling_leaves_still_holds_down_a_spread() -> None:
    """Two pods of three have a node each; a third would be below the ceiling only in a zone that has one already."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    offers = {Z1: 1.0, Z2: 1.0, Z3: 4.0}
    uneven = replace(
        typed("m.large", 1.0),
        offerings=tuple(Offering(zone, "on-demand", price, available=True) for zone, price in offers.items()),
    )
    waiting = pods(4, cpu="3", metadata={"labels": {"app": "web"}}, spec={"topologySpreadConstraints": [constraint]})
    made = decided(*waiting, spending=view(4.5), types=(uneven,))
    assert sorted(claim.launch.zone for claim in made.node_claims) == [Z1, Z2]


def test_a_ceiling_leaves_a_list_that_min_values_needs_as_it_is() -> None:
    """One of the two types is sold as on-demand only, and the claim is planned as spot."""
    spot = typed("m.large", 1.0, offerings=(("spot", Z1), ("on-demand", Z1)))
    steady = typed("m.xlarge", 1.5, "8", offerings=(("on-demand", Z1),))
    pools = [pool("default", rule("node.kubernetes.io/instance-type", "Exists", min_values=2))]
    made = decided(pod(cpu="3"), spending=view(2.0), types=(spot, steady), pools=pools)
    assert [claim.instance_types for claim in made.node_claims] == [("m.large", "m.xlarge")]


def test_a_list_is_shortened_to_the_variety_that_min_values_asks_for() -> None:
    """Of the third type nothing new comes; two nodes that may become the fourth cost more than the ceiling leaves."""
    pools = [pool("default", rule("size", "Exists", min_values=2))]
    small = [typed(f"m{place}.large", 1.0 + place / 10) for place in range(2)]
    types = (*small, typed("m.2xlarge", 2.0, "16"), typed("m.4xlarge", 4.0, "32"))
    waiting = pods(2, cpu="3", ports=[8080])
    for limit, kept in ((4.0, types[:3]), (3.9, types[:3]), (8.0, types)):
        made = decided(*waiting, spending=view(limit), types=types, pools=pools)
        assert {claim.instance_types for claim in made.node_claims} == {tuple(item.name for item in kept)}
        assert len(served(made)) == (1 if limit < 4 else 2)
    assert served(decided(*waiting, spending=view(1.9), types=types, pools=pools)) == set()


def test_pods_come_before_room_for_none_however_cheap() -> None:
    manifests = Manifests(
        node_pools=(pool(),), capacity_buffers=(buffer(replicas=2),), pod_templates=(template(cpu="3"),)
    )
    made = decided(pod("real", cpu="7"), spending=view(2.5), manifests=manifests)
    assert served(made) == {"real"}
    (state,) = made.buffers
    assert (state.new, state.missing) == (0, 2)


ZONE = "topology.kubernetes.io/zone"


def required(app: str) -> dict[str, Any]:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(app: str) -> dict[str, Any]:
    about = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [about | {"labelSelector": {"matchLabels": {"app": app}}}]}


def test_a_pod_does_not_follow_one_whose_node_a_ceiling_refuses() -> None:
    """kube-scheduler binds it nowhere without the other. Neighbours that follow nobody have their nodes."""
    first = pod("first", cpu="14", metadata={"labels": {"app": "first"}})
    follower = pod("follower", cpu="3", spec=required("first"))
    neighbour = pod("neighbour", cpu="3", metadata={"labels": {"app": "neighbour"}})
    assert served(decided(first, follower, neighbour, spending=view(9))) == {"first", "follower", "neighbour"}
    made = decided(first, follower, neighbour, spending=view(2.5))
    assert served(made) == {"neighbour"}
    reasons = {entry.pod.name: entry.message for entry in made.unschedulable}
    assert reasons["first"].startswith(CEILING_REACHED)
    assert "pod affinity" in reasons["follower"]


@pytest.mark.parametrize("company", [required("first"), spread("first")], ids=["affinity", "spread"])
def test_pods_that_count_an_important_one_know_the_zone_of_its_own_node(company: dict[str, Any]) -> None:
    """One node for all of them is above the line, so the important pod gets a smaller one first, in any zone."""
    both = (("on-demand", Z1), ("on-demand", Z2))
    sizes = (("m.small", 0.6, "2"), ("m.large", 1.0, "4"), ("m.xlarge", 1.9, "8"))
    types = [typed(name, price, cpu, offerings=both) for name, price, cpu in sizes]
    first = pod("first", cpu="3", priority=CRITICAL_PRIORITY, metadata={"labels": {"app": "first"}})
    followers = pods(2, "follower", cpu="1500m", spec=company)
    spending = view(2.4, recovery_percent=25)
    alone = decided(first, spending=spending, types=types)
    assert [claim.labels.get(ZONE) for claim in alone.node_claims] == [None], "nobody follows: any zone will do"
    made = decided(first, *followers, spending=spending, types=types)
    assert "first" in served(made)
    assert len(served(made)) == 2
    of_first = next(claim for claim in made.node_claims if claim.pods[0].name == "first")
    assert of_first.labels[ZONE] == of_first.launch.zone
    assert all(entry.message.startswith(CEILING_REACHED) for entry in made.unschedulable)


def test_a_spread_is_level_over_the_nodes_that_a_ceiling_lets_pass() -> None:
    """The nodes of one zone cost more than the ceiling leaves; without its pods the other zone may hold one more."""
    prices = [
        replace(TYPES[0], offerings=tuple(Offering(zone, "on-demand", price) for zone, price in ((Z1, 1.0), (Z2, 3.0))))
    ]
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    web = pods(4, "web", cpu="3", metadata={"labels": {"app": "web"}}, spec={"topologySpreadConstraints": [spread]})
    made = decided(*web, spending=view(2.5), types=prices)
    assert [claim.launch.zone for claim in made.node_claims] == [Z1]
    assert len(made.unschedulable) == 3
