"""The page of the playground: each node by its size, the pods that are on it by theirs, and those that wait."""

from __future__ import annotations

import re

from shiplap_lab.checks.observation import ClusterObservation
from shiplap_lab.dev.region_page import region_markup
from tests.builders.nodes import node
from tests.builders.pods import pod_on

NODES = (
    node("large", "16", "64Gi"),
    node("small", "4", "16Gi"),
)
PODS = (pod_on("big", "large", "8"), pod_on("other", "large"), pod_on("tiny", "small"), pod_on("waits"))


def drawn(markup: str, name: str) -> str:
    (item,) = [
        each for each in re.findall(r'<li class="n.*?</svg>', markup, re.DOTALL) if f'aria-label="{name},' in each
    ]
    return item


def side(item: str) -> float:
    found = re.search(r'<svg width="([\d.]+)"', item)
    assert found is not None
    return float(found[1])


def test_the_area_of_a_node_is_its_size_and_each_pod_on_it_is_drawn() -> None:
    markup = region_markup([ClusterObservation("tiers", pods=PODS, nodes=NODES), ClusterObservation("other")], 0.0)
    large, small = drawn(markup, "large"), drawn(markup, "small")
    assert 1.9 < side(large) / side(small) < 2.1
    assert (large.count("<path class=pod"), small.count("<path class=pod")) == (2, 1)
    assert "default/big" in large
    waiting = markup.partition("Pods that wait")[2]
    assert "default/waits" in waiting
    assert "default/tiny" not in waiting


def test_sizes_stay_true_where_nodes_are_many() -> None:
    many = tuple(node(f"n{number}", "4", "16Gi") for number in range(200))
    markup = region_markup([ClusterObservation("tiers", nodes=(*NODES, *many))], 0.0)
    assert 1.9 < side(drawn(markup, "large")) / side(drawn(markup, "small")) < 2.1
    assert "Pods that wait" not in markup
