"""Import contracts name every optional feature of the registry: a feature that they leave out is not held apart."""

from __future__ import annotations

import tomllib
from pathlib import Path

from shiplap.policies.registry import POLICIES

CONTRACTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]


def test_contracts_name_every_policy() -> None:
    modules = {f"shiplap.policies.{entry.name}" for entry in POLICIES}
    by_id = {contract.get("id"): contract for contract in CONTRACTS}
    assert set(by_id["policies_apart"]["modules"]) == modules
    assert modules <= set(by_id["policies"]["forbidden_modules"])
