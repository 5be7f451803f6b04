"""Which gang a pod is of, as Kueue, Kubernetes, scheduler-plugins, Volcano, KAI and owners say it."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes import labels
from shiplap.kubernetes.compact_pods import lean_pod
from shiplap.policies.gangs import gang_membership
from shiplap.policies.gangs.gang_membership import DEADLINE, MINIMUM, Membership, membership, named_pod_groups
from tests.builders.pods import pod

KUEUE = {"kueue.x-k8s.io/pod-group-name": "g"}
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"labels": {"app": "web"}, "annotations": {"a": "b"}}, None),
        ({"labels": KUEUE, "annotations": {TOTAL: "4"}}, Membership("kueue.x-k8s.io", "g", 4)),
        (
            {"labels": KUEUE, "annotations": {TOTAL: "4", "kueue.x-k8s.io/podset-required-topology": "zone"}},
            Membership("kueue.x-k8s.io", "g", 4, "zone"),
        ),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, Membership("scheduling.x-k8s.io", "g")),
        ({"annotations": {"scheduling.k8s.io/group-name": "g"}}, Membership("scheduling.volcano.sh", "g")),
        ({"annotations": {"scheduling.volcano.sh/group-name": "g"}}, Membership("scheduling.volcano.sh", "g")),
        ({"annotations": {"pod-group-name": "g"}}, Membership("scheduling.run.ai", "g")),
        ({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, Membership("scheduling.k8s.io", "g")),
        ({"spec": {"schedulingGroup": {}}}, None),
        ({"annotations": {MINIMUM: "3"}, "owner": "job", "owner_kind": "Job"}, Membership("owner", "job", 3)),
        ({"annotations": {MINIMUM: "3"}}, Membership("owner", "pod", 3)),
        (
            {"annotations": {MINIMUM: "3", DEADLINE: "1h"}, "labels": {"jobset.sigs.k8s.io/jobset-name": "set"}},
            Membership("owner", "set", 3, deadline_s=3600.0),
        ),
        (
            {
                "annotations": {MINIMUM: "3"},
                "labels": {
                    "leaderworkerset.sigs.k8s.io/name": "lws",
                    "leaderworkerset.sigs.k8s.io/group-index": "1",
                    "jobset.sigs.k8s.io/jobset-name": "set",
                },
            },
            Membership("owner", "lws-1", 3),
        ),
    ],
)
def test_pods_say_their_gang(fields: dict[str, Any], expected: Membership | None) -> None:
    assert membership(pod(**fields)) == expected
    assert membership(lean_pod(pod(node="n", **fields))) == expected


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({}, f"annotation {TOTAL} is missing"),
        ({TOTAL: "0"}, f"annotation {TOTAL} is '0': it must be how many pods are needed together"),
        ({TOTAL: "-1"}, "is '-1'"),
        ({TOTAL: "four"}, "is 'four'"),
        ({TOTAL: "²"}, "is '²'"),
        ({TOTAL: "1234567"}, "is '1234567'"),
        ({TOTAL: "4", DEADLINE: "soon"}, f"annotation {DEADLINE}: 'soon' is not a duration"),
        ({TOTAL: "4", DEADLINE: "-1m"}, f"annotation {DEADLINE} is '-1m': it must be longer than nothing"),
    ],
)
def test_what_cannot_be_read_is_a_problem(annotations: dict[str, str], said: str) -> None:
    found = membership(pod(labels=KUEUE, annotations=annotations))
    assert found is not None
    assert said in found.problem


def test_pod_groups_are_named_once_and_only_where_they_are_objects() -> None:
    waiting = [
        pod("a", labels={"scheduling.x-k8s.io/pod-group": "g"}),
        pod("b", labels={"scheduling.x-k8s.io/pod-group": "g"}, namespace=""),
        pod("c", labels=KUEUE, annotations={TOTAL: "2"}),
        pod("d"),
        pod("e", namespace="ml", spec={"schedulingGroup": {"podGroupName": "h"}}),
    ]
    assert named_pod_groups(waiting) == (
        ("scheduling.k8s.io", "ml", "h"),
        ("scheduling.x-k8s.io", "default", "g"),
    )


def test_annotations_of_gangs_are_kept_of_running_pods() -> None:
    assert {MINIMUM, DEADLINE, TOTAL} <= set(labels.ANNOTATIONS_OF_GROUPS)
    assert gang_membership.KUBERNETES == "scheduling.k8s.io"
