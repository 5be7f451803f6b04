"""Taints and tolerations."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.objects import Taint, Toleration
from shiplap.kubernetes.taints import is_ephemeral, tolerates, untolerated

TAINT = Taint("key", "NoSchedule", "value")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("key", "Equal", "value", "NoSchedule"), True),
        (Toleration("key", "Equal", "value"), True),
        (Toleration("key", "", "value"), True),
        (Toleration("key", "Equal", "other"), False),
        (Toleration("key", "Equal", "value", "NoExecute"), False),
        (Toleration("key", "Exists"), True),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("", "Equal", "value"), False),
        (Toleration("key", "Gt", "value"), False),
    ],
)
def test_one_toleration_and_one_taint(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) is expected


@pytest.mark.parametrize(
    ("operator", "limit", "value", "expected"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Gt", "5", "10", True),
        ("Gt", "-5", "-4", True),
        ("Lt", "5", "4", True),
        ("Lt", "5", "5", False),
        ("Lt", "0", "-1", True),
        ("Lt", "9223372036854775807", "9223372036854775806", True),
        ("Lt", "9223372036854775808", "1", False),
        ("Gt", "1", "9223372036854775808", False),
        ("Gt", "1", "9" * 5000, False),
        ("Gt", "05", "6", False),
        ("Gt", "+5", "6", False),
        ("Gt", "-0", "6", False),
        ("Gt", "5", "", False),
        ("Gt", "", "6", False),
        ("Gt", "5", "6.0", False),
        ("Gt", "5", "٦", False),
        ("gt", "5", "6", False),
        ("Gte", "5", "6", False),
    ],
)
def test_integers_are_compared(operator: str, limit: str, value: str, *, expected: bool) -> None:
    assert tolerates(Toleration("key", operator, limit), Taint("key", "NoSchedule", value)) is expected
    assert not tolerates(Toleration("other", operator, limit), Taint("key", "NoSchedule", value))
    assert not tolerates(Toleration("key", operator, limit, "NoExecute"), Taint("key", "NoSchedule", value))


def test_the_first_untolerated_taint_is_named() -> None:
    second = Taint("second", "NoExecute")
    assert untolerated([TAINT, second], iter([Toleration("key", "Exists")])) == second
    assert untolerated([TAINT, second], []) == TAINT
    assert untolerated([TAINT, second], [Toleration(operator="Exists")]) is None
    assert untolerated([], []) is None


def test_preferences_count_unless_they_are_ignored() -> None:
    preference = Taint("a", "PreferNoSchedule")
    assert untolerated([preference], []) == preference
    assert untolerated([preference, TAINT], [], ignore_preferences=True) == TAINT


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        (Taint("node.kubernetes.io/not-ready", "NoSchedule"), True),
        (Taint("node.kubernetes.io/not-ready", "NoExecute"), True),
        (Taint("node.kubernetes.io/unreachable", "NoSchedule"), True),
        (Taint("node.kubernetes.io/unreachable", "NoExecute"), False),
        (Taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", "true"), True),
        (Taint("karpenter.sh/unregistered", "NoExecute"), True),
        (Taint("readiness.k8s.io/anything", "NoSchedule"), True),
        (Taint("node.kubernetes.io/memory-pressure", "NoSchedule"), False),
        (TAINT, False),
    ],
)
def test_taints_of_a_starting_node(taint: Taint, expected: bool) -> None:
    assert is_ephemeral(taint) is expected
