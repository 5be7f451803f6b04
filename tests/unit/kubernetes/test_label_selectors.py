"""Label selectors."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.objects import LabelSelector, LabelSelectorRequirement
from shiplap.kubernetes.selectors import matches

LABELS = {"app": "web", "tier": "front"}


def by(operator: str, key: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key, operator, values),))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, False),
        (LabelSelector(), True),
        (LabelSelector(match_labels={"app": "web"}), True),
        (LabelSelector(match_labels={"app": "web", "tier": "back"}), False),
        (LabelSelector(match_labels={"other": "web"}), False),
        (by("In", "app", "api", "web"), True),
        (by("In", "app", "api"), False),
        (by("In", "other", "api"), False),
        (by("NotIn", "app", "web"), False),
        (by("NotIn", "app", "api"), True),
        (by("NotIn", "other", "api"), True),
        (by("Exists", "app"), True),
        (by("Exists", "other"), False),
        (by("DoesNotExist", "app"), False),
        (by("DoesNotExist", "other"), True),
    ],
)
def test_matching(selector: LabelSelector | None, expected: bool) -> None:
    assert matches(selector, LABELS) is expected


def test_all_parts_must_hold() -> None:
    selector = LabelSelector({"app": "web"}, (LabelSelectorRequirement("tier", "In", ("back",)),))
    assert not matches(selector, LABELS)


def test_unknown_operators_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown selector operator 'Gt'"):
        matches(by("Gt", "app", "1"), LABELS)
