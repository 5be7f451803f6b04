"""The reference of settings has every key of shiplap.yaml, each with its explanation, and editors show the same."""

from __future__ import annotations

import pytest

from shiplap.policies.registry import POLICIES
from shiplap_cdk.field_docs import field_docs, structs_of
from shiplap_cdk.install_keys import ClusterDocument, written_install
from shiplap_cdk.install_schema import install_schema
from tools.settings_reference import PAGE, keys, text

KEYS = dict(keys(install_schema()))


def test_the_page_is_the_one_that_make_docs_writes() -> None:
    assert PAGE.read_text() == text()


def test_every_key_is_explained() -> None:
    assert [key for key, part in KEYS.items() if not part.get("description")] == []
    assert len(KEYS) > 100


def test_keys_of_nested_settings_and_of_optional_features_are_there() -> None:
    assert {"clusters[].repairPolicies[].tolerated", "clusters[].gangs.mode", "ceilings[].hourly"} <= KEYS.keys()
    written = {key.partition(".")[2].partition(".")[0].rstrip("[]{}").lower() for key in KEYS} | {
        key.partition(".")[0].rstrip("[]{}").lower() for key in KEYS
    }
    assert [entry.name for entry in POLICIES if entry.name.replace("_", "") not in written] == []


@pytest.mark.parametrize(
    ("key", "row"),
    [
        ("clusters[].repairPolicies[].action", "`Replace`, `Reboot` | `Replace` |"),
        ("clusters[].rollouts.atOnce", "whole number, at least 1 | `10` |"),
        ("clusters[].watch", "true or false | `true` |"),
    ],
)
def test_a_row_has_the_values_and_the_default(key: str, row: str) -> None:
    assert f"| `{key}` | {row}" in text()


def test_a_field_is_explained_by_the_text_below_it() -> None:
    assert field_docs(ClusterDocument) == {}, "its keys are explained where they are annotated"
    repair = structs_of(written_install())["RepairPolicy"]
    assert field_docs(repair)["priority"] == "Nodes of higher priority are repaired first."
