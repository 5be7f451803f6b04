"""Commands read the same of an install's commitments as its functions do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.errors import StoreError
from shiplap.policies.commitments.account_commitments import AccountCommitments, CommitmentSettings, WrittenPlan
from shiplap.settings import ClusterSettings
from shiplap_cli.installs.installed import _read_commitments

PLAN = WrittenPlan(dollars_per_hour=1.0, discount="28%", end="2030-01-01")
SHARED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="80%")
WRITTEN = CommitmentSettings(counted_by="eu-west-1/shiplap", written=(PLAN,))


@pytest.mark.parametrize(("wanted", "is_read"), [(SHARED, True), (WRITTEN, True), (None, False)])
def test_what_the_functions_know_is_read_where_commitments_are_counted_on(
    wanted: CommitmentSettings | None, *, is_read: bool
) -> None:
    install: Any = SimpleNamespace(commitments=lambda region: AccountCommitments(region, 5.0))
    settings = ClusterSettings(name="blue", region="eu-west-1", commitments=wanted)
    notes: list[str] = []

    found = _read_commitments(install, settings, notes)

    assert found == (AccountCommitments("eu-west-1", 5.0) if is_read else None)
    assert notes == []


def test_what_cannot_be_read_is_noted() -> None:
    def refuse(region: str) -> AccountCommitments:
        raise StoreError(f"not in {region}")

    install: Any = SimpleNamespace(commitments=refuse)
    notes: list[str] = []
    assert _read_commitments(install, ClusterSettings(name="b", region="eu", commitments=WRITTEN), notes) is None
    assert len(notes) == 1
    assert "not in eu" in notes[0]
