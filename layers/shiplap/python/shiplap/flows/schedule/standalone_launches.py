"""NodeClaims that users write: which of them nothing was begun for yet, and what becomes of those asked for in vain.

The claim in table `state` comes first. It has the name and the uid of the object, so no object is launched for twice:
whoever dies in between leaves a claim that is resumed like any other. An object that nothing can be launched for is
deleted, as Karpenter deletes it, and an event says why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound
from shiplap.flows.context import FlowContext
from shiplap.flows.live_settings import KnownManifests, ManifestState, lease_held
from shiplap.flows.optional.optional_calls import CLAIM_OBJECTS
from shiplap.flows.pod_events import COMPONENT
from shiplap.kubernetes.names import LABEL_VALUE_MAX, claim_name
from shiplap.kubernetes.objects import Event, EventSource, ObjectReference
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan_standalone
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

READY_WITHIN_S = 300.0
"""How long a NodeClaim waits for an EC2NodeClass whose selectors cannot be answered, in seconds; upstream's launch
timeout."""

_UID_DIGITS = 8
_LONGEST_MESSAGE = 1024


def with_standalone_claims(
    state: ManifestState, settings: ClusterSettings, context: FlowContext, known: KnownManifests
) -> ManifestState:
    """Return the state with the NodeClaims that users wrote; objects that cannot be launched for are deleted.

    Returns none while the cluster is suspended, unless the only reason is that there is no NodePool: NodeClaims need
    none.
    """
    if not settings.live_manifests or settings.paused or not state.shows_claims:
        return state
    from shiplap.manifests.validation.standalone_objects import standalone_objects  # noqa: PLC0415 - live manifests only

    try:
        if state.suspended and lease_held(settings, context):
            return state
        found = standalone_objects(
            context.cluster.node_claim_objects(),
            {node_class.metadata.name for node_class in settings.manifests.node_classes},
            known.objects(settings.name),
            context.clock.now(),
        )
    except ClusterError as error:
        context.meter.count("NodeClaimsNotRead")
        _LOG.warning("NodeClaims not read: %s", error, extra={"cluster": settings.name})
        return state
    for item in found.futile:
        delete_futile(settings.name, item.name, item.uid, item.reason, context)
    return replace(state, standalone_claims=found.wanted)


def not_begun(
    cluster: str, wanted: Iterable[StandaloneClaim], context: FlowContext
) -> tuple[tuple[StandaloneClaim, ...], tuple[StandaloneClaim, ...]]:
    """NodeClaims that have no claim yet, each with the name for it; and those whose claim has ended.

    One whose name is that of another claim in service waits until that has ended. Raises StoreError.
    """
    waiting, ended = [], []
    for item in wanted:
        second = claim_name(item.name, item.uid[:_UID_DIGITS])
        for name in (item.name, second) if len(item.name) <= LABEL_VALUE_MAX else (second,):
            claim = context.state.claim(cluster, name)
            if claim is None:
                waiting.append(replace(item, claim=name))
            elif claim.plan.object_uid == item.uid:
                ended += [item] if claim.state in FINAL else []
            elif claim.state in FINAL:
                continue  # an earlier object of this name
            break
    return tuple(waiting), tuple(ended)


def with_objects(claims: Iterable[NodeClaim], wanted: Iterable[StandaloneClaim]) -> list[NodeClaim]:
    """The claims, those of NodeClaims that users wrote with what their objects say of their ends."""
    objects: Mapping[str, StandaloneClaim] = {item.claim: item for item in wanted}
    return [_with_object(claim, objects[claim.name]) if claim.name in objects else claim for claim in claims]


def _with_object(claim: NodeClaim, item: StandaloneClaim) -> NodeClaim:
    spec = item.template.spec
    plan = replace(
        claim.plan,
        object_name=item.name,
        object_uid=item.uid,
        expire_after=spec.expire_after,
        termination_grace_period=spec.termination_grace_period or "",
    )
    return replace(claim, plan=plan)


def delete_unplanned(snapshot: Snapshot, planned: Iterable[str], context: FlowContext) -> None:
    """Delete the NodeClaims for which no instance type is to be had. `planned` are the names of the plan's claims.

    While its EC2NodeClass cannot be used, a NodeClaim is left for READY_WITHIN_S; below a ceiling in dollars it waits.
    """
    names = frozenset(planned)
    unready = {catalog.node_class for catalog in snapshot.catalogs if catalog.not_ready}
    for item in snapshot.standalone_claims:
        if item.claim in names:
            continue
        if item.node_class in unready and snapshot.now < item.created_at + READY_WITHIN_S:
            continue
        claim, reason = plan_standalone(snapshot, item)
        if claim is not None:
            continue  # it waits below a ceiling in dollars
        delete_futile(snapshot.cluster, item.name, item.uid, reason, context)


def delete_ended(cluster: str, ended: Sequence[StandaloneClaim], context: FlowContext) -> None:
    """Delete NodeClaims whose claims have ended before their objects had our label."""
    for item in ended:
        delete_futile(cluster, item.name, item.uid, "its node could not be launched", context)


def delete_futile(cluster: str, name: str, uid: str, reason: str, context: FlowContext) -> None:
    """Delete a NodeClaim and say why, in an event. What the API server refuses is tried again by the next sweep."""
    context.meter.count("NodeClaimsRefused")
    _LOG.warning("NodeClaim %s is deleted: %s", name, reason, extra={"cluster": cluster, "claim": name})
    api = context.within(CLAIM_OBJECTS, context.cluster)
    try:
        api.publish(_event(name, uid, reason, context.clock.now()))
        api.delete_node_claim({"metadata": {"name": name, "uid": uid}})
    except (ObjectConflict, ObjectNotFound) as error:
        _LOG.info("NodeClaim not deleted: %s", error, extra={"cluster": cluster, "claim": name})
    except ClusterError as error:
        context.meter.count("StatusesNotWritten")
        _LOG.warning("NodeClaim not deleted: %s", error, extra={"cluster": cluster, "claim": name})


def _event(name: str, uid: str, reason: str, now: float) -> Event:
    return Event(
        involved_object=ObjectReference(
            kind="NodeClaim", namespace="", name=name, uid=uid, api_version="karpenter.sh/v1"
        ),
        reason="LaunchFailed",
        message=f"the NodeClaim is deleted: {reason}"[:_LONGEST_MESSAGE],
        type="Warning",
        source=EventSource(component=COMPONENT),
        reporting_component=COMPONENT,
        last_timestamp=rfc3339(now),
    )
