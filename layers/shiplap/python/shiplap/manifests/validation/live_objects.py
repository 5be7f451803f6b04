"""Manifests as an API server stores them: each object is read by itself, and one that is wrong affects no other.

A NodePool of another provider (EKS Auto Mode, for example) is not ours: it is passed over in silence. Nothing new is
made from an object that is being deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from shiplap.kubernetes.objects import RawObject
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.decoding import Problem, field_name
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.live.live_manifests import LiveManifests, ObservedManifest, RefusedManifest
from shiplap.manifests.validation.kubelet_rules import first_kubelet_problem
from shiplap.manifests.validation.manifest_check import Manifest, check_object, sorted_manifests

NODE_CLASS_GROUP, NODE_CLASS_KIND = "karpenter.k8s.aws", "EC2NodeClass"
_KEPT_METADATA = ("name", "namespace", "uid", "labels")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl keeps a whole object."""

_HASH_ANNOTATIONS = ("karpenter.sh/nodepool-hash", "karpenter.k8s.aws/ec2nodeclass-hash")


class CheckedManifest(msgspec.Struct, frozen=True):
    """One object: typed as far as that is possible, with the reasons against it."""

    manifest: Manifest | None
    observed: ObservedManifest
    reasons: tuple[str, ...] = ()
    condition_reason: str = ""


def is_of_other_provider(node_pool: RawObject) -> bool:
    """True if a NodePool's nodes belong to another provider: its nodeClassRef is not an EC2NodeClass."""
    reference: Any = node_pool
    for field in ("spec", "template", "spec", "nodeClassRef"):
        reference = reference.get(field) if isinstance(reference, Mapping) else None
    if not isinstance(reference, Mapping):
        return False  # it is refused for that, and says so
    return (reference.get("group"), reference.get("kind")) != (NODE_CLASS_GROUP, NODE_CLASS_KIND)


def check_live_object(data: RawObject, allowed: AllowedResources) -> CheckedManifest:
    """One object of a cluster by itself."""
    observed = _observed(data)
    manifest, refused, unusable = check_object(_as_written(data))
    problems: list[Problem] = [*refused, *unusable]
    if isinstance(manifest, EC2NodeClass):
        problems += allowed.problems_of(manifest)
    reasons = tuple(f"{field_name(path)}: {reason}" if path else reason for path, reason in problems)
    return CheckedManifest(manifest, observed, reasons, _condition_reason(manifest, problems))


def _condition_reason(manifest: Manifest | None, problems: Sequence[Problem]) -> str:
    """Karpenter's word for the first problem, if it is one of the kubelet's settings."""
    wrong = first_kubelet_problem(manifest) if problems and isinstance(manifest, EC2NodeClass) else None
    return wrong[0] if wrong is not None and wrong[1][0] == problems[0][0] else ""


def _as_written(data: RawObject) -> RawObject:
    """The object without what the API server and its clients note in metadata, and without its status.

    Decisions are recorded, and `last-applied-configuration` repeats user data, which may hold secrets.
    """
    metadata = data.get("metadata")
    if not isinstance(metadata, Mapping):
        return data
    kept = {field: metadata[field] for field in _KEPT_METADATA if field in metadata}
    if isinstance(annotations := metadata.get("annotations"), Mapping):
        kept["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**{field: value for field, value in data.items() if field != "status"}, "metadata": kept}


def live_manifests(checked: Iterable[CheckedManifest]) -> LiveManifests:
    """Return the manifests of a cluster. Only valid objects that are not being deleted are usable."""
    items = sorted(checked, key=lambda item: item.observed)
    usable = (item.manifest for item in items if not item.reasons and not item.observed.is_deleted)
    return LiveManifests(
        manifests=sorted_manifests(manifest for manifest in usable if manifest is not None),
        refused=tuple(
            RefusedManifest(
                item.observed.kind, item.observed.name, item.observed.namespace, item.reasons, item.condition_reason
            )
            for item in items
            if item.reasons
        ),
        observed=tuple(item.observed for item in items),
    )


def own_objects(objects: Iterable[RawObject]) -> Iterator[RawObject]:
    """The objects that are ours to read."""
    return (item for item in objects if item.get("kind") != "NodePool" or not is_of_other_provider(item))


def _observed(data: RawObject) -> ObservedManifest:
    metadata = data.get("metadata")
    about: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
    generation = about.get("generation")
    return ObservedManifest(
        kind=str(data.get("kind", "")),
        name=str(about.get("name", "")),
        namespace=str(about.get("namespace", "")),
        uid=str(about.get("uid", "")),
        digest=_digest(data, about),
        generation=generation if isinstance(generation, int) else 0,
        is_deleted=bool(about.get("deletionTimestamp")),
    )


def _digest(data: RawObject, metadata: Mapping[str, Any]) -> str:
    """Of everything a user writes; status and what controllers note in annotations do not count."""
    annotations = metadata.get("annotations")
    written = {
        key: value
        for key, value in (annotations.items() if isinstance(annotations, Mapping) else ())
        if not str(key).startswith((*_HASH_ANNOTATIONS, LAST_APPLIED))
    }
    said = (written, data.get("spec"), data.get("template"))
    return sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:16]
