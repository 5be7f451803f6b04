"""The fault `pdb-zero`."""

from __future__ import annotations

from typing import Any

from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind


class PdbZeroFault(FaultKind):
    """PodDisruptionBudgets allow no eviction; a spot warning ends that at a pod's last moment."""

    name = "pdb-zero"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._kept: dict[str, Any] = {}

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Allow nothing."""
        self._set_budgets(0)

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Allow what was allowed before."""
        if not self.is_active:
            self._set_budgets(None)

    def evictions_refused(self) -> None:
        """Count them."""
        self.took_effect()

    def _set_budgets(self, most: int | None) -> None:
        kept = self._kept
        for name, cluster in sorted(self.world.clusters.items()):
            for item in cluster.server.list("poddisruptionbudgets").items:
                meta = item["metadata"]
                key = f"{name}/{meta['namespace']}/{meta['name']}"
                kept.setdefault(key, item["spec"]["maxUnavailable"])
                spec = {"maxUnavailable": kept[key] if most is None else most}
                cluster.server.patch("poddisruptionbudgets", meta["name"], {"spec": spec}, meta["namespace"])
