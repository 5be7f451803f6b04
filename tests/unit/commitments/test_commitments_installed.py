"""Commands read the same of an install's commitments as its functions do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.errors import StoreError
from shiplap.flows.planning.decision_inputs import LaunchSupply
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.policies.commitments.account_commitments import AccountCommitments, SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.policies.commitments.commitment_settings import CommitmentSettings, WrittenPlan
from shiplap.policies.commitments.commitment_use import SharedUse
from shiplap.policies.policy_settings import chosen
from shiplap.ports import DecisionState
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.settings import ClusterSettings
from shiplap_cli.installs.installed import InstalledCluster, LearnedCapacityView
from shiplap_cli.installs.installed_decision import installed_decision

PLAN = WrittenPlan(dollars_per_hour=1.0, discount="28%", end="2030-01-01")
SHARED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="80%")
WRITTEN = CommitmentSettings(counted_by="eu-west-1/shiplap", written=(PLAN,))
EMPTY = DecisionState(0)
NOTED = SimpleNamespace(read=SharedUse)
KNOWN = AccountCommitments("eu-west-1", 5.0, (SavingsPlan("sp-1", 1_000_000, 1e9, rate_ppm=700_000),))


def input_of(
    wanted: CommitmentSettings | None, store: Any, noted: Any = NOTED, *, state: DecisionState | None = EMPTY
) -> tuple[CommitmentInput | None, list[str]]:
    """The input that commitments give a plan, and what the command notes."""
    notes: list[str] = []
    settings = ClusterSettings(name="blue", region="eu-west-1", policies=() if wanted is None else chosen(wanted))
    stores = {name: lambda: None for name in ("state", "capacity", "joins")}
    ports = {"commitments": lambda: store, "commitment_use": lambda: noted}
    install: Any = SimpleNamespace(**stores, policy_ports=lambda *_: ports)
    installed = InstalledCluster(
        cluster="blue",
        at=5.0,
        notes=notes,
        capacity=LearnedCapacityView(None, notes),
        settings=settings,
        state=state,
        install=install,
    )
    made = installed_decision(
        installed, settings, ClusterView(), (), LaunchSupply(Catalog(region="eu-west-1", types=()), {})
    )
    return made.snapshot.policy(CommitmentInput), notes


@pytest.mark.parametrize(("wanted", "plans"), [(SHARED, 1), (WRITTEN, 1), (None, 0)])
def test_what_the_functions_know_is_read_where_commitments_are_counted_on(
    wanted: CommitmentSettings | None, plans: int
) -> None:
    found, notes = input_of(wanted, SimpleNamespace(load=lambda: KNOWN))
    assert (len(found.room.savings_plans) if found is not None else 0) == plans
    assert notes == []


def refuse() -> Any:
    raise StoreError("not in eu")


@pytest.mark.parametrize(
    ("store", "noted", "what"),
    [
        (SimpleNamespace(load=refuse), NOTED, "commitments"),
        (SimpleNamespace(load=lambda: KNOWN), SimpleNamespace(read=refuse), "use of commitments"),
    ],
    ids=["shown", "used"],
)
def test_what_cannot_be_read_is_noted(store: Any, noted: Any, what: str) -> None:
    found, notes = input_of(SHARED, store, noted)
    assert found is not None
    assert found.room.is_empty
    assert len(notes) == 1
    assert notes[0].startswith(f"not seen: {what}, so list prices count: ")
    assert "not in eu" in notes[0]


def test_without_the_state_no_commitment_counts() -> None:
    """Who else uses them is not known."""
    assert input_of(SHARED, SimpleNamespace(load=lambda: KNOWN), state=None) == (None, [])
