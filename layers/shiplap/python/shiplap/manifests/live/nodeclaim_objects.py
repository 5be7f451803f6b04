"""NodeClaim objects: what the cluster shows of claims, in upstream's form.

The objects are a view: table `state` is the truth. Only one thing is read from them: a deletionTimestamp on one of
ours, or on its Node, means that a user wants the node drained. Upstream's finalizer keeps both until the claim has
ended. As with upstream, the object of a node that leaves for good is deleted when it begins to. An object that is gone
says nothing; it is made again while its claim lives. Objects without our label are somebody else's, but for one that
names the instance of the claim of its name: it gets the label. So a NodeClaim of Karpenter whose node was adopted
becomes its claim's, and a label that a user has removed comes back.

A NodeClaim that a user writes is more than a view: it asks for the node. Its claim holds its name and uid. It gets our
label and the finalizer once it has a claim. It expires by its own `expireAfter`. If it is gone, its node is drained.

The finalizer is written when an object is made, and to a Node only while its NodeClaim has it. So whoever removes it
from a NodeClaim, as `shiplap install uninstall` does, removes it for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, RawObject, is_ready
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.template_hash import NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, POOL_HASH, POOL_HASH_VERSION
from shiplap.manifests.times import seconds, seconds_or_never

INSTALL_LABEL = "shiplap.dev/install"
"""By this label, with the name of the install, an install knows the objects that it has made."""

GIVEN_BACK = "shiplap.dev/given-back"
"""An annotation by which `shiplap migrate handover` gives a NodeClaim to Karpenter: it is nothing of ours any more."""

FINALIZER = "karpenter.sh/termination"
"""Upstream's, on NodeClaims and Nodes: an API server keeps an object that has it until it is removed."""

TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"
"""Upstream's annotation with the time at which a node that is drained is ended at the latest."""

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

MISSING_S = 120.0
"""How old a claim of a user's NodeClaim must be before a missing object means something, in seconds: objects are listed
before claims."""

LEAVING_STATES = frozenset({ClaimState.DRAINING, ClaimState.TERMINATING})

_HASHES = frozenset({POOL_HASH, POOL_HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION})
_DECIDED = frozenset({"Drifted", "Consolidatable", "DisruptionReason"})
_API_VERSION = "karpenter.sh/v1"
_NEVER = "Never"
_TERMINATING = "InstanceTerminating"
_OF_USERS = SHOWN | {ClaimState.PLANNED, ClaimState.LAUNCHING}
_REGISTERED = SHOWN - {ClaimState.LAUNCHED}
_INITIALIZED = _REGISTERED - {ClaimState.REGISTERED}


class Deletion(msgspec.Struct, frozen=True, order=True):
    """A user has deleted the NodeClaim or Node of a claim; epoch seconds.

    `deadline_at` is when the terminationGracePeriod of the NodeClaim ends, 0 without one.
    """

    claim: str
    deadline_at: float = 0.0


class ClaimDisruption(msgspec.Struct, frozen=True):
    """Holds the facts of disruption about a claim with a node; times in epoch seconds, 0 where nothing is known.

    `reason` is that of the command that removes its node, empty without one. `quiet_since` is since when its pods have
    not changed, None for a node that disruption has not looked at.
    """

    reason: str = ""
    is_drifted: bool = False
    last_pod_event_at: float = 0.0
    quiet_since: float | None = None


