"""Decides which instance profiles and node roles of an install end: those that no launch names and no node carries.

A deployment leaves them behind when a role, a cluster or the whole install goes, because IAM gives a running instance
no more credentials once its instance profile is deleted. A profile ends first, its role at a later look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

GRACE_S = 24 * 3600.0
"""For how long, in seconds, a profile stays after the install no longer names it.

Claims have no profile: a launch asks SSM for its name, remembers it for five minutes, and ends within Lambda's fifteen.
EC2 shows a new instance within seconds. The rest of the day is for a deployment that is undone by hand.
"""

MOST_AT_ONCE = 20
"""Profiles, and roles, that one look ends: IAM takes a few requests a second, and a role takes up to ten."""

_EXAMPLES = 3


class InstanceProfile(msgspec.Struct, frozen=True):
    """An instance profile below the path of an install. `role` is what its path says, `holds` what it holds."""

    name: str
    arn: str
    cluster: str
    role: str
    holds: tuple[str, ...] = ()


class OwnNodeRole(msgspec.Struct, frozen=True):
    """A node role that the stack has made. `created_at` in epoch seconds."""

    name: str
    arn: str
    cluster: str
    created_at: float


class FoundIdentities(msgspec.Struct, frozen=True):
    """The profiles and roles that IAM has below the path of an install.

    `current` holds the names of the profiles that launches use now.
    """

    profiles: tuple[InstanceProfile, ...] = ()
    roles: tuple[OwnNodeRole, ...] = ()
    current: frozenset[str] = frozenset()

    @property
    def superseded(self) -> tuple[InstanceProfile, ...]:
        """Profiles that no launch uses any more, sorted by name."""
        return tuple(sorted((item for item in self.profiles if item.name not in self.current), key=_by_name))

    @property
    def unheld(self) -> tuple[OwnNodeRole, ...]:
        """Roles that none of these profiles holds, the oldest first."""
        held = {role for profile in self.profiles for role in profile.holds}
        return tuple(
            sorted(
                (role for role in self.roles if role.name not in held), key=lambda role: (role.created_at, role.name)
            )
        )


class KeptProfile(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An instance profile that no launch uses any more, and the instances that carry it.

    `superseded_at` is when it was first found so, in epoch seconds; `examples` are ids of the first few instances.
    """

    name: str
    cluster: str
    role: str
    superseded_at: float
    instances: int = 0
    examples: tuple[str, ...] = ()


class KeptRole(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A node role of the stack without a profile of the stack; `holders` are other profiles that hold it."""

    name: str
    cluster: str
    holders: tuple[str, ...] = ()


class KeptIdentities(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The profiles and roles that an install keeps for nodes that still run, as of the last look."""

    profiles: tuple[KeptProfile, ...] = ()
    roles: tuple[KeptRole, ...] = ()


class EndingIdentities(msgspec.Struct, frozen=True):
    """The profiles and roles that end now, and the ones that are kept.

    `kept` includes the ones that end: they are gone when the next look finds them gone.
    """

    profiles: tuple[InstanceProfile, ...]
    roles: tuple[OwnNodeRole, ...]
    kept: KeptIdentities


def ending_identities(
    found: FoundIdentities,
    carriers: Mapping[str, Sequence[str]],
    holders: Mapping[str, Collection[str]],
    before: KeptIdentities,
    now: float,
    *,
    grace_s: float = GRACE_S,
) -> EndingIdentities:
    """Decide what ends.

    Args:
        found: what IAM has.
        carriers: ids of the instances, in any state but terminated, that carry a superseded profile, by its name.
        holders: profiles of anybody that hold an unheld role, by its name. A role that is not in it stays.
        before: what the last look kept.
        now: epoch seconds.
        grace_s: seconds that a profile stays superseded, and a role exists, before it may end.
    """
    since = {item.name: item.superseded_at for item in before.profiles}
    kept = tuple(_kept(item, carriers.get(item.name, ()), since.get(item.name, now)) for item in found.superseded)
    over = {item.name for item in kept if not item.instances and item.superseded_at + grace_s <= now}
    roles = [role for role in found.unheld if role.name in holders]
    return EndingIdentities(
        profiles=tuple(item for item in found.superseded if item.name in over)[:MOST_AT_ONCE],
        roles=tuple(role for role in roles if not holders[role.name] and role.created_at + grace_s <= now)[
            :MOST_AT_ONCE
        ],
        kept=KeptIdentities(
            kept, tuple(KeptRole(role.name, role.cluster, tuple(sorted(holders[role.name]))) for role in roles)
        ),
    )


def _kept(profile: InstanceProfile, carriers: Sequence[str], superseded_at: float) -> KeptProfile:
    examples = tuple(sorted(carriers)[:_EXAMPLES])
    return KeptProfile(profile.name, profile.cluster, profile.role, superseded_at, len(carriers), examples)


def _by_name(profile: InstanceProfile) -> str:
    return profile.name
