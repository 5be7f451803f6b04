"""The check of instance profiles and node roles that an install keeps for nodes that still run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shiplap.aws.bucket import BucketKeptIdentities
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.node_identities import GRACE_S, KeptProfile, KeptRole
from shiplap_cli.commands.doctor.check_results import CheckReporter, CheckResult
from shiplap_cli.commands.doctor.fixes import by_hand
from shiplap_cli.output import counted

_REPORT = CheckReporter("kept identities")
_LOOKS_S = 3 * 3600.0
"""The catalog function looks each hour and ends twenty at once: what is due for longer has been refused."""


def kept_identities(s3: Any, bucket: str, region: str, now: float) -> Iterator[CheckResult]:
    """Report what is kept, with what carries it, as of the catalog function's last look; nothing where nothing is kept.

    Raises:
        StoreError: the bucket cannot be read.
    """
    kept = BucketKeptIdentities(s3, bucket, region).load()
    for profile in kept.profiles:
        yield _profile(profile, now)
    for role in kept.roles:
        yield _role(role)


def _profile(profile: KeptProfile, now: float) -> CheckResult:
    subject = f"{profile.cluster}/{profile.role}"
    named = f"instance profile {profile.name} is no longer in the settings"
    ends_at = profile.superseded_at + GRACE_S
    if profile.instances:
        some = ", ".join(profile.examples)
        return _REPORT.ok(subject, f"{named}, and kept for {counted(profile.instances, 'instance')}: {some}")
    if now < ends_at + _LOOKS_S:
        return _REPORT.ok(subject, f"{named}, carried by no instance, and ends after {rfc3339(ends_at)}")
    fix = 'look for "identity of nodes not ended" in the log of the function catalog: it says what IAM refuses'
    return _REPORT.warning(
        subject, f"{named}, carried by no instance, and was to end after {rfc3339(ends_at)}", by_hand(fix)
    )


def _role(role: KeptRole) -> CheckResult:
    subject = f"{role.cluster}/{role.name}"
    if role.holders:
        return _REPORT.ok(subject, f"the node role is kept for instance profiles of others: {', '.join(role.holders)}")
    return _REPORT.ok(subject, "the node role has no instance profile any more, and ends a day after it was made")
