"""Figures that users read in the docs are those that the code works with."""

from __future__ import annotations

from shiplap.aws import bus
from shiplap.aws.ec2 import ec2_compute, launch_templates, request_pace
from shiplap.cluster import snapshot_keeper
from shiplap.disruption import consolidation, decision_memory, move_costs, node_history, progress
from shiplap.disruption.methods import terminate_first
from shiplap.flows import assign_instances, claim_updates, messages, pod_events, turns
from shiplap.flows.disrupt import disruption_round
from shiplap.flows.interrupt import interrupt
from shiplap.flows.lifecycle import drain, lifecycle, pod_placement
from shiplap.flows.planning import futile_launches, unproven
from shiplap.flows.schedule import schedule
from shiplap.flows.sweep import repair
from shiplap.flows.watch import watch
from shiplap.instances.offerings import unavailability
from shiplap.instances.readiness import joins, nodeclass_status
from tests.documented import says

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 24 * 3600


def test_how_nodes_are_launched() -> None:
    assert says("launches", "afterwards, 25 at the end of the invocation and 25 with each sweep")
    assert assign_instances.MOST_NAMES == 25
    assert says("launches", "50 of its instances may be requested at once, 25 after the second failure")
    assert [unavailability.launch_budget(failures) for failures in (1, 2)] == [50, 25]
    assert says("launches", "the function waits up to five seconds, with jitter")
    assert request_pace.LONGEST_WAIT_S == 5
    assert says("launches", "1,000 may be launched at once and 2 a second after that")
    assert request_pace.INSTANCE_LIMITS["create_fleet"] == request_pace.RateLimit(1000, 2)
    assert says("launches", "1,000 may be ended at once and 20 a second after that")
    assert request_pace.INSTANCE_LIMITS["terminate_instances"] == request_pace.RateLimit(1000, 20)
    assert says("launches", "deletes those older than a day")
    assert launch_templates.UNUSED_FOR_S == DAY_S
    assert says("launches", "ten at a time, at most once an hour")
    assert (launch_templates.MOST_AT_ONCE, ec2_compute._TEMPLATE_SWEEP_S) == (10, HOUR_S)
    assert says("launches", "Launches of up to ten nodes get timers")
    assert assign_instances.MOST_TIMERS == 10
    assert says("limits", "refused entries are sent again, up to five times")
    assert bus._TRIES == 5
    assert says("limits", "rounds of planning and launching in one invocation | 12, within 300 s")
    assert schedule.MAX_ROUNDS == 12
    assert says("limits", "pods named in an event | 500")
    assert messages.MOST_PODS == 500
    assert says("launches", "in an event on up to ten of its")
    assert pod_events._PODS_OF_A_CLAIM == 10
    assert says("launches", "if a nominated pod is not on its node a minute after")
    assert pod_placement.WITHDRAWN_S == MINUTE_S
    assert says("launches", "if a hundred pods or more wait, they are nominated without being read")
    assert says("launches", "a hundred at a time")
    assert (pod_placement.FIRST_PODS, pod_placement.MOST_WITHDRAWN) == (100, 100)


def test_launches_in_vain() -> None:
    assert says("launches", "its node has been complete for 45 s")
    assert futile_launches.PATIENCE_S == 45
    assert says("launches", "at most 35 launched within five minutes, and 60 within an hour")
    assert futile_launches.MOST_IN_WINDOW == {5 * MINUTE_S: 35, HOUR_S: 60}
    assert says("launches", "The node of a futile launch is kept for an hour")
    assert futile_launches.IN_VAIN_S == HOUR_S
    assert says("launches", "After each failed batch the limit is a tenth")
    assert unproven.SHRINKS == 10
    assert says("launches", "ten of the sixty nodes per hour are reserved")
    assert unproven.RESERVE == 6
    assert says("launches", "At most 1,000 kinds are remembered")
    assert unproven.MOST_KINDS == 1000