class ClaimObjectChanges(msgspec.Struct, frozen=True):
    """The changes that make the objects show the claims; each tuple is sorted by name.

    `created` are whole objects, their status included. `statuses`, `annotated` and `deleted` hold an object as it is;
    `statuses` with the status that it should have, `annotated` with annotations that it lacks. `taken_over` are objects
    that get our label, `marked` those of users that get label and finalizer. `guarded` are Nodes that get label and
    finalizer, `unclaimed` those that have them although no claim in service has their instance. `leaving` are the
    claims to drain. `ending` are objects to delete that the finalizer keeps: their nodes leave for good.
    """

    created: tuple[RawObject, ...] = ()
    statuses: tuple[tuple[RawObject, RawObject], ...] = ()
    annotated: tuple[tuple[RawObject, dict[str, str]], ...] = ()
    deleted: tuple[RawObject, ...] = ()
    taken_over: tuple[RawObject, ...] = ()
    guarded: tuple[Node, ...] = ()
    unclaimed: tuple[Node, ...] = ()
    leaving: tuple[Deletion, ...] = ()
    marked: tuple[RawObject, ...] = ()
    ending: tuple[RawObject, ...] = ()


def claim_object_changes(
    claims: Iterable[NodeClaim],
    objects: Iterable[RawObject],
    pools: Iterable[NodePool],
    nodes: Iterable[Node],
    install: str,
    now: float,
    disruption: Mapping[str, ClaimDisruption] | None = MappingProxyType({}),
) -> ClaimObjectChanges:
    """The changes from the objects that are there to those that should be.

    Args:
        claims: of the cluster.
        objects: all NodeClaims of the cluster, as the API server lists them.
        pools: NodePools with their uids: a claim of another one gets no object, as nothing would own it.
        nodes: of the cluster.
        install: the name of this install.
        now: epoch seconds.
        disruption: by claim; None if it cannot be read: what the objects say of it then stays.
    """
    if not install:  # objects without our label would seem to be ours
        return ClaimObjectChanges()
    claims, nodes = sorted(claims, key=lambda item: item.name), tuple(nodes)
    present = {str(item["metadata"]["name"]): item for item in objects}
    of_users = {claim.plan.object_uid for claim in claims if claim.is_standalone}
    ours = {name: item for name, item in present.items() if _label(item) == install or _uid(item) in of_users}
    found = _FoundChanges(pools, install, now, disruption)
    by_name = {node.metadata.name: node for node in nodes}
    shown: dict[str, NodeClaim] = {}
    for claim in claims:
        if claim.state in (_OF_USERS if claim.is_standalone else SHOWN):
            name = claim.plan.object_name or claim.name
            shown[name] = claim
            found.look(claim, _object_of(claim, ours.get(name)), present.get(name), _node_of(claim, by_name))
    over = {name for name in ours.keys() - shown.keys() if not _is_in_service(ours[name], nodes)}
    held = {name for name in over if _is_held_by_node(ours[name], nodes)}
    leaving = {name for name in ours.keys() & shown.keys() if shown[name].state in LEAVING_STATES}
    annotated = [
        (item, _missing_annotations(shown[name], item))
        for name, item in sorted(ours.items())
        if name in shown and _label(item) == install
    ]
    claimed = {claim.node_name for claim in shown.values()}
    left = [node for node in nodes if _is_guarded(node, install) and node.metadata.name not in claimed]
    return ClaimObjectChanges(
        created=tuple(found.created),
        statuses=(*found.statuses, *(each for name in sorted(held) if (each := _ended(ours[name], now)) is not None)),
        annotated=tuple((item, missing) for item, missing in annotated if missing),
        deleted=tuple(ours[name] for name in sorted(over - held)),
        taken_over=tuple(found.taken_over),
        guarded=tuple(found.guarded),
        unclaimed=_by_name(left),
        leaving=tuple(sorted(found.leaving)),
        marked=tuple(found.marked),
        ending=tuple(ours[name] for name in sorted(leaving | held) if _is_kept_once_deleted(ours[name])),
    )


