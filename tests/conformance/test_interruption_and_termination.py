"""Nodes leave: AWS takes them, they become unhealthy, Shiplap drains them. Numbers are the reference's scenarios.

`aws` and `k8s` in a case's name say which half. Where Shiplap means to differ, the comment says how.
"""

from __future__ import annotations

import pytest

from shiplap.errors import InvalidMessage
from shiplap.flows.interrupt import notices
from shiplap.manifests.shiplap_annotations import REBALANCE
from tests.builders.pools import family_pool
from tests.conformance.lives import (
    Seen,
    after,
    ails,
    attached,
    change_scheduled,
    claimed,
    condition,
    deleted,
    gone,
    guarded,
    instance_is,
    life,
    no_disruption,
    patient,
    pod_becomes,
    rebalance,
    replaced,
    reservation,
    spot,
    swept,
)
from tests.integration.flows.leaving import claim_now, first, play_out, serving, warning
from tests.integration.flows.stage import Stage

DRAINS, STAYS = "Draining", "Initialized"
PROTECTED = pod_becomes(metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})

CASES = {
    "aws: a spot warning → the node leaves, its offering rests": (
        [spot()],
        {},
        Seen(state=DRAINS, deadline_s=120, resting=("spot",)),
    ),
    "aws 101: its capacity reservation is interrupted → the same, of the reservation": (
        [reservation()],
        {},
        Seen(state=DRAINS, deadline_s=120, resting=("reserved",)),
    ),
    "aws: a rebalance recommendation → told": ([rebalance()], {}, Seen(state=STAYS)),
    # Upstream has no policies.
    "aws: a rebalance recommendation, the pool says cordon": (
        [rebalance()],
        {"pools": patient("", {REBALANCE: "cordon"})},
        Seen(state=STAYS, resting=("spot",)),
    ),
    "aws: a rebalance recommendation, the pool says replace": (
        [rebalance()],
        {"pools": patient("", {REBALANCE: "replace"})},
        Seen(state=DRAINS, resting=("spot",)),
    ),
    "aws: a scheduled change": ([change_scheduled()], {}, Seen(state=DRAINS)),
    "aws: stopping": ([instance_is("stopping")], {}, Seen(state="Gone", evicted=("web-000",))),
    "aws: terminated": ([instance_is("terminated")], {}, Seen(state="Gone", evicted=("web-000",))),
    "aws: running": ([instance_is("running")], {}, Seen(state=STAYS)),
    "aws: a status check fails": ([ails("instance")], {}, Seen(state=DRAINS, deadline_s=120)),
    "aws: an event is scheduled": ([ails("event")], {}, Seen(state=DRAINS)),
    "k8s 151: the pods of a leaving node get another one": (
        [change_scheduled(), replaced()],
        {},
        Seen(state=DRAINS, launched=1),
    ),
    "k8s 153: the pool's grace period is the deadline": (
        [change_scheduled()],
        {"pools": patient("10m")},
        Seen(state=DRAINS, deadline_s=600),
    ),
    # Upstream evicts after five seconds, whether or not there is another node yet.
    "k8s 239: a pod stays until its node is ready": (
        [change_scheduled(), swept(), after(300)],
        {},
        Seen(state=DRAINS, launched=1),
    ),
    "k8s 239: and leaves then": (
        [change_scheduled(), replaced(), after(60)],
        {},
        Seen(state=DRAINS, launched=1, evicted=("web-000",)),
    ),
    "k8s 241: a budget that allows nothing holds": (
        [guarded(), change_scheduled(), replaced(), after(600)],
        {},
        Seen(state=DRAINS),  # what never may leave needs no other room
    ),
    # Nothing is launched for a pod that may stay to the end (223).
    "k8s 243: grace 300 s, a protected pod with 60 s lives at 90 s": (
        [PROTECTED, pod_becomes(spec={"terminationGracePeriodSeconds": 60}), change_scheduled(), after(90)],
        {"pools": patient("300s")},
        Seen(state=DRAINS, deadline_s=210),
    ),
    # Upstream ends it at 240 s; ours is ten seconds earlier, so that it has ended when the instance does.
    "k8s 243: and is ended in time": (
        [PROTECTED, pod_becomes(spec={"terminationGracePeriodSeconds": 60}), change_scheduled(), after(240)],
        {"pools": patient("300s")},
        Seen(state=DRAINS, deadline_s=60, evicted=("web-000",)),
    ),
    "k8s 243: a pod as slow as that leaves at once": (
        [PROTECTED, pod_becomes(spec={"terminationGracePeriodSeconds": 300}), change_scheduled()],
        {"pools": patient("300s")},
        Seen(state=DRAINS, deadline_s=300, evicted=("web-000",)),
    ),
    "k8s 245: volumes are awaited": (
        [attached(), gone(), change_scheduled(), after(60)],
        {},
        Seen(state=DRAINS),
    ),
    "k8s 245: those of pods that stay are not": (
        [attached(), claimed(), change_scheduled(), after(60)],
        {},
        Seen(state="Gone"),
    ),
    "k8s 245: but not past the deadline": (
        [attached(), gone(), change_scheduled(), after(120)],
        {"pools": patient("90s")},
        Seen(state="Gone"),
    ),
    "k8s 247: a bad condition is tolerated": (
        [condition("Ready", "False"), after(1740)],
        {},
        Seen(state=STAYS),
    ),
    # Upstream ends the instance at once; here its replacement comes first, for at most two minutes.
    "k8s 247: and no longer": (
        [condition("Ready", "False"), after(1800)],
        {"pools": patient("24h")},
        Seen(state=DRAINS, deadline_s=120),
    ),
    # A sick node's pods get no more than that, whatever grace the pool would give them.
    "k8s 247: a node that is leaving at leisure falls ill": (
        [PROTECTED, change_scheduled(), condition("Ready", "False"), after(1800)],
        {"pools": patient("24h")},
        Seen(state=DRAINS, deadline_s=120),
    ),
    "k8s 247: a deadline that is nearer is kept": (
        [spot(), after(30), condition("Ready", "False"), ails("instance")],
        {"pools": patient("24h")},
        Seen(state=DRAINS, deadline_s=90, resting=("spot",), evicted=("web-000",)),
    ),
    "k8s 247: annotations do not keep a sick node": (
        [PROTECTED, condition("Ready", "False"), after(1800)],
        {},
        Seen(state=DRAINS, deadline_s=120),
    ),
    # As in upstream's suite `disruption` of 1.15, which bounds repairs by budgets.
    "k8s 247: budgets do": (
        [condition("Ready", "False"), after(1800)],
        {"pools": no_disruption()},
        Seen(state=STAYS),
    ),
    "k8s 247: another condition means nothing": (
        [condition("DiskPressure", "True"), after(3600)],
        {},
        Seen(state=STAYS),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_leaves(case: str) -> None:
    moves, given, expected = CASES[case]
    assert life(*moves, **given) == expected


def test_aws_103_a_hundred_mixed_messages_are_all_handled() -> None:
    stage = serving(25)
    before = stage.claims()
    for number in range(100):
        claim = before[number % 25]
        kinds = ("EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation")
        known = number % 4 < 2
        stage.interrupt(warning(stage, claim.instance_id if known else f"i-f{number:016x}", kinds[number % 2]))
    play_out(stage)
    warned = {before[number % 25].name for number in range(0, 100, 4)}
    assert {claim.name for claim in before if claim_now(stage, claim).state == "Gone"} == warned


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"source": "aws.ec2", "detail-type": "x"}', '{"source": 1}'])
def test_aws_a_message_that_is_no_event_is_malformed(body: str) -> None:
    with pytest.raises(InvalidMessage):
        notices.read_notice(body, "interruption")


def test_aws_an_event_nobody_knows_is_done_with() -> None:
    known = notices.read_notice('{"source": "aws.ec2", "detail-type": "EC2 News", "detail": {}}', "interruption")
    assert (known.kind, known.instance_ids) == (notices.NoticeKind.OTHER, ())


def test_aws_105_a_claim_that_is_gone_is_no_error() -> None:
    stage = serving()
    claim, instance = first(stage)
    body = warning(stage, instance.id)
    stage.interrupt(body)
    play_out(stage)
    stage.interrupt(body)
    assert claim_now(stage, claim).state == "Gone"


def test_aws_111_a_zonal_shift_closes_its_zone_and_no_other() -> None:
    stage = Stage((family_pool("any", ("m6i",)),))
    stage.settings = type(stage.settings)(
        name=stage.name, region="eu-west-1", manifests=stage.settings.manifests, zonal_shift=True
    )
    stage.health.shifted.add("eu-west-1a")
    stage.add_pods(6, cpu="3", memory="4Gi")
    stage.schedule()
    assert stage.compute.launches
    assert "eu-west-1a" not in {instance.zone for instance in stage.compute.launches}


def test_k8s_243_a_pod_that_is_ending_too_slowly_has_its_time_cut() -> None:
    moves = (pod_becomes(spec={"terminationGracePeriodSeconds": 6000}), deleted(), change_scheduled())
    assert life(*moves, pools=patient("300s")) == Seen(state=DRAINS, deadline_s=300, evicted=("web-000",))
