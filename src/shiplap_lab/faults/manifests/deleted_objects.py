"""The form of faults by which somebody deletes objects."""

from __future__ import annotations

from typing import ClassVar

from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class DeletedObjects(ManifestFaultKind):
    """A kind by which somebody deletes `amount` objects of each cluster. `plural` is the plural of their kind."""

    is_momentary = True
    plural: ClassVar[str]

    def begin(self, number: int, fault: Fault) -> None:
        """Delete them as soon as the API server answers."""
        self.objects.when_up(lambda: self._delete_some(number, fault))

    def end(self, number: int, fault: Fault) -> None:
        """They stay away."""

    def _delete_some(self, number: int, fault: Fault) -> None:
        chance = self.faults.random_of(number)
        for cluster in self.objects.targets(fault):
            server = self.objects.servers[cluster]
            names = [item["metadata"]["name"] for item in server.list(self.plural).items]
            for name in chance.sample(sorted(names), min(len(names), int(fault.amount))):
                self.faults.trace.record("deleted by a user", kind=self.plural, name=name)
                self.took_effect()
                server.delete(self.plural, name)
