"""RBAC rules as a ClusterRole writes them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap_lab.cluster_simulator.routes import ApiRequest


class PolicyRule(msgspec.Struct, frozen=True, rename="camel"):
    """One rule of a ClusterRole; `*` stands for everything."""

    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    api_groups: tuple[str, ...] = ("",)

    def allows(self, request: ApiRequest) -> bool:
        """Whether this rule alone permits the request."""
        return (
            _covers(self.api_groups, request.group)
            and _covers(self.resources, request.target)
            and _covers(self.verbs, request.verb)
        )


EVERYTHING = (PolicyRule(("*",), ("*",), ("*",)),)
READ_ONLY = (PolicyRule(("get", "list", "watch"), ("*",), ("*",)),)


def allowed(rules: Iterable[PolicyRule], request: ApiRequest) -> bool:
    """Whether any rule permits the request: RBAC only grants, nothing denies."""
    return any(rule.allows(request) for rule in rules)


def _covers(named: tuple[str, ...], wanted: str) -> bool:
    return "*" in named or wanted in named
