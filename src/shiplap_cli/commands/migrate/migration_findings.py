"""The result of a migration: its manifests, and how well each source setting maps to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Taint
from shiplap.manifests.claim_rules import ClaimRule
from shiplap_cli.inputs.manifest_warnings import NO_NEW_AL2

MIGRATION_TAINT = Taint("shiplap.dev/migration", "NoSchedule", "true")
"""What nodes of migrated pools carry until everything has moved, so that only chosen pods use them."""

KubernetesObject = dict[str, Any]
"""An object as YAML has it, for writing."""


class MatchQuality(StrEnum):
    """The quality of a mapping from the old configuration: as it was, nearly, or not at all."""

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NONE = "not mapped"


class MigrationFinding(msgspec.Struct, frozen=True):
    """One thing of the old configuration: where it stood, what it became, and what a person should know about it."""

    match: MatchQuality
    source: str
    field: str
    becomes: str = ""
    note: str = ""


class FindingCollector:
    """Collects the findings about one source."""

    def __init__(self, source: str) -> None:
        self.all: list[MigrationFinding] = []
        self.source = source

    def add(self, match: MatchQuality, field: str, becomes: str = "", note: str = "") -> None:
        """Add a finding: a field maps by `match`."""
        self.all.append(MigrationFinding(match, self.source, field, becomes, note))

    def exact(self, field: str, becomes: str, note: str = "") -> None:
        """It maps as it was."""
        self.add(MatchQuality.EXACT, field, becomes, note)

    def approximate(self, field: str, becomes: str, note: str) -> None:
        """It maps, with a difference."""
        self.add(MatchQuality.APPROXIMATE, field, becomes, note)

    def alias(self, field: str, becomes: str, note: str, *, of_al2: bool) -> None:
        """It maps as it was to an alias of images; but in place of AL2 another one is proposed."""
        if of_al2:
            self.add(MatchQuality.NONE, field, becomes, f"{NO_NEW_AL2}, which is proposed: try it with your user data")
        else:
            self.exact(field, becomes, note)

    def profile(self, name: str) -> None:
        """The role of an instance profile belongs into shiplap.yaml, and the source does not say it."""
        note = (
            "`nodeRoles` needs the role that it carries, so that it may be passed: `aws iam get-instance-profile"
            f" --instance-profile-name {name} --query 'InstanceProfile.Roles[].[Path,RoleName]'`"
        )
        self.approximate(f"instance profile {name}", "spec.instanceProfile, and nodeRoles in shiplap.yaml", note)

    def not_mapped(self, field: str, note: str) -> None:
        """It does not map."""
        self.add(MatchQuality.NONE, field, note=note)


class Naming(msgspec.Struct, frozen=True):
    """Keeps migrated NodePools apart from the old ones: another name, and a taint few pods tolerate."""

    suffix: str = "-shiplap"
    taint: bool = True

    def pool(self, name: str) -> str:
        """The name of the pool that takes the place of one called `name`."""
        return f"{name}{self.suffix}"


class FormerKind(StrEnum):
    """The kind of thing that a new NodePool takes the place of."""

    NODE_POOL = "NodePool"
    NODE_GROUP = "node group"
    SCALING_GROUP = "Auto Scaling group"


class FormerPool(msgspec.Struct, frozen=True):
    """An old NodePool or group, and the NodePool that takes its place.

    What is needed to undo a step: `cpu_limit` of a NodePool, empty without one; sizes of a group.
    """

    origin: FormerKind
    name: str
    becomes: str
    cpu_limit: str = ""
    least: int = 0
    desired: int = 0


class MigrationDraft(msgspec.Struct, frozen=True):
    """The result of one source. `cluster` is its name if the source has it; `join_timeout_s` is 0 where it has none."""

    manifests: tuple[KubernetesObject, ...] = ()
    findings: tuple[MigrationFinding, ...] = ()
    formers: tuple[FormerPool, ...] = ()
    cluster: str = ""
    join_timeout_s: int = 0


class MigrationStep(msgspec.Struct, frozen=True):
    """One step of the way over: commands that take it, and those that undo it."""

    title: str
    why: str
    commands: tuple[str, ...]
    undo: tuple[str, ...]


class Migration(msgspec.Struct, frozen=True):
    """Everything a migration writes. `claim_rules` and `join_timeout_s` belong into shiplap.yaml."""

    origin: str
    cluster: str
    formers: tuple[FormerPool, ...]
    manifests: tuple[KubernetesObject, ...]
    claim_rules: tuple[ClaimRule, ...]
    join_timeout_s: int
    findings: tuple[MigrationFinding, ...]
    steps: tuple[MigrationStep, ...]


def counts_by_match(findings: Iterable[MigrationFinding]) -> Mapping[str, int]:
    """Count the findings of each match, in the order exact, approximate, not mapped."""
    counts = {match.value: 0 for match in MatchQuality}
    for finding in findings:
        counts[finding.match.value] += 1
    return counts
