"""Where nodes can be launched is read off what is known of a class; asking for each value by itself says the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import plan, solve
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.reachable_domains import ReachableDomains
from tests.adversarial import ARCH, KIND, TYPE, ZONE, drawn

_MOST_CLASSES = 25
_MOST_VALUES = 6


def asked(seed: int) -> Iterator[tuple[Packing, ReachableDomains, PodClass, str]]:
    """Classes and labels of a batch whose pods have been placed as far as they can be."""
    compiled, packing = solve(drawn(seed, 60))
    reach = ReachableDomains(packing.openings, packing.attempts)
    plannable = [pod_class for pod_class in compiled.classes if not pod_class.problem and not pod_class.keeps_off]
    for pod_class in plannable[:_MOST_CLASSES]:
        spread_over = {spread.key for spread in pod_class.constraints.spreads}
        for key in sorted({ZONE, KIND, TYPE, ARCH, "example.com/rack-0", *spread_over}):
            yield packing, reach, pod_class, key


def opens(packing: Packing, attempt: PlacementAttempt, template: NodeClaimTemplate, key: str, value: str) -> bool:
    pinned = packing.attempts.pinned(attempt, (Requirement.one_of(key, value),))
    return pinned is not None and packing.openings.opens(template, pinned)


def suits(packing: Packing, attempt: PlacementAttempt, pin: Requirement) -> bool:
    pinned = packing.attempts.pinned(attempt, (pin,))
    return pinned is not None and any(
        packing.openings.suits(template, pinned) for template in packing.openings.templates
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


@pytest.mark.parametrize("seed", [653, 5897])
def test_what_may_be_opened_is_remembered_only_while_it_is_certain(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    remembering = plan(drawn(seed, 40))
    monkeypatch.setattr(Openings, "condition", lambda _: object())
    assert plan(drawn(seed, 40)) == remembering
