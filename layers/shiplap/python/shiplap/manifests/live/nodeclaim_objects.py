"""NodeClaim objects: what the cluster shows of claims, in upstream's form.

The objects are a view: table `state` is the truth. Only one thing is read from them: a deletionTimestamp on one of
ours, or on its Node, means that a user wants the node drained. Upstream's finalizer keeps both until the claim has
ended. An object that is gone says nothing; it is made again while its claim lives. Objects without our label are
somebody else's.

The finalizer is written when an object is made, and to a Node only while its NodeClaim has it. So whoever removes it
from a NodeClaim, as `shiplap uninstall` does, removes it for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, RawObject
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.durations import seconds
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim

INSTALL_LABEL = "shiplap.dev/install"
"""By this label, with the name of the install, an install knows the objects that it has made."""

FINALIZER = "karpenter.sh/termination"
"""Upstream's, on NodeClaims and Nodes: an API server keeps an object that has it until it is removed."""

SHOWN = frozenset(
    {
        ClaimState.LAUNCHED,
        ClaimState.REGISTERED,
        ClaimState.INITIALIZED,
        ClaimState.DISRUPTING,
        ClaimState.DRAINING,
        ClaimState.TERMINATING,
    }
)
"""States of claims with an instance. Karpenter would launch for an object whose instance is not known."""

LEAVING_STATES = frozenset({ClaimState.DRAINING, ClaimState.TERMINATING})

_API_VERSION = "karpenter.sh/v1"
_REGISTERED = SHOWN - {ClaimState.LAUNCHED}
_INITIALIZED = _REGISTERED - {ClaimState.REGISTERED}


class Deletion(msgspec.Struct, frozen=True, order=True):
    """A user has deleted the NodeClaim or Node of a claim; epoch seconds.

    `deadline_at` is when the terminationGracePeriod of the NodeClaim ends, 0 without one.
    """

    claim: str
    deadline_at: float = 0.0


class ClaimObjectChanges(msgspec.Struct, frozen=True):
    """What is to be done so that the objects show the claims; each tuple sorted by name.

    `created` are whole objects, their status included. `statuses` and `deleted` hold an object as it is; `statuses`
    with the status that it should have. `guarded` are Nodes that get label and finalizer, `unclaimed` those that have
    them although no claim in service has their instance. `leaving` are the claims to drain.
    """

    created: tuple[RawObject, ...] = ()
    statuses: tuple[tuple[RawObject, RawObject], ...] = ()
    deleted: tuple[RawObject, ...] = ()
    guarded: tuple[Node, ...] = ()
    unclaimed: tuple[Node, ...] = ()
    leaving: tuple[Deletion, ...] = ()


def claim_object_changes(
    claims: Iterable[NodeClaim],
    objects: Iterable[RawObject],
    pools: Iterable[NodePool],
    nodes: Iterable[Node],
    install: str,
    now: float,
) -> ClaimObjectChanges:
    """The changes from the objects that are there to those that should be.

    Args:
        claims: of the cluster.
        objects: all NodeClaims of the cluster, as the API server lists them.
        pools: NodePools with their uids: a claim of another one gets no object, as nothing would own it.
        nodes: of the cluster.
        install: the name of this install.
        now: epoch seconds.
    """
    if not install:  # objects without our label would seem to be ours
        return ClaimObjectChanges()
    owners = {label_value_of(pool.metadata.name): pool for pool in pools}
    nodes = tuple(nodes)
    by_name = {node.metadata.name: node for node in nodes}
    present = {str(item["metadata"]["name"]): item for item in objects}
    ours = {name: item for name, item in present.items() if _label(item) == install}
    created, statuses, guarded, leaving = [], [], [], []
    shown: dict[str, NodeClaim] = {}
    for claim in sorted(claims, key=lambda item: item.name):
        if claim.state not in SHOWN:
            continue
        shown[claim.name] = claim
        item, node = ours.get(claim.name), _node_of(claim, by_name)
        if item is not None and claim.state not in LEAVING_STATES:
            if deletion := _deletion(claim, item, node):
                leaving.append(deletion)
            elif node is not None and FINALIZER in finalizers_of(item) and not _is_guarded(node, install):
                guarded.append(node)
        pool = owners.get(claim.plan.node_pool)
        if item is not None:
            status = _status(claim, node, item.get("status") or {}, now)
            if status != item.get("status"):
                statuses.append((item, status))
        elif claim.name not in present and pool is not None:
            created.append({**_object(claim, pool, install), "status": _status(claim, node, {}, now)})
    gone = tuple(ours[name] for name in sorted(ours) if name not in shown)
    claimed = {claim.node_name for claim in shown.values()}
    left = [node for node in nodes if _is_guarded(node, install) and node.metadata.name not in claimed]
    return ClaimObjectChanges(
        tuple(created), tuple(statuses), gone, tuple(guarded), _by_name(left), tuple(sorted(leaving))
    )


