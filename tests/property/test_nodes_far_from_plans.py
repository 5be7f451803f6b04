"""A node with less than its plan counted on: it is either a lesson for estimates, or a broken machine.

The line is at three quarters of an amount that every kubelet reports. Above it the pods of the node have missed and
rely on no estimate again; below it they may, for their next node is not like this one. What a node has is stored in
both cases.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.flows.learn import learn, learn_from_joined, seems_broken
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import format_resources
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from tests.builders.claims import node_claim
from tests.integration.flows.stage import Stage
from tests.thoroughness import draws

PROFILE = settings(derandomize=True, deadline=None, max_examples=draws(200))

REPORTED = ("cpu", "memory", "ephemeral-storage", "pods")
DEVICES = ("nvidia.com/gpu", "example.com/fpga")
LINE = Fraction(3, 4)

amounts = st.fixed_dictionaries(
    {
        "cpu": st.integers(1, 50_000).map(lambda amount: 4 * amount),
        "memory": st.integers(1, 2**43).map(lambda amount: 4 * amount),
        "ephemeral-storage": st.integers(1, 2**43).map(lambda amount: 4 * amount),
        "pods": st.integers(1, 200).map(lambda amount: 4 * amount),
    }
)
edges = st.sampled_from(
    (LINE, LINE - Fraction(1, 10**6), Fraction(99, 100), Fraction(1), Fraction(0), Fraction(1, 1000))
)
shares = st.one_of(edges, st.fractions(0, 2))


class Joined(msgspec.Struct, frozen=True):
    """A node that joined, and its claim. `had` is what the node has, `planned` what the plan counted on."""

    claim: NodeClaim
    node: Node
    planned: dict[str, int]
    had: dict[str, int]

    @property
    def is_far(self) -> bool:
        """True if the node has less than three quarters of an amount that every kubelet reports."""
        return any(Fraction(self.had.get(name, 0)) < LINE * self.planned[name] for name in REPORTED)

    @property
    def is_short(self) -> bool:
        """True if its pods do not fit: the plan has filled the node."""
        reported = any(self.had.get(name, 0) < self.planned[name] for name in REPORTED)
        return reported or any(0 < self.had.get(name, 0) < self.planned.get(name, 0) for name in DEVICES)

    @property
    def uids(self) -> set[str]:
        return {pod.uid for pod in self.claim.plan.pods}


@st.composite
def joined(draw: st.DrawFn, name: str = "n1", like: Joined | None = None) -> Joined:
    planned = draw(amounts) if like is None else {key: like.planned[key] for key in REPORTED}
    one = draw(st.sampled_from((*REPORTED, "")))  # most nodes are as planned in all but one amount
    had = {key: int(amount * draw(shares)) if one in (key, "") else amount for key, amount in planned.items()}
    if like is not None:
        had = {key: amount * 9 // 10 for key, amount in like.had.items() if key in REPORTED}
    for device in draw(st.sets(st.sampled_from(DEVICES))):
        planned[device] = draw(st.integers(1, 16))
        had[device] = draw(st.integers(0, 16))
    claim = node_claim(
        name=name,
        cluster="demo",
        instance_id=f"i-{name}",
        instance_type="m5.large",
        ami="ami-1",
        kubelet_hash=draw(st.sampled_from(("k1", "k2"))),
        requests=planned,
        allocatable=planned,
        pods=tuple(PodReference("default", f"{name}-{place}", f"uid-{name}-{place}") for place in range(2)),
    )
    written = format_resources(had)
    node = msgspec.convert({"metadata": {"name": name}, "status": {"capacity": written, "allocatable": written}}, Node)
    return Joined(claim, node, planned, had)


@st.composite
def several(draw: st.DrawFn) -> list[Joined]:
    """Nodes that join together; some are of one size, and some have nothing but less than the one before."""
    cases = [draw(joined("n0"))]
    for place in range(1, draw(st.integers(2, 4))):
        cases.append(draw(joined(f"n{place}", like=cases[-1] if draw(st.booleans()) else None)))
    return cases


def missed(stage: Stage) -> frozenset[str]:
    return stage.state.read("demo", stage.clock.now()).missed_pods


@PROFILE
@given(joined())
def test_a_node_seems_broken_below_three_quarters_and_never_for_its_devices(case: Joined) -> None:
    """Device plugins come up later than kubelet, and a GPU may be missing for good: estimates have no part in that."""
    assert seems_broken(case.claim, case.node) is case.is_far


@PROFILE
@given(joined())
def test_pods_have_missed_where_their_node_is_short_and_not_broken(case: Joined) -> None:
    stage = Stage()
    short = learn(stage.context, case.claim, case.node)

    assert bool(short) is case.is_short
    assert missed(stage) == (case.uids if case.is_short and not case.is_far else set())


@PROFILE
@given(joined())
def test_what_a_broken_node_has_is_stored_as_well(case: Joined) -> None:
    """Which clusters believe it is another question: see capacity/trusted_amounts.py."""
    stage = Stage()
    learn(stage.context, case.claim, case.node)

    (entry,) = stage.capacity.all()
    (seen,) = entry.recent
    assert (seen.cluster, seen.node) == ("demo", case.node.metadata.name)
    assert entry.kubelet_hash == case.claim.known_instance.kubelet_hash
    assert {name: seen.allocatable[name] for name in case.had} == case.had
    assert seen.predicted == case.claim.plan.allocatable


@PROFILE
@given(several())
def test_nodes_that_join_together_are_judged_each_by_its_own_plan(cases: list[Joined]) -> None:
    """One broken node hides no miss of another one, and another one's miss is not that of the broken node's pods."""
    stage = Stage()
    found = learn_from_joined(stage.context, [(case.claim, case.node) for case in cases])

    expected = set[str]().union(*(case.uids for case in cases if case.is_short and not case.is_far))
    assert found == missed(stage) == expected


@PROFILE
@given(several())
def test_the_least_of_each_kind_of_node_is_stored_when_many_join_together(cases: list[Joined]) -> None:
    """Nodes with other kubelet settings are another kind, however much less the first kind has."""
    stage = Stage()
    learn_from_joined(stage.context, [(case.claim, case.node) for case in cases])

    kinds = {case.claim.known_instance.kubelet_hash for case in cases}
    stored = {entry.kubelet_hash: entry for entry in stage.capacity.all()}
    assert stored.keys() == kinds
    for kind, entry in stored.items():
        alike = [case.had for case in cases if case.claim.known_instance.kubelet_hash == kind]
        for name in REPORTED:
            assert min(each.allocatable[name] for each in entry.recent) == min(had[name] for had in alike)
