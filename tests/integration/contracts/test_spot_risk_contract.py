"""The contract of SpotEvidenceStore, held by the fake and by the DynamoDB adapter, on moto and on DynamoDB Local."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.policies.spot_risk_adapters import SPOT, DynamoSpotEvidence, day_mark
from shiplap.errors import StoreError
from shiplap.policies.spot_risk.evidence_store import SpotEvidenceStore
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, EvidenceChange, day_part
from shiplap_lab.policies.spot_risk_fakes import FakeSpotEvidence
from tests.integration.contracts.in_process_aws import aws_in_process, create_table, dynamodb_client, make_client

NOW = 1_790_000_000.0
ALL_DAY = (3.0,) * DAY_PARTS
ROLLED_OUT = 20_500


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def store(request: pytest.FixtureRequest) -> Iterator[SpotEvidenceStore]:
    if request.param == "fake":
        yield FakeSpotEvidence()
        return
    with dynamodb_client(request) as client:
        create_table(client, "capacity", tables.CAPACITY)
        yield DynamoSpotEvidence(client, "capacity")


def change(name: str = "m5.large", zone_id: str = "use1-az1", **others: object) -> EvidenceChange:
    return EvidenceChange(**{"zone_id": zone_id, "instance_type": name, "at": NOW, **others})  # type: ignore[arg-type]


def test_nothing_is_known_at_first(store: SpotEvidenceStore) -> None:
    assert store.read(NOW) == ()
    assert store.counted_days("blue") == {}


def test_evidence_adds_up_by_offering(store: SpotEvidenceStore) -> None:
    store.add([change(interruptions=1)])
    store.add([change(rebalances=1, refusals=2)])
    store.add([change(interruptions=1), change(node_hours=ALL_DAY, node="blue/pool-b")])
    store.add([change("c5.large", "use1-az2", refusals=1)])

    first, second = store.read(NOW)

    assert (first.zone_id, first.instance_type, second.zone_id, second.instance_type) == (
        "use1-az1",
        "m5.large",
        "use1-az2",
        "c5.large",
    )
    assert first.interruptions[day_part(NOW)] == pytest.approx(2.0, rel=1e-4)
    assert (first.rebalances, first.refusals, second.refusals) == pytest.approx((1.0, 2.0, 1.0), rel=1e-4)
    assert first.total_node_hours == pytest.approx(24.0, rel=1e-4)


def test_a_day_of_a_cluster_is_added_once(store: SpotEvidenceStore) -> None:
    day = change(node_hours=ALL_DAY)

    added = [
        store.add([day], "blue", ROLLED_OUT),
        store.add([day], "blue", ROLLED_OUT),
        store.add([day], "green", ROLLED_OUT),
        store.add([day], "blue", ROLLED_OUT - 1),
        store.add([day], "blue", ROLLED_OUT + 1),
    ]

    assert added == [True, False, True, False, True]
    assert store.read(NOW)[0].total_node_hours == pytest.approx(72.0, rel=1e-4)
    assert store.counted_days("blue") == {("use1-az1", "m5.large"): ROLLED_OUT + 1}
    assert store.counted_days("red") == {}


def test_learned_capacity_lists_no_evidence() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "capacity", tables.CAPACITY)
        DynamoSpotEvidence(client, "capacity").add([change(interruptions=1)])

        assert DynamoCapacity(client, "capacity").all() == ()


def test_a_table_that_is_missing_is_a_store_error() -> None:
    with aws_in_process():
        client = make_client("dynamodb")
        with pytest.raises(StoreError):
            DynamoSpotEvidence(client, "capacity").add([change(interruptions=1)])
        with pytest.raises(StoreError):
            DynamoSpotEvidence(client, "capacity").read(NOW)


def test_an_item_takes_one_write_unit_and_all_of_them_less_than_ten_megabytes() -> None:
    """As DynamoDB counts: names in UTF-8, a number one byte for each two digits and one more."""
    digits = 30  # of a sum whose parts have six digits each and lie ten years apart
    names = [f"{letter}{part}" for letter in "hHiI" for part in range(DAY_PARTS)] + ["r", "f", tables.EXPIRY]
    number = digits // 2 + 1
    key = len("ami" + SPOT + "item" + "use1-az6#u7in-24tb.224xlarge")
    assert day_mark("blue") == "d16477", "a release finds the marks of the one before it"
    marks = 20 * (len(day_mark("blue")) + 4)

    size = key + marks + sum(len(name) + number for name in names)
    # 5,000 nodes are of at most as many offerings; a Region has fewer than 1,000 types in at most six zones.
    assert size < 1024
    assert 5_000 * size < 10_000_000
