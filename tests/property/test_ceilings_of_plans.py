"""Random clusters below ceilings in dollars: no plan passes one, and none leaves room that a waiting pod could use."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import (
    CEILING_REACHED,
    CRITICAL_PRIORITY,
    HOURLY_PERIOD,
    MONTHLY_PERIOD,
    CeilingMode,
    CeilingScope,
    CeilingUse,
    SpendingView,
    admit,
)
from shiplap.policies.ceilings.launch_ceilings import within_ceilings
from shiplap.policies.ceilings.launch_costs import wanted_launches
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from tests.checker import violations
from tests.property.drawn_snapshots import flying, snapshots
from tests.strategies import sampled_from
from tests.thoroughness import draws

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
CENT = 10_000


@st.composite
def ceilings(draw: st.DrawFn) -> CeilingUse:
    scope = draw(sampled_from([CeilingScope.ACCOUNT, CeilingScope.CLUSTER, CeilingScope.NODE_POOL]))
    return CeilingUse(
        scope,
        draw(sampled_from([HOURLY_PERIOD, MONTHLY_PERIOD])),
        draw(st.integers(1, 400)) * CENT,
        draw(st.integers(0, 200)) * CENT,
        {CeilingScope.NODE_POOL: "pool-0", CeilingScope.CLUSTER: "test"}.get(scope, ""),
        draw(sampled_from([CeilingMode.STOP, CeilingMode.STOP, *CeilingMode])),
        above_priority=draw(sampled_from([0, 100])),
        recovery_percent=draw(sampled_from([0, 10, 50])),
    )


@st.composite
def bounded(draw: st.DrawFn) -> Snapshot:
    """The clusters of the other properties, with pods of several priorities below one or two ceilings."""
    snapshot = draw(snapshots())
    priorities = st.sampled_from([0, 0, 50, 1000, CRITICAL_PRIORITY])
    pods = tuple(_of_priority(pod, draw(priorities)) for pod in snapshot.view.pods)
    view = SpendingView(
        tuple(draw(st.lists(ceilings(), min_size=1, max_size=2))),
        month_left_s=draw(sampled_from([3600, 50_000])),
        lost_micros=draw(sampled_from([0, 0, 20 * CENT])),
    )
    strict = SchedulingSettings(min_values_policy="Strict")  # with BestEffort, variety gives way to a ceiling
    return replace(snapshot, view=replace(snapshot.view, pods=pods), policies=(CeilingInput(view),), settings=strict)


def _view(snapshot: Snapshot) -> SpendingView:
    ceilings = snapshot.policy(CeilingInput)
    assert ceilings is not None
    return ceilings.view


def _of_priority(pod: Pod, priority: int) -> Pod:
    return replace(pod, spec=replace(pod.spec, priority=priority))


@SETTINGS
@given(bounded())
def test_a_plan_keeps_every_rule_and_every_ceiling(snapshot: Snapshot) -> None:
    """A claim's requests have the least daemons of its types, also of those that a ceiling leaves out."""
    made = plan(snapshot)
    assert [wrong for wrong in violations(snapshot, made) if " requests " not in wrong] == []
    view = _view(snapshot)
    assert admit(view, wanted_launches(snapshot, view, made.node_claims)).refused == {}


@SETTINGS
@given(bounded())
def test_what_is_left_of_ceilings_has_room_for_no_pod_that_waits(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    waits = {entry.pod for entry in made.unschedulable if entry.message.startswith(CEILING_REACHED)}
    view = _view(snapshot)
    left = admit(view, wanted_launches(snapshot, view, made.node_claims)).after
    after = plan(replace(snapshot, claims=flying(made), policies=(CeilingInput(left),), epoch=1))
    assert waits.isdisjoint(pod for claim in after.node_claims for pod in claim.pods)


@SETTINGS
@given(bounded())
def test_a_pod_loses_a_place_to_more_important_ones_only(snapshot: Snapshot) -> None:
    regardless = plan(replace(snapshot, policies=()))
    before = _served(within_ceilings(snapshot, _view(snapshot), regardless, lambda _: regardless))
    after = _served(plan(snapshot))
    priorities = {pod.key: pod.spec.priority for pod in snapshot.view.pods}
    most = max((priorities[key] for key in after - before), default=0)
    assert all(priorities[key] < most for key in before - after)


def _served(made: Plan) -> set[str]:
    parts: tuple[PlannedClaim | Placement, ...] = (*made.node_claims, *made.existing_nodes)
    return {pod.key for part in parts for pod in part.pods}
