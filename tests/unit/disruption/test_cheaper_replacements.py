"""Tests the parts of consolidation: replacements that save money, nodes that go together, a command's worth."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import (
    MOST_NODES,
    SINGLES,
    SPOT_TYPES,
    ConsolidationResult,
    Consolidator,
    NotWorthwhile,
    PoolTotals,
    batches_of,
    components_of,
    merged_proposals,
    restrict_to_cheaper,
    within_budgets,
)
from shiplap.disruption.current_prices import PoolMarket
from shiplap.disruption.disruption_snapshot import DisruptionSettings, NodeHistory
from shiplap.disruption.move_costs import MoveCosts
from shiplap.disruption.rescheduling import Relocation, Simulator
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Placement, PlannedClaim
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.removal import NodeToWeigh, RemovalPart
from tests.builders.claims import planned_claim as claim
from tests.builders.claims import references
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance.disruptions import NOW, standing
from tests.thoroughness import draws

NO_PACKING: Packing = None  # type: ignore[assignment] # nothing goes on from these relocations


def no_pool(_: Sequence[RemovalPart]) -> frozenset[str]:
    """No limit makes parts of a relocation depend on each other."""
    return frozenset()


class Shelf(PoolMarket, frozen=True):
    """Offerings by type, as a launch may get them: cheapest first."""

    offers: Mapping[str, tuple[Offering, ...]] = {}

    def buyable(self, pool: str, name: str, wanted: Requirements) -> tuple[Offering, ...]:
        return self.offers.get(name, ())


def sold(**prices: float | Sequence[float]) -> Shelf:
    """On-demand types in as many zones as they have prices."""
    return shelf("on-demand", prices)


def spot(**prices: float | Sequence[float]) -> Shelf:
    return shelf("spot", prices)


def shelf(kind: str, prices: Mapping[str, float | Sequence[float]]) -> Shelf:
    offers = {
        name: tuple(
            Offering(f"z{place}", kind, price, reservation_id=f"cr-{name}" if kind == "reserved" else "")
            for place, price in enumerate([some] if isinstance(some, float) else some)
        )
        for name, some in prices.items()
    }
    return Shelf({}, offers=offers)


def going(
    name: str,
    price: float = 1.0,
    kind: str = "on-demand",
    of_type: str = "old",
    pool_name: str = "default",
    zone: str = "z",
) -> Candidate:
    node = standing(name, of_type, capacity_type=kind, pool=pool_name, zone=zone)
    assert node.claim is not None
    return Candidate(node.node, node.claim, pool(pool_name), NodeHistory(name), (), price, 1.0)


def cheaper(
    market: Shelf, *claims: PlannedClaim, of: Sequence[Candidate], spot_to_spot: bool = True
) -> tuple[PlannedClaim, ...]:
    return restrict_to_cheaper(claims, of, market, spot_to_spot=spot_to_spot)


def test_a_replacement_may_become_only_types_that_cost_less_than_the_node_wherever_they_are_bought() -> None:
    market = sold(a=0.4, same=1.0, far=(0.5, 1.2), near=(0.5, 0.9))
    (found,) = cheaper(
        market, claim("a", "same", "far", "near", relies_on_estimate=("a", "same")), of=[going("n", 1.0)]
    )
    assert found.instance_types == ("a", "near")
    assert found.launch == LaunchChoice("a", "z0", "on-demand", 0.4)
    assert found.relies_on_estimate == ("a",)


def test_the_cheapest_type_is_launched_and_of_two_at_a_price_the_one_that_is_listed_first() -> None:
    (found,) = cheaper(sold(dear=0.9, b=0.3, a=0.3), claim("dear", "b", "a"), of=[going("n", 1.0)])
    assert (found.instance_types, found.launch.instance_type) == (("dear", "b", "a"), "b")


@pytest.mark.parametrize("price", [1.0, 1.0 + 1e-12, 1.1])
def test_what_costs_as_much_as_the_node_replaces_none(price: float) -> None:
    with pytest.raises(NotWorthwhile, match="can't replace with a cheaper node"):
        cheaper(sold(a=price), claim("a"), of=[going("n", 1.0)])
    with pytest.raises(NotWorthwhile, match="can't replace with a cheaper node"):
        cheaper(sold(), claim("a"), of=[going("n", 1.0)])


def test_what_two_nodes_cost_is_shared_between_their_replacements_by_price() -> None:
    """2 USD are paid, 0.8 is the least: each replacement may cost up to 2.5 times its cheapest type."""
    market = sold(a=0.2, a1=0.49, a2=0.51, b=0.6, b1=1.49, b2=1.51)
    found = cheaper(market, claim("a", "a1", "a2"), claim("b", "b1", "b2"), of=[going("m"), going("n")])
    assert [item.instance_types for item in found] == [("a", "a1"), ("b", "b1")]


def test_several_nodes_do_not_become_one_of_the_type_of_the_cheapest_of_them_or_dearer() -> None:
    market = sold(tiny=0.2, old=0.5, big=0.8)
    removed = [going("m", 0.9, of_type="big"), going("n", 0.5, of_type="old")]
    (found,) = cheaper(market, claim("tiny", "old", "big"), of=removed)
    assert found.instance_types == ("tiny",)
    both = cheaper(market, claim("tiny", "old"), claim("tiny", name="other"), of=removed)
    assert both[0].instance_types == ("tiny", "old"), "two for two is no such case"
    (one,) = cheaper(market, claim("tiny", "old"), of=[going("m", 0.9, of_type="old")])
    assert one.instance_types == ("tiny", "old")


def test_where_spot_is_sold_on_demand_is_no_replacement() -> None:
    market = Shelf({}, offers={**sold(a=0.2).offers, **spot(s=0.5).offers})
    (found,) = cheaper(market, claim("a", "s"), of=[going("n", 1.0)])
    assert found.instance_types == ("s",)


def many(count: int, first: float = 0.1) -> dict[str, float]:
    return {f"t{number:02}": first + number / 1000 for number in range(count)}


def test_one_spot_node_needs_many_cheaper_types_and_gets_the_cheapest_of_them() -> None:
    prices = many(SPOT_TYPES + 3)
    types = sorted(prices, reverse=True)
    (found,) = cheaper(spot(**prices), claim(*types), of=[going("n", kind="spot")])
    assert sorted(found.instance_types) == sorted(prices)[:SPOT_TYPES]
    (least,) = cheaper(spot(**many(SPOT_TYPES)), claim(*many(SPOT_TYPES)), of=[going("n", kind="spot")])
    assert len(least.instance_types) == SPOT_TYPES == 15
    with pytest.raises(NotWorthwhile, match="requires 15 cheaper instance type options, got 14"):
        cheaper(spot(**many(14)), claim(*many(14)), of=[going("n", kind="spot")])


def test_a_claim_that_wants_more_types_than_that_keeps_them() -> None:
    prices = many(SPOT_TYPES + 5)
    rules = [RequirementSpec("x", "Exists"), RequirementSpec(labels.INSTANCE_TYPE, "Exists", min_values=SPOT_TYPES + 2)]
    (found,) = cheaper(spot(**prices), claim(*prices, requirements=rules), of=[going("n", kind="spot")])
    assert len(found.instance_types) == SPOT_TYPES + 2


@pytest.mark.parametrize("kinds", [("spot", "spot"), ("spot", "on-demand"), ("on-demand",)])
def test_only_one_spot_node_alone_needs_many_types(kinds: tuple[str, ...]) -> None:
    removed = [going(f"n{place}", kind=kind) for place, kind in enumerate(kinds)]
    (found,) = cheaper(spot(s=0.2), claim("s"), of=removed)
    assert found.launch.capacity_type == "spot"


def test_spot_for_spot_may_be_forbidden_and_then_only_that_is() -> None:
    with pytest.raises(NotWorthwhile, match="spot nodes are not replaced"):
        cheaper(spot(s=0.2), claim("s"), of=[going("m", kind="spot"), going("n", kind="spot")], spot_to_spot=False)
    mixed = [going("m", kind="spot"), going("n")]
    assert cheaper(spot(s=0.2), claim("s"), of=mixed, spot_to_spot=False)
    assert cheaper(sold(a=0.2), claim("a"), of=[going("m", kind="spot")], spot_to_spot=False)


def test_a_claim_says_which_types_and_capacity_it_may_still_become() -> None:
    rules = [
        RequirementSpec(labels.INSTANCE_TYPE, "Exists"),
        RequirementSpec(labels.CAPACITY_TYPE, "In", ("on-demand", "spot")),
        RequirementSpec(labels.ARCH, "In", ("amd64",)),
    ]
    (found,) = cheaper(sold(b=0.5, a=0.4, c=2.0), claim("b", "a", "c", requirements=rules), of=[going("n")])
    assert found.requirements == (
        RequirementSpec(labels.INSTANCE_TYPE, "In", ("a", "b")),
        RequirementSpec(labels.CAPACITY_TYPE, "In", ("on-demand",)),
        rules[2],
    )


def test_a_replacement_in_a_reservation_names_it() -> None:
    (found,) = cheaper(shelf("reserved", {"r": 0.0001}), claim("r"), of=[going("n")])
    assert found.launch == LaunchChoice("r", "z0", "reserved", 0.0001, "cr-r")


@pytest.mark.parametrize(("wanted", "allowed"), [(2, True), (3, False)])
def test_a_saving_does_not_break_the_least_number_of_types(wanted: int, *, allowed: bool) -> None:
    rules = [RequirementSpec(labels.INSTANCE_TYPE, "Exists", min_values=wanted)]
    market, planned = sold(a=0.4, b=0.5, c=2.0), claim("a", "b", "c", requirements=rules)
    if allowed:
        assert cheaper(market, planned, of=[going("n")])[0].instance_types == ("a", "b")
    else:
        with pytest.raises(NotWorthwhile, match="leaves 2 instance types, minValues is 3"):
            cheaper(market, planned, of=[going("n")])
    other = [RequirementSpec(labels.ARCH, "Exists", min_values=wanted)]
    assert cheaper(market, claim("a", "b", "c", requirements=other), of=[going("n")])


def test_what_costs_nothing_saves_all() -> None:
    (found,) = cheaper(sold(free=0.0, a=0.9, b=1.0), claim("free", "a", "b"), of=[going("n", 1.0)])
    assert found.instance_types == ("free", "a")


def test_nodes_whose_pods_share_a_replacement_go_together_and_the_others_alone() -> None:
    removed = [going(name) for name in ("e", "d", "c", "b", "a", "stuck")]
    planned = (claim("t", name="one"), claim("t", name="two"), claim("t", name="none"), claim("t", name="solo"))
    relocation = Relocation(
        planned,
        (frozenset("ac"), frozenset("ce"), frozenset({"stuck"}), frozenset({"d", "stuck"})),
        {
            "a": {"y": references("a2", "a1"), "x": references("a0")},
            "e": {"y": references("e1")},
            "b": {"x": references("b1")},
            "stuck": {"x": references("s1")},
        },
        {"stuck": "a pod of it has no place"},
        NO_PACKING,
        no_pool,
    )
    found = components_of(relocation, removed)
    assert [[node.name for node in part.nodes] for part in found] == [["a", "c", "e"], ["b"], ["d"]]
    assert [[item.name for item in part.claims] for part in found] == [["one", "two"], [], ["solo"]]
    assert [part.placements for part in found] == [
        (Placement("x", references("a0")), Placement("y", references("a1", "a2", "e1"))),
        (Placement("x", references("b1")),),
        (),
    ]
    assert [part.paid for part in found] == [3.0, 1.0, 1.0]


def test_parts_that_a_limit_makes_depend_on_each_other_are_one() -> None:
    """A claim of pool p fits into its limit only without a node of it that goes for another claim, of pool q."""
    removed = [
        going("a", pool_name="q"),
        going("b", pool_name="p"),
        going("c", pool_name="q"),
        going("d", pool_name="r"),
    ]
    first = structs.replace(claim("t", name="one"), node_pool="p")
    second = structs.replace(claim("t", name="two"), node_pool="q")
    asked: list[list[list[str]]] = []

    def join(parts: Sequence[RemovalPart]) -> frozenset[str]:
        asked.append([list(names) for names, _ in parts])
        return frozenset({"p"})

    relocation = Relocation(
        (first, second),
        (frozenset("c"), frozenset("b")),
        {"b": {"x": references("b1")}, "c": {"x": references("c1")}},
        {},
        NO_PACKING,
        join,
    )
    found = components_of(relocation, removed)
    assert asked == [[["a"], ["b"], ["c"], ["d"]]]
    assert [[node.name for node in part.nodes] for part in found] == [["a"], ["b", "c"], ["d"]]
    assert [item.name for item in found[1].claims] == ["two", "one"]
    assert found[1].placements == (Placement("x", references("b1", "c1")),)
    assert found[1].pools == {"p", "q"}


def proposal(
    *nodes: str, saved: float = 0.1, replacements: Sequence[PlannedClaim] = (), placements: Sequence[Placement] = ()
) -> DisruptionProposal:
    return DisruptionProposal(
        Reason.UNDERUTILIZED,
        Method.CONSOLIDATION,
        nodes,
        tuple(replacements),
        tuple(placements),
        saved,
        len(nodes),
        "words",
    )


def test_commands_without_replacements_become_one_that_says_what_all_of_them_do() -> None:
    with_claim = proposal("m", replacements=[claim("t")])
    first = proposal("z", placements=[Placement("x", references("z2")), Placement("y", references("z1"))])
    second = proposal("a", "b", saved=0.25, placements=[Placement("x", references("a1"))])
    merged, kept = merged_proposals([first, with_claim, second])
    assert kept == with_claim
    assert merged == DisruptionProposal(
        Reason.UNDERUTILIZED,
        Method.CONSOLIDATION,
        ("a", "b", "z"),
        (),
        (Placement("x", references("a1", "z2")), Placement("y", references("z1"))),
        0.35,
        3,
        "3 of $0.3500 an hour become 0",
    )


def test_commands_that_fill_one_exactly_are_one() -> None:
    halves = [proposal(*(f"{letter}{number:02}" for number in range(MOST_NODES // 2))) for letter in "ab"]
    assert [len(item.nodes) for item in merged_proposals(halves)] == [MOST_NODES]
    assert [len(item.nodes) for item in merged_proposals([*halves, proposal("c")])] == [MOST_NODES, 1]


def test_of_each_pool_as_many_nodes_are_tried_as_its_budget_allows_the_first_first() -> None:
    names = [("a", "p"), ("b", "q"), ("c", "p"), ("d", "q"), ("e", "p"), ("f", "r"), ("g", "s")]
    ordered = [going(name, pool_name=of_pool) for name, of_pool in names]
    assert [item.name for item in within_budgets(ordered, {"p": 2, "q": 5, "r": 0})] == ["a", "b", "c", "d"]


def test_a_large_rebuild_is_cut_into_equal_parts_by_pool_and_zone() -> None:
    places = [("q", "z1"), ("p", "z2"), ("p", "z1")] * (MOST_NODES // 3)
    nodes = [going(f"n{number:03}", pool_name=of_pool, zone=zone) for number, (of_pool, zone) in enumerate(places)]
    assert [len(batch) for batch in batches_of(nodes)] == [MOST_NODES]
    batches = batches_of([*nodes, going("last", pool_name="p", zone="z1")])
    assert [len(batch) for batch in batches] == [12, 13]
    zones = [(item.pool.metadata.name, item.node.metadata.labels[labels.ZONE]) for batch in batches for item in batch]
    assert zones == sorted(zones)
    assert [len(batch) for batch in batches_of(nodes * 2)] == [MOST_NODES] * 2


LEAST_HOURLY = 0.05
"""The price of the cheapest type in tests that have claims for replacements."""


class Rehearsal(Simulator):
    """Answers with prepared relocations: of every node all pods find room, unless it is stuck or needs a claim."""

    def __init__(self, *, stuck: Collection[str] = (), claims: Mapping[str, PlannedClaim] | None = None) -> None:
        self.asked: list[tuple[tuple[str, ...], tuple[str, ...], float]] = []
        self.followed = 0
        self.can_follow = True
        self.room: dict[str, float] = {}
        self.stuck, self._claims = stuck, claims or {}

    def without(self, removed: Sequence[str], moving: Sequence[str], *, improve_s: float) -> Relocation:
        self.asked.append((tuple(removed), tuple(moving), improve_s))
        planned = [(self._claims[name], frozenset({name})) for name in moving if name in self._claims]
        stuck = {name: f"{name} is stuck" for name in moving if name in self.stuck}
        return Relocation(
            tuple(claim for claim, _ in planned), tuple(served for _, served in planned), {}, stuck, NO_PACKING, no_pool
        )

    def room_values(self, nodes: Sequence[NodeToWeigh]) -> dict[str, float]:
        return {node.name: self.room.get(node.name, 0.0) for node in nodes}

    def least_hourly(self, removed: Collection[str]) -> float:
        return LEAST_HOURLY * sum(name in self._claims for name in removed)

    def follow(self, relocation: Relocation) -> bool:
        self.followed += 1
        return self.can_follow


def searched(
    candidates: Sequence[Candidate],
    rehearsal: Rehearsal | None = None,
    *,
    market: Shelf | None = None,
    totals: Mapping[str, PoolTotals] | None = None,
    allowed: int = 1000,
    **settings: float,
) -> ConsolidationResult:
    chosen = DisruptionSettings(**{"move_cost": 0.0, "improve_s": 1.0} | settings)
    search = Consolidator(rehearsal or Rehearsal(), market or sold(), totals or {}, chosen, MoveCosts(chosen, {}, NOW))
    return search.search(candidates, {"default": allowed})


def removed_by(result: ConsolidationResult) -> list[str]:
    return sorted(name for proposal in result.proposals for name in proposal.nodes)


def test_nodes_go_whose_price_is_high_for_what_their_room_is_worth_unless_the_dearest_gain_more() -> None:
    nodes = [going(f"n{place}", 1.0 + place / 10) for place in range(4)]
    tries = Rehearsal()
    tries.room = {"n2": 1.0, "n3": 1.0}
    assert removed_by(searched(nodes, tries, allowed=2)) == ["n2", "n3"]
    assert [removed for removed, _, _ in tries.asked][-1] == ("n3", "n2")
    assert ("n1", "n0") in [removed for removed, _, _ in tries.asked]
    tries.stuck = ["n2"]
    assert removed_by(searched(nodes, tries, allowed=2)) == ["n0", "n1"]


def with_cost(candidate: Candidate, cost: float, policy: str = "WhenEmptyOrUnderutilized") -> Candidate:
    return structs.replace(candidate, cost=cost, pool=pool(candidate.pool.metadata.name, policy=policy))


def with_pods(candidate: Candidate, number: int) -> Candidate:
    pods = tuple(pod_on(f"{candidate.name}-{place}", candidate.name) for place in range(number))
    return structs.replace(with_cost(candidate, 1.0 + number), pods=pods)


def unbounded(*_: object) -> bool:
    """As if nothing were known of what nodes gain at most: everything is tried."""
    return True


@settings(derandomize=True, deadline=None, max_examples=draws(40))
@given(data=st.data(), number=st.integers(1, SINGLES + 8), allowed=st.integers(1, 30))
def test_what_cannot_gain_more_is_not_tried_and_the_same_is_decided(
    data: st.DataObject, number: int, allowed: int
) -> None:
    def drawn(values: Sequence[float]) -> float:
        return data.draw(st.sampled_from(values))

    kinds = ("on-demand", "on-demand", "reserved")
    nodes = [
        structs.replace(
            with_pods(going(f"n{place:02}", drawn((0.1, 0.4, 1.0)), str(drawn(kinds))), data.draw(st.integers(0, 3))),  # type: ignore[arg-type]
            cost=drawn((1.0, 1.5, 4.0, 9.0)),
        )
        for place in range(number)
    ]
    claims = {node.name: claim(str(drawn(("a", "b")))) for node in nodes if drawn((0, 0, 1))}  # type: ignore[arg-type]
    stuck = [node.name for node in nodes if drawn((0, 0, 1))]

    def decided(tries: Rehearsal) -> list[DisruptionProposal]:
        market = sold(a=LEAST_HOURLY, b=0.35)
        return list(searched(nodes, tries, market=market, allowed=allowed, move_cost=1.0).proposals)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consolidator, "_may_gain_more", unbounded)
        everything = Rehearsal(stuck=stuck, claims=claims)
        expected = decided(everything)
    fewer = Rehearsal(stuck=stuck, claims=claims)
    assert decided(fewer) == expected
    assert len(fewer.asked) <= len(everything.asked)
    told_apart = {(frozenset(moving), effort > 0) for _, moving, effort in fewer.asked}
    assert len(told_apart) == len(fewer.asked), "nothing is asked twice"


def test_where_one_node_may_go_a_bad_first_one_hides_no_good_one() -> None:
    nodes = [going("a", 3.0), going("b", 2.0), going("c", 1.0)]
    assert removed_by(searched(nodes, Rehearsal(stuck=["a"]), allowed=1)) == ["b"]
    assert removed_by(searched(nodes, Rehearsal(stuck=["a"]), allowed=0)) == []


def test_a_node_whose_moves_cost_more_than_it_does_is_not_tried() -> None:
    rehearsal = Rehearsal()
    result = searched([with_pods(going("a", 0.1), 2)], rehearsal, move_cost=2.4)
    assert (rehearsal.asked, result.proposals) == ([], ())
    assert result.refused == {"a": "would save $0.1000 an hour at most, less than $0.2000 for moving 2 pods"}


def test_a_node_whose_replacement_is_sure_to_cost_as_much_is_not_tried() -> None:
    rehearsal = Rehearsal(claims={"a": claim("a")})
    result = searched([going("a", LEAST_HOURLY)], rehearsal, market=sold(a=LEAST_HOURLY))
    assert (rehearsal.asked, result.refused) == ([], {"a": "can't replace with a cheaper node"})


def test_a_node_whose_replacement_is_sure_to_leave_too_small_a_saving_is_not_tried() -> None:
    rehearsal = Rehearsal(claims={"a": claim("a")})
    result = searched([with_pods(going("a", 0.1), 2)], rehearsal, market=sold(a=LEAST_HOURLY), move_cost=0.72)
    assert rehearsal.asked == []
    assert result.refused == {"a": "would save $0.0500 an hour at most, less than $0.0602 for moving 2 pods"}


def test_nodes_whose_replacements_are_sure_to_cost_too_much_together_are_not_tried() -> None:
    """Each alone is sure to cost as much as it does, and so are both."""
    rehearsal = Rehearsal(claims={"a": claim("a"), "b": claim("b")})
    nodes = [going("a", LEAST_HOURLY), going("b", LEAST_HOURLY)]
    result = searched(nodes, rehearsal, market=sold(a=LEAST_HOURLY, b=LEAST_HOURLY))
    assert (rehearsal.asked, set(result.refused.values())) == ([], {"can't replace with a cheaper node"})


@pytest.mark.parametrize(("price", "tried"), [(0.99, False), (0.89, True)])
def test_a_replacement_that_is_sure_to_save_less_than_its_share_is_not_tried(
    price: float, monkeypatch: pytest.MonkeyPatch, *, tried: bool
) -> None:
    monkeypatch.setattr(Rehearsal, "least_hourly", lambda *_: price)
    rehearsal = Rehearsal(claims={"a": claim("t")})
    result = searched([going("a")], rehearsal, market=sold(t=price), least_saving_share=0.1)
    assert (bool(rehearsal.asked), removed_by(result) == ["a"]) == (tried, tried)
    assert tried or result.refused == {"a": "replacing $1.0000 an hour would save $0.0100 at most, less than 10%"}


def test_nodes_that_cannot_go_say_why_and_the_others_go() -> None:
    result = searched([going("a"), going("b"), going("c")], Rehearsal(stuck=["b"]))
    assert removed_by(result) == ["a", "c"]
    assert result.refused == {"b": "b is stuck"}


def test_a_node_that_is_refused_in_one_trial_and_goes_in_another_is_not_reported() -> None:
    """Alone it would have to become a dearer node; with its neighbour it becomes none."""
    rehearsal = Rehearsal()
    alone = rehearsal.without

    def without(removed: Sequence[str], moving: Sequence[str], *, improve_s: float) -> Relocation:
        rehearsal._claims = {"a": claim("dear")} if tuple(moving) == ("a",) else {}
        return alone(removed, moving, improve_s=improve_s)

    rehearsal.without = without  # type: ignore[method-assign]
    result = searched([going("a", 1.0), going("b", 0.9)], rehearsal, market=sold(dear=3.0))
    assert (removed_by(result), result.refused) == (["a", "b"], {})


def test_what_moves_and_overlaps_cost_is_taken_from_what_is_saved() -> None:
    """Two nodes of 1.00 USD/h: one has a pod whose move costs 1.20 USD, 0.05 USD/h of a day."""
    one = with_pods(going("a", 1.0), 1)
    asked: list[float] = []
    original = Consolidator._gain

    def gain(self: Consolidator, proposals: Sequence[DisruptionProposal]) -> float:
        asked.append(original(self, proposals))
        return asked[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consolidator, "_gain", gain)
        searched([one], move_cost=1.2)
        searched([going("b", 1.0)], Rehearsal(claims={"b": claim("t")}), market=sold(t=0.4))
        searched([going("r", 0.001, kind="reserved")])
    day = 24 * 3600
    assert asked[0] == pytest.approx(1.0 - 1.2 / 24)
    assert asked[1] == pytest.approx(0.6 - 0.4 * 300 / day)
    assert asked[2] == 1e-6, "the price of a reserved node is paid in any case"


def test_the_dearest_per_disruption_is_tried_first_and_names_break_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consolidator, "_may_gain_more", unbounded)
    nodes = [going("d", 1.0), going("c", 2.0), going("b", 1.0), with_cost(going("a", 3.0), 6.0)]
    rehearsal = Rehearsal()
    searched(nodes, rehearsal)
    assert [moving for _, moving, _ in rehearsal.asked[:4]] == [
        ("c",),
        ("c", "b"),
        ("c", "b", "d"),
        ("c", "b", "d", "a"),
    ]
    assert {moving for _, moving, _ in rehearsal.asked[4:]} == {("b",), ("d",), ("a",)}


def costing(price: float) -> PlannedClaim:
    """A claim that is planned at so many USD per hour."""
    return structs.replace(claim("t"), launch=LaunchChoice("t", "z0", "on-demand", price))


def test_a_third_of_the_effort_chooses_nodes_in_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consolidator, "_may_gain_more", unbounded)
    rehearsal = Rehearsal(claims={"a": costing(0.5), "b": costing(0.5)})
    searched([going("a"), going("b")], rehearsal, market=sold(t=0.5), improve_s=3.0)
    assert [effort for *_, effort in rehearsal.asked] == [0.0, pytest.approx(3.0 * 0.3 / 3)] * 3


@pytest.mark.parametrize(
    ("price", "replacement", "searches"),
    [(1.0, 0.5, True), (1.0, 1.2, True), (1.0, 1.28, True), (1.0, 1.29, False), (0.1, 0.14, True), (0.1, 0.15, False)],
)
def test_few_nodes_are_searched_for_only_where_cheaper_claims_could_let_them_go(
    monkeypatch: pytest.MonkeyPatch, price: float, replacement: float, searches: bool
) -> None:
    """At 2.40 USD a day for each move, a node of 1.0 USD an hour has to save 0.1."""
    monkeypatch.setattr(Consolidator, "_may_gain_more", unbounded)
    node = with_pods(going("a", price), 1 if price == 1.0 else 0)
    rehearsal = Rehearsal(claims={"a": costing(replacement)})
    searched([node], rehearsal, market=sold(t=replacement), move_cost=2.4)
    assert [effort > 0 for *_, effort in rehearsal.asked] == ([False, True] if searches else [False])


def test_nodes_whose_pods_all_find_room_need_no_search_and_many_nodes_always_have_one() -> None:
    rehearsal = Rehearsal()
    searched(numbers(2), rehearsal)
    assert {effort for *_, effort in rehearsal.asked} == {0.0}
    rehearsal = Rehearsal()
    searched(numbers(40), rehearsal)
    assert {effort > 0 for _, moving, effort in rehearsal.asked if len(moving) > 6} == {True}


def test_nodes_in_reservations_always_have_a_search() -> None:
    """Their prices are nominal, and say nothing of whether cheaper claims could let them go."""
    rehearsal = Rehearsal(claims={"a": costing(0.001)})
    searched([going("a", 0.001, kind="reserved")], rehearsal, market=sold(t=0.001), move_cost=2.4)
    assert {effort > 0 for *_, effort in rehearsal.asked} == {True}


def test_nodes_that_were_refused_alone_are_not_tried_with_others_that_cannot_gain() -> None:
    """Claims cost 0.05 USD an hour at least: the first node might save 0.02, the second nothing, both nothing."""
    rehearsal = Rehearsal(claims={"a": costing(0.08), "b": costing(0.08)})
    result = searched([going("a", 0.07), going("b", 0.02)], rehearsal, market=sold(t=0.08))
    assert {moving for _, moving, _ in rehearsal.asked} == {("a",)}
    assert set(result.refused) == {"a", "b"}


def test_when_ever_more_nodes_gain_no_more_no_larger_prefix_is_tried() -> None:
    """Of 128 nodes the first 32 can go: neither 64 nor 96 gain more, and all of them are not tried."""
    nodes = [going(f"n{place:03d}") for place in range(128)]
    rehearsal = Rehearsal(stuck={node.name for node in nodes[32:]})
    result = searched(nodes, rehearsal)
    assert removed_by(result) == [node.name for node in nodes[:32]]
    assert max(len(moving) for _, moving, _ in rehearsal.asked) == 96


def test_a_prefix_that_gains_nothing_hides_no_larger_one_that_does() -> None:
    nodes = [going(f"n{place:03d}") for place in range(128)]
    rehearsal = Rehearsal(stuck={node.name for node in nodes[:100]})
    assert removed_by(searched(nodes, rehearsal)) == [node.name for node in nodes[100:]]


def test_of_a_budget_no_more_nodes_are_tried() -> None:
    assert removed_by(searched([going("a"), going("b"), going("c", 2.0)], allowed=2)) == ["a", "c"]


def joint(names: Sequence[str]) -> Rehearsal:
    """All nodes share one replacement."""
    rehearsal = Rehearsal()

    def without(removed: Sequence[str], moving: Sequence[str], *, improve_s: float) -> Relocation:
        rehearsal.asked.append((tuple(removed), tuple(moving), improve_s))
        return Relocation((claim("t"),), (frozenset(moving),), {}, {}, NO_PACKING, no_pool)

    rehearsal.without = without  # type: ignore[method-assign]
    return rehearsal


def numbers(count: int) -> list[Candidate]:
    return [going(f"n{number:03}", 1.0 + (count - number) / 1e6) for number in range(count)]


def test_what_is_too_large_for_one_command_goes_in_parts_that_each_leave_room_for_the_next() -> None:
    nodes = numbers(MOST_NODES + 8)
    rehearsal = joint([])
    result = searched(nodes, rehearsal, market=sold(t=0.01), improve_s=8.0)
    assert [len(proposal.nodes) for proposal in result.proposals] == [16, 16]
    assert removed_by(result) == [item.name for item in nodes]
    every = {item.name for item in nodes}
    batches = [
        (moving, effort) for removed, moving, effort in rehearsal.asked if set(removed) == every and len(moving) == 16
    ]
    assert [effort for _, effort in batches] == [pytest.approx(8.0 * 0.7 / 2)] * 2
    assert rehearsal.followed == 2


def test_where_the_next_part_cannot_be_computed_the_first_one_stands_alone() -> None:
    rehearsal = joint([])
    rehearsal.can_follow = False
    result = searched(numbers(MOST_NODES + 8), rehearsal, market=sold(t=0.01))
    assert [len(proposal.nodes) for proposal in result.proposals] == [16]
    assert rehearsal.followed == 1


def test_what_fits_into_one_command_is_one() -> None:
    result = searched(numbers(MOST_NODES), joint([]), market=sold(t=0.01))
    assert [len(proposal.nodes) for proposal in result.proposals] == [MOST_NODES]


def test_of_very_many_nodes_large_prefixes_are_compared_without_a_search() -> None:
    rehearsal = Rehearsal(stuck=[f"n{number:03}" for number in range(513)])
    searched(numbers(513), rehearsal, improve_s=1.0)
    efforts = {len(moving): effort for _, moving, effort in rehearsal.asked}
    assert efforts[513] == 0.0
    assert efforts[512] > 0.0


@pytest.mark.parametrize(("saving", "share", "moves"), [(0.25, 0.25, True), (0.25, 0.26, False), (0.25, 0.0, True)])
def test_a_replacement_has_to_save_its_share_and_a_removal_anything(saving: float, share: float, moves: bool) -> None:
    rehearsal = Rehearsal(claims={"a": claim("t")})
    result = searched([going("a")], rehearsal, market=sold(t=1.0 - saving), least_saving_share=share)
    assert (removed_by(result) == ["a"]) is moves
    assert removed_by(searched([going("a")], least_saving_share=0.99)) == ["a"]


def test_a_node_that_saves_nothing_stays_unless_it_is_reserved() -> None:
    assert "would save $0.0000" in searched([going("a", 0.0)]).refused["a"]
    assert removed_by(searched([going("a", 0.0001, kind="reserved")], move_cost=100.0)) == ["a"]


@pytest.mark.parametrize(
    ("price", "cost", "goes"),
    [(1.0, 2.0, True), (1.0, 2.01, False), (1.01, 2.0, True), (0.99, 2.0, False)],
    ids=["as much as it wants", "more disruption", "more saving", "less saving"],
)
def test_balanced_wants_half_as_much_saved_as_disrupted(price: float, cost: float, goes: bool) -> None:
    """Of 10 USD/h and a disruption of 10: 1 USD/h is a tenth of the cost, 2 a fifth of the disruption."""
    node = with_cost(going("a", price), cost, "Balanced")
    result = searched([node], totals={"default": PoolTotals(10.0, 10.0)})
    assert (removed_by(result) == ["a"]) is goes
    assert removed_by(searched([with_cost(node, cost)], totals={"default": PoolTotals(10.0, 10.0)})) == ["a"]


def test_each_balanced_pool_of_a_command_is_weighed_by_its_own_part() -> None:
    """Both pools save half of 2 USD/h: 1 of 4 in the first; 1 of 20 in the second, where it is too little."""
    shared = joint([])
    first, second = (
        with_cost(going(name, 1.1, pool_name=of_pool), 2.0, "Balanced") for name, of_pool in (("a", "p"), ("b", "q"))
    )

    def result(of_q: float) -> ConsolidationResult:
        chosen = DisruptionSettings(move_cost=0.0)
        totals = {"p": PoolTotals(4.0, 10.0), "q": PoolTotals(of_q, 10.0)}
        search = Consolidator(shared, sold(t=0.2), totals, chosen, MoveCosts(chosen, {}, NOW))
        return search.search([first, second], {"p": 1, "q": 1})

    assert removed_by(result(9.9)) == ["a", "b"]
    assert "NodePool q" in result(10.1).refused["b"]


@pytest.mark.parametrize(
    ("policies", "goes"), [(("a", "Balanced"), False), (("Balanced", "a"), False), (("a", "a"), True)]
)
def test_a_pool_that_does_not_balance_speaks_for_no_other(policies: tuple[str, str], goes: bool) -> None:
    """Nodes of two pools go together; one that must be balanced would be disturbed for next to nothing."""
    known = {"a": "WhenEmptyOrUnderutilized"}
    nodes = [
        with_cost(going(name, 1.0, pool_name=of_pool), 5.0, known.get(policy, policy))
        for name, of_pool, policy in zip("ab", "pq", policies, strict=True)
    ]
    chosen = DisruptionSettings(move_cost=0.0)
    totals = {name: PoolTotals(100.0, 10.0) for name in "pq"}
    search = Consolidator(joint([]), sold(t=0.2), totals, chosen, MoveCosts(chosen, {}, NOW))
    assert (removed_by(search.search(nodes, {"p": 1, "q": 1})) == ["a", "b"]) is goes
