"""The nodes that templates allow for a pod, whatever is left of limits, reservations and estimates at the moment.

Domains of topology constraints are computed from this, so that nothing that decides whether a pod gets a node can
decide where its siblings go. This module therefore knows no open claims, and of limits only those of 0: with them a
NodePool says that it has no such nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.pod_classes import ports_collide
from shiplap.scheduling.model.resources import Bools
from shiplap.scheduling.supply.claim_groups import ClaimGroup, ClaimGroups
from shiplap.scheduling.supply.open_claims import PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class PossibleNodes:
    """Answers from templates and pods alone, remembered as long as a decision lasts."""

    def __init__(self, templates: Sequence[NodeClaimTemplate], groups: ClaimGroups, *, best_effort: bool) -> None:
        """With `best_effort` a minValues that no list can keep is lowered to what the types have."""
        self.templates = templates
        self._groups = groups
        self.best_effort = best_effort
        self._joined: dict[tuple[int, int], Requirements | RefusalKind] = {}
        self._allowed: dict[int, Bools] = {}

    def suits(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
        """Whether taints and requirements let a template's nodes take pods of a class, whatever their size."""
        return not isinstance(self.joined(template, attempt), RefusalKind)

    def joined(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> Requirements | RefusalKind:
        """The requirements of a template's node for a pod of a class, or which of its rules keep the pod out."""
        key = (template.index, attempt.constraint)
        known = self._joined.get(key)
        if known is None:
            if template.blocked:
                known = RefusalKind.BLOCKED
            elif not _tolerates(template, attempt):
                known = RefusalKind.TAINT
            elif not template.requirements.compatible(attempt.term, template.allow_undefined):
                known = RefusalKind.REQUIREMENTS
            else:
                known = template.requirements.and_(attempt.term.values())
            self._joined[key] = known
        return known

    def rows(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> Bools:
        """The rows [rows] that a node for a pod may be of, estimates included unless its last node was too small."""
        table = template.table
        allowed = self._allowed.get(template.index)
        if allowed is None:
            allowed = ~template.limits.forbidden(table.capacity)[table.row_type]
            self._allowed[template.index] = allowed
        rows = allowed & free_of_ports(template, attempt)
        return rows & table.careful_rows if attempt.pod_class.missed else rows

    def entry(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        """The group that a node for one pod would be in, or why the template has no such node."""
        requirements = self.joined(template, attempt)
        if isinstance(requirements, RefusalKind):
            return requirements
        return self.holding_group(template, requirements, self.rows(template, attempt), attempt)

    def has_node(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
        """Whether the template has a node for one pod."""
        return not isinstance(self.entry(template, attempt), RefusalKind)

    def group(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        """As `entry`, whatever the size of the pod."""
        requirements = self.joined(template, attempt)
        if isinstance(requirements, RefusalKind):
            return requirements
        group = self._groups.get(template, requirements, self.rows(template, attempt))
        return group if len(group.rows) else RefusalKind.TYPES

    def holding_group(
        self, template: NodeClaimTemplate, requirements: Requirements, allowed: Bools, attempt: PlacementAttempt
    ) -> ClaimGroup | RefusalKind:
        """The group of a node with these requirements and rows [rows] that holds one pod."""
        group = self._groups.get(template, requirements, allowed)
        holds = group.holding(attempt.requests)
        if not holds.any():
            return RefusalKind.TYPES
        empty = np.zeros((1, len(attempt.requests)), np.int64)
        if not group.minimums or group.room(empty, attempt.requests)[0] > 0:
            return group
        if not self.best_effort:
            return RefusalKind.MIN_VALUES
        lowered = {
            key: min(least, int((group.values(key) & holds).any(axis=1).sum())) for key, least in group.minimums.items()
        }
        return self._groups.get(
            template, requirements, allowed, {key: least for key, least in lowered.items() if least}
        )


def free_of_ports(template: NodeClaimTemplate, attempt: PlacementAttempt) -> Bools:
    """The rows [rows] on which no DaemonSet takes a host port of the pod."""
    table = template.table
    if not attempt.pod_class.ports or template.daemons.ports is None:
        return np.ones_like(table.careful_rows)
    free = [not ports_collide(attempt.pod_class.ports, taken) for taken in template.daemons.ports]
    return np.array(free, np.bool_)


def _tolerates(template: NodeClaimTemplate, attempt: PlacementAttempt) -> bool:
    taints = template.pool.spec.template.spec.taints
    return untolerated(taints, attempt.pod_class.tolerations, ignore_preferences=attempt.soft) is None
