"""With which values of a label a new node could be launched for a class, whatever the counts say.

Asked for every domain of every label of every attempt, so that answers are shared as far as they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools
from shiplap.scheduling.supply.claim_groups import ClaimGroup
from shiplap.scheduling.supply.open_claims import PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class ReachableDomains:
    """Answers for one packing."""

    def __init__(self, openings: Openings, attempts: PlacementAttempts) -> None:
        self._openings = openings
        self._attempts = attempts
        self._values: dict[tuple[int, str], list[str]] = {}
        self._opening: dict[tuple[int, int, str], Bools] = {}
        self._labelled: dict[tuple[int, str], Bools] = {}
        self._suiting_values: dict[tuple[int, int, str], Bools] = {}
        self._entries: dict[tuple[int, int], list[tuple[PlacementAttempt, ClaimGroup | RefusalKind]]] = {}
        self._launching: dict[tuple[int, Requirement], bool] = {}
        self._suiting: dict[int, list[NodeClaimTemplate]] = {}
        self._profiles: dict[int, int] = {}
        self._numbers: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._leaving: dict[tuple[int, Requirement, Requirement | None], bool] = {}

    def forget(self) -> None:
        """Claims or limits have changed."""
        self._opening.clear()
        self._entries.clear()

    def may_launch(self, attempt: PlacementAttempt, pin: Requirement) -> bool:
        """Whether taints and requirements let some template's nodes have a label as pinned and take pods of a class."""
        key = (attempt.constraint, pin)
        known = self._launching.get(key)
        if known is None:
            known = self._launching[key] = self._may_launch(attempt, pin)
        return known

    def _may_launch(self, attempt: PlacementAttempt, pin: Requirement) -> bool:
        templates = self._suiting.get(attempt.constraint)
        if templates is None:
            suits = self._openings.suits
            templates = self._suiting[attempt.constraint] = [
                template for template in self._openings.templates if suits(template, attempt)
            ]
        wanted = attempt.term.get(pin.key)
        return any(self._leaves(template, wanted, pin) for template in templates)

    def profile(self, pod_class: PodClass) -> int:
        """A number that classes share which can open the same claims: equal attempts of what they require."""
        known = self._profiles.get(pod_class.index)
        if known is None:
            attempts = self._attempts.relaxed(pod_class)
            identity = (tuple(attempt.constraint for attempt in attempts), attempts[0].requests.tobytes())
            known = self._profiles[pod_class.index] = self._numbers.setdefault(identity, len(self._numbers))
        return known

    def opening(self, pod_class: PodClass, template: NodeClaimTemplate, key: str) -> Bools:
        """With which values [values] of a label a claim could be opened in a template for what a class requires."""
        identity = (self.profile(pod_class), template.index, key)
        known = self._opening.get(identity)
        if known is None:
            known = np.zeros(len(self.values_of(template, key)), np.bool_)
            for attempt, entry in self._entries_of(pod_class, template):
                known |= self._opens(attempt, entry, template, key)
            self._opening[identity] = known
        return known

    def values_of(self, template: NodeClaimTemplate, key: str) -> list[str]:
        """The values of a label, by name, that nodes of a template may have."""
        known = self._values.get((template.index, key))
        if known is None:
            known = self._values[template.index, key] = template.values_of(key)
        return known

    def _opens(
        self, attempt: PlacementAttempt, entry: ClaimGroup | RefusalKind, template: NodeClaimTemplate, key: str
    ) -> Bools:
        """The answer of one attempt; read off the rows of its `entry`, as far as a pin does no more than leave some."""
        table = template.table
        if isinstance(entry, RefusalKind) or entry.minimums or not (table.tells_types(key) or table.tells_columns(key)):
            return np.array(
                [self._opens_pinned(attempt, template, key, value) for value in self.values_of(template, key)], np.bool_
            )
        types = table.row_type[entry.rows[entry.holding(attempt.requests)]]
        if table.tells_types(key):
            left = self._labels_of(template, key)[:, types].any(axis=1)
        else:
            bought = table.bought(entry.requirements, types, key)
            left = np.array([value in bought for value in self.values_of(template, key)], np.bool_)
        opens: Bools = left & self._suits(attempt, template, key)
        return opens

    def _opens_pinned(self, attempt: PlacementAttempt, template: NodeClaimTemplate, key: str, value: str) -> bool:
        pinned = self._attempts.pinned(attempt, (Requirement.one_of(key, value),))
        return pinned is not None and self._openings.opens(template, pinned)

    def _labels_of(self, template: NodeClaimTemplate, key: str) -> Bools:
        """Which types may have which value of a label [values, types]."""
        known = self._labelled.get((template.index, key))
        if known is None:
            masks = [
                template.table.with_label(Requirement.one_of(key, value), template.given)
                for value in self.values_of(template, key)
            ]
            shape = (len(masks), len(template.table.types))
            known = self._labelled[template.index, key] = np.array(masks, np.bool_).reshape(shape)
        return known

    def _suits(self, attempt: PlacementAttempt, template: NodeClaimTemplate, key: str) -> Bools:
        """Which values [values] of a label an attempt and a template that suits it leave."""
        identity = (attempt.constraint if key in attempt.term else -1, template.index, key)
        known = self._suiting_values.get(identity)
        if known is None:
            wanted = attempt.term.get(key)
            suits = [
                self._leaves(template, wanted, Requirement.one_of(key, value))
                for value in self.values_of(template, key)
            ]
            known = self._suiting_values[identity] = np.array(suits, np.bool_)
        return known

    def _entries_of(
        self, pod_class: PodClass, template: NodeClaimTemplate
    ) -> list[tuple[PlacementAttempt, ClaimGroup | RefusalKind]]:
        """The attempts that hold to what a class requires and open a claim whatever its labels, with its group.

        A pin narrows what a claim may become, so it opens nothing that is closed without it; but where counts decide
        what a claim may be bought as, it may choose what is still open.
        """
        identity = (self.profile(pod_class), template.index)
        known = self._entries.get(identity)
        if known is None:
            known = self._entries[identity] = list(self._asked(pod_class, template))
        return known

    def _leaves(self, template: NodeClaimTemplate, wanted: Requirement | None, pin: Requirement) -> bool:
        """Whether a template that suits what is wanted of a label does so with it pinned: no other label can differ."""
        identity = (template.index, pin, wanted)
        known = self._leaving.get(identity)
        if known is None:
            known = self._leaving[identity] = _leaves(template, wanted, pin)
        return known

    def _asked(
        self, pod_class: PodClass, template: NodeClaimTemplate
    ) -> Iterable[tuple[PlacementAttempt, ClaimGroup | RefusalKind]]:
        for attempt in self._attempts.relaxed(pod_class):
            if template.counted:
                yield attempt, RefusalKind.SPOT_SHARE
            elif self._openings.opens(template, attempt):
                yield attempt, self._openings.entry(template, attempt)


def _leaves(template: NodeClaimTemplate, wanted: Requirement | None, pin: Requirement) -> bool:
    if wanted is None:
        return template.requirements.compatible({pin.key: pin}, template.allow_undefined)
    if not Requirements((wanted,)).compatible({pin.key: pin}):
        return False
    return template.requirements.compatible({pin.key: wanted.intersection(pin)}, template.allow_undefined)
