"""The fault `api-down`."""

from __future__ import annotations

from random import Random

from shiplap.errors import ClusterUnreachable, ShiplapError
from shiplap_lab.faults.fault_kind import FaultKind
from shiplap_lab.faults.requests.effect_errors import CLUSTER


class ApiDownFault(FaultKind):
    """The Kubernetes API does not answer, and nothing changes in the cluster."""

    name = "api-down"
    place = -2

    @classmethod
    def drawn_amount(cls, chance: Random, likely: float) -> float:  # noqa: ARG003 - not a probability
        return 1.0

    def refuses(self, effect: str, invocation: str) -> ShiplapError | None:  # noqa: ARG002 - it leaves no trace
        """Refuse every effect of the cluster."""
        if not effect.startswith(CLUSTER):
            return None
        self.took_effect()
        return ClusterUnreachable("the API server does not answer")

    def breaks_watches(self) -> bool:
        """True: none can go on."""
        return True
