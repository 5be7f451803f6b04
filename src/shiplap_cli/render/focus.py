"""The ledger of spending in the format of FOCUS 1.2, the FinOps Open Cost and Usage Specification, as CSV.

A charge is what the instances of a NodePool that were bought alike have cost in a month. The ledger counts list prices:
what commitments of the account and negotiated discounts make of them is on AWS's bill alone. So all four costs of a
charge are the same, and no column of commitments is there. `x_PriceEstimated` is a column of our own, as FOCUS names
them: AWS told no price, and the charge is an estimate.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from shiplap.kubernetes.labels import ON_DEMAND, RESERVED, SPOT
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.printable import printable
from shiplap.regions import description_of, partition_of
from shiplap.spending.ledger import HOUR_S, MonthOfSpending, PurchasedTime, SpendingLedger, month_end, month_of

_PRICING = {ON_DEMAND: "Standard", RESERVED: "Standard", SPOT: "Dynamic"}


class ClusterLedger(msgspec.Struct, frozen=True):
    """A ledger, and what charges say of the cluster that it is of."""

    cluster: str
    region: str
    account: str
    ledger: SpendingLedger


class FocusCharge(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A row: columns in the order of the file, each with the name and the form that FOCUS gives it; None is null."""

    billing_account_id: str
    billing_account_name: str | None = None
    billing_currency: str = "USD"
    invoice_id: str | None = None
    billing_period_start: str
    billing_period_end: str
    charge_period_start: str
    charge_period_end: str
    charge_category: str = "Usage"
    charge_class: str | None = None
    charge_description: str
    charge_frequency: str = "Usage-Based"
    billed_cost: str
    effective_cost: str
    contracted_cost: str
    list_cost: str
    pricing_category: str
    pricing_quantity: str
    pricing_unit: str
    provider_name: str = "AWS"
    publisher_name: str = "AWS"
    invoice_issuer_name: str = "AWS"
    service_category: str = "Compute"
    service_subcategory: str = "Virtual Machines"
    service_name: str = "Amazon Elastic Compute Cloud"
    region_id: str
    region_name: str
    tags: str
    price_estimated: str = msgspec.field(name="x_PriceEstimated")


def focus_csv(ledgers: Iterable[ClusterLedger]) -> str:
    """The charges of this month and the last one, as far as they are posted; without any, the names of the columns."""
    text = io.StringIO()
    names = [field.encode_name for field in msgspec.structs.fields(FocusCharge)]
    rows = csv.DictWriter(text, names, lineterminator="\n")
    rows.writeheader()
    for ledger in sorted(ledgers, key=lambda each: each.cluster):
        for charge in focus_charges(ledger):
            written = msgspec.to_builtins(charge)
            rows.writerow({name: "" if value is None else printable(value) for name, value in written.items()})
    return text.getvalue()


def focus_charges(known: ClusterLedger) -> Iterator[FocusCharge]:
    """Yield the charges of a cluster: the last month, then this one."""
    for month in (known.ledger.last_month, known.ledger.this_month):
        if month.month:
            yield from (
                _charge(known, month, bought) for bought in (*month.purchases, *_unsorted(month)) if bought.spent
            )


def _unsorted(month: MonthOfSpending) -> Iterator[PurchasedTime]:
    """Yield what earlier versions have posted of each NodePool, who did not note how it was bought."""
    for pool, spent in month.by_pool.items():
        noted = sum(bought.spent for bought in month.purchases if bought.node_pool == pool)
        yield PurchasedTime(pool, spent=spent - noted)


def _charge(known: ClusterLedger, month: MonthOfSpending, bought: PurchasedTime) -> FocusCharge:
    """The row of a charge. Time that is not known is not priced by the hour: then the quantity is that of dollars.

    The account is named by an ARN: readers of CSV take twelve digits for a number, and FOCUS wants text.
    """
    begin = datetime.strptime(month.month, "%Y-%m").replace(tzinfo=UTC).timestamp()
    end, posted_until = month_end(begin), known.ledger.posted_until
    cost = _decimal(bought.spent, MICROS)
    tags = {"shiplap.dev/cluster": known.cluster, "shiplap.dev/nodepool": bought.node_pool}
    return FocusCharge(
        billing_account_id=f"arn:{partition_of(known.region)}:iam::{known.account}:root",
        billing_period_start=rfc3339(begin),
        billing_period_end=rfc3339(end),
        charge_period_start=rfc3339(begin),
        charge_period_end=rfc3339(min(end, posted_until) if month_of(posted_until - 1) == month.month else end),
        charge_description=_description(known.cluster, bought),
        billed_cost=cost,
        effective_cost=cost,
        contracted_cost=cost,
        list_cost=cost,
        pricing_category=_PRICING.get(bought.capacity_type, "Other"),
        pricing_quantity=_decimal(bought.seconds * MICROS // HOUR_S, MICROS) if bought.seconds else cost,
        pricing_unit="Hours" if bought.seconds else "USD",
        region_id=known.region,
        region_name=description_of(known.region),
        tags=msgspec.json.encode({key: value for key, value in tags.items() if value}).decode(),
        price_estimated=str(bought.is_estimated).lower(),
    )


def _description(cluster: str, bought: PurchasedTime) -> str:
    pool = f"NodePool {bought.node_pool}" if bought.node_pool else "no NodePool"
    kind = bought.capacity_type or "of any capacity type"
    return f"Instances of {pool} in cluster {cluster}, {kind}{', price estimated' if bought.is_estimated else ''}"


def _decimal(amount: int, whole: int) -> str:
    return f"{amount // whole}.{amount % whole:06d}"
