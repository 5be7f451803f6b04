"""The roles of the template, simulated: each function may do what it asks for in a cluster's life, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from shiplap_cdk.install_document import read

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.constructs.cluster_stack import KUBERNETES_GROUP
from shiplap_cdk.constructs.function_roles import CLUSTER_FUNCTIONS
from tests.aws_rules.cloud_assembly import Template
from tests.infra.synthesised import FUNCTIONS, INSTALL
from tests.infra.tagged_requests import OURS, REQUESTED, ec2, without
from tests.permissions.authorizations import ACCOUNT, SHARER, arn, pass_role
from tests.permissions.evaluator import Request, allowed, concerns, of
from tests.permissions.recording import KubernetesRequest, Recording
from tests.permissions.roles import Roles
from tests.permissions.story import LISTS_OF_POD_GROUPS, OF_PROVISIONING_REQUESTS, REGION, told

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def roles(templates: list[Template]) -> Roles:
    return Roles(templates)


@pytest.fixture(scope="module")
def recording(roles: Roles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    with told(read(INSTALL), roles, FUNCTIONS, tmp_path_factory.mktemp("story")) as recording:
        yield recording


# Called by Lambda in the function's name, or by no call of ours.
BY_LAMBDA = {
    "logs:CreateLogStream": "Lambda writes the function's log",
    "logs:PutLogEvents": "Lambda writes the function's log",
    "sqs:ReceiveMessage": "Lambda polls the queue",
    "sqs:DeleteMessage": "Lambda deletes what was handled",
    "sqs:GetQueueAttributes": "Lambda polls the queue",
    "sqs:ChangeMessageVisibility": "Lambda returns what failed",
    "ec2:CreateNetworkInterface": "Lambda puts the function into the VPC",
    "ec2:DeleteNetworkInterface": "Lambda puts the function into the VPC",
    "ec2:DescribeNetworkInterfaces": "Lambda puts the function into the VPC",
    "ec2:DescribeSubnets": "Lambda puts the function into the VPC",
    "ec2:AssignPrivateIpAddresses": "Lambda puts the function into the VPC",
    "ec2:UnassignPrivateIpAddresses": "Lambda puts the function into the VPC",
    "s3:ListBucket": "no call needs it: without it S3 calls an object that is missing forbidden",
}
UNTOLD = {
    (
        "schedule",
        "dynamodb:BatchWriteItem",
    ): "pods whose node was too small, as a sweep learns it",
    (
        "disrupt",
        "dynamodb:BatchWriteItem",
    ): "pods whose node was too small, as a look learns it before `lifecycle` does",
    ("lifecycle", "dynamodb:BatchWriteItem"): "pods whose node was too small, as its registration learns it",
    ("schedule", "dynamodb:DeleteItem"): "the lease of a pilot whose launch failed (settle.release_leases)",
    ("lifecycle", "dynamodb:DeleteItem"): "the lease of a pilot that has joined (claims.release_pilot)",
    ("schedule", "ec2:DescribeTags"): "the fleet of a launch whose token is taken (fleet_answers.first_answer)",
    ("schedule", "ec2:DescribeFleets"): "what it gave (fleet_answers.first_answer)",
}
UNTOLD_STATEMENTS = {
    "GiveNodesTheirRole": "roles that the stack did not make: the story's nodes carry the stack's own",
    "NameOurInstances": "tags of instances that were launched together (settle.name_instances)",
    "ReadSnapshots": "the pods of clusters of thirty nodes and more (standing.Standing)",
}
"""What the story does not come to; tests of the flows do, on fakes."""

UNTOLD_OF_CLUSTERS = {
    ("delete", "", "nodes"): "a Node left over when its instance is gone (endings.clear_nodes)",
    **dict.fromkeys(
        (*LISTS_OF_POD_GROUPS, *OF_PROVISIONING_REQUESTS), "used where gangs are on (test_permissions_with_options.py)"
    ),
}
RBAC = Path(__file__).parents[2] / "docs" / "rbac.yaml"
NODE_ROLE = f"arn:aws:iam::{ACCOUNT}:role/shiplap/{REGION}/shiplap/shiplap-node-{REGION}-production"
_ENTRY = arn("eks", REGION, f"access-entry/production/role/{ACCOUNT}/nodes/00c7ab00-0000-4000-8000-000000000000")


def _on_profile(action: str, place: str) -> Request:
    return of(f"iam:{action}", f"arn:aws:iam::{ACCOUNT}:instance-profile/shiplap/{place}", {})


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_may_do_what_it_asks_for(roles: Roles, recording: Recording, function: str) -> None:
    statements = roles.statements(function)
    refused = sorted(asked for asked in recording.aws[function] if not allowed(statements, asked))

    assert refused == []
    assert recording.aws[function] or function == "audit"


def by_code(function: str, asked: Request) -> Request:
    """The same as the function's code asks it: Lambda puts the function's ARN, without a version, into its session."""
    return of(asked.action, asked.resource, {**dict(asked.context), _SOURCE: _lambda(function)})


_SOURCE = "lambda:SourceFunctionArn"


def _lambda(function: str) -> str:
    return arn("lambda", REGION, f"function:shiplap-{function}")


_OF_INTERFACES = (
    "CreateNetworkInterface",
    "DeleteNetworkInterface",
    "DescribeNetworkInterfaces",
    "AssignPrivateIpAddresses",
    "UnassignPrivateIpAddresses",
)


@pytest.mark.parametrize("function", CLUSTER_FUNCTIONS)
@pytest.mark.parametrize("action", _OF_INTERFACES)
def test_lambda_makes_network_interfaces_and_the_code_of_a_function_may_not(
    roles: Roles, function: str, action: str
) -> None:
    asked = of(f"ec2:{action}", "*", {})

    assert allowed(roles.statements(function), asked), "Lambda asks with the function's role"
    assert not allowed(roles.statements(function), by_code(function, asked))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_that_the_code_asks_for_is_denied_to_it(roles: Roles, recording: Recording, function: str) -> None:
    statements = roles.statements(function)

    assert sorted(asked for asked in recording.aws[function] if not allowed(statements, by_code(function, asked))) == []


def test_the_story_is_long_enough_to_prove_something(recording: Recording) -> None:
    asked = {request.action for requests in recording.aws.values() for request in requests}

    assert {"ec2:CreateFleet", "ec2:RunInstances", "ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"} <= asked
    assert {"iam:DeleteInstanceProfile", "eks:DeleteAccessEntry", "iam:DeleteRole"} <= asked
    assert {"iam:PassRole", "kms:CreateGrant", "s3:PutObject", "ssm:GetParameters", "events:PutEvents"} <= asked
    assert len(asked) > 35


def test_each_call_is_authorised_as_aws_documents_it(recording: Recording) -> None:
    """Else the tests here would compare a wrong policy with a request that is wrong in the same way."""
    from tests.aws_rules.service_authorization import request_problems  # noqa: PLC0415 - it reads 10 MB

    asked = {request for requests in recording.aws.values() for request in requests}
    problems = {
        problem
        for request in asked
        for problem in request_problems(request.action, request.resource, [key for key, _ in request.context])
    }

    assert sorted(problems) == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_may_do_nothing_else(roles: Roles, recording: Recording, function: str) -> None:
    asked = {request.action for request in recording.aws[function]}
    granted = {action for statement in roles.statements(function) for action in _listed(statement["Action"])}
    untold = {action for name, action in UNTOLD if name == function}

    assert granted - asked - set(BY_LAMBDA) - untold == set()
    assert untold & asked == set(), "the story comes to it: take it off the list"
    assert untold <= granted


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_statement_is_there_for_something_that_is_asked(roles: Roles, recording: Recording, function: str) -> None:
    """Actions of one statement may be used on the resources of another: so each statement is tried by itself."""
    excused = set(BY_LAMBDA) | {action for name, action in UNTOLD if name == function}
    for statement in roles.statements(function):
        if set(_listed(statement["Action"])) <= excused or statement.get("Sid") in UNTOLD_STATEMENTS:
            continue
        assert any(concerns(statement, request) for request in recording.aws[function]), statement


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


# What must not be


FOREIGN = {
    "instances without our tags": of("ec2:RunInstances", ec2("instance/*"), {}),
    "instances without a cluster": of("ec2:RunInstances", ec2("instance/*"), without(REQUESTED, "cluster")),
    "instances with another install's tag": of(
        "ec2:RunInstances", ec2("instance/*"), without(REQUESTED, "install", "theirs")
    ),
    "instances without an install": of("ec2:RunInstances", ec2("instance/*"), without(REQUESTED, "install")),
    "a launch from another install's template": of(
        "ec2:CreateFleet", ec2("launch-template/lt-1"), without(OURS, "install", "theirs")
    ),
    "a launch template without an install": of(
        "ec2:CreateLaunchTemplate", ec2("launch-template/*"), without(REQUESTED, "install")
    ),
    "deleting another install's templates": of(
        "ec2:DeleteLaunchTemplate", ec2("launch-template/lt-1"), without(OURS, "install", "theirs")
    ),
    "ending another install's instances": of(
        "ec2:TerminateInstances", ec2("instance/i-1"), without(OURS, "install", "theirs")
    ),
    "naming another install's instances": of(
        "ec2:CreateTags", ec2("instance/i-1"), without(OURS, "install", "theirs") | {"aws:TagKeys": "Name"}
    ),
    "making another install's instances ours": of(
        "ec2:CreateTags", ec2("instance/i-1"), OURS | {"aws:TagKeys": "shiplap.dev/install"}
    ),
    "instances without a pool": of("ec2:RunInstances", ec2("instance/*"), without(REQUESTED, "nodepool")),
    "fleets without our tags": of("ec2:CreateFleet", ec2("fleet/*"), {}),
    "volumes without our tags": of("ec2:RunInstances", ec2("volume/*"), {}),
    "a launch from a template without tags": of("ec2:RunInstances", ec2("launch-template/lt-1"), {}),
    "a launch from a template without an install": of(
        "ec2:CreateFleet", ec2("launch-template/lt-1"), without(OURS, "install")
    ),
    "a launch from another account's template": of(
        "ec2:CreateFleet", arn("ec2", REGION, "launch-template/lt-1", SHARER), OURS
    ),
    "instances in another account": of("ec2:RunInstances", arn("ec2", REGION, "instance/*", SHARER), REQUESTED),
    "a launch template without our tag": of("ec2:CreateLaunchTemplate", ec2("launch-template/*"), {}),
    "another version of a template": of("ec2:CreateLaunchTemplateVersion", ec2("launch-template/lt-1"), OURS),
    "deleting others' templates": of("ec2:DeleteLaunchTemplate", ec2("launch-template/lt-1"), without(OURS, "install")),
    "ending instances without tags": of("ec2:TerminateInstances", ec2("instance/i-1"), {}),
    "ending instances without an install": of("ec2:TerminateInstances", ec2("instance/i-1"), without(OURS, "install")),
    "ending what Karpenter launched": of(
        "ec2:TerminateInstances", ec2("instance/i-1"), {"aws:ResourceTag/karpenter.sh/nodepool": "general"}
    ),
    "stopping our own instances": of("ec2:StopInstances", ec2("instance/i-1"), OURS),
    "making others' instances ours": of(
        "ec2:CreateTags", ec2("instance/i-1"), REQUESTED | {"aws:TagKeys": "shiplap.dev/cluster"}
    ),
    "moving our instances to another cluster": of(
        "ec2:CreateTags", ec2("instance/i-1"), OURS | {"aws:TagKeys": "shiplap.dev/cluster"}
    ),
    "tagging without making": of("ec2:CreateTags", ec2("volume/vol-1"), REQUESTED),
    "taking tags away": of("ec2:DeleteTags", ec2("instance/i-1"), OURS),
    "passing an administrator's role": pass_role("arn:aws:iam::123456789012:role/admin"),
    "passing a node role to a function": pass_role(NODE_ROLE, "lambda.amazonaws.com"),
    "passing a role of another account": pass_role(NODE_ROLE.replace(ACCOUNT, SHARER)),
    "passing another install's node role": pass_role(NODE_ROLE.replace(f"{REGION}/shiplap/", f"{REGION}/theirs/")),
    "passing a node role of another Region's install": pass_role(NODE_ROLE.replace(f"/{REGION}/", "/us-east-1/")),
    "passing a role of the same name without the install's path": pass_role(
        f"arn:aws:iam::{ACCOUNT}:role/shiplap-node-eu-west-1-production"
    ),
    "deleting another install's instance profile": _on_profile(
        "DeleteInstanceProfile", f"{REGION}/shiplap-eu/production/n/x"
    ),
    "deleting an instance profile of another Region": _on_profile(
        "DeleteInstanceProfile", "us-east-1/shiplap/production/n/x"
    ),
    "emptying an instance profile of others": of(
        "iam:RemoveRoleFromInstanceProfile", f"arn:aws:iam::{ACCOUNT}:instance-profile/x", {}
    ),
    "deleting another install's node role": of("iam:DeleteRole", NODE_ROLE.replace("/shiplap/s", "/theirs/s"), {}),
    "deleting a role that the stack has not made": of("iam:DeleteRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {}),
    "giving a node role more rights": of("iam:AttachRolePolicy", NODE_ROLE, {}),
    "writing another policy for a node role": of("iam:PutRolePolicy", NODE_ROLE, {}),
    "changing what an instance profile holds": _on_profile(
        "AddRoleToInstanceProfile", f"{REGION}/shiplap/production/n/x"
    ),
    "ending the access of functions and people": of("eks:DeleteAccessEntry", _ENTRY, {}),
    "ending the access of another install's nodes": of(
        "eks:DeleteAccessEntry", _ENTRY, {"aws:ResourceTag/shiplap.dev/install": "theirs"}
    ),
    "another table": of("dynamodb:GetItem", arn("dynamodb", REGION, "table/other"), {}),
    "the whole table": of("dynamodb:Scan", arn("dynamodb", REGION, "table/ShiplapStorageStateA37890B1"), {}),
    "deleting a table": of("dynamodb:DeleteTable", arn("dynamodb", REGION, "table/ShiplapStorageStateA37890B1"), {}),
    "another bucket": of("s3:GetObject", "arn:aws:s3:::other/catalog/x", {}),
    "deleting parts of records": of("s3:DeleteObject", "arn:aws:s3:::shiplapstoragebucketf4f1456a/chunks/x", {}),
    "deleting records": of("s3:DeleteObject", "arn:aws:s3:::shiplapstoragebucketf4f1456a/records/x", {}),
    "another queue": of("sqs:SendMessage", arn("sqs", REGION, "other"), {}),
    "the default bus": of("events:PutEvents", arn("events", REGION, "event-bus/default"), {}),
    "another cluster's zonal shifts": of(
        "arc-zonal-shift:GetManagedResource",
        "*",
        {"arc-zonal-shift:ResourceIdentifier": arn("eks", REGION, "cluster/theirs")},
    ),
    "another cluster": of("eks:DescribeCluster", arn("eks", REGION, "cluster/theirs"), {}),
    "others' parameters": of("ssm:GetParameters", arn("ssm", REGION, "parameter/secret"), {}),
    "secrets": of("secretsmanager:GetSecretValue", arn("secretsmanager", REGION, "secret:x"), {}),
    "an encryption key beside EC2": of(
        "kms:Decrypt", arn("kms", REGION, "key/1234abcd-12ab-34cd-56ef-1234567890ab"), {}
    ),
    "assuming a role": of("sts:AssumeRole", "arn:aws:iam::123456789012:role/admin", {}),
    "access to a cluster for others": of("eks:CreateAccessEntry", arn("eks", REGION, "cluster/production"), {}),
}


@pytest.mark.parametrize("request_", FOREIGN.values(), ids=list(FOREIGN))
def test_no_function_may(roles: Roles, request_: Request) -> None:
    assert [name for name in FUNCTIONS if allowed(roles.statements(name), request_)] == []


def test_the_forbidden_requests_are_forbidden_by_what_is_wrong_with_them(roles: Roles) -> None:
    """Each with what it lacks is allowed: so it is the lack that forbids it."""
    right = {
        "schedule": [
            of("ec2:RunInstances", ec2("instance/*"), REQUESTED),
            of("ec2:CreateFleet", ec2("launch-template/lt-1"), OURS),
            of("ec2:DeleteLaunchTemplate", ec2("launch-template/lt-1"), OURS),
            of("ec2:CreateTags", ec2("instance/i-1"), OURS | {"aws:TagKeys": "Name"}),
            pass_role(NODE_ROLE),
            pass_role(f"arn:aws:iam::{ACCOUNT}:role/path/windows-nodes"),
            of("s3:PutObject", "arn:aws:s3:::shiplapstoragebucketf4f1456a/records/x", {}),
            of("s3:PutObject", "arn:aws:s3:::shiplapstoragebucketf4f1456a/chunks/x", {}),
        ],
        "lifecycle": [
            of("ec2:TerminateInstances", ec2("instance/i-1"), OURS),
        ],
        "catalog": [
            _on_profile("DeleteInstanceProfile", f"{REGION}/shiplap/removed-cluster/n/x"),
            of("iam:DeleteRole", NODE_ROLE, {}),
            of("eks:DeleteAccessEntry", _ENTRY, {"aws:ResourceTag/shiplap.dev/install": "shiplap"}),
        ],
    }
    for name, requests in right.items():
        assert [request for request in requests if not allowed(roles.statements(name), request)] == []


# Kubernetes


def _granted() -> set[KubernetesRequest]:
    roles = [item for item in yaml.safe_load_all(RBAC.read_text()) if item["kind"] == "ClusterRole"]
    return {
        (verb, group, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_rbac_manifest_grants_exactly_what_the_functions_ask_of_the_api_server(recording: Recording) -> None:
    asked = {request for requests in recording.kubernetes.values() for request in requests}

    assert asked - _granted() == set()
    assert _granted() - asked == set(UNTOLD_OF_CLUSTERS)


def test_only_functions_with_an_access_entry_ask_clusters_anything(recording: Recording) -> None:
    assert {name for name, asked in recording.kubernetes.items() if asked} == set(CLUSTER_FUNCTIONS)


def test_the_rbac_manifest_names_no_wildcards_and_binds_the_group_of_the_access_entries() -> None:
    assert not [rule for rule in _granted() if "*" in rule]
    (binding,) = [item for item in yaml.safe_load_all(RBAC.read_text()) if item["kind"] == "ClusterRoleBinding"]
    assert [subject["name"] for subject in binding["subjects"]] == [KUBERNETES_GROUP]