class _FoundChanges:
    """The changes found so far, claim by claim."""

    def __init__(
        self,
        pools: Iterable[NodePool],
        install: str,
        now: float,
        disruption: Mapping[str, ClaimDisruption] | None,
    ) -> None:
        self.created: list[RawObject] = []
        self.statuses: list[tuple[RawObject, RawObject]] = []
        self.taken_over: list[RawObject] = []
        self.marked: list[RawObject] = []
        self.guarded: list[Node] = []
        self.leaving: list[Deletion] = []
        self._owners = {label_value_of(pool.metadata.name): pool for pool in pools}
        self._install, self._now, self._disruption = install, now, disruption

    def look(self, claim: NodeClaim, item: RawObject | None, namesake: RawObject | None, node: Node | None) -> None:
        """One claim with its object, the object of its name, whosever it is, and its Node; None where there is none."""
        if item is not None and _label(item) != self._install and not item["metadata"].get("deletionTimestamp"):
            self.marked.append(item)  # its status is written once it is marked
            return
        if claim.state not in SHOWN:
            return
        if claim.state not in LEAVING_STATES:
            self._follow(claim, item, node)
        pool = self._owners.get(claim.plan.node_pool)
        decided = _decided(claim, pool, self._disruption, self._now)
        if item is not None:
            status = _status(claim, node, item.get("status") or {}, decided, self._now)
            if status != item.get("status"):
                self.statuses.append((item, status))
        elif namesake is not None:
            self.taken_over += [namesake] if _is_taken_over(namesake, claim) else []
        elif pool is not None:
            shown = _status(claim, node, {}, decided, self._now)
            self.created.append({**_object(claim, pool, self._install), "status": shown})

    def _follow(self, claim: NodeClaim, item: RawObject | None, node: Node | None) -> None:
        if deletion := _deletion(claim, item, node, self._now):
            self.leaving.append(deletion)
        elif item is not None and node is not None and not _is_guarded(node, self._install):
            self.guarded += [node] if FINALIZER in finalizers_of(item) else []


def _object_of(claim: NodeClaim, item: RawObject | None) -> RawObject | None:
    """The object that has the claim's name, if it is the claim's: a user may have written another one of its name."""
    return None if item is not None and claim.is_standalone and _uid(item) != claim.plan.object_uid else item


def _is_taken_over(item: RawObject, claim: NodeClaim) -> bool:
    """True if an object that belongs to no install, and was not given back, names the claim's instance."""
    status, annotations = item.get("status"), item["metadata"].get("annotations")
    provider_id = status.get("providerID") if isinstance(status, Mapping) else None
    given_back = isinstance(annotations, Mapping) and GIVEN_BACK in annotations
    return not _label(item) and not given_back and str(provider_id).endswith(f"/{claim.instance_id}")


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


def _deletion(claim: NodeClaim, item: RawObject | None, node: Node | None, now: float) -> Deletion | None:
    """Return a claim's deletion if a user has deleted its NodeClaim or its Node, or if its age limit has come.

    If a user has deleted both objects, the earlier moment counts.
    """
    if item is None:
        is_missing = claim.is_standalone and claim.created_at + MISSING_S < now
        return Deletion(claim.name) if is_missing else None
    moments = [item["metadata"].get("deletionTimestamp"), node.metadata.deletion_timestamp if node is not None else ""]
    deleted = [epoch(moment) for moment in moments if isinstance(moment, str) and moment]
    if not deleted:
        return _expiry(claim, item, now)
    try:
        grace_s = seconds(str(item.get("spec", {}).get("terminationGracePeriod") or ""))
    except ValueError:  # there is none, or the object is not of our making
        return Deletion(claim.name)
    return Deletion(claim.name, min(deleted) + grace_s)


def _expiry(claim: NodeClaim, item: RawObject, now: float) -> Deletion | None:
    """Return the deletion of a NodeClaim that a user wrote and that has reached its own age limit; else None.

    Claims of NodePools expire by disruption.
    """
    spec, created = item.get("spec", {}), item["metadata"].get("creationTimestamp")
    if not claim.is_standalone or not isinstance(created, str):
        return None
    try:
        lifetime_s = seconds_or_never(str(spec.get("expireAfter") or _NEVER))
        grace = spec.get("terminationGracePeriod")
        deadline_at = now + seconds(str(grace)) if grace else 0.0
    except ValueError:  # somebody has written what the CRD refuses
        return None
    return Deletion(claim.name, deadline_at) if lifetime_s is not None and now >= epoch(created) + lifetime_s else None


