"""Tests the choice of Shiplap's pods where another autoscaler has the other pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.manifests.claim_rules import ClaimRule, ClaimRules, rule_problems
from shiplap.manifests.decoding import decode
from tests.builders.nodes import node
from tests.builders.pods import WAITING, pod
from tests.conformance.given import given

OUTSIDE = "outside the cluster's claim rules"


def rules(*written: dict[str, Any]) -> tuple[ClaimRule, ...]:
    return msgspec.convert({"claimRules": list(written)}, ClaimRules).claim_rules


def asked(**fields: Any) -> Any:
    labels, namespace = fields.pop("labels", {}), fields.pop("namespace", "default")
    return pod("asked", cpu="1", metadata={"labels": labels, "namespace": namespace}, **fields)


EVERYTHING = [{"operator": "Exists"}]
MIGRATION = [{"key": "shiplap.dev/migration", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("written", "fields", "ours"),
    [
        ([], {}, True),
        ([{"namespaces": ["team-a"]}], {"namespace": "team-a"}, True),
        ([{"namespaces": ["team-a"]}], {"namespace": "team-b"}, False),
        ([{"namespaces": ["team-a"]}], {"namespace": "team-a-2"}, False),
        ([{"namespaces": ["batch-*", "team-a"]}], {"namespace": "batch-7"}, True),
        ([{"namespaces": ["default"]}], {"namespace": ""}, True),  # of a file
        ([{"namespaces": ["team-*"]}], {"namespace": ""}, False),
        ([{"podSelector": {"matchLabels": {"tier": "web"}}}], {"labels": {"tier": "web"}}, True),
        ([{"podSelector": {"matchLabels": {"tier": "web"}}}], {"labels": {"tier": "db"}}, False),
        ([{"podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}], {"labels": {}}, False),
        (
            [{"podSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]}}],
            {"labels": {}},
            True,
        ),
        ([{"tolerates": "shiplap.dev/migration"}], {"tolerations": MIGRATION}, True),
        ([{"tolerates": "shiplap.dev/migration"}], {}, False),
        ([{"tolerates": "shiplap.dev/migration"}], {"tolerations": EVERYTHING}, False),
        ([{"namespaces": ["a"], "tolerates": "x"}], {"namespace": "a"}, False),
        ([{"namespaces": ["a"]}, {"tolerates": "shiplap.dev/migration"}], {"tolerations": MIGRATION}, True),
    ],
)
def test_a_pod_is_claimed_when_all_of_one_rule_holds(
    written: list[dict[str, Any]], fields: dict[str, Any], ours: bool
) -> None:
    outcome = given(asked(**fields), claim_rules=rules(*written))
    assert len(outcome.claims) == int(ours)
    assert [entry.message for entry in outcome.plan.ignored] == ([] if ours else [OUTSIDE])
    assert not outcome.plan.unschedulable


def test_room_on_nodes_is_not_given_to_pods_outside() -> None:
    outcome = given(asked(), nodes=[node()], claim_rules=rules({"namespaces": ["elsewhere"]}))
    assert not outcome.plan.existing_nodes
    assert [entry.message for entry in outcome.plan.ignored] == [OUTSIDE]


def test_a_pod_outside_whose_node_leaves_gets_its_place_first() -> None:
    leaving = node("old", pool="default")
    leaving = msgspec.structs.replace(
        leaving, metadata=msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    outcome = given(asked(node="old"), nodes=[leaving], claim_rules=rules({"namespaces": ["elsewhere"]}))
    assert len(outcome.claims) == 1


def test_another_reason_to_leave_a_pod_alone_is_named_first() -> None:
    gated = pod("gated", spec={"schedulingGates": [{"name": "wait"}]}, status=WAITING)
    outcome = given(gated, claim_rules=rules({"namespaces": ["elsewhere"]}))
    assert [entry.message for entry in outcome.plan.ignored] == ["scheduling gate wait"]


@pytest.mark.parametrize(
    ("written", "where", "reason"),
    [
        ({}, (0,), "says nothing"),
        ({"namespaces": []}, (0,), "says nothing"),
        ({"namespaces": [""]}, (0, "namespaces", 0), "must be a name"),
        ({"namespaces": ["team-[ab]"]}, (0, "namespaces", 0), "must be a name"),
        ({"podSelector": {}}, (0, "podSelector"), "is empty"),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            (0, "podSelector", "matchExpressions", 0, "operator"),
            "must be one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            (0, "podSelector", "matchExpressions", 0, "values"),
            "In needs values",
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            (0, "podSelector", "matchExpressions", 0, "values"),
            "Exists takes no values",
        ),
    ],
)
def test_a_rule_that_cannot_be_meant(written: dict[str, Any], where: tuple[str | int, ...], reason: str) -> None:
    made, shape = decode({"claimRules": [written]}, ClaimRules)
    assert made is not None
    below = [(path[1:], why) for path, why in shape]
    ((found, said),) = [*below, *rule_problems(made.claim_rules)]
    assert found == where
    assert reason in said
