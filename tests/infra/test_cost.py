"""The monthly bill of an install, reckoned from its template."""

from __future__ import annotations

import os

import pytest

from shiplap.errors import ShiplapError
from shiplap.local import node

try:
    NODE = node.executable()
except ShiplapError as error:
    pytest.skip(f"the CDK cannot run: {error}", allow_module_level=True)

# Read when the CDK's binding is imported.
os.environ.setdefault("JSII_NODE", str(NODE))
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20")

from benchmarks.cost import KARPENTER, REST, THOUSAND, Deployed, bill, read, synthesised, with_free_tier


@pytest.fixture(scope="module")
def deployed() -> Deployed:
    return read(synthesised(watch=True))


def test_what_is_paid_for_is_found_in_the_template(deployed: Deployed) -> None:
    assert set(deployed.scheduled) == {"schedule", "disrupt", "catalog", "watch"}
    assert deployed.scheduled["schedule"] == deployed.scheduled["disrupt"] == 730 * 60
    assert deployed.memory_gib["watch"] == 0.125
    assert (deployed.queues, deployed.alarms, deployed.dashboards) == (3, 17, 1)


def test_an_install_at_rest_stays_below_eight_dollars_a_month(deployed: Deployed) -> None:
    assert sum(with_free_tier(bill(deployed, REST)).values()) < 8


def test_without_the_watch_function_it_does_so_even_at_list_price(deployed: Deployed) -> None:
    runs = {name: number for name, number in deployed.scheduled.items() if name != "watch"}
    assert sum(bill(deployed._replace(scheduled=runs), REST).values()) < 8


def test_a_thousand_nodes_cost_less_than_the_nodes_that_karpenter_runs_on(deployed: Deployed) -> None:
    assert sum(bill(deployed, THOUSAND).values()) < sum(KARPENTER.values())