def _is_in_service(item: RawObject, nodes: Iterable[Node]) -> bool:
    """True if a user wrote a NodeClaim whose Node is ready: its claim may be lost, and Shiplap will write it again."""
    if any(owner.get("kind") == "NodePool" for owner in item["metadata"].get("ownerReferences") or ()):
        return False
    uid = _uid(item)
    return any(
        not node.metadata.deletion_timestamp
        and any(owner.uid == uid for owner in node.metadata.owner_references)
        and is_ready(node.status)
        for node in nodes
    )


def _is_held_by_node(item: RawObject, nodes: Iterable[Node]) -> bool:
    """True while the API server keeps the object's Node for the finalizer of another controller.

    As with upstream, a NodeClaim goes no sooner than its Node.
    """
    status = item.get("status")
    provider_id = status.get("providerID") if isinstance(status, Mapping) else None
    return any(
        node.spec.provider_id == provider_id and any(name != FINALIZER for name in node.metadata.finalizers)
        for node in nodes
    )


def _ended(item: RawObject, now: float) -> tuple[RawObject, RawObject] | None:
    """An object whose instance has ended, with the status that says so; None if it says so already."""
    status = item.get("status") or {}
    listed = status.get("conditions")
    known = {each.get("type"): each for each in (listed if isinstance(listed, list) else ())}
    if known.get(_TERMINATING, {}).get("status") == "True":
        return None
    known[_TERMINATING] = _condition(_TERMINATING, "True", _TERMINATING, {}, now)
    return item, {**status, "conditions": [known[type_] for type_ in sorted(known)]}


def _is_kept_once_deleted(item: RawObject) -> bool:
    """True if nobody has deleted the object yet, and the API server would keep it for our finalizer."""
    return not item["metadata"].get("deletionTimestamp") and FINALIZER in finalizers_of(item)


def _uid(item: RawObject) -> str:
    return str(item["metadata"].get("uid", ""))


def _label(item: RawObject) -> str:
    written = item["metadata"].get("labels")
    return str(written.get(INSTALL_LABEL, "")) if isinstance(written, Mapping) else ""


def _object(claim: NodeClaim, pool: NodePool, install: str) -> dict[str, Any]:
    plan, reference = claim.plan, pool.spec.template.spec.node_class_ref
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": reference.group, "kind": reference.kind, "name": plan.node_class},
        "requirements": _plain(plan.requirements),
        "resources": {"requests": format_resources(plan.requests)},
        "expireAfter": plan.age_limit(pool),
    }
    if grace := plan.grace(pool):
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
            "annotations": {**plan.annotations, **_annotations(claim)},
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],
        },
        "spec": spec,
    }


