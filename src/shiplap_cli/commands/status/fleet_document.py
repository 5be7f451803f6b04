"""The facts known of the installs of a fleet and their clusters, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shiplap.drawing.capture import picture_of_claims
from shiplap.drawing.picture import NodePictureState
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.nodeclass_status import ClusterStatus
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import FINAL, GOING_FOR_GOOD, IN_FLIGHT, ClaimState, NodeClaim
from shiplap_cli.output import Printed, counted
from shiplap_cli.render.saving import least_hourly

FAILED_S = 3600.0
"""Claims that failed within so many seconds count as a problem."""

_IN_SERVICE = (NodePictureState.READY, NodePictureState.LEAVING)
_INSPECTED_S = 1800.0
"""The function `catalog` inspects every five minutes; after so many seconds without, something is wrong."""


class ClusterOverview(Printed, frozen=True, kw_only=True):
    """A cluster; USD per hour.

    `waiting` are pods that wait for a node, None where only the install's sum is known; `coming` are pods of nodes that
    are on their way. `savable` is what perfect packing of the requests that nodes were launched for would save on the
    instance types in use: a bound on what can still be saved, not a plan.
    """

    cluster: str
    region: str
    nodes: int = 0
    starting: int = 0
    leaving: int = 0
    waiting: int | None = None
    coming: int = 0
    hourly: float = 0.0
    savable: float = 0.0
    problems: tuple[str, ...] = ()


class InstallOverview(Printed, frozen=True, kw_only=True):
    """An install. `waiting` are pods of all its clusters, None if CloudWatch does not tell.

    `version` is Shiplap's; `release` is the version of function `schedule` in service, which `shiplap install rollback`
    lists.
    """

    install: str
    profile: str
    account: str
    region: str
    stack: str
    version: str = ""
    release: str = ""
    waiting: int | None = None
    clusters: tuple[ClusterOverview, ...] = ()
    problems: tuple[str, ...] = ()


class FleetDocument(Printed, frozen=True, kw_only=True):
    """The whole fleet. `problems` counts those of installs and clusters; `seconds` is how long reading took."""

    installs: tuple[InstallOverview, ...]
    clusters: int
    nodes: int
    waiting: int
    hourly: float
    savable: float
    problems: int
    at: str
    seconds: float


def cluster_overview(
    known: ClusterStatus, claims: Sequence[NodeClaim], waiting: int | None, now: float
) -> ClusterOverview:
    """One cluster, by its last inspection and its claims."""
    alive = [claim for claim in claims if claim.state not in FINAL]
    in_flight = [claim for claim in alive if claim.state in IN_FLIGHT]
    hourly = sum(claim.hourly for claim in alive if claim.instance_id)
    settled = [node for node in picture_of_claims(known.cluster, now, alive).nodes if node.state in _IN_SERVICE]
    paid = sum(node.hourly for node in settled)
    return ClusterOverview(
        cluster=known.cluster,
        region=known.region,
        nodes=sum(bool(claim.instance_id) for claim in alive),
        starting=len(in_flight),
        leaving=sum(claim.state in GOING_FOR_GOOD or claim.state is ClaimState.DISRUPTING for claim in alive),
        waiting=waiting,
        coming=len({pod.key for claim in in_flight for pod in claim.plan.pods}),
        hourly=round(hourly, 6),
        savable=round(max(0.0, paid - least_hourly(settled)), 6),
        problems=tuple(_problems(known, claims, now)),
    )


def _problems(known: ClusterStatus, claims: Iterable[NodeClaim], now: float) -> Iterable[str]:
    if known.checked_at and now - known.checked_at > _INSPECTED_S:
        yield f"not inspected since {rfc3339(known.checked_at)}"
    for item in known.node_classes:
        if item.ready.status != nodeclass_status.TRUE:
            yield f"EC2NodeClass {item.name} is not ready: {_reason(item.conditions)}"
    for pool in known.pools:
        if pool.ready != nodeclass_status.TRUE and pool.reason:
            yield f"NodePool {pool.name} is not ready: {pool.reason}"
    failed = [claim for claim in claims if claim.state is ClaimState.FAILED and now - claim.changed_at <= FAILED_S]
    if failed:
        newest = max(failed, key=lambda claim: (claim.changed_at, claim.name))
        reason = newest.failure or "no reason given"
        yield f"{counted(len(failed), 'claim')} failed within the hour; {newest.name}: {reason}"


def _reason(known: Sequence[nodeclass_status.Condition]) -> str:
    wrong = [item for item in known if item.status != nodeclass_status.TRUE and item.type != nodeclass_status.READY]
    return f"{wrong[0].reason}: {wrong[0].message}" if wrong else "no reason given"


def fleet_document(installs: Sequence[InstallOverview], now: float, seconds: float) -> FleetDocument:
    """The installs and their sums. Pods that wait are those of installs, which also know pods of unread clusters."""
    clusters = [cluster for install in installs for cluster in install.clusters]
    return FleetDocument(
        installs=tuple(installs),
        clusters=len(clusters),
        nodes=sum(cluster.nodes for cluster in clusters),
        waiting=sum(install.waiting or 0 for install in installs),
        hourly=round(sum(cluster.hourly for cluster in clusters), 6),
        savable=round(sum(cluster.savable for cluster in clusters), 6),
        problems=sum(len(item.problems) for item in installs) + sum(len(item.problems) for item in clusters),
        at=rfc3339(now),
        seconds=round(seconds, 3),
    )
