"""Commitments in a drawn install: their settings, what AWS has shown, and what another cluster uses."""

from __future__ import annotations

from random import Random

from shiplap.aws import session
from shiplap.aws.policies.commitments_adapters import BucketCommitments, DynamoCommitmentUse
from shiplap.policies.commitments.account_commitments import AccountCommitments, InstanceUse, SavingsPlan
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse
from shiplap.settings import ClusterSettings

_COVERED = ("m5.large", "c5.xlarge", "r5.large")


def settings(at: float) -> CommitmentSettings:
    return CommitmentSettings(counted_by="eu-west-1/shiplap", share="80%")


def remember(install: ClusterSettings, at: float, draw: Random) -> None:
    """Store a Savings Plan, which an instance of the account's own and another cluster use, too."""
    plan = SavingsPlan("sp-1", 500_000, at + 9e6, rates=dict.fromkeys(_COVERED, 60_000))
    others = (InstanceUse("c5.xlarge", f"{install.region}a", 1),)
    shown = AccountCommitments(install.region, at - 60, (plan,), others=others)
    BucketCommitments(session.client("s3"), "install", install.region).save(shown)
    use = ClusterUse(at - 60, (InstanceUse("m5.large", f"{install.region}b", 2),))
    DynamoCommitmentUse(session.client("dynamodb"), "state").note(SharedUse(), "green", use, at - 60)
