"""A stage on which a sweep tries EC2NodeClasses out each minute."""

from __future__ import annotations

import msgspec

from shiplap.flows.catalog.inspect import inspect
from shiplap.flows.catalog.inspections import inspect_all
from shiplap.instances.readiness.nodeclass_status import DryRuns, NodeClassStatus
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, Manifests, NodePool
from shiplap_lab.fakes.stores import FakeDryRuns, FakeStatus
from tests.builders.pools import family_pool
from tests.integration.flows.pools_of_classes import of_class
from tests.integration.flows.stage import Stage, catalog


class Ground:
    """Two EC2NodeClasses with a NodePool each, a third that nobody uses, and a sweep each minute."""

    def __init__(self, *pools: NodePool) -> None:
        self.stage = Stage()
        pools = pools or (
            of_class(family_pool("a", ("c7i",)), "first"),
            of_class(family_pool("b", ("m6i",)), "second"),
        )
        spec = EC2NodeClassSpec(ami_family="Bottlerocket")
        self.classes = tuple(EC2NodeClass(ObjectMeta(name=name), spec) for name in ("first", "second", "unused"))
        manifests = Manifests(node_pools=pools, node_classes=self.classes)
        self.stage.settings = msgspec.structs.replace(self.stage.settings, manifests=manifests)
        self.store = FakeDryRuns(self.stage.faults)
        self.status = FakeStatus()
        self.stage.context = msgspec.structs.replace(self.stage.context, dry_runs=self.store, status=self.status)

    def sweep(self, *, later_s: float = 60.0) -> list[str]:
        """One more; the EC2NodeClasses that it tried out."""
        self.stage.clock.advance(later_s)
        self.stage.compute.rehearsed.clear()
        self.stage.sweep()
        return [request.node_class.metadata.name for request in self.stage.compute.rehearsed]

    def known(self) -> DryRuns:
        return self.store.load(self.stage.name)

    def inspected(self) -> NodeClassStatus:
        inspect_all([(self.stage.settings, self.stage.context)], {"eu-west-1": catalog()}, self.status)
        return inspect(self.stage.settings, catalog(), self.stage.context).node_classes[0]

    def edit(self, **spec: object) -> None:
        """Deploy another manifest of the first EC2NodeClass."""
        (first, *others), manifests = self.classes, self.stage.settings.manifests
        changed = msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, **spec))
        edited = msgspec.structs.replace(manifests, node_classes=(changed, *others))
        self.stage.settings = msgspec.structs.replace(self.stage.settings, manifests=edited)
