"""The questions about commitments that AWS answers in pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shiplap.aws.policies.commitments_source import AwsCommitments
from tests.unit.aws.asked_pages import Listing, instance


def commitments(client: Any) -> AwsCommitments:
    return AwsCommitments("eu-west-1", "shiplap", ec2=client, savings_plans=client, clock=lambda: 1_800_000_000.0)


def plan(name: str) -> dict[str, Any]:
    paid = {"commitment": "1", "currency": "USD", "end": "2028-01-01T00:00:00.000Z"}
    return {"savingsPlans": [{"savingsPlanId": name, "savingsPlanType": "SageMaker", **paid}]}


def rate(name: str) -> dict[str, Any]:
    kind = [{"name": "instanceType", "value": name}]
    return {"searchResults": [{"rate": "0.1", "usageType": f"BoxUsage:{name}", "properties": kind}]}


def uncounted(savings_plans: Any) -> Iterator[str]:
    found: list[Any] = []
    assert list(commitments(savings_plans)._plans(found)) == []
    return (item.id for item in found)


LISTINGS = {
    "policies.commitments_source.AwsCommitments._others": Listing(
        "ec2",
        "describe_instances",
        instance,
        lambda ec2: (use.instance_type for use in commitments(ec2)._others()),
    ),
    "policies.commitments_source.AwsCommitments._plans": Listing(
        "savingsplans", "describe_savings_plans", plan, uncounted
    ),
    "policies.commitments_source.AwsCommitments._rates": Listing(
        "savingsplans", "describe_savings_plan_rates", rate, lambda client: commitments(client)._rates("plan")
    ),
}
WITHOUT_PAGINATOR = (
    "policies.commitments_source.AwsCommitments._plans",
    "policies.commitments_source.AwsCommitments._rates",
)
