"""The fault `own-nodeclaim`."""

from __future__ import annotations

from functools import partial

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.manifest_objects import NODE_CLASSES
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class OwnNodeclaimFault(ManifestFaultKind):
    """Somebody writes a NodeClaim without a NodePool, and deletes it when it is over."""

    name = "own-nodeclaim"
    amount = Always()

    def begin(self, number: int, fault: Fault) -> None:
        """Write it."""
        super().begin(number, fault)
        self.objects.when_up(partial(self._write, number, fault))

    def end(self, number: int, fault: Fault) -> None:
        """Delete it."""
        super().end(number, fault)
        self.objects.when_up(partial(self._delete, number, fault))

    def _write(self, number: int, fault: Fault) -> None:
        if number not in self.faults.active:
            return
        requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        for cluster in self.objects.targets(fault):
            node_class = self.objects.first(cluster, NODE_CLASSES)
            reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class}
            metadata = {"name": _own_name(number), "creationTimestamp": rfc3339(self.faults.loop.now())}
            spec = {"nodeClassRef": reference, "requirements": [requirement]}
            body = {"kind": "NodeClaim", "metadata": metadata, "spec": spec}
            self.objects.servers[cluster].create("nodeclaims", body)
            self.objects.tell(cluster)

    def _delete(self, number: int, fault: Fault) -> None:
        for cluster in self.objects.targets(fault):
            try:
                self.objects.servers[cluster].delete("nodeclaims", _own_name(number))
            except ObjectNotFound:
                self.faults.trace.record("NodeClaim is gone already", name=_own_name(number))
            self.objects.tell(cluster)


def _own_name(number: int) -> str:
    return f"own-{number}"
