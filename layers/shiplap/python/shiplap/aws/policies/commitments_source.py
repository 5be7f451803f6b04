"""The port CommitmentSource: the account's Savings Plans and Reserved Instances, and who uses them besides the install.

Counted are Compute and EC2 Instance Savings Plans, and Reserved Instances for Linux of shared tenancy. Others are left
out and named. The APIs show what is committed and not what of it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shiplap.aws import tags
from shiplap.aws.ec2_errors import aws_errors, readable
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import (
    ANY_FAMILY,
    AccountCommitments,
    InstanceUse,
    ReservedInstances,
    SavingsPlan,
    UncountedCommitment,
    merged,
)

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

_LOG = logging.getLogger(__name__)

_LINUX = frozenset(("Linux/UNIX", "Linux/UNIX (Amazon VPC)"))
_PAGE = 100
_RATE_FILTERS = {"productDescription": "Linux/UNIX", "tenancy": "shared", "serviceCode": "AmazonEC2"}


class AwsCommitments:
    """A CommitmentSource of one Region for an install, whose own instances are not counted among the others.

    `savings_plans` is a client of Savings Plans, a service without Regions; `clock` gives epoch seconds.
    """

    def __init__(
        self, region: str, install: str, *, ec2: EC2Client, savings_plans: Any, clock: Callable[[], float]
    ) -> None:
        self._region = region
        self._install = install
        self._ec2 = ec2
        self._savings_plans = savings_plans
        self._clock = clock

    @readable
    def describe(self, *, others_alone: bool = False) -> AccountCommitments:
        """See `CommitmentSource.describe`."""
        now = self._clock()
        if others_alone:
            return AccountCommitments(self._region, now, others=self._others())
        uncounted: list[UncountedCommitment] = []
        plans = tuple(self._plans(uncounted))
        reserved = tuple(self._reserved(uncounted))
        if uncounted:
            _LOG.info("not counted on: %s", "; ".join(f"{item.id}: {item.reason}" for item in uncounted))
        return AccountCommitments(
            self._region,
            now,
            tuple(sorted(plans, key=lambda plan: plan.id)),
            tuple(sorted(reserved, key=lambda item: item.id)),
            self._others(),
            tuple(sorted(uncounted, key=lambda item: item.id)),
        )

    def _plans(self, uncounted: list[UncountedCommitment]) -> Iterable[SavingsPlan]:
        with aws_errors("describe savings plans"):
            found = list(self._pages("describe_savings_plans", "savingsPlans", states=["active"]))
        for plan in found:
            name = plan["savingsPlanId"]
            if reason := self._uncounted_plan(plan):
                uncounted.append(UncountedCommitment(name, reason))
                continue
            ends_at = datetime.fromisoformat(plan["end"]).timestamp()
            family = plan.get("ec2InstanceFamily", ANY_FAMILY)
            yield SavingsPlan(name, _micros(plan["commitment"]), ends_at, family, self._rates(name))

    def _uncounted_plan(self, plan: Mapping[str, Any]) -> str:
        if plan["savingsPlanType"] not in ("Compute", "EC2Instance"):
            return f"Savings Plans of type {plan['savingsPlanType']} pay for no instances of nodes"
        if plan["savingsPlanType"] == "EC2Instance" and plan.get("region") != self._region:
            return f"it is for {plan.get('region')}"
        return "" if plan.get("currency", "USD") == "USD" else f"it is in {plan['currency']}"

    def _rates(self, plan: str) -> dict[str, int]:
        """Return the micro-dollars that an hour of each type takes of a plan."""
        wanted = {**_RATE_FILTERS, "region": self._region}
        filters = [{"name": name, "values": [value]} for name, value in sorted(wanted.items())]
        rates: dict[str, int] = {}
        with aws_errors("describe savings plan rates"):
            found = self._pages("describe_savings_plan_rates", "searchResults", savingsPlanId=plan, filters=filters)
            for rate in found:
                said = {entry["name"]: entry["value"] for entry in rate["properties"]}
                usage, _, _ = rate["usageType"].partition(":")  # names of types may hold a hyphen, too
                if "instanceType" in said and usage.rpartition("-")[2] == "BoxUsage":
                    rates[said["instanceType"]] = _micros(rate["rate"])
        return dict(sorted(rates.items()))

    def _pages(self, operation: str, key: str, **request: Any) -> Iterable[Mapping[str, Any]]:
        """All results of an operation of Savings Plans, for which botocore has no paginators."""
        call = getattr(self._savings_plans, operation)
        while True:
            page = call(maxResults=_PAGE, **request)
            yield from page.get(key, ())
            if not page.get("nextToken"):
                return
            request["nextToken"] = page["nextToken"]

    def _reserved(self, uncounted: list[UncountedCommitment]) -> Iterable[ReservedInstances]:
        with aws_errors("describe reserved instances"):
            found = self._ec2.describe_reserved_instances(Filters=[{"Name": "state", "Values": ["active"]}])
        for item in found["ReservedInstances"]:
            name = item["ReservedInstancesId"]
            zonal = item.get("Scope") == "Availability Zone"
            if item["ProductDescription"] not in _LINUX:
                uncounted.append(UncountedCommitment(name, f"it is for {item['ProductDescription']}"))
            elif item.get("InstanceTenancy", "default") != "default":
                uncounted.append(UncountedCommitment(name, f"it is for {item['InstanceTenancy']} tenancy"))
            else:
                yield ReservedInstances(
                    name,
                    item["InstanceType"],
                    item["InstanceCount"],
                    item["End"].timestamp(),
                    item["AvailabilityZone"] if zonal else "",
                )

    def _others(self) -> tuple[InstanceUse, ...]:
        """On-demand instances of the account that the install did not launch, whatever they run."""
        filters = {"instance-state-name": ["pending", "running"], "tenancy": ["default"]}
        uses = []
        with aws_errors("describe instances"):
            pages = self._ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": name, "Values": values} for name, values in filters.items()],
                PaginationConfig={"PageSize": 1000},
            )
            for instance in (it for page in pages for lot in page["Reservations"] for it in lot["Instances"]):
                ours = tags.read(instance.get("Tags", [])).get(tags.INSTALL) == self._install
                if not ours and not instance.get("InstanceLifecycle"):
                    # Zonal Reserved Instances do not pay for what runs in a capacity reservation.
                    reserved = instance.get("CapacityReservationId")
                    zone = "" if reserved else instance["Placement"]["AvailabilityZone"]
                    uses.append(InstanceUse(instance["InstanceType"], zone, 1))
        return merged(uses)


def _micros(dollars: str) -> int:
    return round(float(dollars) * MICROS)
