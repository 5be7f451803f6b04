"""The settings of gangs in shiplap.yaml."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.manifests.times import GO_DURATION, go_seconds
from shiplap.policies.policy_settings import PolicySettings

OFF, WHOLE = "off", "whole"


_Wait = Annotated[str, demands(pattern=GO_DURATION, form="a duration such as 5m or 1m30s", unit="s")]


class GangSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`gangs` of a cluster in shiplap.yaml."""

    policy: ClassVar[str] = "gangs"
    leaves_pods_out: ClassVar[bool] = True

    mode: Annotated[str, demands(choices=(OFF, WHOLE))] = OFF
    """`whole`: pods of a gang get nodes for as many as must start together, or none."""
    members_within: _Wait = "5m"
    """How long members of a gang that do not exist yet are waited for."""
    set_aside_after: _Wait = "30m"
    """How long a gang waits before it has room set aside from gangs after it; 0s for never."""

    provisioning_requests: bool = False
    """True to serve ProvisioningRequests of autoscaling.x-k8s.io. Mode `whole` is needed for it."""

    @property
    def serves_requests(self) -> bool:
        """True if ProvisioningRequests are read, planned and answered."""
        return self.is_on and self.provisioning_requests

    @property
    def asks_without_pods(self) -> bool:
        """True if nodes may be asked for by other objects than pods."""
        return self.serves_requests

    @property
    def is_on(self) -> bool:
        """True if gangs are planned as a whole."""
        return self.mode == WHOLE

    @property
    def wait_s(self) -> float:
        """How long members that do not exist yet are waited for, in seconds."""
        return go_seconds(self.members_within)

    @property
    def set_aside_s(self) -> float:
        """After how many seconds a gang has room set aside; 0 for never."""
        return go_seconds(self.set_aside_after)