def test_nodes_that_do_not_join() -> None:
    assert says("launches", "twice the 99th percentile of its NodePool's last 100 times")
    assert (joins.DEADLINE_FACTOR, joins.SAMPLES) == (2, 100)
    assert says("launches", "no earlier than three minutes and no later than `joinTimeoutSeconds`")
    assert joins.SHORTEST_DEADLINE_S == 3 * MINUTE_S
    assert says("launches", "Until five nodes have joined")
    assert joins.FEWEST_SAMPLES == 5
    assert says("launches", "(from three minutes to thirty)")
    assert joins.LONGEST_INITIALIZE_S == 30 * MINUTE_S
    assert says("launches", "After three failures of an AMI, or two of a type on it")
    assert (joins.AMI_FAILURES, joins.TYPE_FAILURES) == (3, 2)
    assert says("launches", "launched for fifteen minutes, doubling up to six hours")
    assert (joins.FIRST_PAUSE_S, joins.LONGEST_PAUSE_S) == (15 * MINUTE_S, 6 * HOUR_S)
    assert says("launches", "3 min, doubled up to 1 h")
    assert (unavailability.FIRST_WAIT_S, unavailability.LONGEST_WAIT_S) == (3 * MINUTE_S, HOUR_S)
    assert says("launches", "15 min, doubled up to 1 h")
    assert unavailability.FIRST_WAIT_FOR_QUOTA_S == 15 * MINUTE_S


def test_how_nodes_are_emptied_and_instances_ended() -> None:
    assert says("launches", "After ten seconds a pod without a new node under way is evicted")
    assert drain.HEAD_START_S == 10
    assert says("launches", "until a minute after it should have ended")
    assert drain._STUCK_S == MINUTE_S
    assert says("launches", "two minutes after a spot warning")
    assert interrupt.WARNING_S == 2 * MINUTE_S
    assert says("launches", "its grace period and ten seconds before the deadline")
    assert drain.MARGIN_S == 10
    assert says("launches", "Under a deadline of less than three minutes a node has a round every five seconds")
    assert (drain._SHORT_S, drain.ROUND_S) == (3 * MINUTE_S, 5)
    assert says("launches", "or less often if more than 50 nodes are being emptied")
    assert drain.NODES_PER_ROUND == 50
    assert says("launches", "one invocation evicts at most 100 pods without a deadline")
    assert drain.MOST_EVICTIONS == 100
    assert says("launches", "whose Node has been missing for five minutes")
    assert lifecycle.NODE_GRACE_S == 5 * MINUTE_S
    assert says("launches", "more than two minutes after its launch")
    assert claim_updates.GRACE_S == 2 * MINUTE_S


def test_disruption() -> None:
    assert says("disruption", "without each of the first 16 that a budget allows")
    assert consolidation.SINGLES == 16
    assert says("disruption", "replacement can be one of 15 cheaper types")
    assert consolidation.SPOT_TYPES == 15
    assert says("disruption", "More than 24 nodes are planned again in batches")
    assert consolidation.MOST_NODES == 24
    assert says("disruption", "rounded down to 1, 2, 4, 8, 16 or 24 hours")
    assert tuple(hours * HOUR_S for hours in (1, 2, 4, 8, 16, 24)) == move_costs.LIFE_STEPS_S
    assert says("disruption", "at least 15 seconds ago")
    assert decision_memory.SECOND_LOOK_S == 15
    assert says("disruption", "five seconds after nodes without replacements were cordoned")
    assert disruption_round.CORDONED_S == 5
    assert says("disruption", "is not initialized within 15 minutes")
    assert progress.READY_S == 15 * MINUTE_S
    assert says("disruption", "twice as long each time within a day, at most four hours")
    assert says("disruption", "180 s until nothing counts the node")
    assert terminate_first.FREE_S == 180
    assert (node_history.FORGIVEN_S, node_history.LONGEST_BACKOFF_S) == (DAY_S, 4 * HOUR_S)


def test_invocations_and_snapshots() -> None:
    assert says("operations", "checked in parallel, each for at most 5 s")
    assert turns.PROBE_S == 5
    assert says("operations", "A full sweep follows every five minutes")
    assert turns.FULL_SWEEP_S == 5 * MINUTE_S
    assert says("operations", "share of the remaining time, at least 30 s")
    assert turns.LEAST_TURN_S == 30
    assert says("operations", "a cluster with more than 2,000 bound pods")
    assert snapshot_keeper.FEWEST_PODS == 2000
    assert says("operations", "plus one for each 1,400 pods")
    assert watch._PODS_PER_MIB == 1400
    assert says("operations", "every six hours")
    assert nodeclass_status.ALLOWED_FOR_S == 6 * HOUR_S


def test_nodes_that_are_sick() -> None:
    assert says("launches", "status check that has failed for two minutes")
    assert repair.IMPAIRED_S == 2 * MINUTE_S
    assert says("launches", "If more than a fifth of a NodePool")
    assert repair.SICK_FRACTION == 1 / 5
    assert says("launches", "At most ten nodes of a cluster are in repair at once")
    assert repair.MOST_AT_ONCE == 10
    assert says("launches", "A change more than twelve hours away is recorded")
    assert interrupt.URGENT_S == 12 * HOUR_S
