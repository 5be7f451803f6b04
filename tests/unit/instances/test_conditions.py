"""Conditions of an EC2NodeClass from its problems."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.instances.capacity.kubelet_settings import kubelet_hash
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.offerings.remedies import remedy, with_remedy
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.joins import is_left_alone, node_class_scope, scope_text
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    Condition,
    DryRuns,
    InstallStatus,
    NodeClassStatus,
    dry_run,
    known_problem,
    manifest_digest,
    untried_dry_run,
)
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec


def statuses(*problems: NodeClassProblem) -> dict[str, str]:
    return {item.type: item.status for item in nodeclass_status.conditions(problems)}


def test_without_problems_all_is_ready() -> None:
    found = nodeclass_status.conditions(())
    assert [item.type for item in found] == [
        *nodeclass_status.DEPENDENCIES,
        nodeclass_status.VALIDATION,
        nodeclass_status.READY,
    ]
    assert {item.status for item in found} == {"True"}


def test_a_missing_dependency_keeps_the_rest_from_being_validated() -> None:
    found = {
        item.type: item
        for item in nodeclass_status.conditions((NodeClassProblem(nodeclass_status.SUBNETS, "SubnetsNotFound", "m"),))
    }
    assert found[nodeclass_status.SUBNETS] == Condition(nodeclass_status.SUBNETS, "False", "SubnetsNotFound", "m")
    assert found[nodeclass_status.VALIDATION].reason == "DependenciesNotReady"
    assert nodeclass_status.SUBNETS in found[nodeclass_status.VALIDATION].message
    assert found[nodeclass_status.READY] == Condition(nodeclass_status.READY, "False", "SubnetsNotFound", "m")
    assert found[nodeclass_status.AMIS].status == "True"


def test_what_fails_validation_is_the_reason_of_ready() -> None:
    wrong = NodeClassProblem(nodeclass_status.VALIDATION, "KubeletExpressionEvaluationFailed", "division by zero")
    assert statuses(wrong) == dict.fromkeys(nodeclass_status.DEPENDENCIES, "True") | {
        nodeclass_status.VALIDATION: "False",
        nodeclass_status.READY: "False",
    }


def test_the_first_problem_of_a_condition_counts() -> None:
    found = nodeclass_status.conditions(
        (NodeClassProblem(nodeclass_status.AMIS, "A", "a"), NodeClassProblem(nodeclass_status.AMIS, "B", "b"))
    )
    assert found[0].reason == "A"


def test_when_aws_could_not_be_asked() -> None:
    known = {item.type for item in nodeclass_status.conditions(())}
    unknown = nodeclass_status.unknown_conditions("RequestLimitExceeded", "slow down")
    assert {item.type for item in unknown} == known
    assert {(item.reason, item.message) for item in unknown} == {("RequestLimitExceeded", "slow down")}
    assert known >= {*nodeclass_status.DEPENDENCIES, nodeclass_status.VALIDATION, nodeclass_status.READY}
    assert {item.status for item in nodeclass_status.unknown_conditions("RequestLimitExceeded", "slow down")} == {
        "Unknown"
    }


NOW = 1_700_000_000.0
CLASS = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(ami_family="AL2023"))
EDITED = replace(CLASS, spec=EC2NodeClassSpec(ami_family="Bottlerocket"))
NO_PROFILE = NodeClassProblem(nodeclass_status.INSTANCE_PROFILE, "InstanceProfileNotFound", "no such profile")
FORBIDDEN = NodeClassProblem(nodeclass_status.VALIDATION, "RunInstancesAuthCheckFailed", "not authorized")
NO_SUBNET = NodeClassProblem(nodeclass_status.SUBNETS, "SubnetsNotFound", "none match")


def test_a_digest_changes_with_all_that_a_user_writes_and_not_with_its_order() -> None:
    noted = replace(CLASS, metadata=ObjectMeta(name="default", annotations={"a": "1", "b": "2"}))
    others = [EDITED, noted, replace(CLASS, metadata=ObjectMeta(name="other"))]
    assert len({manifest_digest(item) for item in (CLASS, *others)}) == 4
    turned = replace(noted, metadata=ObjectMeta(name="default", annotations={"b": "2", "a": "1"}))
    assert manifest_digest(turned) == manifest_digest(noted)


def test_the_conditions_are_upstreams_in_its_order() -> None:
    assert [item.type for item in nodeclass_status.conditions(())] == [
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "PlacementGroupReady",
        "CapacityReservationsReady",
        "ValidationSucceeded",
        "Ready",
    ]


def found(*problems: NodeClassProblem, checked_at: float = NOW, cluster: str = "demo") -> InstallStatus:
    looked_at = NodeClassStatus("default", manifest_digest(CLASS), nodeclass_status.conditions(problems))
    other = NodeClassStatus("other", manifest_digest(CLASS), nodeclass_status.conditions((FORBIDDEN,)))
    return InstallStatus((ClusterStatus(cluster, "eu-west-1", checked_at, (other, looked_at)),))


@pytest.mark.parametrize(
    ("problems", "reason"),
    [
        ((), ""),
        ((NO_PROFILE,), "InstanceProfileNotFound: no such profile"),
        ((FORBIDDEN,), "RunInstancesAuthCheckFailed: not authorized"),
        ((NO_SUBNET,), ""),
        ((NO_SUBNET, NO_PROFILE), ""),
    ],
    ids=["none", "profile", "validation", "what a decision sees itself", "both"],
)
def test_what_only_an_inspection_finds_keeps_launches_back(problems: tuple[NodeClassProblem, ...], reason: str) -> None:
    assert known_problem(found(*problems), "demo", CLASS, NOW) == reason


def test_a_problem_counts_for_its_cluster_its_manifest_and_two_hours() -> None:
    assert known_problem(found(FORBIDDEN), "other", CLASS, NOW) == ""
    assert known_problem(found(FORBIDDEN), "demo", EDITED, NOW) == ""
    assert known_problem(found(FORBIDDEN), "demo", CLASS, NOW + 7199) != ""
    assert known_problem(found(FORBIDDEN), "demo", CLASS, NOW + 7200) == ""


def test_a_permission_holds_for_hours_and_a_refusal_for_minutes() -> None:
    allowed, refused = dry_run(CLASS, NOW), dry_run(CLASS, NOW, FORBIDDEN)
    assert (allowed.again_at, refused.again_at, untried_dry_run(CLASS, NOW).again_at) == (
        NOW + 6 * 3600,
        NOW + 300,
        NOW + 300,
    )
    for known in (allowed, refused):
        runs = DryRuns((known,))
        assert runs.due([CLASS], known.again_at - 1) == ()
        assert runs.due([CLASS], known.again_at) == (CLASS,)
        assert runs.due([EDITED], NOW) == (EDITED,), "it is written otherwise"
    assert DryRuns((allowed,)).problem(CLASS) is None
    assert DryRuns((refused,)).problem(CLASS) == FORBIDDEN
    assert DryRuns((refused,)).problem(EDITED) is None
    assert DryRuns().problem(CLASS) is None


def test_new_answers_replace_old_ones_and_classes_that_are_gone_are_forgotten() -> None:
    other = replace(CLASS, metadata=ObjectMeta(name="a-other"))
    old = DryRuns((dry_run(CLASS, NOW), dry_run(replace(CLASS, metadata=ObjectMeta(name="gone")), NOW)))
    fresh = [dry_run(CLASS, NOW + 1, FORBIDDEN), dry_run(other, NOW)]
    assert old.with_news(fresh, [CLASS, other]) == DryRuns((fresh[1], fresh[0]))
    assert old.with_news([], [CLASS]) == DryRuns(old.items[:1])


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("Client.InternalError", "KMS key"),
        ("Client.InvalidKMSKey", "KMS key"),
        ("Client.InvalidKMSKey.InvalidState", "KMS key"),
        ("Client.CustomerKeyHasBeenRevoked", "KMS key"),
        ("Client.InvalidSnapshot.NotFound", "snapshot"),
        ("Client.VolumeLimitExceeded", "storage"),
        ("Client.InvalidKMSKeyring", ""),
        ("Server.InsufficientInstanceCapacity", ""),
        ("", ""),
    ],
)
def test_what_helps_where_instances_end_at_once(code: str, about: str) -> None:
    assert (about in remedy(code)) if about else remedy(code) == ""
    assert with_remedy(code, "it ended") == ("it ended" if not about else f"it ended; {remedy(code)}")


def test_a_class_that_is_left_alone_is_named_for_people() -> None:
    scope = node_class_scope("demo", CLASS)
    assert scope.startswith("nodeclass:demo/default@")
    assert len(scope.rpartition("@")[2]) == 12
    assert scope != node_class_scope("demo", EDITED)
    assert scope_text(scope) == "EC2NodeClass default of demo"
    assert scope_text("m5.large") == "m5.large"
    assert is_left_alone("demo", "default", ["m5.large", scope])
    assert not is_left_alone("demo", "defaul", [scope])
    assert not is_left_alone("dem", "default", [scope])


def test_a_hash_of_kubelet_settings_is_short_and_stays_what_it_was() -> None:
    """Learned capacity is stored under it: another hash forgets all that was learned."""
    assert kubelet_hash(CLASS, 29) == kubelet_hash(EDITED, 29)
    assert len(kubelet_hash(CLASS, 29)) == 10
    assert kubelet_hash(CLASS, 29) != kubelet_hash(CLASS, 30)
    disks = replace(CLASS, spec=replace(CLASS.spec, user_data="x"))
    assert kubelet_hash(CLASS, 29) != kubelet_hash(disks, 29)
