"""The identity of nodes: what IAM has of it, and what is kept for nodes that still run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shiplap.node_identities import FoundIdentities, InstanceProfile, KeptIdentities, OwnNodeRole


class NodeIdentities(Protocol):
    """Instance profiles and node roles of one install in one Region. Each call raises AwsError."""

    def find(self) -> FoundIdentities:
        """All of the install, of every cluster that it serves or has served."""
        ...

    def carriers(self, profiles: Iterable[InstanceProfile]) -> dict[str, tuple[str, ...]]:
        """Ids of instances that carry these profiles, by the profile's name: anybody's, in any state but terminated."""
        ...

    def holders(self, role: OwnNodeRole) -> tuple[str, ...]:
        """Names of all instance profiles, anybody's, that hold a role."""
        ...

    def end_profile(self, profile: InstanceProfile) -> None:
        """Delete a profile; one that is gone is no error."""
        ...

    def end_role(self, role: OwnNodeRole) -> None:
        """Delete a role, its access entry first; what is gone is no error."""
        ...


class KeptIdentityStore(Protocol):
    """Stores the identities kept at the last look, in the bucket."""

    def load(self) -> KeptIdentities:
        """Empty before the first look. Raises StoreError."""
        ...

    def save(self, kept: KeptIdentities) -> None:
        """Raises StoreError."""
        ...
