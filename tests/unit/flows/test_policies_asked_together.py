"""Each of two policies is asked at every place, and neither takes away what the other gave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from msgspec.structs import replace

from shiplap.flows.policies import active
from shiplap.flows.policies.active import ActivePolicies
from shiplap.flows.policies.policy import Launches, Policy
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim
from tests.builders.pods import pod

NAMES = ("first", "second")
ONE: Any = object()
"""An argument that policies only pass on."""


class Asked(Policy):
    """Gives its name wherever a policy gives anything, and keeps what it was asked."""

    name: ClassVar[str]
    asked: ClassVar[list[Any]]

    def __init__(self) -> None:
        """Nothing of a cluster is needed."""

    def _note(self, *given: Any, **named: Any) -> None:
        self.asked.append((self.name, *given, *named.values()))

    look_up = read = answer = decided = sweep = _note

    def pods_without_objects(self, *_: Any) -> Sequence[Any]:
        return [pod(self.name)]

    def planning_input(self, _: Any) -> Any:
        return f"plan {self.name}"

    def replacement_input(self, _: Any) -> Any:
        return f"replace {self.name}"

    def disruption_input(self, _: Any) -> Any:
        return f"disrupt {self.name}"

    def disruption_policies(self, policies: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*policies, self.name)

    def marked(self, launches: Launches) -> Any:
        return [replace(record, name=f"{record.name} {self.name}") for record in launches.records]

    def incomplete(self, _: Any, __: Any, left_out: Any, unproven: Any) -> Any:
        self._note(sorted(left_out), unproven)
        return {f"of-{self.name}": self.name}

    def may_commit(self, _: Any) -> bool:
        return self.name != "second"

    def noted(self, proposals: Any, _: Any) -> Any:
        return [item for item in proposals if item != self.name]

    def tell(self, *_: Any) -> Any:
        return (self.name,)

    moved_otherwise = tell


def of_names() -> tuple[list[Any], list[type[Asked]]]:
    asked: list[Any] = []
    return asked, [type(name, (Asked,), {"name": name, "asked": asked}) for name in NAMES]


@pytest.mark.parametrize(
    ("place", "arguments"), [("look_up", 0), ("read", 2), ("answer", 3), ("decided", 2), ("sweep", 1)]
)
def test_each_is_told_of_the_same(place: str, arguments: int) -> None:
    asked, kinds = of_names()
    given = [object() for _ in range(arguments)]
    getattr(ActivePolicies(kind() for kind in kinds), place)(*given)
    assert asked == [(name, *given) for name in NAMES]


def test_what_each_gives_is_added_up() -> None:
    asked, kinds = of_names()
    both = ActivePolicies(kind() for kind in kinds)
    view = ClusterView(pods=(pod("there"),))
    assert [item.metadata.name for item in both.with_pods_without_objects(view, 0.0).pods] == ["there", *NAMES]
    assert both.planning_inputs(ONE) == ("plan first", "plan second")
    assert both.replacement_inputs(ONE) == ("replace first", "replace second")
    assert both.disruption_inputs(ONE) == ("disrupt first", "disrupt second")
    assert both.disruption_policies(cast(Any, SimpleNamespace(policies=("before",)))) == ("before", *NAMES)
    assert both.tell(ONE, ONE, ()) == NAMES
    assert both.moved_otherwise(ONE, ONE, (), ()) == frozenset(NAMES)
    assert both.noted(cast(Any, ["first", "other", "second"]), ONE) == ["other"]
    launches = Launches((), (node_claim(name="c"),), ONE, ONE)
    assert [record.name for record in both.marked(launches).records] == ["c first second"]
    assert both.incomplete(ONE, ONE, {"left"}, {"unproven"}) == {f"of-{name}": name for name in NAMES}
    assert asked == [("first", ["left"], {"unproven"}), ("second", ["left", "of-first"], {"unproven"})]


@pytest.mark.parametrize(("on", "may"), [([0], True), ([1], False), ([0, 1], False), ([1, 0], False)])
def test_a_launch_needs_the_leave_of_each(on: list[int], may: bool) -> None:
    _, kinds = of_names()
    assert ActivePolicies(kinds[place]() for place in on).may_commit(ONE) == may


@pytest.mark.parametrize("change", ["interrupted", "rebalanced", "ended"])
def test_each_notes_what_becomes_of_an_instance(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    noted: list[Any] = []
    flows = {
        name: SimpleNamespace(**{change: lambda *given, name=name: noted.append((name, *given))}) for name in NAMES
    }
    monkeypatch.setattr(active, "flow_of", flows.__getitem__)
    context = cast(Any, SimpleNamespace(policies=NAMES))
    getattr(active, change)(ONE, context)
    assert noted == [(name, ONE, context) for name in NAMES]


def test_each_notes_all_refused_offerings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the failures can be read only once."""
    noted: list[Any] = []

    def reads(failures: Iterable[Any], types: Any, context: Any) -> None:
        noted.append((list(failures), types, context))

    monkeypatch.setattr(active, "flow_of", lambda _: SimpleNamespace(refused=reads))
    context = cast(Any, SimpleNamespace(policies=NAMES))
    active.refused(iter([ONE]), {}, context)
    assert noted == [([ONE], {}, context)] * 2


@pytest.mark.parametrize("needing", [(), ("first",), ("second",)])
def test_zone_ids_are_read_if_any_needs_them(monkeypatch: pytest.MonkeyPatch, needing: tuple[str, ...]) -> None:
    monkeypatch.setattr(active, "flow_of", lambda name: SimpleNamespace(needs_zone_ids=name in needing))
    assert active.needs_zone_ids(cast(Any, SimpleNamespace(policies=NAMES))) == bool(needing)


def test_a_region_is_refreshed_once_for_each_policy_by_its_first_cluster_that_is_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refreshed: list[Any] = []

    def flow(name: str) -> Any:
        def act(cluster: Any, install: Any, limit_s: float) -> bool:
            refreshed.append((name, cluster.name, limit_s))
            return cluster.name != "no-reason"

        return SimpleNamespace(refreshed=act)

    monkeypatch.setattr(active, "flow_of", flow)
    rows = (("elsewhere", "r2", NAMES), ("no-reason", "r1", NAMES), ("a", "r1", ("second",)), ("b", "r1", NAMES))
    clusters = [SimpleNamespace(name=name, region=region, policies_on=on) for name, region, on in rows]
    active.refresh(cast(Any, SimpleNamespace(settings=SimpleNamespace(clusters=clusters))), "r1", 7.0)
    assert refreshed == [
        ("first", "no-reason", 7.0),
        ("first", "b", 7.0),
        ("second", "no-reason", 7.0),
        ("second", "a", 7.0),
    ]
