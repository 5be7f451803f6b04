"""Known facts of a class show its open domains; a question for each value by itself gives the same domains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import pack, solve
from shiplap.scheduling.supply.open_claims import ClaimGroups, PlacementAttempt
from shiplap.scheduling.supply.openings import PossibleNodes
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.reachable_domains import ReachableDomains
from tests.adversarial import ARCH, KIND, TYPE, ZONE, drawn
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.conformance import given as case
from tests.conformance.catalogues import fake_type

_MOST_CLASSES = 25
_MOST_VALUES = 6


def asked(seed: int) -> Iterator[tuple[Packing, ReachableDomains, PodClass, str]]:
    """Classes and labels of a batch whose pods have been placed as far as they can be."""
    compiled, packing = solve(drawn(seed, 60))
    reach = ReachableDomains(packing.openings.possible, packing.attempts)
    plannable = [pod_class for pod_class in compiled.classes if not pod_class.problem and not pod_class.keeps_off]
    for pod_class in plannable[:_MOST_CLASSES]:
        spread_over = {spread.key for spread in pod_class.constraints.spreads}
        for key in sorted({ZONE, KIND, TYPE, ARCH, "example.com/rack-0", *spread_over}):
            yield packing, reach, pod_class, key


def opens(packing: Packing, attempt: PlacementAttempt, template: NodeClaimTemplate, key: str, value: str) -> bool:
    pinned = packing.attempts.pinned(attempt, (Requirement.one_of(key, value),))
    return pinned is not None and packing.openings.possible.has_node(template, pinned)


def suits(packing: Packing, attempt: PlacementAttempt, pin: Requirement) -> bool:
    pinned = packing.attempts.pinned(attempt, (pin,))
    return pinned is not None and any(
        packing.openings.possible.suits(template, pinned) for template in packing.openings.templates
    )


@pytest.mark.parametrize("seed", [3, 14, 159, 2653, 58979])
def test_a_claim_can_be_opened_with_the_values_that_each_can_be_asked_for(seed: int) -> None:
    for packing, reach, pod_class, key in asked(seed):
        for template in packing.openings.templates:
            values = reach.values_of(template, key)
            found = dict(zip(values, reach.opening(pod_class, template, key).tolist(), strict=True))
            for value in values[:: max(1, len(values) // _MOST_VALUES)]:
                attempts = packing.attempts.relaxed(pod_class)
                expected = any(opens(packing, attempt, template, key, value) for attempt in attempts)
                assert found[value] is expected, (pod_class.index, template.index, key, value)


@pytest.mark.parametrize("seed", [3, 14, 159, 2653, 58979])
def test_a_node_may_be_launched_with_a_label_if_some_template_suits_the_pods_with_it(seed: int) -> None:
    for packing, reach, pod_class, key in asked(seed):
        values = sorted({value for template in packing.openings.templates for value in reach.values_of(template, key)})
        chosen = [None, "nowhere", *values[:: max(1, len(values) // _MOST_VALUES)]]
        for attempt in packing.attempts.of(pod_class)[:3]:
            for value, may in zip(chosen, reach.may_launch(attempt, key, chosen), strict=True):
                pin = Requirement(key) if value is None else Requirement.one_of(key, value)
                assert may == suits(packing, attempt, pin), (pod_class.index, key, value)


def test_the_domains_after_a_plan_that_used_up_its_limits_are_those_before_it() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    waiting = pods(5, cpu="1", metadata={"labels": {"app": "web"}}, spec={"topologySpreadConstraints": [constraint]})
    pools = [pool("a", limits={"nodes": "1"}), pool("b", limits={"cpu": "2"})]
    snapshot = case.snapshot_of(waiting, pools=pools, types=[fake_type("small", cpu="2", pods="1")])
    compiled = compile_snapshot(snapshot)
    before = PossibleNodes(compiled.templates, ClaimGroups(), best_effort=False)
    packing = pack(snapshot, compiled)
    assert len(packing.claims) == 2
    (pod_class,) = compiled.classes
    for possible in (before, packing.openings.possible):
        reach = ReachableDomains(possible, packing.attempts)
        for template in compiled.templates:
            assert reach.opening(pod_class, template, ZONE).tolist() == [True, True, True]
