"""Label selectors of Services, spread constraints and pod affinity, and the node selector and affinity of pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from shiplap.kubernetes.objects import (
    LabelSelector,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
)


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """True if the labels satisfy the selector: no selector matches nothing, an empty selector everything.

    Raises:
        ValueError: an operator that selectors do not have.
    """
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_satisfied(each.key, each.operator, each.values, labels) for each in selector.match_expressions)


def matcher(selector: LabelSelector) -> Callable[[Mapping[str, str]], bool]:
    """As `matches`, for labels of many pods: however many values there are, each is looked up once.

    Raises:
        ValueError: an operator that selectors do not have.
    """
    expressions = [(each.key, each.operator, frozenset(each.values)) for each in selector.match_expressions]
    for key, operator, values in expressions:
        _satisfied(key, operator, values, {})
    wanted = selector.match_labels.items()

    def selects(labels: Mapping[str, str]) -> bool:
        return wanted <= labels.items() and all(
            _satisfied(key, operator, values, labels) for key, operator, values in expressions
        )

    return selects


def _satisfied(key: str, operator: str, values: Collection[str], labels: Mapping[str, str]) -> bool:
    present = key in labels
    match operator:
        case "In":
            return present and labels[key] in values
        case "NotIn":
            return not present or labels[key] not in values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
    raise ValueError(f"{key}: unknown selector operator {operator!r}; known are In, NotIn, Exists, DoesNotExist")


def node_affinity_allows(spec: PodSpec, node: Node) -> bool:
    """True if node selector and required node affinity allow the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """True if a node satisfies all of a term; an empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    return _all_hold(term.match_expressions, node.metadata.labels) and _all_hold(
        term.match_fields, {"metadata.name": node.metadata.name}
    )


def _all_hold(expressions: Iterable[NodeSelectorRequirement], labels: Mapping[str, str]) -> bool:
    return all(_holds(expression, labels.get(expression.key)) for expression in expressions)


def _holds(expression: NodeSelectorRequirement, value: str | None) -> bool:
    match expression.operator:
        case "In" | "NotIn" as operator:
            return (value in expression.values) == (operator == "In")
        case "Exists" | "DoesNotExist" as operator:
            return (value is not None) == (operator == "Exists")
        case "Gt" | "Lt" as operator if value is not None and value.lstrip("-").isdecimal():
            difference = int(value) - int(expression.values[0])
            return difference > 0 if operator == "Gt" else difference < 0
    return False
