"""Errors as AWS writes them lead to what public threads report of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.aws_rules.error_outcomes import difference
from tests.aws_rules.error_plays import plays
from tests.aws_rules.error_texts import ErrorText, error_texts

ROWS = error_texts()
FEWEST = 200
MOST_DIFFERENT = 0.02

DIFFERENT = {
    "ec2-RunInstances-UnsupportedOperation-aws-samples/aws-eda-slurm-cluster#122": (
        "the option suits other types: only the type that the text names rests, as the thread did with its own type"
    ),
    "ec2-ModifyFleet-InvalidFleetConfig-hashicorp/terraform-provider-aws#41272": (
        "the request is wrong for one type only: it rests, and the next request leaves it out"
    ),
}
"""Rows, by id, for which Shiplap does something else than the thread reports, and why."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_an_error_leads_to_what_its_thread_reports(row: ErrorText) -> None:
    found = difference(row, plays(row))
    if row.id in DIFFERENT:
        assert found, "it does not differ any more: take it out of DIFFERENT"
    else:
        assert not found, f"{row.outcome} ({row.reported}): {found}"


def test_few_rows_differ_and_all_that_do_exist() -> None:
    ids = {row.id for row in ROWS}
    assert set(DIFFERENT) <= ids
    assert len(DIFFERENT) <= MOST_DIFFERENT * len(ROWS)


def test_the_table_is_large_and_every_row_has_a_thread_of_its_own() -> None:
    assert len(ROWS) >= FEWEST
    assert len({(row.id, row.message) for row in ROWS}) == len(ROWS)
    assert [row.source for row in ROWS if not re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", row.source)] == []


@pytest.mark.parametrize(
    "is_private",
    [
        lambda row: re.search(r"\b(?!111122223333)\d{12}\b", row.message),
        lambda row: re.search(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}", row.message),
        lambda row: re.search(r"\b(?:i|ami|subnet|sg|snap|lt)-(?!0123456789abcdef)[0-9a-f]{8,17}\b", row.message),
    ],
    ids=["accounts", "keys", "ids"],
)
def test_ids_and_accounts_are_neutral(is_private: Callable[[ErrorText], object]) -> None:
    assert [row.id for row in ROWS if is_private(row)] == []
