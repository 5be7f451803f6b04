"""Whatever fewer than half of the nodes report, plans stay near what nodes really have.

The bounds are those of the table in docs/explanation/capacity.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.instances.capacity.learned_capacity import with_observation
from shiplap.instances.catalog.overlays import with_capacity
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Observation
from tests.builders.node_classes import node_class
from tests.thoroughness import draws
from tests.unit.instances.given_instances import MIB, kind, resolved, yields

PROFILE = settings(derandomize=True, deadline=None, max_examples=draws(300))

GPU, NEURON = "nvidia.com/gpu", "aws.amazon.com/neuron"
TYPES = ("m5.large", "c7i.4xlarge", "p4d.24xlarge", "g5.12xlarge", "inf2.24xlarge", "r5a.8xlarge", "t3.small")
CLUSTERS = ("blue", "green", "red")
NOW = 1_700_000_000.0
DAY_S = 86_400.0

LIES = st.sampled_from((0, 1, 7, 8, 1000, 10 * MIB, 2**40, 2**57))
EXTENDED = ("hugepages-2Mi", "smarter-devices/fuse", GPU, NEURON)


class Lie(NamedTuple):
    """The false report of a broken node in the place of the truth; a resource without an amount is missing."""

    share: float
    replaced: Mapping[str, int | None]
    of_capacity: bool

    def of(self, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        lists = (dict(capacity), dict(allocatable))
        for amounts in lists if self.of_capacity else lists[1:]:
            for name in amounts:
                amounts[name] = int(amounts[name] * self.share)
            for name, amount in self.replaced.items():
                if amount is None:
                    amounts.pop(name, None)
                else:
                    amounts[name] = amount
        return lists


lies = st.builds(
    Lie,
    st.sampled_from((0.0, 0.001, 0.3, 0.8, 0.9, 0.97, 1.0, 1.03, 5.0, 1000.0)),
    st.dictionaries(
        st.sampled_from(("cpu", "memory", "ephemeral-storage", "pods", *EXTENDED)), st.one_of(st.none(), LIES)
    ),
    st.booleans(),
)


class Played(NamedTuple):
    """An entry of learned capacity, the truth, and the type before any report."""

    learned: LearnedCapacity
    truth: tuple[dict[str, int], dict[str, int]]
    before: InstanceType


def truth_of(before: InstanceType, nominal: int, missing: float) -> tuple[dict[str, int], dict[str, int]]:
    """A node that lacks a share of the stated memory and a little of its volume, and keeps what kubelet keeps."""
    capacity = dict(before.capacity)
    capacity["memory"] = int(nominal * (1 - missing)) - 100 * MIB
    capacity["ephemeral-storage"] = int(capacity["ephemeral-storage"] * 0.97)
    return capacity, {name: amount - before.overhead.get(name, 0) for name, amount in capacity.items()}


@st.composite
def played(draw: st.DrawFn, clusters: tuple[str, ...] = CLUSTERS) -> Played:
    """Reports of one key, in any order: in each cluster more than half are true. Moments are up to 60 days apart."""
    name = draw(st.sampled_from(TYPES))
    before = yields(name, node_class(), answered=resolved())
    nominal = kind(name).memory_info.size_in_mi_b * MIB
    truth = truth_of(before, nominal, draw(st.floats(0.0, 0.10)))
    reports = []
    for cluster in clusters:
        false = draw(st.lists(lies, max_size=9))
        true = len(false) + draw(st.integers(1, 4))
        reports += [(cluster, f"true-{number}", truth) for number in range(true)]
        reports += [(cluster, f"false-{number}", lie.of(*truth)) for number, lie in enumerate(false)]
    learned: LearnedCapacity | None = None
    for cluster, node, (capacity, allocatable) in draw(st.permutations(reports)):
        at = NOW - draw(st.floats(0, 60)) * DAY_S
        key = (before.ami, name, before.kubelet_hash)
        learned = with_observation(learned, Observation(*key, capacity, allocatable, at, cluster, node))
    assert learned is not None
    return Played(learned, truth, before)


def assert_near_the_truth(found: InstanceType, case: Played, nominal: int) -> None:
    """Exact, or for memory, pods and disk within what EC2's description allows: see docs/explanation/capacity.md."""
    _, truth = case.truth
    kept = case.before.overhead
    least = {
        "memory": (nominal - nominal // 8 - 129 * MIB) * 15 // 16 - 2 * kept["memory"],
        "ephemeral-storage": case.before.capacity["ephemeral-storage"] * 7 // 8 - 2 * kept["ephemeral-storage"],
        "pods": truth["pods"] - truth["pods"] // 8 - 2,
        "vpc.amazonaws.com/pod-eni": case.before.careful.get("vpc.amazonaws.com/pod-eni", 0),
        "cpu": truth["cpu"] - kept["cpu"] - case.before.capacity["cpu"] // 16,
    }
    for resource, amount in truth.items():
        assert found.verified
        assert least.get(resource, amount) <= found.allocatable[resource] <= amount, resource
        assert found.careful_allocatable[resource] == found.allocatable[resource], "pods that have missed fit as well"
    assert "hugepages-2Mi" not in found.capacity


@PROFILE
@given(played(), st.sampled_from((*CLUSTERS, "white")))
def test_plans_are_near_the_truth_once_more_than_half_of_the_reports_are_true(case: Played, asking: str) -> None:
    """For clusters with nodes of their own and for one without."""
    name = case.before.name
    found = yields(name, node_class(), answered=resolved(), learned=(case.learned,), cluster=asking, now=NOW)
    assert_near_the_truth(found, case, kind(name).memory_info.size_in_mi_b * MIB)


@PROFILE
@given(st.sampled_from(TYPES), lies, st.floats(0, 90))
def test_one_broken_node_changes_nothing_for_other_clusters_and_stops_nothing_in_its_own(
    name: str, lie: Lie, days: float
) -> None:
    """A pilot may rely on no less than before, and after an hour everything is as if nothing had been reported."""
    before = yields(name, node_class(), answered=resolved())
    nominal = kind(name).memory_info.size_in_mi_b * MIB
    capacity, allocatable = lie.of(*truth_of(before, nominal, 0.05))
    for amounts in (capacity, allocatable):  # of memory, far from what EC2 says
        amounts["memory"] = min(amounts.get("memory", 0), nominal // 2)
    key = (before.ami, name, before.kubelet_hash)
    learned = (with_observation(None, Observation(*key, capacity, allocatable, NOW, "blue", "broken")),)

    def seen_by(cluster: str, now: float) -> InstanceType:
        return yields(name, node_class(), answered=resolved(), learned=learned, cluster=cluster, now=now)

    for now in (NOW, NOW + days * DAY_S):
        assert msgspec.structs.replace(seen_by("green", now), voices=0) == before
    own = seen_by("blue", NOW)
    assert not own.verified
    assert {name: own.allocatable[name] for name in before.allocatable} == before.allocatable
    later = seen_by("blue", NOW + 3601 + days * DAY_S)
    assert {name: later.careful_allocatable[name] for name in before.allocatable} == before.careful_allocatable
    assert {name: later.allocatable[name] for name in before.allocatable} == before.allocatable


FUSE, SLICES = "smarter-devices/fuse", "nvidia.com/mig-1g.5gb"


@PROFILE
@given(
    st.sampled_from(TYPES),
    st.sampled_from((FUSE, SLICES)),
    st.integers(1, 4999),
    st.integers(1, 5000),
    st.floats(3601, 59 * DAY_S),
    st.sampled_from(("blue", "green")),
)
def test_one_node_holds_back_a_foreign_resource_that_an_overlay_states_for_an_hour_at_most(
    name: str, resource: str, free: int, there: int, later_s: float, asking: str
) -> None:
    """Then a pilot may rely on the overlay, and all else on what the node has shown."""
    before = yields(name, node_class(), answered=resolved())
    capacity, allocatable = truth_of(before, kind(name).memory_info.size_in_mi_b * MIB, 0.05)
    false = ({**capacity, resource: max(free, there)}, {**allocatable, resource: free})
    key = (before.ami, name, before.kubelet_hash)
    learned = (with_observation(None, Observation(*key, *false, NOW, "blue", "broken")),)

    def stated(now: float) -> InstanceType:
        seen = yields(name, node_class(), answered=resolved(), learned=learned, cluster=asking, now=now)
        return with_capacity(seen, {resource: 5000})

    if asking == "blue" and there <= free:
        assert stated(NOW + 60).allocatable[resource] == free
    later = stated(NOW + later_s)
    assert later.allocatable[resource] == 5000
    if asking == "blue":
        assert not later.verified
        assert later.careful_allocatable[resource] == free


@PROFILE
@given(st.integers(2, 8), st.integers(1, 4999), st.integers(0, 59))
def test_a_foreign_resource_that_several_nodes_report_alike_outlives_an_overlay(
    nodes: int, amount: int, days: int
) -> None:
    """Two nodes for a day, three for a week, more for sixty days."""
    before = yields("m5.large", node_class(), answered=resolved())
    capacity, allocatable = truth_of(before, kind("m5.large").memory_info.size_in_mi_b * MIB, 0.05)
    learned: LearnedCapacity | None = None
    for number in range(nodes):
        key = (before.ami, "m5.large", before.kubelet_hash)
        told = ({**capacity, FUSE: amount}, {**allocatable, FUSE: amount})
        learned = with_observation(learned, Observation(*key, *told, NOW, "blue", f"n{number}"))
    assert learned is not None
    now = NOW + days * DAY_S
    seen = yields("m5.large", node_class(), answered=resolved(), learned=(learned,), cluster="blue", now=now)
    counts = days <= {2: 1, 3: 7}.get(nodes, 60)
    assert with_capacity(seen, {FUSE: 5000}).allocatable[FUSE] == (amount if counts else 5000)


@PROFILE
@given(st.sampled_from(TYPES), st.lists(st.tuples(lies, st.integers(0, 60)), min_size=1, max_size=40), st.booleans())
def test_a_hostile_cluster_moves_nobody_elses_estimates(
    name: str, said: list[tuple[Lie, int]], comes_first: bool
) -> None:
    """However many nodes it has, what two other clusters rely on stays as it was, and siblings of the type as well."""
    before = yields(name, node_class(), answered=resolved())
    truth = truth_of(before, kind(name).memory_info.size_in_mi_b * MIB, 0.05)
    key = (before.ami, name, before.kubelet_hash)
    honest = [
        Observation(*key, *truth, NOW, cluster, f"n{number}") for cluster in ("blue", "green") for number in (1, 2)
    ]
    false = [
        Observation(*key, *lie.of(*truth), NOW - 3600 * days, "red", f"n{number}")
        for number, (lie, days) in enumerate(said)
    ]

    def learned_of(observations: list[Observation]) -> tuple[LearnedCapacity, ...]:
        learned: LearnedCapacity | None = None
        for observation in observations:
            learned = with_observation(learned, observation)
        return (learned,) if learned is not None else ()

    without = learned_of(honest)
    beside = learned_of([*false, *honest] if comes_first else [*honest, *false])
    for asking in ("blue", "green"):
        for asked, others in ((name, ()), ("m5.xlarge", (name,))):
            expected, found = (
                yields(
                    asked, node_class(), answered=resolved(), learned=learned, beside=others, cluster=asking, now=NOW
                )
                for learned in (without, beside)
            )
            lowered = {r: a for r, a in found.allocatable.items() if a < expected.allocatable.get(r, 0)}
            assert found.verified is expected.verified
            assert all(amount >= expected.allocatable[r] * 15 // 16 for r, amount in lowered.items()), lowered
            assert {r: a for r, a in found.allocatable.items() if a > expected.allocatable.get(r, 0)} == {}
