"""The roles of an install with all optional features, simulated: they allow what is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shiplap_cdk.install_document import read

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from tests.infra.roles_of_options import PLAIN, roles_of, written
from tests.infra.synthesised import FUNCTIONS
from tests.permissions.authorizations import arn
from tests.permissions.evaluator import allowed, concerns, of
from tests.permissions.recording import Recording, now
from tests.permissions.roles import Roles
from tests.permissions.story import DAY_S, LISTS_OF_POD_GROUPS, OF_PROVISIONING_REQUESTS, REGION, Story, told

pytestmark = pytest.mark.thorough

OPTIONS = """\
    sleep:
      nodePools: [general]
      mostNodes: 5
      windows: [{when: 'daily 00:00-06:00 UTC'}]
    ceilings:
      - {hourly: 100, mode: warn}
      - {nodePool: general, monthly: 5000, mode: cheapest}
    spotRisk: {mode: prefer}
    gangs: {mode: whole, provisioningRequests: true}
ceilings: [{monthly: 10000, mode: stop}]
commitments: {countedBy: eu-west-1/shiplap, share: 80%}
"""


ANYWHERE = {
    "savingsplans:DescribeSavingsPlans": "it lists all plans of the account",
    "savingsplans:DescribeSavingsPlanRates": "the plans that were listed; a function reaches those of its account only",
}
"""Actions that options add on `*` although they could be bound to resources, with the reason why they are not."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Roles:
    return roles_of(written(tmp_path_factory.mktemp("plain"), PLAIN))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("options"), PLAIN + OPTIONS)


@pytest.fixture(scope="module")
def roles(document: Path) -> Roles:
    return roles_of(document)


@pytest.fixture(scope="module")
def recording(document: Path, roles: Roles) -> Iterator[Recording]:
    noon = now() // DAY_S * DAY_S + 1.5 * DAY_S  # windows open by the time of day
    with told(read(document), roles, FUNCTIONS, document.parent, tell=Story.tell_of_options, begin=noon) as recording:
        yield recording


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_may_do_what_it_asks_for(roles: Roles, recording: Recording, function: str) -> None:
    statements = roles.statements(function)
    assert sorted(asked for asked in recording.aws[function] if not allowed(statements, asked)) == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function_gets_no_right_that_it_does_not_use(
    plain: Roles, roles: Roles, recording: Recording, function: str
) -> None:
    before = plain.statements(function)
    for statement in roles.statements(function):
        if statement in before:
            continue
        listed = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        used = {asked.action for asked in recording.aws[function] if concerns(statement, asked)}
        assert used == set(listed), statement
    assert [statement for statement in before if statement not in roles.statements(function)] == []


def test_each_call_is_authorised_as_aws_documents_it(roles: Roles, recording: Recording) -> None:
    from tests.aws_rules.service_authorization import (  # noqa: PLC0415 - it reads 10 MB
        acts_on_anything,
        request_problems,
        statement_problems,
    )

    asked = {request for requests in recording.aws.values() for request in requests}
    assert {"savingsplans:DescribeSavingsPlanRates", "ec2:DescribeReservedInstances"} <= {item.action for item in asked}
    problems = (request_problems(item.action, item.resource, [key for key, _ in item.context]) for item in asked)
    assert [problem for found in problems for problem in found] == []
    statements = [statement for function in FUNCTIONS for statement in roles.statements(function)]
    assert [problem for statement in statements for problem in statement_problems(statement)] == []
    unbound = {action for statement in statements for action in acts_on_anything(statement)}
    assert {action for action in unbound if not action.startswith("ec2:")} == set(ANYWHERE)


def test_the_story_comes_to_everything_that_is_stored(recording: Recording) -> None:
    dynamodb, s3 = recording.client("dynamodb"), recording.client("s3")
    stored = {
        (*(item[key]["S"] for key in ("ami", "cluster") if key in item), item["item"]["S"].partition("#")[0])
        for table in dynamodb.list_tables()["TableNames"]
        for item in dynamodb.scan(TableName=table)["Items"]
    }
    assert {("production#sleep", "NOTES"), ("production", "LEDGER"), ("production", "COUNTED")} <= stored
    assert {("@account", "SPENDING"), ("@account", "COMMITMENTS"), ("production#commands", "COMMAND")} <= stored
    assert "@spot" in {key[0] for key in stored}
    (bucket,) = [item["Name"] for item in s3.list_buckets()["Buckets"]]
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket, Prefix="catalog/")["Contents"]]
    assert f"catalog/{REGION}/commitments.json" in keys


@pytest.mark.parametrize("function", ["schedule", "disrupt"])
def test_functions_that_decide_read_the_pod_groups_that_pods_name(recording: Recording, function: str) -> None:
    assert set(LISTS_OF_POD_GROUPS) <= recording.kubernetes[function]
    asked = OF_PROVISIONING_REQUESTS if function == "schedule" else OF_PROVISIONING_REQUESTS[:2]
    assert set(asked) <= recording.kubernetes[function]


def test_evidence_may_be_added_to_its_own_partition_only(roles: Roles, recording: Recording) -> None:
    (added,) = {asked for asked in recording.aws["interrupt"] if asked.action == "dynamodb:UpdateItem"}
    assert added.values("dynamodb:LeadingKeys") == ("@spot",)
    elsewhere = of(added.action, added.resource, {"dynamodb:LeadingKeys": ["ami-1"]})
    other = of(added.action, arn("dynamodb", REGION, "table/other"), {"dynamodb:LeadingKeys": ["@spot"]})
    assert not any(allowed(roles.statements(name), asked) for name in FUNCTIONS for asked in (elsewhere, other))
