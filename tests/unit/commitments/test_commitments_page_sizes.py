"""Pages about commitments are as large as AWS gives them."""

from __future__ import annotations

from tests.unit.aws.asked_pages import Asked
from tests.unit.aws.commitments_pages import commitments


def test_pages_are_as_large_as_aws_gives_them() -> None:
    client = Asked()
    commitments(client).describe()
    assert client.sizes == {"describe_savings_plans": 100, "describe_instances": 1000}
