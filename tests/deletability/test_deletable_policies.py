"""Each policy can be deleted: without its files and its line in the registry, all else still works.

Its files are found by their names (`without_policy.belongs`), so that a file elsewhere that needs the policy is found
here. A tree lacks several policies at once (`without_policy.left_out_together`), and two trees play all tests. What
compares the whole product with pages, goldens or a checkout is left out, and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.policies.registry import POLICIES
from tests.deletability.without_policy import (
    belongs,
    left_out_together,
    run_in,
    tree_without,
    without_entry,
    without_modules,
)

HELD: dict[str, str] = {}
"""The policies that cannot be deleted yet, each with the reason."""

DELETABLE = [entry.name for entry in POLICIES if entry.name not in HELD]
LEFT_OUT = left_out_together(DELETABLE)
HALVES = (DELETABLE[::2], DELETABLE[1::2])
"""What two trees lack in which tests are played. That takes minutes, and a name that is missing shows without it."""

WHOLE = (
    "tests/unit/cli/test_documentation.py",  # pages link to the policy's page and name its files
    "tests/unit/cli/test_index_for_programs.py::test_every_page_of_the_index_is_listed_and_exists",  # the same
    "tests/unit/cli/test_threat_model.py::test_what_is_defended_names_tests_that_exist",  # a page names tests
    "tests/unit/test_page_of_benchmarks.py",
    "tests/unit/test_makefile.py",  # it and the next need a checkout
    "tests/unit/test_release.py",
    # The table says which fields are read, a policy's too.
    "tests/unit/kubernetes/test_upstream_object_fields.py::test_fields_are_used_as_the_table_says",
    "tests/unit/mutation/test_simulated_seeds.py::test_all_scenarios_that_are_played_are_bundled",
    "tests/formats/test_install_file.py::test_fields_types_and_defaults",  # goldens hold the keys of all policies
    "tests/formats/test_log_fields.py::test_fields_of_log_lines",
    "tests/formats/test_metric_names.py::test_metrics_that_are_counted",
    "tests/formats/test_stored.py::test_items",
    "tests/formats/test_stored.py::test_objects",
)
"""Tests that compare the whole product with something written down."""

_PYTEST = ("pytest", "-q", "-n0", "-p", "no:cacheprovider")
_TYPES_S, _COLLECTION_S, _TESTS_S = 400.0, 300.0, 1500.0
"""Limits for a machine of which these have a fraction: alone they take 45, 30 and 250 seconds."""


def test_only_policies_are_held() -> None:
    assert HELD.keys() <= {entry.name for entry in POLICIES}


@pytest.fixture(scope="module", params=LEFT_OUT, ids=" ".join)
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source tree without policies."""
    return tree_without(request.param, tmp_path_factory.mktemp("tree"))


@pytest.mark.thorough
def test_types_and_names_are_known(tree: Path) -> None:
    run_in(tree, "ruff", "check", "--select", "F821,F822,E9", ".", limit_s=_TYPES_S)
    run_in(tree, "mypy", limit_s=_TYPES_S)


@pytest.mark.thorough
def test_layers_are_kept(tree: Path) -> None:
    run_in(tree, "lint-imports", "--no-cache", limit_s=_TYPES_S)


@pytest.mark.thorough
def test_all_other_tests_can_be_imported(tree: Path) -> None:
    run_in(tree, *_PYTEST, "--collect-only", "tests", limit_s=_COLLECTION_S)


@pytest.mark.thorough
@pytest.mark.parametrize("half", HALVES, ids=" ".join)
def test_other_tests_pass(half: list[str], tmp_path: Path) -> None:
    left_out = [f"--deselect={name}" for name in WHOLE]
    chosen = ("-m", "not e2e and not thorough and not fuzz", "tests/unit", "tests/conformance", "tests/formats")
    run_in(tree_without(half, tmp_path), *_PYTEST, *left_out, *chosen, limit_s=_TESTS_S)


@pytest.mark.parametrize("number", range(1, 30))
def test_each_policy_is_missed_beside_each_other_one(number: int) -> None:
    policies = [f"policy-{place:02}" for place in range(number)]
    trees = left_out_together(policies)
    for missed in policies:
        assert any(missed in tree for tree in trees)
        for other in policies:
            assert other == missed or any(missed in tree and other not in tree for tree in trees)


def test_seven_policies_need_five_trees() -> None:
    assert len(left_out_together("abcdefg")) == 5


@pytest.mark.parametrize(
    ("path", "is_its"),
    [
        ("policies/spot_risk/risk_rates.py", True),
        ("flows/policies/spot_risk_inputs.py", True),
        ("tests/integration/test_spot_risk_pages.py", True),
        ("scenarios/bundled/spot-risk.yaml", True),
        ("instances/offerings/spot_lists.py", False),
        ("tests/unit/test_no_spot_risk.py", False),
    ],
)
def test_files_of_a_policy_have_its_name(path: str, is_its: bool) -> None:
    assert belongs(Path(path), "spot_risk") is is_its


def test_a_policy_leaves_the_registry_and_the_contracts() -> None:
    registry = (
        'POLICIES = (\n    PolicyEntry("one", "a:A"),\n    PolicyEntry(\n        "two",\n        "b:B",\n    ),\n)\n'
    )
    assert without_entry(registry, "two") == 'POLICIES = (\n    PolicyEntry("one", "a:A"),\n)\n'
    contracts = 'modules = [\n    "shiplap.policies.one",\n    "shiplap.policies.two",\n]\n'
    assert without_modules(contracts, "one") == 'modules = [\n    "shiplap.policies.two",\n]\n'
