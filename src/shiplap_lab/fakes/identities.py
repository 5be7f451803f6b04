"""IAM's part that belongs to an install's nodes, in memory, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.node_identities import FoundIdentities, InstanceProfile, KeptIdentities, OwnNodeRole
from shiplap_lab.fakes.faults import Faults


class FakeNodeIdentities:
    """NodeIdentities. Tests change `profiles`, `roles`, `current`, `instances` and `entries` as they like.

    `instances` holds ids by the name of the profile that they carry; `foreign` names of profiles that are not the
    install's, by the role that they hold; `entries` ARNs of roles that have an access entry.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.profiles: dict[str, InstanceProfile] = {}
        self.roles: dict[str, OwnNodeRole] = {}
        self.current: set[str] = set()
        self.instances: dict[str, set[str]] = {}
        self.foreign: dict[str, set[str]] = {}
        self.entries: set[str] = set()

    def find(self) -> FoundIdentities:
        with self.faults.effect("identities.find"):
            return FoundIdentities(tuple(self.profiles.values()), tuple(self.roles.values()), frozenset(self.current))

    def carriers(self, profiles: Iterable[InstanceProfile]) -> dict[str, tuple[str, ...]]:
        with self.faults.effect("identities.carriers"):
            return {item.name: tuple(sorted(ids)) for item in profiles if (ids := self.instances.get(item.name))}

    def holders(self, role: OwnNodeRole) -> tuple[str, ...]:
        with self.faults.effect("identities.holders"):
            own = {item.name for item in self.profiles.values() if role.name in item.holds}
            return tuple(sorted(own | self.foreign.get(role.name, set())))

    def end_profile(self, profile: InstanceProfile) -> None:
        if profile.name in self.profiles:
            with self.faults.effect("identities.remove_role"):
                self.profiles[profile.name] = msgspec.structs.replace(profile, holds=())
        with self.faults.effect("identities.delete_profile"):
            self.profiles.pop(profile.name, None)

    def end_role(self, role: OwnNodeRole) -> None:
        with self.faults.effect("identities.delete_entry"):
            self.entries.discard(role.arn)
        with self.faults.effect("identities.delete_role"):
            self.roles.pop(role.name, None)


class FakeKeptIdentities:
    """A KeptIdentityStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.kept = KeptIdentities()

    def load(self) -> KeptIdentities:
        with self.faults.effect("kept.load"):
            return self.kept

    def save(self, kept: KeptIdentities) -> None:
        with self.faults.effect("kept.save"):
            self.kept = kept
