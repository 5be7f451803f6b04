"""Finds the NodeClaim objects that users have written: the nodes they ask for, and the objects that ask in vain.

An object that shows a claim has our label. An object of Karpenter has a NodePool or an instance's providerID.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import RawObject
from shiplap.kubernetes.quantity import parse_amount
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.decoding import field_name
from shiplap.manifests.live.nodeclaim_objects import INSTALL_LABEL
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.manifests.validation.live_objects import LAST_APPLIED, NODE_CLASS_GROUP, NODE_CLASS_KIND
from shiplap.manifests.validation.manifest_check import check_object

WITHOUT_CLASS_S = 30.0
"""How long a NodeClaim waits for its EC2NodeClass, in seconds: both may be applied together, in any order."""

_LABELS = ("spec", "template", "metadata", "labels")
_TEMPLATE_FIELDS = ("nodeClassRef", "requirements", "taints", "startupTaints", "expireAfter", "terminationGracePeriod")


class FutileNodeClaim(msgspec.Struct, frozen=True):
    """A NodeClaim object for which nothing can be launched, and why."""

    name: str
    uid: str
    reason: str


class StandaloneObjects(msgspec.Struct, frozen=True):
    """NodeClaims that users wrote: those to launch for, and those for which nothing can be launched; by name."""

    wanted: tuple[StandaloneClaim, ...] = ()
    futile: tuple[FutileNodeClaim, ...] = ()


def standalone_objects(
    objects: Iterable[RawObject], usable: Collection[str], node_classes: Iterable[RawObject], now: float
) -> StandaloneObjects:
    """The NodeClaims of a cluster that users wrote.

    Args:
        objects: all NodeClaims.
        usable: names of EC2NodeClasses that something may be launched from.
        node_classes: EC2NodeClasses as the API server has them, with their statuses.
        now: epoch seconds.
    """
    unready = {_name(item): said for item in node_classes if (said := _not_ready(item))}
    wanted, futile = [], []
    for item in sorted(filter(is_of_a_user, objects), key=_name):
        name, uid = _name(item), str(item["metadata"].get("uid", ""))
        created_at = epoch(str(item["metadata"].get("creationTimestamp") or "1970-01-01T00:00:00Z"))
        node_class = str(item["spec"]["nodeClassRef"].get("name", ""))
        try:
            claim = _read(item, name, uid, created_at)
        except InvalidInput as error:
            futile.append(FutileNodeClaim(name, uid, error.reason))
            continue
        if node_class in unready:
            futile.append(FutileNodeClaim(name, uid, f"EC2NodeClass {node_class} is not ready: {unready[node_class]}"))
        elif node_class in usable:
            wanted.append(claim)
        elif created_at + WITHOUT_CLASS_S <= now:
            futile.append(FutileNodeClaim(name, uid, f"there is no EC2NodeClass {node_class} that can be used"))
    return StandaloneObjects(tuple(wanted), tuple(futile))


def is_of_a_user(item: RawObject) -> bool:
    """True if a NodeClaim asks for a node of an EC2NodeClass, has none yet, and belongs to no NodePool or install."""
    metadata = item["metadata"]
    marks, owners = metadata.get("labels") or {}, metadata.get("ownerReferences") or ()
    if INSTALL_LABEL in marks or labels.NODE_POOL in marks or metadata.get("deletionTimestamp"):
        return False
    if any(owner.get("kind") == "NodePool" for owner in owners):
        return False
    reference = (item.get("spec") or {}).get("nodeClassRef")
    if not isinstance(reference, Mapping):
        return False
    is_ours = (reference.get("group"), reference.get("kind")) == (NODE_CLASS_GROUP, NODE_CLASS_KIND)
    return is_ours and not (item.get("status") or {}).get("providerID")


def _name(item: RawObject) -> str:
    return str(item["metadata"]["name"])


def _not_ready(node_class: RawObject) -> str:
    """Return the message of an EC2NodeClass's condition Ready if it is False; else an empty text."""
    conditions = (node_class.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next((item for item in conditions if item.get("type") == "Ready"), {})
    if node_class.get("kind") != NODE_CLASS_KIND or ready.get("status") != "False":
        return ""
    return str(ready.get("message") or ready.get("reason") or "its condition Ready is False")


def _read(item: RawObject, name: str, uid: str, created_at: float) -> StandaloneClaim:
    """The typed object. Raises InvalidInput.

    A label that no NodePool may give its nodes, such as one of a tool that has applied the object, is left out.
    """
    spec, metadata = item["spec"], item["metadata"]
    marks, notes = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    for key in (labels.NODE_CLASS, *_refused_labels(name, spec, marks)):
        marks.pop(key, None)
    notes.pop(LAST_APPLIED, None)
    pool, refused, unusable = check_object(_as_pool(name, spec, {"labels": marks, "annotations": notes}))
    for path, reason in (*refused, *unusable):
        raise InvalidInput(f"NodeClaim {name}", f"{field_name(path)}: {reason}")
    if not isinstance(pool, NodePool):
        raise InvalidInput(f"NodeClaim {name}", "it cannot be read")
    requests = (spec.get("resources") or {}).get("requests") or {}
    for resource, amount in requests.items():
        try:
            parse_amount(resource, amount)
        except ValueError as error:
            raise InvalidInput(f"NodeClaim {name}", f"spec.resources.requests.{resource}: {error}") from error
    return StandaloneClaim(name, uid, pool.spec.template, dict(requests), name, created_at)


def _as_pool(name: str, spec: Mapping[str, Any], metadata: RawObject) -> RawObject:
    template = {"metadata": metadata, "spec": {field: spec[field] for field in _TEMPLATE_FIELDS if field in spec}}
    head = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
    return {**head, "spec": {"template": template}}


def _refused_labels(name: str, spec: Mapping[str, Any], marks: Mapping[str, str]) -> list[str]:
    _, refused, unusable = check_object(_as_pool(name, spec, {"labels": marks}))
    return [str(path[-1]) for path, _ in (*refused, *unusable) if path[:-1] == _LABELS]