def _node_of(claim: NodeClaim, by_name: Mapping[str, Node]) -> Node | None:
    """The Node that has the claim's name, if it is the claim's: names come from addresses, which are used again."""
    node = by_name.get(claim.node_name)
    return node if node is not None and node.spec.provider_id.endswith(f"/{claim.instance_id}") else None


def _by_name(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda node: node.metadata.name))


def finalizers_of(item: RawObject) -> tuple[str, ...]:
    """The finalizers of an object; none where the field is not a list."""
    written = item["metadata"].get("finalizers")
    return tuple(map(str, written)) if isinstance(written, list | tuple) else ()


def _is_guarded(node: Node, install: str) -> bool:
    return FINALIZER in node.metadata.finalizers and node.metadata.labels.get(INSTALL_LABEL) == install


def _deletion(claim: NodeClaim, item: RawObject, node: Node | None) -> Deletion | None:
    """Whether a user has deleted one of the two objects, the earlier moment counting."""
    moments = [item["metadata"].get("deletionTimestamp"), node.metadata.deletion_timestamp if node is not None else ""]
    deleted = [epoch(moment) for moment in moments if isinstance(moment, str) and moment]
    if not deleted:
        return None
    try:
        grace_s = seconds(str(item.get("spec", {}).get("terminationGracePeriod") or ""))
    except ValueError:  # there is none, or the object is not of our making
        return Deletion(claim.name)
    return Deletion(claim.name, min(deleted) + grace_s)


def _label(item: RawObject) -> str:
    written = item["metadata"].get("labels")
    return str(written.get(INSTALL_LABEL, "")) if isinstance(written, Mapping) else ""


def _object(claim: NodeClaim, pool: NodePool, install: str) -> dict[str, Any]:
    plan, reference = claim.plan, pool.spec.template.spec.node_class_ref
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": reference.group, "kind": reference.kind, "name": plan.node_class},
        "requirements": _plain(plan.requirements),
        "resources": {"requests": format_resources(plan.requests)},
        "expireAfter": plan.expire_after or pool.spec.template.spec.expire_after,
    }
    grace = plan.termination_grace_period or pool.spec.template.spec.termination_grace_period
    if grace:
        spec["terminationGracePeriod"] = grace
    for field, taints in (("taints", plan.taints), ("startupTaints", plan.startup_taints)):
        if taints:
            spec[field] = _plain(taints)
    owner = {
        "apiVersion": _API_VERSION,
        "kind": "NodePool",
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
        "blockOwnerDeletion": True,
    }
    instance = claim.known_instance
    bought = {
        labels.INSTANCE_TYPE: instance.type,
        labels.ZONE: instance.zone,
        labels.CAPACITY_TYPE: instance.capacity_type,
        labels.NODE_POOL: plan.node_pool,
        INSTALL_LABEL: install,
    }
    return {
        "apiVersion": _API_VERSION,
        "kind": "NodeClaim",
        "metadata": {
            "name": claim.name,
            "labels": {**plan.labels, **{key: value for key, value in bought.items() if value}},
            "annotations": dict(plan.annotations),
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }


def _plain(values: Any) -> Any:
    """As JSON has it: lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(values))


def _status(claim: NodeClaim, node: Node | None, before: RawObject, now: float) -> dict[str, Any]:
    instance = claim.known_instance
    status: dict[str, Any] = {"providerID": f"aws:///{instance.zone}/{instance.id}"}
    if instance.ami:
        status["imageID"] = instance.ami
    if claim.node_name:
        status["nodeName"] = claim.node_name
    if node is not None:
        status |= {"capacity": dict(node.status.capacity), "allocatable": dict(node.status.allocatable)}
    elif claim.plan.allocatable:
        status["allocatable"] = before.get("allocatable") or format_resources(claim.plan.allocatable)
    registered, initialized = claim.state in _REGISTERED, claim.state in _INITIALIZED
    states = {"Launched": True, "Registered": registered, "Initialized": initialized, "Ready": initialized}
    listed = before.get("conditions")
    known = {item.get("type"): item for item in (listed if isinstance(listed, list) else ())}
    status["conditions"] = [
        _condition(type_, "True" if states[type_] else "Unknown", known.get(type_, {}), now) for type_ in sorted(states)
    ]
    return status


def _condition(type_: str, status: str, before: RawObject, now: float) -> dict[str, Any]:
    same = before.get("status") == status and isinstance(before.get("lastTransitionTime"), str)
    return {
        "type": type_,
        "status": status,
        "reason": type_ if status == "True" else "AwaitingReconciliation",
        "message": "",
        "lastTransitionTime": before["lastTransitionTime"] if same else rfc3339(now),
        "observedGeneration": 1,
    }
