"""The fault `edit-and-back`."""

from __future__ import annotations

from functools import partial
from typing import Any

from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class EditAndBackFault(ManifestFaultKind):
    """Every half minute the first NodePool has another label in its template, or has it no more."""

    name = "edit-and-back"
    amount = Always()

    def __init__(self, faults: ActiveFaults) -> None:
        super().__init__(faults)
        self._is_edited = False

    def begin(self, number: int, fault: Fault) -> None:
        """Edit it until it is over."""
        super().begin(number, fault)
        self._edit_again(number)

    def edit(self, cluster: str, template: dict[str, Any]) -> None:
        """Set the label, every other time."""
        if self._is_edited and self.lasts_in(cluster):
            template["metadata"]["labels"]["wobble"] = "a"

    def _edit_again(self, number: int) -> None:
        if number not in self.faults.active:
            self._is_edited = False
            return
        self._is_edited = not self._is_edited
        self.objects.when_up(self.objects.show_all)
        self.faults.loop.after(_WOBBLE_S, partial(self._edit_again, number))


_WOBBLE_S = 30.0
