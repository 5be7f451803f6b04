"""Label selectors, as services, spread constraints and pod affinity use them."""

from __future__ import annotations

from collections.abc import Mapping

from shiplap.kubernetes.objects import LabelSelector, LabelSelectorRequirement


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy the selector: no selector matches nothing, an empty one everything.

    Raises:
        ValueError: an operator that selectors do not have.
    """
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_satisfied(expression, labels) for expression in selector.match_expressions)


def _satisfied(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    present = expression.key in labels
    match expression.operator:
        case "In":
            return present and labels[expression.key] in expression.values
        case "NotIn":
            return not present or labels[expression.key] not in expression.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
    raise ValueError(
        f"{expression.key}: unknown selector operator {expression.operator!r}; "
        "known are In, NotIn, Exists, DoesNotExist"
    )
