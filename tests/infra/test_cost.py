"""The monthly bill of an install, reckoned from its template."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from benchmarks.functions.cost import (
    FREE_METRICS_PER_DASHBOARD,
    KARPENTER,
    REST,
    TEN,
    THOUSAND,
    Deployed,
    Load,
    bill,
    metrics_on,
    read,
    synthesised,
    with_free_tier,
)

CLUSTERS = 100


@pytest.fixture(scope="module")
def deployed() -> Deployed:
    return read(synthesised())


@pytest.fixture(scope="module")
def hundred() -> Deployed:
    return read(synthesised(clusters=CLUSTERS))


def listed(deployed: Deployed, load: Load, clusters: int = 1) -> float:
    return sum(bill(deployed, load, clusters).values())


def cents(dollars: float) -> int:
    """As docs/reference/costs.md writes an amount."""
    return round(100 * dollars)


def test_what_is_paid_for_is_found_in_the_template(deployed: Deployed) -> None:
    assert set(deployed.scheduled) == {"schedule", "disrupt", "catalog", "watch"}
    assert deployed.scheduled["schedule"] == deployed.scheduled["disrupt"] == 730 * 60
    assert deployed.memory_gib["watch"] == 0.125
    assert (deployed.queues, deployed.alarm_metrics, len(deployed.dashboards)) == (3, 17, 1)


def test_what_is_paid_for_is_found_in_the_templates_of_a_hundred_clusters(
    deployed: Deployed, hundred: Deployed
) -> None:
    """All of them share what one has; only watches are divided."""
    assert hundred._replace(scheduled={}) == deployed._replace(scheduled={})
    shared = {"schedule", "disrupt", "catalog"}
    assert {name: hundred.scheduled[name] for name in shared} == {name: deployed.scheduled[name] for name in shared}
    assert hundred.scheduled["watch"] / deployed.scheduled["watch"] <= 8


def test_an_install_at_rest_costs_two_dollars_in_the_free_tier_and_eleven_at_list_price(deployed: Deployed) -> None:
    assert sum(with_free_tier(bill(deployed, REST), deployed).values()) <= 2.10
    assert cents(listed(deployed, REST)) <= 1095


def test_without_a_dashboard_it_costs_eight_dollars_at_list_price() -> None:
    without = read(synthesised(dashboard=False))
    assert without.dashboards == ()
    assert cents(listed(without, REST)) <= 795


@pytest.mark.parametrize("clusters", [2, CLUSTERS])
def test_each_further_cluster_at_rest_costs_a_third_of_a_dollar(
    deployed: Deployed, hundred: Deployed, clusters: int
) -> None:
    many = hundred if clusters == CLUSTERS else read(synthesised(clusters=clusters))
    assert cents((listed(many, REST, clusters) - listed(deployed, REST)) / (clusters - 1)) <= 32


def test_traces_cost_half_a_dollar_at_rest_and_next_to_nothing_in_the_free_tier(deployed: Deployed) -> None:
    traced = read(synthesised(tracing=True))

    assert traced._replace(traced=frozenset()) == deployed
    assert traced.traced == set(traced.memory_gib)
    assert bill(deployed, REST)["traces"] == 0
    assert bill(traced, REST)["traces"] == pytest.approx(sum(traced.scheduled.values()) * 5e-6)
    assert cents(bill(traced, REST)["traces"]) == 50
    assert cents(with_free_tier(bill(traced, REST), traced)["traces"]) <= 1
    others = {name: amount for name, amount in bill(traced, THOUSAND).items() if name != "traces"}
    assert others == {name: amount for name, amount in bill(deployed, THOUSAND).items() if name != "traces"}


def test_a_dashboard_costs_nothing_in_the_free_tier_however_many_clusters_there_are(
    deployed: Deployed, hundred: Deployed
) -> None:
    assert max(*deployed.dashboards, *hundred.dashboards) <= FREE_METRICS_PER_DASHBOARD
    assert with_free_tier(bill(hundred, REST, CLUSTERS), hundred)["dashboards"] == 0
    too_large = deployed._replace(dashboards=(FREE_METRICS_PER_DASHBOARD + 1,))
    assert with_free_tier(bill(too_large, REST), too_large)["dashboards"] == 3


def test_a_search_is_not_taken_for_one_metric() -> None:
    metrics = [[{"expression": "SEARCH('{Shiplap,install,cluster} MetricName=\"Nodes\"', 'Maximum', 60)"}]]
    with pytest.raises(ValueError, match="any number of metrics"):
        metrics_on(json.dumps({"widgets": [{"properties": {"metrics": metrics}}]}))


def test_an_alarm_on_an_expression_costs_as_much_as_its_metrics() -> None:
    stat = {"Metric": {"MetricName": "Errors"}, "Period": 60, "Stat": "Sum"}
    metrics = [{"Id": "sum", "Expression": "a + b"}, {"Id": "a", "MetricStat": stat}, {"Id": "b", "MetricStat": stat}]
    resources = {
        "One": {"Type": "AWS::CloudWatch::Alarm", "Properties": {"MetricName": "Errors"}},
        "Two": {"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": metrics}},
    }
    assert read([{"Resources": resources}]).alarm_metrics == 3


def test_ten_nodes_at_rest_cost_a_little_more(deployed: Deployed) -> None:
    assert listed(deployed, TEN) <= 14


def test_a_thousand_nodes_cost_less_than_the_nodes_that_karpenter_runs_on(deployed: Deployed) -> None:
    assert listed(deployed, THOUSAND) < sum(KARPENTER.values())