def _plain(values: Any) -> Any:
    """As JSON has it: lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(values))


def _annotations(claim: NodeClaim) -> dict[str, str]:
    """Return the annotations that change while a claim lives.

    They are the hashes of a newer version, and the moment at which the node ends at the latest.
    """
    found = {key: value for key, value in claim.plan.annotations.items() if key in _HASHES}
    if claim.state in LEAVING_STATES and claim.deadline_at:
        found[TERMINATION_TIMESTAMP] = rfc3339(claim.deadline_at)
    return found


def _missing_annotations(claim: NodeClaim, item: RawObject) -> dict[str, str]:
    written = item["metadata"].get("annotations")
    present = written if isinstance(written, Mapping) else {}
    return {key: value for key, value in _annotations(claim).items() if present.get(key) != value}


class _Decided(msgspec.Struct, frozen=True):
    """The part of a status that follows from decisions: conditions by type, and the time of the last pod event."""

    conditions: dict[str, tuple[str, str]]
    last_pod_event: str = ""


def _decided(
    claim: NodeClaim, pool: NodePool | None, disruption: Mapping[str, ClaimDisruption] | None, now: float
) -> _Decided | None:
    if disruption is None:
        return None
    facts = disruption.get(claim.name, ClaimDisruption())
    in_service = claim.state in (ClaimState.INITIALIZED, ClaimState.DISRUPTING)
    found = {}
    if in_service and facts.is_drifted:
        found["Drifted"] = ("True", "Drifted")
    if in_service and pool is not None and _is_consolidatable(pool, facts, now):
        found["Consolidatable"] = ("True", "Consolidatable")
    if facts.reason:
        found["DisruptionReason"] = ("True", facts.reason)
    last = rfc3339(facts.last_pod_event_at) if facts.last_pod_event_at else ""
    return _Decided(found, last)


def _is_consolidatable(pool: NodePool, facts: ClaimDisruption, now: float) -> bool:
    """True if consolidateAfter has passed. Shiplap never consolidates nodes of static NodePools."""
    after_s = seconds_or_never(pool.spec.disruption.consolidate_after)
    if after_s is None or facts.quiet_since is None or pool.spec.replicas is not None:
        return False
    return now - facts.quiet_since >= after_s


def _of_record(claim: NodeClaim) -> dict[str, tuple[str, str]]:
    """Status and reason of the conditions that the claim's record decides, by type."""
    awaited = claim.is_rebooting and claim.reboots.sent_at > 0
    registered, initialized = claim.state in _REGISTERED, claim.state in _INITIALIZED and not awaited
    states = {"Launched": True, "Registered": registered, "Initialized": initialized, "Ready": initialized}
    found = {
        type_: ("True", type_) if holds else ("Unknown", "AwaitingReconciliation") for type_, holds in states.items()
    }
    if initialized:
        wrong = ("False", "ConsistencyCheckFailed")
        found["ConsistentStateFound"] = wrong if claim.missed else ("True", "ConsistentStateFound")
    if claim.is_rebooting:
        found["Rebooting"] = ("True", "RebootIssued" if awaited else "RebootRequested")
        found |= {"Initialized": ("Unknown", "Rebooting")} if awaited else {}
    elif claim.reboots.ended_at:
        found["Rebooting"] = ("False", "RebootSucceeded")
    if claim.state is ClaimState.DRAINING:
        found["Drained"] = ("Unknown", "Draining")
    if claim.state is ClaimState.TERMINATING:
        found[_TERMINATING] = ("True", _TERMINATING)
    return found


def _status(
    claim: NodeClaim, node: Node | None, before: RawObject, decided: _Decided | None, now: float
) -> dict[str, Any]:
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
    listed = before.get("conditions")
    known = {item.get("type"): item for item in (listed if isinstance(listed, list) else ())}
    wanted = _of_record(claim)
    if decided is not None:
        wanted |= decided.conditions
        if decided.last_pod_event:
            status["lastPodEventTime"] = decided.last_pod_event
    else:
        wanted |= {type_: (item["status"], item["reason"]) for type_, item in known.items() if type_ in _DECIDED}
        if "lastPodEventTime" in before:
            status["lastPodEventTime"] = before["lastPodEventTime"]
    status["conditions"] = [_condition(type_, *wanted[type_], known.get(type_, {}), now) for type_ in sorted(wanted)]
    for condition in status["conditions"]:
        if condition["type"] == "Rebooting":
            condition["message"] = claim.reboots.cause
    return status


def _condition(type_: str, status: str, reason: str, before: RawObject, now: float) -> dict[str, Any]:
    same = before.get("status") == status and isinstance(before.get("lastTransitionTime"), str)
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": before["lastTransitionTime"] if same else rfc3339(now),
        "observedGeneration": 1,
    }
