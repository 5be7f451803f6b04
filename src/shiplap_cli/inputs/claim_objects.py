"""NodeClaim objects as the API has them, read as claims, and what they say about when their nodes changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, ObjectMeta, Pod, ResourceRequirements, Taint
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodeClassReference, RequirementSpec
from shiplap.manifests.files.documents import Document
from shiplap.manifests.nodeclaim import ClaimPlan, ClaimState, LaunchedInstance, NodeClaim, PodReference
from shiplap.manifests.times import seconds, seconds_or_never
from shiplap.scheduling.model.planned_pods import pair
from shiplap_cli.inputs import object_validation
from shiplap_cli.inputs.object_validation import invalid_field, raise_first, typed_object


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _ClaimSpec(_Fields, frozen=True):
    node_class_ref: NodeClassReference = NodeClassReference("")
    requirements: tuple[RequirementSpec, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    expire_after: str = ""
    termination_grace_period: str = ""


class _Condition(_Fields, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str = ""


class _ClaimStatus(_Fields, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")
    image_id: str = msgspec.field(default="", name="imageID")
    last_pod_event_time: str = ""
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[_Condition, ...] = ()


class ClaimObject(_Fields, frozen=True):
    """A karpenter.sh/v1 NodeClaim as the API has it."""

    metadata: ObjectMeta
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


def read_claim_object(document: Document) -> ClaimObject:
    """A NodeClaim without malformed fields. Raises InvalidInput."""
    claim = typed_object(document, ClaimObject)
    for field, text in (
        ("status.lastPodEventTime", claim.status.last_pod_event_time),
        *(("status.conditions", condition.last_transition_time) for condition in claim.status.conditions),
    ):
        try:
            _moment(text)
        except ValueError as error:
            raise invalid_field(document, field, f"is not a timestamp: {error}") from error
    for field, text, read in (
        ("spec.expireAfter", claim.spec.expire_after, seconds_or_never),
        ("spec.terminationGracePeriod", claim.spec.termination_grace_period, seconds),
    ):
        try:
            read(text or "0s")
        except ValueError as error:
            raise invalid_field(document, field, str(error)) from error
    raise_first(document, object_validation.quantity_problems(claim.status.allocatable, "status.allocatable"))
    raise_first(document, object_validation.quantity_problems(claim.spec.resources.requests, "spec.resources.requests"))
    try:
        Requirements.of(claim.spec.requirements)
    except ValueError as error:
        raise invalid_field(document, "spec.requirements", str(error)) from error
    return claim


def claim_of(claim: ClaimObject, pods: Iterable[Pod]) -> NodeClaim:
    """The record of a claim. Pods that kube-scheduler nominated to its node are those it was launched for."""
    known, status = claim.metadata.labels, claim.status
    listed = next(
        (r.values for r in claim.spec.requirements if r.key == labels.INSTANCE_TYPE and r.operator == "In"), ()
    )
    promised = [pod for pod in pods if pod.status.nominated_node_name == claim.metadata.name]
    return NodeClaim(
        cluster="",
        name=claim.metadata.name,
        plan=ClaimPlan(
            node_pool=known.get(labels.NODE_POOL, ""),
            node_class=claim.spec.node_class_ref.name,
            requirements=claim.spec.requirements,
            labels=known,
            annotations=claim.metadata.annotations,
            taints=claim.spec.taints,
            startup_taints=claim.spec.startup_taints,
            instance_types=listed,
            requests=parse_resources(claim.spec.resources.requests),
            pods=tuple(PodReference(pod.metadata.namespace or "default", pod.metadata.name) for pod in promised),
            allocatable=parse_resources(status.allocatable),
            expire_after=claim.spec.expire_after,
            termination_grace_period=claim.spec.termination_grace_period,
        ),
        state=_state(claim),
        instance=LaunchedInstance(
            id=status.provider_id.rpartition("/")[2],
            type=known.get(labels.INSTANCE_TYPE, ""),
            zone=known.get(labels.ZONE, ""),
            capacity_type=known.get(labels.CAPACITY_TYPE, ""),
            ami=status.image_id,
        ),
        created_at=_moment(claim.metadata.creation_timestamp),
        node_name=status.node_name,
    )


def histories_of(
    items: Sequence[ClaimObject], claims: Sequence[NodeClaim], nodes: Sequence[Node]
) -> tuple[NodeHistory, ...]:
    """The times at which nodes changed, from their claims; nodes without a claim have no history."""
    paired, _ = pair(nodes, claims)
    by_name = {item.metadata.name: item for item in items}
    histories = []
    for name, claim in sorted(paired.items()):
        status = by_name[claim.name].status
        true = [condition for condition in status.conditions if condition.status == "True"]
        since = {condition.type: _moment(condition.last_transition_time) for condition in true}
        said = {condition.type: condition.reason for condition in true}
        denied = {condition.type for condition in status.conditions if condition.status == "False"}
        histories.append(
            NodeHistory(
                name,
                initialized_at=since.get("Initialized", 0.0),
                last_pod_event_at=_moment(status.last_pod_event_time),
                drifted_at=since.get("Drifted", 0.0),
                said_to_drift=(said["Drifted"] or "Drifted") if "Drifted" in said else "",
                said_to_stay="Consolidatable" in denied,
            )
        )
    return tuple(histories)


def _moment(text: str | None) -> float:
    """Epoch seconds of a timestamp that was checked before; 0 without one."""
    return epoch(text) if text else 0.0


def _state(claim: ClaimObject) -> ClaimState:
    true = {condition.type for condition in claim.status.conditions if condition.status == "True"}
    if claim.metadata.deletion_timestamp and "InstanceTerminating" not in true:
        return ClaimState.DRAINING
    for condition, state in (
        ("InstanceTerminating", ClaimState.TERMINATING),
        ("DisruptionReason", ClaimState.DISRUPTING),
        ("Initialized", ClaimState.INITIALIZED),
        ("Registered", ClaimState.REGISTERED),
        ("Launched", ClaimState.LAUNCHED),
    ):
        if condition in true:
            return state
    return ClaimState.LAUNCHED if claim.status.provider_id else ClaimState.PLANNED
