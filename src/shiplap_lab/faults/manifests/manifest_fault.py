"""The form of faults of manifests: what people and other controllers do to the objects of clusters."""

from __future__ import annotations

from typing import Any, ClassVar

from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.fault_world import FaultWorld
from shiplap_lab.faults.manifest_objects import ShownManifests


class ManifestFaultKind(FaultKind):
    """A kind that changes manifests while it lasts. `suspends`: nothing may be launched meanwhile."""

    is_of_manifests = True
    suspends: ClassVar[bool] = False

    def connect(self, world: FaultWorld) -> None:
        """Edit the NodePools from now on, if there are any in the clusters."""
        super().connect(world)
        if world.objects is not None:
            world.objects.editors.append(self)

    @property
    def objects(self) -> ShownManifests:
        """The manifests of the run."""
        assert self.world.objects is not None, f"{self.name} needs liveManifests: true"  # noqa: S101
        return self.world.objects

    def lasts_in(self, cluster: str) -> bool:
        """True while a fault of this kind is active in a cluster."""
        return bool(self.faults.active_of(self.name, cluster))

    def begin(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - others use it
        """Show the objects anew."""
        self.took_effect()
        self.objects.when_up(self.objects.show_all)

    def end(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - others use it
        """Show the objects anew."""
        self.objects.when_up(self.objects.show_all)

    def removes_pools(self, cluster: str) -> bool:  # noqa: ARG002 - others do
        """True while there are no NodePools."""
        return False

    def edit(self, cluster: str, template: dict[str, Any]) -> None:
        """Change the template of the first NodePool."""
