"""With which values of a label NodePools and EC2NodeClasses allow a node for a class, whatever counts and limits say.

The answers follow from templates and pods alone, so they hold for a whole packing. They are asked for every domain of
every label of every attempt, so they are shared as far as they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.supply.claim_groups import ClaimGroup
from shiplap.scheduling.supply.open_claims import PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import PossibleNodes
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate

_NO_TYPES: Ints = np.zeros(0, np.int64)


class _Entry(msgspec.Struct, frozen=True, eq=False):
    """An attempt and what a claim for it would start as in a template.

    `types` [n] are those that hold one pod; entries with the same ones share the number `known_types`. Where every
    domain has to be asked for by itself, `group` is None.
    """

    attempt: PlacementAttempt
    group: ClaimGroup | None
    types: Ints
    known_types: int


class ReachableDomains:
    """Answers for one packing."""

    def __init__(self, possible: PossibleNodes, attempts: PlacementAttempts) -> None:
        self._possible = possible
        self._attempts = attempts
        self._values: dict[tuple[int, str], list[str]] = {}
        self._labelled: dict[tuple[int, str], Bools] = {}
        self._allowing: dict[tuple[int, str], Bools] = {}
        self._entries: dict[tuple[int, int], list[_Entry]] = {}
        self._types: dict[bytes, int] = {}
        self._having: dict[tuple[int, int, str], Bools] = {}
        self._launching: dict[tuple[tuple[int, ...], str], dict[str, bool]] = {}
        self._lacking: dict[tuple[tuple[int, ...], str, Requirement | None], bool] = {}
        self._suiting: dict[int, tuple[int, ...]] = {}
        self._profiles: dict[int, int] = {}
        self._numbers: dict[tuple[tuple[int, ...], bytes], int] = {}

    def may_launch(self, attempt: PlacementAttempt, key: str, values: Iterable[str | None]) -> Iterator[bool]:
        """Per value of a label, None for no such label, whether a node with it may be launched for a class.

        Only taints and requirements of the templates count. No label but this one can make a difference.
        """
        suiting, wanted = self._suiting_templates(attempt), attempt.term.get(key)
        answers = self._launching.setdefault((suiting, key), {})
        for value in values:
            if value is None:
                yield self._may_lack(suiting, key, wanted)
            elif wanted is not None and not wanted.has(value):
                yield False
            else:
                if value not in answers:
                    pin = {key: Requirement.one_of(key, value)}
                    answers[value] = any(self._allows(index, pin) for index in suiting)
                yield answers[value]

    def _may_lack(self, suiting: tuple[int, ...], key: str, wanted: Requirement | None) -> bool:
        identity = (suiting, key, wanted)
        known = self._lacking.get(identity)
        if known is None:
            absent = Requirement(key)
            term = Requirements(() if wanted is None else (wanted,))
            known = wanted is None or term.compatible({key: absent})
            known = known and any(self._allows(index, term.and_((absent,))) for index in suiting)
            self._lacking[identity] = known
        return known

    def _allows(self, index: int, pin: Mapping[str, Requirement]) -> bool:
        template = self._possible.templates[index]
        return template.requirements.compatible(pin, template.allow_undefined)

    def _suiting_templates(self, attempt: PlacementAttempt) -> tuple[int, ...]:
        """The places of the templates whose taints and requirements let their nodes take pods of a class."""
        known = self._suiting.get(attempt.constraint)
        if known is None:
            suits = (self._possible.suits(template, attempt) for template in self._possible.templates)
            known = self._suiting[attempt.constraint] = tuple(index for index, does in enumerate(suits) if does)
        return known

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
        found = np.zeros(len(self.values_of(template, key)), np.bool_)
        for entry in self._entries_of(pod_class, template):
            found |= self._opens(entry, template, key)
        return found

    def values_of(self, template: NodeClaimTemplate, key: str) -> list[str]:
        """The values of a label, by name, that nodes of a template may have."""
        known = self._values.get((template.index, key))
        if known is None:
            known = self._values[template.index, key] = template.values_of(key)
        return known

    def _opens(self, entry: _Entry, template: NodeClaimTemplate, key: str) -> Bools:
        """The answer of one attempt; read off the types of its entry, as far as a pin does no more than leave some."""
        table = template.table
        if entry.group is None or not (table.tells_types(key) or table.tells_columns(key)):
            return np.array(
                [self._opens_pinned(entry.attempt, template, key, value) for value in self.values_of(template, key)],
                np.bool_,
            )
        if table.tells_types(key):
            opens = self._had_by(entry, template, key)
        else:
            bought = table.bought(entry.group.requirements, entry.types, key)
            opens = self._allowed(template, key) & np.array(
                [value in bought for value in self.values_of(template, key)], np.bool_
            )
        wanted = entry.attempt.term.get(key)
        if wanted is not None:
            opens = opens & np.array([wanted.has(value) for value in self.values_of(template, key)], np.bool_)
        return opens

    def _had_by(self, entry: _Entry, template: NodeClaimTemplate, key: str) -> Bools:
        """Return a mask of a label's values [values] that some of an entry's types may have and the template allows."""
        identity = (entry.known_types, template.index, key)
        known = self._having.get(identity)
        if known is None:
            had: Bools = self._labels_of(template, key)[:, entry.types].any(axis=1)
            known = self._having[identity] = had & self._allowed(template, key)
        return known

    def _allowed(self, template: NodeClaimTemplate, key: str) -> Bools:
        """Return a mask of a label's values [values] that the requirements of a template allow."""
        known = self._allowing.get((template.index, key))
        if known is None:
            pins = [{key: Requirement.one_of(key, value)} for value in self.values_of(template, key)]
            allows = [template.requirements.compatible(pin, template.allow_undefined) for pin in pins]
            known = self._allowing[template.index, key] = np.array(allows, np.bool_)
        return known

    def _opens_pinned(self, attempt: PlacementAttempt, template: NodeClaimTemplate, key: str, value: str) -> bool:
        pinned = self._attempts.pinned(attempt, (Requirement.one_of(key, value),))
        return pinned is not None and self._possible.has_node(template, pinned)

    def _labels_of(self, template: NodeClaimTemplate, key: str) -> Bools:
        """Return a mask [values, types]: True where a type may have that value of a label."""
        known = self._labelled.get((template.index, key))
        if known is None:
            masks = [
                template.table.with_label(Requirement.one_of(key, value), template.given)
                for value in self.values_of(template, key)
            ]
            shape = (len(masks), len(template.table.types))
            known = self._labelled[template.index, key] = np.array(masks, np.bool_).reshape(shape)
        return known

    def _entries_of(self, pod_class: PodClass, template: NodeClaimTemplate) -> list[_Entry]:
        """The attempts that hold to what a class requires and open a claim whatever its labels.

        A pin narrows what a claim may become, so it opens nothing that is closed without it.
        """
        identity = (self.profile(pod_class), template.index)
        known = self._entries.get(identity)
        if known is None:
            known = self._entries[identity] = list(self._asked(pod_class, template))
        return known

    def _asked(self, pod_class: PodClass, template: NodeClaimTemplate) -> Iterator[_Entry]:
        for attempt in self._attempts.relaxed(pod_class):
            group = self._possible.entry(template, attempt)
            if isinstance(group, RefusalKind):
                continue
            if group.minimums or len(template.variants.all) > 1:
                yield _Entry(attempt, None, _NO_TYPES, -1)
                continue
            kinds = template.table.row_type[group.rows[group.holding(attempt.requests)]]
            types = np.flatnonzero(np.bincount(kinds))
            yield _Entry(attempt, group, types, self._types.setdefault(types.tobytes(), len(self._types)))
