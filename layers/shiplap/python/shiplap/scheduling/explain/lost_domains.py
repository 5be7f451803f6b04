"""Domains of a topology spread that NodePools and EC2NodeClasses allow, but in which EC2 sells nothing suitable now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiplap.kubernetes.labels import CAPACITY_TYPE, ZONE
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.supply.open_claims import PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import PossibleNodes
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts


class LostDomains:
    """Words about lost domains, remembered per class and per set of constraints."""

    def __init__(self, possible: PossibleNodes, attempts: PlacementAttempts) -> None:
        self._possible = possible
        self._attempts = attempts
        self._of_class: dict[int, tuple[str, ...]] = {}
        self._words: dict[tuple[int, frozenset[str]], tuple[str, ...]] = {}

    def words(self, pod_class: PodClass) -> tuple[str, ...]:
        """One sentence per label over which pods of a class have to be spread and that lost domains."""
        known = self._of_class.get(pod_class.index)
        if known is None:
            attempts = self._attempts.relaxed(pod_class) if pod_class.constraints.spreads else ()
            known = self._of_class[pod_class.index] = self._of(attempts) if attempts else ()
        return known

    def _of(self, attempts: Sequence[PlacementAttempt]) -> tuple[str, ...]:
        attempt = attempts[0]
        keys = frozenset(spread.key for spread in attempt.constraints.spreads) & {ZONE, CAPACITY_TYPE}
        if not keys:
            return ()
        identity = (attempt.constraint, keys)
        known = self._words.get(identity)
        if known is None:
            lost = ((key, self._lost(attempts, key)) for key in sorted(keys))
            known = self._words[identity] = tuple(
                f"topology spread over {key} does without {', '.join(values)}: "
                "every suitable offering is sold out there"
                for key, values in lost
                if values
            )
        return known

    def _lost(self, attempts: Sequence[PlacementAttempt], key: str) -> list[str]:
        sold, bought = set[str](), set[str]()
        for template in self._possible.templates:
            table = template.table
            names = table.zones if key == ZONE else table.capacity_types
            others = (0, 2) if key == ZONE else (0, 1)
            for attempt in attempts:
                requirements = self._possible.joined(template, attempt)
                if isinstance(requirements, RefusalKind):
                    continue
                suits = table.offered(requirements, template.given).suits[:, None, None]
                cells = suits & table.cells(requirements)
                for found, there in ((sold, table.sold), (bought, np.isfinite(table.prices))):
                    found.update(name for name, has in zip(names, (cells & there).any(axis=others), strict=True) if has)
        return sorted(sold - bought)
