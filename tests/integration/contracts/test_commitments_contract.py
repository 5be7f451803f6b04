"""The contracts about commitments: the notes in table `state`, the document in the bucket, and what AWS is asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from shiplap.aws import tags
from shiplap.aws.bucket import CATALOG_PREFIX
from shiplap.aws.dynamodb import tables
from shiplap.aws.policies.commitments_adapters import BucketCommitments, DynamoCommitmentUse
from shiplap.aws.policies.commitments_source import AwsCommitments
from shiplap.errors import AwsError, AwsThrottled, StoreError
from shiplap.policies.commitments.account_commitments import (
    AccountCommitments,
    InstanceUse,
    ReservedInstances,
    SavingsPlan,
    UncountedCommitment,
)
from shiplap.policies.commitments.commitment_store import CommitmentStore, CommitmentUseStore
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse
from shiplap_lab.policies.commitments_fakes import FakeCommitments, FakeCommitmentUse
from tests.integration.contracts.in_process_aws import (
    aws_in_process,
    create_table,
    dynamodb_client,
    make_client,
)

NOW = 1_800_000_000.0
END = datetime(2028, 1, 1, tzinfo=UTC)
REGION = "eu-west-1"

Stores = tuple[CommitmentUseStore, CommitmentUseStore]


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    """Two functions on one table."""
    if request.param == "fake":
        fake = FakeCommitmentUse()
        yield fake, fake
        return
    with dynamodb_client(request) as client:
        create_table(client, "state", tables.STATE)
        yield DynamoCommitmentUse(client, "state"), DynamoCommitmentUse(client, "state")


def use(count: int) -> ClusterUse:
    return ClusterUse(NOW, (InstanceUse("m5.large", "eu-west-1a", count),))


def test_a_note_is_seen_by_all_clusters(stores: Stores) -> None:
    store, rival = stores
    known = store.read()
    assert known == SharedUse()
    assert store.note(known, "blue", use(2), NOW)
    seen = rival.read()
    assert seen == SharedUse(1, {"blue": use(2)})
    assert rival.note(seen, "green", use(1), NOW)
    assert store.read() == SharedUse(2, {"blue": use(2), "green": use(1)})


def test_of_two_that_have_read_the_same_one_is_told_to_read_again(stores: Stores) -> None:
    store, rival = stores
    known = store.read()
    assert store.note(known, "blue", use(2), NOW)
    assert not rival.note(known, "green", use(1), NOW)
    assert not store.note(known, "blue", use(2), NOW)  # doubled
    assert store.read() == SharedUse(1, {"blue": use(2)})


def test_of_many_at_once_one_is_first(stores: Stores) -> None:
    known = stores[0].read()
    with ThreadPoolExecutor(4) as pool:
        done = pool.map(lambda n: stores[n % 2].note(known, f"c{n}", use(n + 1), NOW), range(6))
    assert sorted(done) == [False] * 5 + [True]


def test_notes_that_cannot_be_read_are_refused() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "state", tables.STATE)
        key = {"cluster": {"S": "@account"}, "item": {"S": "COMMITMENTS"}}
        client.put_item(TableName="state", Item={**key, "version": {"N": "1"}, "use": {"B": b"none"}})
        with pytest.raises(StoreError, match="cannot be read"):
            DynamoCommitmentUse(client, "state").read()


DOCUMENT = AccountCommitments(
    REGION,
    NOW,
    (SavingsPlan("sp", 5_000_000, NOW + 9, "m5", {"m5.large": 60_000}),),
    (ReservedInstances("ri", "m5.large", 2, NOW + 9, "eu-west-1a"),),
    (InstanceUse("m5.large", "eu-west-1a", 3),),
    (UncountedCommitment("other", "it is for Windows"),),
)


@pytest.fixture(params=["fake", "bucket"])
def documents(request: pytest.FixtureRequest) -> CommitmentStore:
    if request.param == "fake":
        return FakeCommitments()
    return BucketCommitments(request.getfixturevalue("s3"), "bucket", REGION)


def test_commitments_are_stored_as_described(documents: CommitmentStore) -> None:
    assert documents.load() is None
    documents.save(DOCUMENT)
    assert documents.load() == DOCUMENT


def test_a_document_that_is_none_is_refused(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key=f"{CATALOG_PREFIX}{REGION}/commitments.json", Body=b"{}")
    with pytest.raises(StoreError, match="holds no commitments"):
        BucketCommitments(s3, "bucket", REGION).load()


class _Aws:
    """Stubbed clients, held to botocore's descriptions of requests and answers."""

    def __init__(self) -> None:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": REGION}
        self.ec2: Any = boto3.client("ec2", **keys)
        self.plans: Any = boto3.client("savingsplans", **keys)
        self.of_ec2, self.of_plans = Stubber(self.ec2), Stubber(self.plans)

    def describe(self) -> AccountCommitments:
        with self.of_ec2, self.of_plans:
            source = AwsCommitments(REGION, "shiplap", ec2=self.ec2, savings_plans=self.plans, clock=lambda: NOW)
            found = source.describe()
            self.of_ec2.assert_no_pending_responses()
            self.of_plans.assert_no_pending_responses()
            return found


