"""Dry runs: whether EC2 would launch from an EC2NodeClass, asked before pods depend on it, and remembered.

A missing permission, or an organisation's policy, shows only in EC2's own answer. A dry run takes a few requests, so
its answer is kept while the EC2NodeClass is unchanged; not for ever, because policies change, too.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness import conditions
from shiplap.instances.readiness.nodeclass_status import manifest_digest
from shiplap.manifests.custom_resources import EC2NodeClass

ALLOWED_FOR_S = 6 * 3600.0
"""How long a permission is taken to hold, in seconds."""
REFUSED_FOR_S = 300.0
"""How long a refusal is taken to hold, in seconds: people may be fixing it."""


class DryRun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """EC2's answer to launching from an EC2NodeClass whose content has the digest `manifest`.

    `reason` and `message` are those of the condition ValidationSucceeded, empty when there is nothing against it.
    From `again_at` on, epoch seconds, EC2 is asked again.
    """

    node_class: str
    manifest: str
    again_at: float
    reason: str = ""
    message: str = ""


class DryRuns(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Those of a cluster, sorted by EC2NodeClass."""

    items: tuple[DryRun, ...] = ()

    def of(self, node_class: EC2NodeClass) -> DryRun | None:
        """What is known of an EC2NodeClass as it is written now."""
        name, manifest = node_class.metadata.name, manifest_digest(node_class)
        return next((item for item in self.items if (item.node_class, item.manifest) == (name, manifest)), None)

    def problem(self, node_class: EC2NodeClass) -> NodeClassProblem | None:
        """Why EC2 would not launch from it, as far as is known."""
        known = self.of(node_class)
        if known is None or not known.reason:
            return None
        return NodeClassProblem(conditions.VALIDATION, known.reason, known.message)

    def due(self, node_classes: Iterable[EC2NodeClass], now: float) -> tuple[EC2NodeClass, ...]:
        """Those to be tried out again at `now`, epoch seconds."""
        return tuple(item for item in node_classes if (known := self.of(item)) is None or now >= known.again_at)

    def with_news(self, fresh: Iterable[DryRun], node_classes: Iterable[EC2NodeClass]) -> DryRuns:
        """The same with new answers in the place of old ones, and without EC2NodeClasses that no longer exist."""
        names = {item.metadata.name for item in node_classes}
        merged = {item.node_class: item for item in (*self.items, *fresh)}
        return DryRuns(tuple(merged[name] for name in sorted(names & merged.keys())))


def dry_run(node_class: EC2NodeClass, now: float, problem: NodeClassProblem | None = None) -> DryRun:
    """EC2's answer `now`, epoch seconds."""
    known_until = now + (ALLOWED_FOR_S if problem is None else REFUSED_FOR_S)
    reason, message = ("", "") if problem is None else (problem.reason, problem.message)
    return DryRun(node_class.metadata.name, manifest_digest(node_class), known_until, reason, message)


def untried_dry_run(node_class: EC2NodeClass, now: float) -> DryRun:
    """Nothing can be tried now, because the EC2NodeClass is not ready or its pools launch nothing."""
    return DryRun(node_class.metadata.name, manifest_digest(node_class), now + REFUSED_FOR_S)
