"""Replacements that ceilings refuse: their nodes stay, hold up no others and take no budget from them."""

from __future__ import annotations

import pytest
from msgspec import structs

from shiplap.disruption.commands import Reason
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.kubernetes import labels
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import HOURLY_PERIOD, CeilingMode, CeilingScope, CeilingUse, SpendingView
from tests.builders.pods import pod_on
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import fake_type
from tests.conformance.disruption_order import static
from tests.conformance.disruptions import BOTH, ON_DEMAND, disrupted, large, small
from tests.conformance.given import NOW

GONE = rule("gone", "DoesNotExist")
DRIFTS = {"gone": "x"}


def ceiling(limit: float, used: float, recovery_percent: int = 0) -> SpendingView:
    """Dollars per hour of the cluster."""
    whole = CeilingUse(CeilingScope.CLUSTER, HOURLY_PERIOD, int(limit * 1e6), int(used * 1e6), "test")
    return SpendingView((structs.replace(whole, mode=CeilingMode.STOP, recovery_percent=recovery_percent),))


def test_a_replacement_that_a_ceiling_refuses_holds_up_no_other() -> None:
    verdict = disrupted(
        large("a", labels=DRIFTS),
        small("b", labels=DRIFTS),
        pods=[pod_on("p", "a", cpu="12"), pod_on("q", "b", cpu="3", selector={labels.INSTANCE_TYPE: "small"})],
        pools=[pool("default", ON_DEMAND, GONE, after="Never")],
        types=BOTH,
        policies=(CeilingInput(ceiling(8, 5)),),
    )
    assert verdict.command.nodes == ("b",)
    assert verdict.blocked("a").endswith("a node takes $4.00")


@pytest.mark.parametrize(("used", "gone"), [(2, {"b"}), (3, {"b"}), (3.5, set())])
def test_a_replacement_may_use_what_a_ceiling_keeps_for_recovery(used: float, gone: set[str]) -> None:
    verdict = disrupted(
        small("b", labels=DRIFTS),
        pods=[pod_on("q", "b", cpu="3")],
        pools=[pool("default", ON_DEMAND, GONE, after="Never")],
        types=BOTH[:1],
        policies=(CeilingInput(ceiling(4, used, recovery_percent=50)),),
    )
    assert verdict.removed == gone
    of_no_pods = disrupted(
        small("b", pool="fixed", labels=DRIFTS),
        pools=[static("fixed", 1, ON_DEMAND, GONE)],
        types=BOTH[:1],
        policies=(CeilingInput(ceiling(4, used, recovery_percent=50)),),
    )
    assert of_no_pods.removed == gone


def test_a_replacement_is_refused_where_any_of_its_types_is_too_dear() -> None:
    """Its list of types is decided: one of them may be launched."""
    verdict = disrupted(
        small("b", labels=DRIFTS),
        pods=[pod_on("q", "b", cpu="3")],
        pools=[pool("default", ON_DEMAND, GONE, after="Never")],
        types=BOTH,
        policies=(CeilingInput(ceiling(4, 2)),),
    )
    assert verdict.commands == ()
    assert verdict.blocked("b").endswith("$2.00 in use, a node takes $4.00")


def test_a_replacement_that_a_ceiling_refuses_takes_no_budget_from_the_next() -> None:
    """The older one goes first, and its pod fits only a node that the ceiling has no room for."""
    verdict = disrupted(
        large("a", labels=DRIFTS, created_at=NOW - 9 * 3600),
        small("b", labels=DRIFTS),
        pods=[pod_on("p", "a", cpu="12"), pod_on("q", "b", cpu="3", selector={labels.INSTANCE_TYPE: "small"})],
        pools=[pool("default", ON_DEMAND, GONE, after="Never", budgets=[{"nodes": "1"}])],
        types=BOTH,
        policies=(CeilingInput(ceiling(8, 5)),),
    )
    assert verdict.removed == {"b"}
    assert verdict.blocked("a").endswith("a node takes $4.00")


def test_drift_that_a_ceiling_refuses_does_not_keep_consolidation_from_saving_money() -> None:
    verdict = disrupted(
        large("a", labels=DRIFTS),
        small("b"),
        small("c"),
        pods=[pod_on("p", "a", cpu="15"), pod_on("q", "b"), pod_on("r", "c")],
        pools=[pool("default", ON_DEMAND, GONE)],
        types=BOTH,
        policies=(CeilingInput(ceiling(6, 6)),),
    )
    assert [command.reason for command in verdict.commands] == [Reason.UNDERUTILIZED]
    assert len(verdict.removed & {"b", "c"}) == 1
    assert verdict.blocked("a").endswith("a node takes $4.00")


def test_a_cheaper_type_is_looked_for_among_nodes_that_a_ceiling_leaves() -> None:
    """Consolidation goes on without the node whose replacement is refused."""
    types = [*BOTH, fake_type("middle", cpu="8", memory="16Gi", pods="30", price=2.5)]
    verdict = disrupted(
        large("a"),
        small("b"),
        small("c"),
        pods=[pod_on("p", "a", cpu="7"), pod_on("q", "b", cpu="1"), pod_on("r", "c", cpu="2")],
        pools=[pool("default", ON_DEMAND)],
        types=types,
        policies=(CeilingInput(ceiling(6, 6)),),
        settings=DisruptionSettings(),
    )
    assert verdict.removed
    assert all(not command.replacements for command in verdict.commands)
