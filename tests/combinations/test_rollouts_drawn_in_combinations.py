"""Rollouts of drawn clusters take part in decisions on disruption."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.policies.rollouts.rollouts_input import RolloutsInUse
from tests.combinations.carrying_out import carried_out
from tests.combinations.disruption_laws import decision
from tests.combinations.drawn_clusters import with_options
from tests.combinations.laws import Decided
from tests.combinations.rollouts_laws import disruption_inputs


def test_nodes_of_pods_that_were_restarted_lately_stay_and_the_other_ones_go() -> None:
    cluster = with_options(7, 3, ["existing_nodes", "replica_set_owner", "rollouts_of_a_pool"])
    done = carried_out(cluster.snapshot, Decided(cluster.snapshot).plan)
    (found,) = disruption_inputs(done)
    assert isinstance(found, RolloutsInUse)
    restarted = {item.node for item in found.moved if item.restarted_at}
    assert restarted == found.kept_from_consolidation(done.now).keys()
    alone = replace(
        done, view=replace(done.view, pods=tuple(pod for pod in done.view.pods if pod.spec.node_name in restarted))
    )
    empty = {node.metadata.name for node in done.view.nodes} - restarted
    gone = {name for command in decision(alone, {}).commands for name in command.nodes}
    assert restarted
    assert gone == empty != set()
