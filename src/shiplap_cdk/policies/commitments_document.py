"""The key `commitments` of shiplap.yaml, and the permission to look at the account's commitments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.shiplap_annotations import ON_DEMAND_DISCOUNT
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap_cdk.policy_document import PolicyDocument
from shiplap_cdk.region_differences import Feature


class CommitmentsDocument(PolicyDocument):
    """Commitments: all clusters of the install count on them together, and `catalog` asks for them."""

    explanation = "What to count on of Savings Plans and Reserved Instances."
    of_install = (CommitmentSettings | None, None)
    functions = ("catalog",)

    def settings(self, written: CommitmentSettings | None) -> CommitmentSettings | None:
        """Return the settings as they are written."""
        return written

    def problems_of_install(self, written: CommitmentSettings | None, install: str) -> Iterable[Problem]:
        """Return what is wrong with shares and plans, and with the install that counts them."""
        return () if written is None else written.problems(install)

    def needs(self, written: CommitmentSettings | None) -> Iterator[tuple[Path, Feature]]:
        """Yield the API by which AWS shows Savings Plans, where a share of them counts."""
        if written is not None and written.share:
            yield ("share",), Feature.SAVINGS_PLANS_API

    def unwelcome(self, written: CommitmentSettings | None) -> Mapping[str, str]:
        """Return the annotation by which NodePools state what commitments make of prices: both would count them."""
        reason = "`commitments` of shiplap.yaml already counts on Savings Plans: remove this annotation, or that key"
        return {} if written is None else {ON_DEMAND_DISCOUNT: reason}

    def asks(self, written: CommitmentSettings | None) -> Sequence[tuple[str, Sequence[str]]]:
        """Return the permission to see commitments, and the account's instances that use them.

        Instances that are not the install's use plans that shiplap.yaml states, too.
        """
        if written is None:
            return ()
        if not written.share:
            return [("LookAtCommitments", ["ec2:DescribeInstances"])]
        plans = ["savingsplans:DescribeSavingsPlans", "savingsplans:DescribeSavingsPlanRates"]
        return [
            ("LookAtCommitments", ["ec2:DescribeReservedInstances", "ec2:DescribeInstances"]),
            ("ReadSavingsPlans", plans),
        ]


DOCUMENT = CommitmentsDocument()
