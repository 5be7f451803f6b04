"""The fault `karpenter-lease`."""

from __future__ import annotations

from functools import partial

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind


class KarpenterLeaseFault(ManifestFaultKind):
    """Karpenter holds its Lease."""

    name = "karpenter-lease"
    amount = Always()
    suspends = True
    afterwards_s = 120.0  # how long after its last renewal the Lease may suspend a cluster

    def begin(self, number: int, fault: Fault) -> None:
        """Renew the Lease until it is over."""
        super().begin(number, fault)
        self._renew(number)

    def _renew(self, number: int) -> None:
        fault = self.faults.active.get(number)
        if fault is None:
            return
        if not self.faults.is_api_down:
            for cluster in self.objects.targets(fault):
                self._renew_in(self.objects.servers[cluster])
        self.faults.loop.after(_RENEWED_S, partial(self._renew, number))

    def _renew_in(self, server: ApiServer) -> None:
        now = rfc3339(self.faults.loop.now())
        spec = {"holderIdentity": "karpenter-1", "leaseDurationSeconds": 15, "renewTime": now}
        try:
            server.patch("leases", _LEASE, {"spec": spec}, _LEASE_NAMESPACE)
        except ObjectNotFound:
            metadata = {"name": _LEASE, "namespace": _LEASE_NAMESPACE}
            server.create("leases", {"metadata": metadata, "spec": spec}, _LEASE_NAMESPACE)


_LEASE = "karpenter-leader-election"
_LEASE_NAMESPACE = "kube-system"
_RENEWED_S = 10.0