def _plan(name: str, kind: str = "Compute", **fields: Any) -> dict[str, Any]:
    end = END.isoformat().replace("+00:00", "Z")
    return {
        "savingsPlanId": name,
        "savingsPlanType": kind,
        "commitment": "5.25",
        "end": end,
        "currency": "USD",
    } | fields


def _rate(usage: str, name: str, rate: str) -> dict[str, Any]:
    return {"rate": rate, "usageType": usage, "properties": [{"name": "instanceType", "value": name}]}


def _filters() -> list[dict[str, Any]]:
    wanted = [
        ("productDescription", "Linux/UNIX"),
        ("region", REGION),
        ("serviceCode", "AmazonEC2"),
        ("tenancy", "shared"),
    ]
    return [{"name": name, "values": [value]} for name, value in wanted]


def _reserved(name: str, **fields: Any) -> dict[str, Any]:
    common = {
        "ReservedInstancesId": name,
        "InstanceType": "m5.large",
        "InstanceCount": 3,
        "End": END,
        "Scope": "Region",
    }
    return common | {"ProductDescription": "Linux/UNIX", "InstanceTenancy": "default"} | fields


def _instance(**fields: Any) -> dict[str, Any]:
    return {"InstanceType": "m5.large", "Placement": {"AvailabilityZone": "eu-west-1a"}} | fields


def test_what_aws_shows_is_counted_or_named() -> None:
    aws = _Aws()
    plans = [
        _plan("compute"),
        _plan("m5", "EC2Instance", ec2InstanceFamily="m5", region=REGION),
        _plan("far", "EC2Instance", ec2InstanceFamily="m5", region="us-east-1"),
        _plan("sage", "SageMaker"),
    ]
    asked = {"states": ["active"], "maxResults": 100}
    aws.of_plans.add_response("describe_savings_plans", {"savingsPlans": plans[:2], "nextToken": "more"}, asked)
    aws.of_plans.add_response("describe_savings_plans", {"savingsPlans": plans[2:]}, asked | {"nextToken": "more"})
    rates = [
        _rate("EUW1-BoxUsage:m5.large", "m5.large", "0.0715"),
        _rate("EUW1-UnusedBox:m5.large", "m5.large", "0.9"),
        {"rate": "0.05", "usageType": "EUW1-Fargate-vCPU", "properties": []},
    ]
    for name in ("compute", "m5"):
        request = {"savingsPlanId": name, "filters": _filters(), "maxResults": 100}
        aws.of_plans.add_response("describe_savings_plan_rates", {"searchResults": rates}, request)
    reserved = [
        _reserved("regional"),
        _reserved("zonal", Scope="Availability Zone", AvailabilityZone="eu-west-1b"),
        _reserved("windows", ProductDescription="Windows"),
        _reserved("dedicated", InstanceTenancy="dedicated"),
    ]
    active = {"Filters": [{"Name": "state", "Values": ["active"]}]}
    aws.of_ec2.add_response("describe_reserved_instances", {"ReservedInstances": reserved}, active)
    instances = [
        _instance(),
        _instance(Tags=[{"Key": tags.INSTALL, "Value": "another"}]),
        _instance(Tags=[{"Key": tags.INSTALL, "Value": "shiplap"}]),
        _instance(InstanceLifecycle="spot"),
    ]
    aws.of_ec2.add_response("describe_instances", {"Reservations": [{"Instances": instances}]})
    known, ends_at = aws.describe(), END.timestamp()
    assert known == AccountCommitments(
        REGION,
        NOW,
        (
            SavingsPlan("compute", 5_250_000, ends_at, "", {"m5.large": 71_500}),
            SavingsPlan("m5", 5_250_000, ends_at, "m5", {"m5.large": 71_500}),
        ),
        (
            ReservedInstances("regional", "m5.large", 3, ends_at),
            ReservedInstances("zonal", "m5.large", 3, ends_at, "eu-west-1b"),
        ),
        (InstanceUse("m5.large", "eu-west-1a", 2),),
        (
            UncountedCommitment("dedicated", "it is for dedicated tenancy"),
            UncountedCommitment("far", "it is for us-east-1"),
            UncountedCommitment("sage", "Savings Plans of type SageMaker pay for no instances of nodes"),
            UncountedCommitment("windows", "it is for Windows"),
        ),
    )


@pytest.mark.parametrize(("code", "kind"), [("AccessDeniedException", AwsError), ("ThrottlingException", AwsThrottled)])
def test_a_refusal_is_told(code: str, kind: type[AwsError]) -> None:
    aws = _Aws()
    aws.of_plans.add_client_error("describe_savings_plans", code)
    with pytest.raises(kind):
        aws.describe()
