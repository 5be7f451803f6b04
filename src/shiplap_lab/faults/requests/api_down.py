"""The fault `api-down`."""

from __future__ import annotations

from shiplap.errors import ClusterUnreachable, ShiplapError
from shiplap_lab.faults.drawn_amounts import Always
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import CLUSTER


class ApiDownFault(FaultKind):
    """The Kubernetes API does not answer, and nothing changes in the cluster."""

    name = "api-down"
    amount = Always()
    place = -2

    def refuses(self, effect: str, invocation: str) -> ShiplapError | None:  # noqa: ARG002 - it leaves no trace
        """Refuse every effect of the cluster."""
        if not effect.startswith(CLUSTER):
            return None
        self.took_effect()
        return ClusterUnreachable("the API server does not answer")

    def breaks_watches(self) -> bool:
        """True: none can go on."""
        return True
