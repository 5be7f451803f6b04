"""The ledger as CSV of FOCUS: mandatory columns, their types and what may be null, and FOCUS's own validator."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from shiplap.instances.offerings.instance_rates import Rate
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.spending.ledger import HOUR_S, MonthOfSpending, SpendingLedger, begin, month_end, posted
from shiplap_cli.render.focus import ClusterLedger, focus_csv
from tests.builders.claims import running_claim
from tests.registries import leave_out_if_unreachable

ROOT = Path(__file__).parents[3]
TURN = month_end(datetime.fromisoformat("2026-11-15T00:00:00Z").timestamp())
"""The moment at which November 2026 ends."""

TEXTS = {"InvoiceIssuerName", "ProviderName", "PublisherName", "BillingAccountId", "ServiceName", "ChargeDescription"}
TIMES = {"BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"}
COSTS = {"BilledCost", "EffectiveCost", "ContractedCost", "ListCost", "PricingQuantity"}
CHOICES = {
    "BillingCurrency": {"USD"},
    "ChargeCategory": {"Usage"},
    "ChargeFrequency": {"Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Other"},
    "PricingUnit": {"Hours", "USD"},
    "ServiceCategory": {"Compute"},
}
NULLABLE = {"BillingAccountName", "ChargeClass", "InvoiceId"}
MANDATORY = TEXTS | TIMES | COSTS | CHOICES.keys() | {"BillingAccountName", "ChargeClass"}
"""The columns that FOCUS 1.2 wants in any dataset."""


def nobody(_: NodeClaim) -> dict[str, float]:
    return {}


def rate(claim: NodeClaim) -> Rate:
    return Rate(360_000, known=claim.known_instance.capacity_type != "spot")


def over_the_turn() -> SpendingLedger:
    """Two hours before the month's end to three hours after it: an on-demand node, and a spot one at an estimate."""
    claims = [
        running_claim(name="a", node_pool="general", capacity_type="on-demand", created_at=TURN - 2 * HOUR_S),
        running_claim(name="b", node_pool="general", capacity_type="spot", created_at=TURN - HOUR_S),
    ]
    return posted(begin(TURN - 2 * HOUR_S), claims, TURN + 3 * HOUR_S, rate, nobody)


def ledgers() -> list[ClusterLedger]:
    """Of two clusters; the second one was posted by a version that did not note how instances were bought."""
    old = SpendingLedger(1, TURN, MonthOfSpending("2026-11", 7_000_001, by_pool={"batch": 5_000_001, "": 2_000_000}))
    return [
        ClusterLedger("prod", "eu-west-1", "123456789012", over_the_turn()),
        ClusterLedger("edge", "us-gov-west-1", "123456789012", old),
    ]


def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(focus_csv(ledgers()))))


def test_mandatory_columns_have_their_types_and_only_some_are_null() -> None:
    found = rows()
    assert len(found) == 6
    for row in found:
        assert row.keys() >= MANDATORY
        assert {name for name, value in row.items() if not value} == NULLABLE
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]) for name in TIMES)
        assert all(re.fullmatch(r"\d+\.\d{6}", row[name]) for name in COSTS)
        assert all(row[name] in values for name, values in CHOICES.items())
        assert all(not row[name].isdigit() for name in TEXTS)
        assert all(name.startswith("x_") or re.fullmatch("([A-Z][a-z]+)+", name) for name in row)


def test_charges_end_with_their_month_and_are_told_apart_by_how_they_were_bought() -> None:
    november, december = (
        ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
        ("2026-12-01T00:00:00Z", "2026-12-01T03:00:00Z"),
    )
    told = [
        (
            (row["ChargePeriodStart"], row["ChargePeriodEnd"]),
            row["PricingCategory"],
            row["PricingQuantity"],
            row["BilledCost"],
            row["x_PriceEstimated"],
        )
        for row in rows()
        if json.loads(row["Tags"])["shiplap.dev/cluster"] == "prod"
    ]
    assert told == [
        (november, "Standard", "2.000000", "0.720000", "false"),
        (november, "Dynamic", "1.000000", "0.360000", "true"),
        (december, "Standard", "3.000000", "1.080000", "false"),
        (december, "Dynamic", "3.000000", "1.080000", "true"),
    ]


def test_what_earlier_versions_have_posted_is_not_lost() -> None:
    found = [row for row in rows() if row["RegionId"] == "us-gov-west-1"]
    assert [row["BilledCost"] for row in found] == ["5.000001", "2.000000"]
    assert {row["PricingCategory"] for row in found} == {"Other"}
    assert {row["BillingAccountId"] for row in found} == {"arn:aws-us-gov:iam::123456789012:root"}
    assert sum(Decimal(row["BilledCost"]) for row in found) * 1_000_000 == 7_000_001


def test_without_a_ledger_there_are_only_the_names_of_the_columns() -> None:
    assert focus_csv([]).count("\n") == 1


OTHER_SIDE = "InvoiceId-C-005-C"
"""A charge has an invoice, or it has none (InvoiceId-C-004-C): the validator tries both, and wants one of them."""

VALIDATOR = ("focus-validator==2.2.1", "pyarrow<22")  # a newer pyarrow does not go with the numpy that it asks for


@pytest.mark.thorough
def test_the_validator_of_focus_accepts_it(tmp_path: Path) -> None:
    """It is no dependency: it brings 400 MB, wants Python 3.12, and finds its own data only from its own folder."""
    uv, place = str(ROOT / ".venv" / "bin" / "uv"), tmp_path / "validator"
    if _run([uv, "venv", "--no-python-downloads", "--python", "3.12", str(place)]).returncode:
        pytest.skip("FOCUS's validator needs Python 3.12, which uv does not find")
    installed = _run([uv, "pip", "install", "--python", str(place / "bin" / "python"), *VALIDATOR])
    leave_out_if_unreachable(installed.stderr, "FOCUS's validator")
    assert installed.returncode == 0, installed.stderr
    charges, (packages,) = tmp_path / "charges.csv", place.glob("lib/*/site-packages")
    charges.write_text(focus_csv(ledgers()))
    given = ["--data-file", str(charges), "--validate-version", "1.2", "--block-download"]
    judged = _run([str(place / "bin" / "focus-validator"), *given], packages)
    passed = re.search(r"Pass: (\d+) ", judged.stdout)
    assert passed, judged.stderr
    assert int(passed[1]) > 100
    assert set(re.findall(r"^- ([\w-]+): ", judged.stdout, re.MULTILINE)) == {OTHER_SIDE}, judged.stdout


def _run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)  # noqa: S603
