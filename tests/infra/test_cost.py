"""The monthly bill of an install, reckoned from its template."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from benchmarks.cost import (
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
    assert listed(deployed, REST) <= 11


def test_without_a_dashboard_it_costs_eight_dollars_at_list_price() -> None:
    without = read(synthesised(dashboard=False))
    assert without.dashboards == ()
    assert listed(without, REST) <= 8


@pytest.mark.parametrize("clusters", [2, CLUSTERS])
def test_each_further_cluster_at_rest_costs_half_a_dollar(deployed: Deployed, hundred: Deployed, clusters: int) -> None:
    many = hundred if clusters == CLUSTERS else read(synthesised(clusters=clusters))
    assert (listed(many, REST, clusters) - listed(deployed, REST)) / (clusters - 1) <= 0.50


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
