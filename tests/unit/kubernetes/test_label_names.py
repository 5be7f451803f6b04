"""The spelling of label keys, label values and object names."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.names import label_key_problem, label_value_problem, subdomain_problem


@pytest.mark.parametrize("key", ["a", "A_b.c-1", "example.com/a", "a-b.c/x", "x" * 63])
def test_label_keys(key: str) -> None:
    assert label_key_problem(key) is None


@pytest.mark.parametrize("key", ["", "-a", "a-", "a b", "x" * 64, "/a", "a/", "A.com/x", "a/b/c", "a..b/c", "é"])
def test_what_is_no_label_key(key: str) -> None:
    assert label_key_problem(key) is not None


@pytest.mark.parametrize("value", ["", "a", "A.b_c-d", "1", "x" * 63])
def test_label_values(value: str) -> None:
    assert label_value_problem(value) is None


@pytest.mark.parametrize("value", ["-", "a/b", "a b", "*", "x" * 64, "a\n"])
def test_what_is_no_label_value(value: str) -> None:
    assert label_value_problem(value) is not None


def test_object_names() -> None:
    assert subdomain_problem("a-1.b") is None
    assert subdomain_problem("") == "must not be empty"
    assert subdomain_problem("a" * 64, 63) == "is longer than 63 characters"
    assert subdomain_problem("a" * 254) == "is longer than 253 characters"
    for name in ("A", "a_b", "-a", "a.", "a\n"):
        assert "may hold only" in str(subdomain_problem(name))
