"""Steps of claims that no record holds: launches, interruptions, joins and removals of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shiplap.disruption.record import Headline
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim

LAUNCH, INTERRUPT, LIFECYCLE = "launch", "interrupt", "lifecycle"
_NOTICES = frozenset(map(str, NoticeKind))
_RECORDED = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.DISRUPTING})
"""States that a recorded decision tells of."""
_MOST = 20
"""Steps that are shown after the first read of the claims: the latest ones."""


def claim_steps(before: Sequence[NodeClaim] | None, after: Sequence[NodeClaim]) -> list[Headline]:
    """The steps between two looks at the claims, in order of time; `before` is None at the first look."""
    known = {claim.name: claim for claim in before or ()}
    lines = [line for claim in after for line in _steps_of(known.get(claim.name), claim)]
    lines.sort(key=lambda line: (line.at, line.text))
    return lines if before is not None else lines[-_MOST:]


def _steps_of(old: NodeClaim | None, new: NodeClaim) -> Iterator[Headline]:
    if (old is None or old.state is not new.state) and new.state not in _RECORDED:
        yield Headline(new.changed_at, _kind(new), _step(new))
    if new.cordoned and (old is None or old.cordoned != new.cordoned):
        yield Headline(new.changed_at, INTERRUPT, f"{new.name} takes no more pods: {new.cordoned}")


def _kind(claim: NodeClaim) -> str:
    if claim.failure in _NOTICES:
        return INTERRUPT
    return LAUNCH if claim.state is ClaimState.LAUNCHED or not claim.instance_id else LIFECYCLE


def _step(claim: NodeClaim) -> str:
    words = f"{claim.name} is {claim.state}"
    if claim.state is ClaimState.LAUNCHED:
        return f"{words}: {claim.instance_type} {claim.capacity_type} in {claim.zone}, {claim.hourly:.4f} USD/h"
    if claim.failure:
        return f"{words}: {claim.failure}"
    return f"{words}, node {claim.node_name}" if claim.node_name else words
