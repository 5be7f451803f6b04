"""Selects the pods of a cluster that Shiplap launches nodes for, while another autoscaler has the other pods.

A rule stands in shiplap.yaml or in a file of its own. Without any rule, Shiplap claims every pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from shiplap.kubernetes.objects import LabelSelector, LabelSelectorRequirement, Pod
from shiplap.kubernetes.selectors import matches
from shiplap.manifests.decoding import demands

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts: unknown fields are refused."""


class _Expression(_Part, frozen=True):
    key: str
    """The label."""
    operator: Annotated[str, demands(choices=_OPERATORS)]
    """`In` and `NotIn` compare its value, `Exists` and `DoesNotExist` look whether it is there."""
    values: tuple[str, ...] = ()
    """What it is compared with."""


class ClaimSelector(_Part, frozen=True):
    """A Kubernetes label selector; one without any condition is refused, since it would claim everything."""

    match_labels: dict[str, str] = {}
    """Labels and values that a pod must have."""
    match_expressions: tuple[_Expression, ...] = ()
    """Conditions, all of which must hold."""

    def selector(self) -> LabelSelector:
        """The selector as a LabelSelector."""
        expressions = (LabelSelectorRequirement(e.key, e.operator, e.values) for e in self.match_expressions)
        return LabelSelector(self.match_labels, tuple(expressions))


class ClaimRule(_Part, frozen=True):
    """Pods for which every part that is written holds."""

    namespaces: tuple[str, ...] = ()
    """Names, in which `*` stands for any text."""
    pod_selector: ClaimSelector | None = None
    """The pod's labels."""
    tolerates: str = ""
    """The key of a taint that the pod names in a toleration. One of everything names no key and claims nothing."""

    def claims(self, pod: Pod) -> bool:
        """True if this rule claims the pod."""
        if self.namespaces:
            namespace = pod.metadata.namespace or "default"
            if not any(fnmatchcase(namespace, pattern) for pattern in self.namespaces):
                return False
        if self.tolerates and all(toleration.key != self.tolerates for toleration in pod.spec.tolerations):
            return False
        return self.pod_selector is None or matches(self.pod_selector.selector(), pod.metadata.labels)

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """The problems of the rule: path and reason."""
        if not (self.namespaces or self.pod_selector or self.tolerates):
            yield (
                (),
                "says nothing; give namespaces, podSelector or tolerates, or leave the rule out to claim every pod",
            )
        for place, pattern in enumerate(self.namespaces):
            if not pattern or set(pattern) & set("?[]"):
                yield ("namespaces", place), f"{pattern!r} must be a name, in which * stands for any text"
        if self.pod_selector is not None:
            yield from (((("podSelector", *where)), reason) for where, reason in _selector_problems(self.pod_selector))


def _selector_problems(selector: ClaimSelector) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if not (selector.match_labels or selector.match_expressions):
        yield (), "is empty; give matchLabels or matchExpressions"
    for place, expression in enumerate(selector.match_expressions):
        where = ("matchExpressions", place)
        if expression.operator in _OPERATORS and bool(expression.values) != (expression.operator in ("In", "NotIn")):
            needs = "needs values" if not expression.values else "takes no values"
            yield (*where, "values"), f"{expression.operator} {needs}"


class ClaimRules(_Part, frozen=True):
    """A file of rules, as `claimRules` in shiplap.yaml."""

    claim_rules: tuple[ClaimRule, ...]


def rule_problems(rules: Sequence[ClaimRule]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems of all rules: path below `claimRules` and reason."""
    for place, rule in enumerate(rules):
        yield from (((place, *where), reason) for where, reason in rule.problems())


def is_claimed(pod: Pod, rules: Sequence[ClaimRule]) -> bool:
    """True if a pod is Shiplap's: some rule claims the pod, or there is no rule."""
    return not rules or any(rule.claims(pod) for rule in rules)
