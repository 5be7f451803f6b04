"""Random clusters without topology: whoever is left out, brute force finds no node and no new node that holds them."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from shiplap.kubernetes.objects import Node
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.checker import violations
from tests.leftovers import could_be_placed
from tests.property.drawn_snapshots import flying
from tests.property.drawn_worlds import replace, worlds
from tests.thoroughness import draws

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(worlds())
def test_plans_of_richer_clusters_keep_every_rule(snapshot: Snapshot) -> None:
    assert violations(snapshot, plan(snapshot)) == []


@SETTINGS
@given(worlds())
def test_whoever_is_left_out_fits_nowhere(snapshot: Snapshot) -> None:
    assert could_be_placed(snapshot, plan(snapshot)) == []


@SETTINGS
@given(worlds())
def test_nor_while_claims_are_in_flight(snapshot: Snapshot) -> None:
    again = replace(snapshot, claims=flying(plan(snapshot)), epoch=1)
    second = plan(again)
    assert violations(again, second) == []
    assert could_be_placed(again, second) == []


@SETTINGS
@given(worlds())
def test_the_plan_of_a_plan_carried_out_launches_nothing(snapshot: Snapshot) -> None:
    """Once every pod of a plan runs where it was put, only those left out are planned, and they stay out."""
    first = plan(snapshot)
    homes = {(e.namespace, e.name): place.name for place in first.existing_nodes for e in place.pods}
    pods = tuple(
        replace(pod, spec=replace(pod.spec, node_name=home), status=replace(pod.status, conditions=(), phase="Running"))
        if (home := homes.get((pod.metadata.namespace, pod.metadata.name)))
        else pod
        for pod in snapshot.view.pods
    )
    gone: tuple[Node, ...] = tuple(n for n in snapshot.view.nodes if not n.metadata.deletion_timestamp)
    if len(gone) != len(snapshot.view.nodes):
        return
    relied = {f"ami/{name}#k" for claim in first.node_claims for name in claim.relies_on_estimate}
    carried_out = replace(
        snapshot,
        view=replace(snapshot.view, pods=pods),
        claims=flying(first),
        piloted=snapshot.piloted | relied,
        epoch=1,
    )
    second = plan(carried_out)
    assert second.node_claims == ()
    assert {record.pod for record in second.unschedulable} <= {record.pod for record in first.unschedulable}
