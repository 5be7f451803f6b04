"""Flows get the port to the account's commitments where some are counted on, and equal commitments are equal bytes."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from shiplap.aws.policies.commitments_adapters import BucketCommitments
from shiplap.flows import install as installs
from shiplap.flows.install import Install
from shiplap.flows.policies.commitments_inputs import COMMITMENTS, SOURCE
from shiplap.policies.commitments.account_commitments import AccountCommitments, SavingsPlan
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.policy_settings import chosen
from shiplap.settings import ClusterSettings, ResourceNames, Settings

pytestmark = pytest.mark.usefixtures("own_logger")

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")
WITHOUT = ClusterSettings(name="blue", region="us-east-1", endpoint="https://blue.example", token="t")
COUNTED = replace(WITHOUT, policies=chosen(CommitmentSettings(counted_by="us-east-1/platform", share="80%")))


def test_commitments_are_read_from_the_bucket_once_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(installs, "client", lambda *of: made.append(of) or MagicMock())
    without, counted = (
        Install("schedule", Settings((settings,)), NAMES).context(settings).policy_port(COMMITMENTS)
        for settings in (WITHOUT, COUNTED)
    )
    assert without is None
    assert counted is not None
    assert made == []
    assert callable(counted.load)


def test_what_aws_shows_is_asked_of_the_region_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(installs, "client", lambda *of: made.append(of) or MagicMock())
    source = Install("catalog", Settings((COUNTED,)), NAMES).context(COUNTED).policy_port(SOURCE, 9.0)
    assert source is not None
    assert source.describe(others_alone=True).region == "us-east-1"
    assert made == [("savingsplans", "us-east-1"), ("ec2", "us-east-1")]


def test_equal_commitments_are_stored_as_equal_bytes_however_they_were_put_together() -> None:
    """The bucket keeps versions of documents, which people compare."""
    rates = {"m5.large": 96_000, "c5.large": 85_000}
    bodies = []
    for shown in (rates, dict(reversed(rates.items()))):
        client = MagicMock()
        known = AccountCommitments("r", 7.0, (SavingsPlan("sp-1", 5, 9.0, rates=shown),))
        BucketCommitments(client, "bucket", "r").save(known)
        bodies.append(client.put_object.call_args.kwargs["Body"])
    assert bodies[0] == bodies[1] != b""
