"""The contract of MemoryStore, held by the in-memory fake and by the S3 adapter."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import pytest

from shiplap.aws.bucket import MEMORY_PREFIX, BucketMemory
from shiplap.disruption.commands import Reason
from shiplap.disruption.decision_memory import DecisionMemory, RememberedProposal
from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.ports import MemoryStore
from shiplap_lab.fakes.stores import FakeMemory
from tests.integration.contracts.in_process_aws import aws_in_process, make_client

MEMORY = DecisionMemory(
    histories=(NodeHistory("a", 1.5, 2.5, 0.0, 3.5, pods="digest"), NodeHistory("b")),
    proposed=(RememberedProposal(("a", "b"), Reason.UNDERUTILIZED, 4.0, 5.0),),
)


@pytest.fixture(params=["fake", "bucket"])
def stores(request: pytest.FixtureRequest) -> Iterator[Callable[[], MemoryStore]]:
    """Yield a function that makes further stores on the same data."""
    if request.param == "fake":
        fake = FakeMemory()
        yield lambda: fake
        return
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="memories", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        yield lambda: BucketMemory(client, "memories")


def test_what_was_never_saved_is_empty(stores: Callable[[], MemoryStore]) -> None:
    assert stores().load("blue") == DecisionMemory()


def test_memory_is_kept_exactly_and_by_cluster(stores: Callable[[], MemoryStore]) -> None:
    stores().save("blue", MEMORY)
    stores().save("green", DecisionMemory())
    assert stores().load("blue") == MEMORY
    assert stores().load("green") == DecisionMemory()
    stores().save("blue", DecisionMemory())
    assert stores().load("blue") == DecisionMemory()


@pytest.mark.parametrize("body", [b"{}", zlib.compress(b"{}")], ids=["not compressed", "not a memory"])
def test_what_cannot_be_read_begins_anew(caplog: pytest.LogCaptureFixture, body: bytes) -> None:
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="memories", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        client.put_object(Bucket="memories", Key=f"{MEMORY_PREFIX}blue", Body=body)
        assert BucketMemory(client, "memories").load("blue") == DecisionMemory()
    assert "begins again" in caplog.text
