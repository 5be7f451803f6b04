"""Laws of plans on clusters in which options meet, and whether the laws, the draw and the runner can be trusted."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.errors import InvalidInput
from shiplap.scheduling.model.snapshot import Snapshot
from tests.combinations import command_laws, disruption_laws, drawn_clusters, played_laws
from tests.combinations.carrying_out import after_command, carried_out
from tests.combinations.drawn_clusters import COVERING, OPTIONS, Coverage, drawn, options_drawn, with_options
from tests.combinations.every_law import EVERY_LAW
from tests.combinations.laws import Decided, Law, the_same, the_same_but_ties
from tests.combinations.played_laws import BrokenLaw, Portion, Suite, Tally, play, portions, resumed
from tests.combinations.shrunk_clusters import Shrinking
from tests.conformance.catalogues import Z1
from tests.rules import ZONE
from tests.thoroughness import THOROUGH

SEED = 20261128
COUNT, LAWS_AT_ONCE = (300 if THOROUGH else 150), 5


def test_every_law_holds() -> None:
    """One test for all laws: several processes of tests would draw the same clusters again."""
    tally = Tally()
    for numbers in portions(COUNT):
        tally.add(play(Suite.PLANS, SEED, LAWS_AT_ONCE, numbers))
    known = {law.name for law in EVERY_LAW if law.known}
    assert [item for item in tally.broken if item.law not in known] == []
    assert tally.set_aside == []
    assert tally.coverage.clusters == COUNT
    seldom = [law.name for law in EVERY_LAW if tally.played[law.name] < COUNT * LAWS_AT_ONCE // len(EVERY_LAW) // 3]
    assert seldom == [], "too few clusters to say anything"


def test_a_known_defect_still_breaks_its_law() -> None:
    """If this fails, the defect has been mended: remove its mark from the law."""
    for law in EVERY_LAW:
        if law.known is not None:
            cluster = drawn(law.known.seed, law.known.number)
            assert law.broken_by(Decided(cluster.snapshot), cluster.rng(law.name)), law.known


ROOMY_LIMIT, ROOMY_CEILING = (f"a {what} with room to spare changes nothing" for what in ("limit", "ceiling"))


@pytest.mark.parametrize(
    ("name", "seed", "number"),
    [
        (ROOMY_LIMIT, 20261128, 16),
        (ROOMY_LIMIT, 0, 468),
        (ROOMY_LIMIT, 0, 494),
        (ROOMY_CEILING, 1, 117),
        (ROOMY_CEILING, 0, 141),
        (ROOMY_CEILING, 0, 198),
        (ROOMY_CEILING, 0, 645),
        ("a tighter limit merges no zones", 0, 718),
        ("more supply leaves no more pods out", 4711, 1218),
        ("more supply leaves no more pods out", 20261128, 258),
        ("more supply leaves no more pods out", 557002, 1234),
        ("more supply leaves no more pods out", 31337, 199),
        ("more supply leaves no more pods out", 90412207, 501),
        ("an unrelated NodePool changes nothing", 1, 2793),
        ("a plan keeps every rule but topology", 3714459478, 66),
        ("a plan keeps affinity and anti-affinity", 55667701, 2425),
        ("a plan keeps spread constraints", 55667701, 3452),
        ("once a plan is carried out there is nothing more to do", 1, 171),
        ("once a plan is carried out there is nothing more to do", 1, 360),
        ("once a plan is carried out there is nothing more to do", 0, 549),
        ("once a plan is carried out there is nothing more to do", 77120033, 1763),
    ],
)
def test_a_cluster_that_broke_a_law_keeps_it(name: str, seed: int, number: int) -> None:
    cluster = drawn(seed, number)
    assert _law(name).broken_by(Decided(cluster.snapshot), cluster.rng(name)) == ""


def test_every_pair_and_every_triple_of_those_used_most_meets() -> None:
    coverage = Coverage()
    for number in range(COVERING):
        coverage.add(options_drawn(SEED, number))
    assert list(coverage.missing()) == []
    assert len(OPTIONS) >= 50


def test_a_coverage_names_what_has_not_met() -> None:
    coverage = Coverage()
    coverage.add(["zone_spread", "cpu_limit", "daemon_set"])
    missing = list(coverage.missing())
    assert ("cpu_limit", "daemon_set") not in missing
    assert ("cpu_limit", "daemon_set", "zone_spread") not in missing
    assert ("cpu_limit", "daemon_set", "host_spread") in missing
    assert "3 of " in coverage.line()


def test_a_cluster_is_drawn_alike_again_and_another_seed_draws_another() -> None:
    assert msgspec.json.encode(drawn(SEED, 3).snapshot) == msgspec.json.encode(drawn(SEED, 3).snapshot)
    assert drawn(SEED, 3).options != drawn(SEED + 1, 3).options


def test_an_option_that_is_gone_moves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_before = [options_drawn(SEED, number) for number in range(30)]
    assert any("second_pool" in names for names in drawn_before)
    kept = {**OPTIONS}
    del kept["second_pool"]
    monkeypatch.setattr(drawn_clusters, "OPTIONS", kept)
    for number, names in enumerate(drawn_before):
        assert options_drawn(SEED, number) == [name for name in names if name != "second_pool"]


@pytest.mark.parametrize(("seed", "number"), [(7, 44), (31337, 199)])
def test_a_cluster_that_once_broke_a_law_keeps_its_options(seed: int, number: int) -> None:
    """The first has options that a law of topology needs, the second those of a law of ceilings."""
    needed = {7: "zone_affinity", 31337: "hourly_ceiling"}
    assert needed[seed] in options_drawn(seed, number)


def test_leaving_out_an_option_leaves_the_details_of_the_others() -> None:
    both = with_options(SEED, 1, ["cpu_limit", "zone_spread"]).snapshot
    one = with_options(SEED, 1, ["zone_spread"]).snapshot
    assert both.view == one.view
    assert both.manifests != one.manifests


# Each comparison notices what it is there for


def _pool_more(before: Decided, _: Random) -> Snapshot:
    """A change that does change the plan: a NodePool less."""
    return replace(before.snapshot, manifests=replace(before.snapshot.manifests, node_pools=()))


@pytest.mark.parametrize("compare", [the_same, the_same_but_ties])
def test_a_comparison_notices_a_plan_without_nodes(compare) -> None:  # type: ignore[no-untyped-def]
    before = Decided(with_options(SEED, 1, []).snapshot)
    assert compare(before, before) == ""
    assert compare(before, Decided(_pool_more(before, Random(0)))).startswith(("left out", "claims"))  # noqa: S311


def _law(name: str) -> Law:
    return next(law for law in EVERY_LAW if law.name == name)


@pytest.mark.parametrize("law", [law for law in EVERY_LAW if "changes nothing" in law.name], ids=lambda law: law.name)
def test_a_change_that_must_change_nothing_does_change_the_cluster(law: Law) -> None:
    before = Decided(with_options(SEED, 1, ["second_pool"]).snapshot)
    changed = law.change(before, Random(1))  # noqa: S311
    assert changed is not None
    assert changed != before.snapshot


def test_fewer_pods_left_out_are_no_fault_and_more_are() -> None:
    law = _law("more supply leaves no more pods out")
    some = Decided(with_options(SEED, 1, []).snapshot)
    none = Decided(_pool_more(some, Random(0)))  # noqa: S311
    assert law.compare(none, some) == ""
    assert "left out by priority" in law.compare(some, none)


def test_spread_pods_in_one_zone_have_lost_the_others() -> None:
    law = _law("a tighter limit merges no zones")
    before, merged = (Decided(with_options(SEED, 9, ["zone_spread"]).snapshot) for _ in range(2))
    assert len({claim.launch.zone for claim in before.plan.node_claims}) > 1
    vars(merged)["plan"] = replace(
        before.plan,
        node_claims=tuple(
            replace(claim, launch=replace(claim.launch, zone=Z1), labels=claim.labels | {ZONE: Z1})
            for claim in before.plan.node_claims
        ),
    )
    assert law.compare(before, before) == ""
    assert "became {'test-zone-1'" in law.compare(before, merged)
    vars(merged)["plan"] = replace(before.plan, node_claims=())
    assert law.compare(before, merged) == "", "nobody got a node"


def test_a_plan_that_is_not_carried_out_leaves_something_to_do() -> None:
    law = _law("once a plan is carried out there is nothing more to do")
    before = Decided(with_options(SEED, 1, []).snapshot)
    assert law.compare(before, before).startswith("launches")


def test_a_cluster_that_loses_a_node_with_its_pods_has_stranded_somebody() -> None:
    before = Decided(with_options(SEED, 1, []).snapshot)
    done = carried_out(before.snapshot, before.plan)
    names = tuple(node.metadata.name for node in done.view.nodes)
    loses_all = Decision(commands=(DisruptionProposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, names),))
    assert "have lost their nodes" in disruption_laws.problem(
        done, loses_all, after_command(done, loses_all.commands[0])
    )
    saves_nothing = Decision(commands=(DisruptionProposal(Reason.UNDERUTILIZED, Method.CONSOLIDATION, ()),))
    assert disruption_laws.problem(done, saves_nothing, done).startswith("saves nothing")


def test_a_decision_that_overlooks_a_node_is_noticed_and_one_that_is_whole_is_not() -> None:
    cluster = with_options(SEED, 1, ["existing_nodes", "second_pool"])
    law = _law("after a consolidation there is nothing more to do at that moment")
    before = law.change(Decided(cluster.snapshot), cluster.rng(law.name))
    assert before is not None
    whole = disruption_laws.decision(before, {})
    assert len(whole.commands) > 1
    part = replace(whole, commands=whole.commands[:-1])
    assert disruption_laws.overlooked(before, {}, part, whole).startswith("not only")
    assert disruption_laws.overlooked(before, {}, whole, part) == ""


def test_a_limit_that_is_larger_than_it_has_to_be_is_no_smallest_change() -> None:
    snapshot = with_options(SEED, 1, []).snapshot
    pool = snapshot.manifests.node_pools[0]
    key = min(pod.key for pod in snapshot.view.pods)
    full = replace(pool, spec=replace(pool.spec, limits={"cpu": "0"}))
    closed = replace(snapshot, manifests=replace(snapshot.manifests, node_pools=(full,)))
    problem = command_laws.problem(closed, key, [("limit", "cpu", "pool-0", "0", "900")])
    assert problem == f"{key} has a place with ('limit', 'cpu', 'pool-0', '0', '899')"
    assert (
        command_laws.problem(closed, key, [("limit", "cpu", "pool-0", "0", "1")])
        == f"{key} has no place, or costs a pod its place"
    )


# The runner


def test_a_mistake_of_the_planner_breaks_a_law_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(_: Decided, __: Random) -> Snapshot:
        raise IndexError("no such domain")

    monkeypatch.setattr(played_laws, "laws_in", lambda _: (Law("mistaken", mistaken, the_same),))
    portion = play(Suite.PLANS, SEED, 1, range(2))
    assert [item.number for item in portion.broken] == [0, 1]
    assert portion.broken[0].problem == "raises IndexError: no such domain"


def test_a_cluster_that_cannot_be_read_is_set_aside_by_name_and_its_neighbours_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(before: Decided, rng: Random) -> Snapshot:
        if rng.random() < 2 and before.snapshot == drawn(SEED, 0).snapshot:
            raise InvalidInput("cluster", "no such field")
        return before.snapshot

    monkeypatch.setattr(played_laws, "laws_in", lambda _: (Law("read", unreadable, the_same),))
    portion = play(Suite.PLANS, SEED, 1, range(3))
    assert [text.partition(":")[0] for text in portion.set_aside] == [f"{SEED}-0"]
    assert portion.played == {"read": 2}


def test_an_interrupted_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results.jsonl"
    done = Portion(0, [("zone_spread",)] * played_laws.PORTION, {"a": 9}, [BrokenLaw("a", SEED, 4, "wrong")], ["x"])
    results.write_bytes(msgspec.json.encode(done) + b'\n{"first": 25, "opt')
    asked: list[int] = []

    def run(suite: Suite, seed: int, numbers: list[range], at_once: int, workers: int, *, only: str):  # type: ignore[no-untyped-def]
        asked.extend(portion[0] for portion in numbers)
        return iter(Portion(portion[0], [()] * len(portion)) for portion in numbers)

    monkeypatch.setattr(played_laws, "run", run)
    tally = resumed(results, Suite.PLANS, SEED, 60, 1, 1, lambda _: None)
    assert asked == [25, 50]
    assert (tally.coverage.clusters, tally.played["a"], tally.set_aside) == (60, 9, ["x"])
    again = resumed(results, Suite.PLANS, SEED, 60, 1, 1, lambda _: None)
    assert (asked, again.coverage.clusters, len(again.broken)) == ([25, 50], 60, 1)


def test_laws_are_chosen_by_a_part_of_their_names() -> None:
    portion = play(Suite.PLANS, SEED, 2, range(3), only="room to spare")
    assert portion.played == {f"a {what} with room to spare changes nothing": 3 for what in ("limit", "ceiling")}


def test_a_failure_is_shrunk_to_what_it_needs() -> None:
    """A law that two options break together, and only while there is a pod."""

    def needs(before: Decided, _: Decided) -> str:
        both = before.snapshot.view.daemon_sets and before.snapshot.manifests.node_overlays
        return "both" if both and before.snapshot.view.pods else ""

    law = Law("needs", lambda before, _: before.snapshot, needs)
    cluster = with_options(SEED, 5, ["price_overlay", "second_pool", "zone_spread", "daemon_set", "existing_nodes"])
    shrunk, problem = Shrinking(law).shrunk(cluster)
    assert problem == "both"
    assert shrunk.options == ("price_overlay", "daemon_set")
    assert len(shrunk.snapshot.view.pods) == 1
    assert shrunk.snapshot.manifests.node_pools == ()
