"""PodGroups as the APIs have them that know gangs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.policies.gangs.gang import PodGroupFacts
from shiplap.policies.gangs.gang_membership import named_pod_groups
from shiplap.policies.gangs.pod_groups import PodGroupObject, group_of, named_facts, pod_group_facts, pod_group_problems
from tests.builders.pods import pod

CORE = "scheduling.k8s.io/v1beta1"
PLUGINS = "scheduling.x-k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
KAI = "scheduling.run.ai/v2alpha2"
ZONE = "topology.kubernetes.io/zone"


def group(api_version: str = PLUGINS, namespace: str = "ml", **spec: Any) -> PodGroupObject:
    metadata = {"name": "train", "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return msgspec.convert({"apiVersion": api_version, "metadata": metadata, "spec": spec}, PodGroupObject)


def gang_policy(count: int | None) -> dict[str, Any]:
    return {"gang": {} if count is None else {"minCount": count}}


@pytest.mark.parametrize(
    ("api_version", "spec", "minimum", "topology"),
    [
        (CORE, {"schedulingPolicy": gang_policy(4)}, 4, ""),
        (CORE, {"schedulingPolicy": {"basic": {}}, "minMember": 4}, 1, ""),
        (
            CORE,
            {"schedulingPolicy": gang_policy(2), "schedulingConstraints": {"topology": [{"key": ZONE}]}},
            2,
            ZONE,
        ),
        (
            "scheduling.k8s.io/v1alpha2",
            {
                "schedulingPolicy": gang_policy(2),
                "schedulingConstraints": {"topologyConstraints": [{"topologyKey": ZONE}]},
            },
            2,
            ZONE,
        ),
        (PLUGINS, {"minMember": 3, "scheduleTimeoutSeconds": 10}, 3, ""),
        (PLUGINS, {}, 1, ""),
        (PLUGINS, {"minMember": 0}, 1, ""),
        (VOLCANO, {"minMember": 5, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, 5, ""),
        (KAI, {"minMember": 6, "topologyConstraint": {"topology": "t", "requiredTopologyLevel": ZONE}}, 6, ZONE),
        (KAI, {"minMember": 6, "topologyConstraint": {"topology": "t", "preferredTopologyLevel": ZONE}}, 6, ""),
        (
            KAI,
            {
                "minMember": 1,
                "subGroups": [
                    {"name": "all", "minMember": 9},
                    {"name": "leader", "minMember": 1, "parent": "all"},
                    {"name": "workers", "minMember": 3, "parent": "all"},
                ],
            },
            4,
            "",
        ),
    ],
)
def test_each_api_says_how_many_and_where(api_version: str, spec: dict[str, Any], minimum: int, topology: str) -> None:
    found = group(api_version, **spec)
    assert list(pod_group_problems(found)) == []
    assert pod_group_facts(found) == PodGroupFacts(
        api_version.partition("/")[0], "ml", "train", minimum, topology, None, "2026-01-01T00:00:00Z"
    )


def test_the_priority_of_a_group_comes_before_that_of_its_class() -> None:
    spec = {"schedulingPolicy": gang_policy(2)}
    assert pod_group_facts(group(CORE, **spec, priority=7), 3).priority == 7
    assert pod_group_facts(group(CORE, **spec), 3).priority == 3


@pytest.mark.parametrize(
    ("api_version", "spec", "field", "reason"),
    [
        (CORE, {}, "spec.schedulingPolicy", "needs one of basic and gang"),
        (
            CORE,
            {"schedulingPolicy": {"basic": {}, **gang_policy(2)}},
            "spec.schedulingPolicy",
            "needs one of basic and gang",
        ),
        (CORE, {"schedulingPolicy": gang_policy(None)}, "spec.schedulingPolicy.gang.minCount", "is missing"),
        (
            CORE,
            {"schedulingPolicy": gang_policy(0)},
            "spec.schedulingPolicy.gang.minCount",
            "must be from 1 to 2147483647, is 0",
        ),
        (PLUGINS, {"minMember": -1}, "spec.minMember", "must be from 0 to 2147483647, is -1"),
        (VOLCANO, {"minMember": 2**31}, "spec.minMember", "must be from 0 to 2147483647, is 2147483648"),
        (KAI, {"minMember": 0}, "spec.minMember", "must be from 1 to 2147483647, is 0"),
        (
            KAI,
            {"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": -3}]},
            "spec.subGroups[1].minMember",
            "must be from 1 to 2147483647, is -3",
        ),
        (
            CORE,
            {"schedulingPolicy": gang_policy(2), "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology",
            "has 2 entries: one is possible",
        ),
        (
            CORE,
            {"schedulingPolicy": gang_policy(2), "schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0]",
            "names no label of nodes",
        ),
        (
            CORE,
            {"schedulingPolicy": gang_policy(2), "priority": 2**31},
            "spec.priority",
            "must fit 32 bits, is 2147483648",
        ),
    ],
)
def test_what_no_gang_can_have_is_a_problem(api_version: str, spec: dict[str, Any], field: str, reason: str) -> None:
    assert list(pod_group_problems(group(api_version, **spec))) == [(field, reason)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.sampled_from(["", "a", "b", "c"]))))
def test_circles_of_sub_groups_have_a_minimum(parts: list[tuple[str, int, str]]) -> None:
    spec = [{"name": name, "minMember": least, "parent": parent} for name, least, parent in parts]
    assert 2 <= pod_group_facts(group(KAI, minMember=2, subGroups=spec)).minimum <= max(2, 9 * len(parts))


def test_other_groups_of_apis_have_no_pod_groups() -> None:
    assert [group_of(text) for text in (CORE, "v1", "", None, 3, "scheduling.example.com/v1")] == [
        "scheduling.k8s.io",
        *[""] * 5,
    ]


def test_facts_are_of_the_pod_groups_that_pods_name() -> None:
    known = [pod_group_facts(group(minMember=2)), pod_group_facts(group(VOLCANO, "other", minMember=3))]
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    pods = [
        pod("a", "1", labels=label, namespace="ml"),
        pod("b", "1", labels=label, namespace="web"),
        pod("c", "1", annotations={"scheduling.volcano.sh/group-name": "none"}),
        pod("d", "1"),
    ]
    found = named_facts(named_pod_groups(pods), known, "among the files")
    assert [(item.namespace, item.name, item.minimum, item.problem) for item in found] == [
        ("default", "none", 1, "there is no PodGroup default/none of scheduling.volcano.sh among the files"),
        ("ml", "train", 2, ""),
        (
            "web",
            "train",
            1,
            "there is no PodGroup web/train of scheduling.x-k8s.io among the files: namespace ml has one, whose "
            "members are in its namespace only",
        ),
    ]
