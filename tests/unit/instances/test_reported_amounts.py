"""Reports in an entry: equal ones are one, and a cluster cannot fill more than its share."""

from __future__ import annotations

from random import Random

import msgspec

from shiplap.instances.capacity.learned_capacity import merged_capacity, with_observation
from shiplap.instances.capacity.reported_amounts import MOST_NODES, near, reports_of, united
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation, ReportedAmounts
from shiplap.kubernetes.quantity import LARGEST
from tests.thoroughness import THOROUGH
from tests.unit.instances.given_instances import GIB, MIB, seen

ITEM_BYTES = 400_000
"""What DynamoDB stores in an item."""


def of_cluster(cluster: str, observation: Observation, node: str = "n1") -> Observation:
    return msgspec.structs.replace(observation, cluster=cluster, node=node)


def test_equal_reports_of_a_cluster_are_one_and_name_its_nodes() -> None:
    learned: LearnedCapacity | None = None
    for cluster, node in (("blue", "b"), ("blue", "a"), ("green", "a"), ("blue", "a")):
        learned = with_observation(learned, of_cluster(cluster, seen("m5.large", 7700 * MIB), node))
    assert learned is not None
    assert [(report.cluster, report.nodes) for report in learned.reported] == [("blue", ("a", "b")), ("green", ("a",))]


def test_a_thousand_alike_nodes_are_counted_as_eight() -> None:
    learned: LearnedCapacity | None = None
    for number in range(1000):
        learned = with_observation(learned, seen("m5.large", 7700 * MIB, node=f"n{number}"))
    assert learned is not None
    (report,) = learned.reported
    assert len(report.nodes) == MOST_NODES == 8


def hostile(chance: Random, number: int, cluster: str) -> Observation:
    """A node with a long name and hundreds of resources that nobody knows."""
    amounts = {f"{number}-{name}.example.com/{'x' * chance.randrange(300)}": LARGEST for name in range(200)}
    own = {"memory": chance.randrange(1, LARGEST), "cpu": chance.randrange(1, LARGEST), **amounts}
    return Observation("ami", "m5.large", "h", own, own, float(number), cluster, f"{number}-{'n' * 240}", own)


def test_false_reports_of_a_cluster_leave_those_of_its_neighbours_in_a_small_item() -> None:
    chance = Random(7)  # noqa: S311 - repeatable chance
    learned: LearnedCapacity | None = None
    honest = Observation("ami", "m5.large", "h", {"memory": 7 * GIB}, {"memory": 6 * GIB}, 1.0, "blue", "n1")
    learned = with_observation(learned, honest)
    for number in range(3000 if THOROUGH else 500):
        learned = with_observation(learned, hostile(chance, number, "hostile"))
    learned = with_observation(learned, of_cluster("green", honest))
    assert [report.cluster for report in learned.reported if report.cluster != "hostile"] == ["blue", "green"]
    assert len(learned.reported) == 34
    assert len(msgspec.json.encode(learned)) < ITEM_BYTES // 2


def test_with_many_hostile_clusters_the_item_stays_small_and_honest_ones_stay() -> None:
    chance = Random(8)  # noqa: S311 - repeatable chance
    learned: LearnedCapacity | None = None
    honest = Observation("ami", "m5.large", "h", {"memory": 7 * GIB}, {"memory": 6 * GIB}, 1.0, "blue", "n1")
    learned = with_observation(learned, honest)
    for number in range(600):
        learned = with_observation(learned, hostile(chance, number, f"hostile-{number % 8}"))
    assert "blue" in {report.cluster for report in learned.reported}
    assert len(learned.reported) == 96
    assert len(msgspec.json.encode(learned)) < ITEM_BYTES


def test_a_report_that_finds_no_place_becomes_part_of_the_nearest_with_the_smaller_amounts() -> None:
    memory = [(7000 + number) * MIB for number in range(40)]
    reports = [ReportedAmounts("blue", {"memory": each}, {"memory": each}, 1.0, ("n",)) for each in memory]
    kept = united(reports)
    assert len(kept) == 32
    assert min(report.capacity["memory"] for report in kept) == 7000 * MIB
    far = ReportedAmounts("blue", {"memory": MIB}, {"memory": MIB}, 0.0, ("n",))
    assert united([*reports, far]) == kept, "nothing is near to it"
    counted = msgspec.structs.replace(far, nodes=("a", "b"))
    assert counted in united([*reports, counted]), "what fewer nodes have reported goes first"


def test_half_of_a_merge_can_be_repeated() -> None:
    one = with_observation(None, of_cluster("blue", seen("m5.large", 7700 * MIB)))
    other = with_observation(None, of_cluster("green", seen("m5.large", 10 * MIB, allocatable=MIB)))
    merged = merged_capacity(one, other)
    assert merged_capacity(merged, other) is merged
    assert reports_of(merged) == merged.reported == united((*other.reported, *one.reported))


def test_a_sixteenth_is_near() -> None:
    assert near(1500, 1600)
    assert near(1600, 1500)
    assert not near(1499, 1600)
