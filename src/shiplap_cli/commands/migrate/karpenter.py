"""Karpenter's own objects: v1 as they are, v1beta1 by the rules of Karpenter's upgrade to v1.

The rules: https://karpenter.sh/docs/upgrading/v1-migration/ ("Changes required" and the changelog of the APIs).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.manifest_folders import AUTO_MODE
from shiplap_cli.commands.migrate.migration_findings import (
    MIGRATION_TAINT,
    FindingCollector,
    FormerKind,
    FormerPool,
    KubernetesObject,
    MatchQuality,
    MigrationDraft,
    MigrationFinding,
    Naming,
)
from shiplap_cli.inputs.manifest_warnings import NO_NEW_AL2

CORE, AWS = "karpenter.sh", "karpenter.k8s.aws"
_KUBELET_ANNOTATION = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"
_BOOKKEEPING = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "karpenter.sh/nodepool-hash",
    "karpenter.k8s.aws/ec2nodeclass-hash",
    "compatibility.karpenter.",
    "karpenter.sh/stored-version-migrated",
)
_ALIASES = {
    "AL2": "al2023@latest",
    "AL2023": "al2023@latest",
    "Bottlerocket": "bottlerocket@latest",
    "Windows2019": "windows2019@latest",
    "Windows2022": "windows2022@latest",
}
_TEMPLATE = "spec.template.spec"


class _Pool(msgspec.Struct):
    """A NodePool on its way, with the kubelet settings that v1 keeps in the EC2NodeClass."""

    source: str
    old_name: str
    body: KubernetesObject
    kubelet: dict[str, Any]


def is_karpenter(document: Document) -> bool:
    """True if an object belongs to Karpenter's API groups."""
    return _group(document.data) in (CORE, AWS)


def migrate(documents: Sequence[Document], naming: Naming) -> MigrationDraft:
    """NodePools, EC2NodeClasses and NodeOverlays for Shiplap.

    Args:
        documents: Karpenter's objects of one cluster, see `is_karpenter`; NodeClaims are passed over.
        naming: how the new pools are told from the old.
    """
    pools: list[_Pool] = []
    classes: dict[str, KubernetesObject] = {}
    overlays: list[KubernetesObject] = []
    findings: list[MigrationFinding] = []
    for document in documents:
        body = copy.deepcopy(dict(document.data))
        kind, version = str(body.get("kind", "")), str(body.get("apiVersion", "")).rpartition("/")[2]
        collector = FindingCollector(document.name)
        if kind == "NodePool" and _node_class_group(body) == AUTO_MODE:
            note = "is of EKS Auto Mode, which launches its nodes itself: it is left out and stays as it is"
            collector.not_mapped(f"{_TEMPLATE}.nodeClassRef", note)
        elif kind == "NodePool" and version in ("v1", "v1beta1"):
            pools.append(_pool(collector, body, version, naming))
        elif kind == "EC2NodeClass" and version in ("v1", "v1beta1"):
            _node_class(collector, body, version)
            classes[_name(body)] = body
        elif kind == "NodeOverlay" and version == "v1alpha1":
            collector.exact("NodeOverlay", "the same")
            overlays.append(body)
        elif kind != "NodeClaim":
            note = f"{body.get('apiVersion')} is not read; bring it to v1beta1 or v1 with karpenter-convert first"
            collector.not_mapped("apiVersion", note)
        findings += collector.all
        _clean(body)
    findings += _move_kubelets(pools, classes)
    renamed = {pool.old_name: _name(pool.body) for pool in pools}
    for overlay in overlays:
        _rename_in_requirements(overlay, renamed)
    bodies = (*classes.values(), *(pool.body for pool in pools), *overlays)
    formers = (
        FormerPool(FormerKind.NODE_POOL, pool.old_name, _name(pool.body), _cpu_limit(pool.body)) for pool in pools
    )
    return MigrationDraft(tuple(bodies), tuple(findings), tuple(sorted(formers, key=lambda former: former.name)))


def _node_class_group(body: KubernetesObject) -> str:
    return str(_mapping(body, "spec", "template", "spec", "nodeClassRef").get("group", ""))


def _pool(collector: FindingCollector, body: KubernetesObject, version: str, naming: Naming) -> _Pool:
    name = _name(body)
    collector.exact("NodePool", f"NodePool/{naming.pool(name)}")
    annotations = _mapping(body, "metadata", "annotations")
    kubelet: dict[str, Any] = {}
    if _KUBELET_ANNOTATION in annotations:
        try:
            kubelet = json.loads(annotations[_KUBELET_ANNOTATION])
        except (ValueError, TypeError) as error:
            note = f"is not JSON ({error}); write the settings into the EC2NodeClass by hand"
            collector.not_mapped(f"metadata.annotations[{_KUBELET_ANNOTATION}]", note)
    if version == "v1beta1":
        claim = _mapping(body, "spec", "template", "spec")
        kubelet = claim.pop("kubelet", None) or {}
        _pool_to_v1(collector, body, claim)
    if naming.taint:
        claim = _mapping(body, "spec", "template", "spec")
        claim["taints"] = [*(claim.get("taints") or []), msgspec.to_builtins(MIGRATION_TAINT)]
        note = "only pods that tolerate it move; it is taken off in the last but one step"
        collector.approximate(f"{_TEMPLATE}.taints", f"with {MIGRATION_TAINT.key}", note)
    body["apiVersion"] = f"{CORE}/v1"
    _mapping(body, "metadata")["name"] = naming.pool(name)
    return _Pool(collector.source, name, body, kubelet)


def _pool_to_v1(collector: FindingCollector, body: KubernetesObject, claim: dict[str, Any]) -> None:
    reference = _mapping(claim, "nodeClassRef")
    group = str(reference.pop("apiVersion", "")).partition("/")[0] or AWS
    claim["nodeClassRef"] = {"group": group, "kind": "EC2NodeClass", **reference}
    collector.exact(f"{_TEMPLATE}.nodeClassRef.apiVersion", f"{_TEMPLATE}.nodeClassRef.group")
    if claim.pop("resources", None) is not None:
        collector.not_mapped(f"{_TEMPLATE}.resources", "v1 has no such field; nothing read it")
    claim.setdefault("requirements", [])
    disruption = _mapping(body, "spec", "disruption")
    if "expireAfter" in disruption:
        claim["expireAfter"] = disruption.pop("expireAfter")
        note = "since v1 an expired node is replaced whatever the budgets say; Shiplap has the replacement ready first"
        collector.approximate("spec.disruption.expireAfter", f"{_TEMPLATE}.expireAfter", note)
    if disruption.get("consolidationPolicy", "WhenUnderutilized") == "WhenUnderutilized":
        disruption["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
        collector.exact("spec.disruption.consolidationPolicy", "WhenEmptyOrUnderutilized")
    if not disruption.get("consolidateAfter"):
        disruption["consolidateAfter"] = "0s"
        collector.exact("spec.disruption.consolidateAfter", "0s", "v1beta1 did not wait either")


def _node_class(collector: FindingCollector, body: KubernetesObject, version: str) -> None:
    collector.exact("EC2NodeClass", "the same")
    spec = _mapping(body, "spec")
    _doubtful_fields(collector, spec)
    if version == "v1":
        return
    body["apiVersion"] = f"{AWS}/v1"
    _images(collector, spec)
    options = _mapping(spec, "metadataOptions")
    if "httpPutResponseHopLimit" not in options:
        options["httpPutResponseHopLimit"] = 2
        note = "v1beta1's default, written out: v1's is 1, which keeps containers from the metadata service"
        collector.exact("spec.metadataOptions.httpPutResponseHopLimit", "2", note)


def _doubtful_fields(collector: FindingCollector, spec: Mapping[str, Any]) -> None:
    """Fields that stay as they are, and need something beside them."""
    if profile := spec.get("instanceProfile"):
        collector.profile(profile)
    terms = spec.get("amiSelectorTerms")
    aliases = [term.get("alias") for term in terms if isinstance(term, dict)] if isinstance(terms, list) else []
    if any(str(alias).startswith("al2@") for alias in aliases):
        collector.not_mapped("spec.amiSelectorTerms alias al2", NO_NEW_AL2)


def _images(collector: FindingCollector, spec: dict[str, Any]) -> None:
    family, terms = spec.get("amiFamily", ""), spec.get("amiSelectorTerms")
    if family == "Ubuntu":
        spec["amiFamily"] = "AL2"
        spec.setdefault("blockDeviceMappings", [_UBUNTU_VOLUME])
        note = "v1 has no Ubuntu family; its images boot with AL2's user data"
        note += "" if terms else "; name them in amiSelectorTerms, v1 finds none by itself"
        collector.add(MatchQuality.APPROXIMATE if terms else MatchQuality.NONE, "spec.amiFamily", "AL2", note)
    elif not terms and family in _ALIASES:
        spec["amiSelectorTerms"] = [{"alias": _ALIASES[family]}]
        del spec["amiFamily"]
        becomes = f"spec.amiSelectorTerms alias {_ALIASES[family]}"
        note = "the newest image of the family, as before; a version instead of latest makes roll-outs yours to time"
        collector.alias("spec.amiFamily", becomes, note, of_al2=family == "AL2")


_UBUNTU_VOLUME = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"encrypted": True, "volumeType": "gp3", "volumeSize": "20Gi"},
}


def _move_kubelets(pools: Sequence[_Pool], classes: dict[str, KubernetesObject]) -> Iterator[MigrationFinding]:
    """Kubelet settings of pools go to their EC2NodeClass, or to a copy of it where its pools differ."""
    by_class: dict[str, list[_Pool]] = {}
    for pool in pools:
        by_class.setdefault(_reference(pool), []).append(pool)
    for name, users in by_class.items():
        if not any(pool.kubelet for pool in users):
            continue
        alike = all(pool.kubelet == users[0].kubelet for pool in users)
        for pool in users:
            if name not in classes:
                note = f"EC2NodeClass {name} is not among the objects; write spec.kubelet there by hand"
                yield MigrationFinding(MatchQuality.NONE, pool.source, f"{_TEMPLATE}.kubelet", "", note)
                continue
            if not pool.kubelet:
                continue
            target = name if alike else f"{name}-{pool.old_name}"
            if not alike:
                classes[target] = copy.deepcopy(classes[name])
                _mapping(classes[target], "metadata")["name"] = target
                _mapping(pool.body, "spec", "template", "spec", "nodeClassRef")["name"] = target
            _mapping(classes[target], "spec")["kubelet"] = pool.kubelet
            note = "" if alike else "a copy of its own, because the pools of this class have different settings"
            becomes = f"EC2NodeClass/{target} spec.kubelet"
            yield MigrationFinding(MatchQuality.EXACT, pool.source, f"{_TEMPLATE}.kubelet", becomes, note)


def _rename_in_requirements(overlay: KubernetesObject, renamed: Mapping[str, str]) -> None:
    for requirement in _mapping(overlay, "spec").get("requirements") or []:
        if isinstance(requirement, dict) and requirement.get("key") == f"{CORE}/nodepool":
            requirement["values"] = [renamed.get(value, value) for value in requirement.get("values") or []]


def _clean(body: KubernetesObject) -> None:
    """Without what the API server wrote."""
    body.pop("status", None)
    metadata = _mapping(body, "metadata")
    kept = {key: metadata[key] for key in ("name", "labels") if metadata.get(key)}
    annotations = metadata.get("annotations") or {}
    notes = {key: value for key, value in annotations.items() if not _is_bookkeeping(key)}
    body["metadata"] = kept | ({"annotations": notes} if notes else {})


def _is_bookkeeping(key: str) -> bool:
    return key.startswith(_BOOKKEEPING)


def _group(body: Mapping[str, Any]) -> str:
    return str(body.get("apiVersion", "")).rpartition("/")[0]


def _name(body: KubernetesObject) -> str:
    return str(_mapping(body, "metadata").get("name", ""))


def _cpu_limit(body: KubernetesObject) -> str:
    limits = body.get("spec", {}).get("limits")
    return str(limits.get("cpu", "")) if isinstance(limits, dict) else ""


def _reference(pool: _Pool) -> str:
    return str(_mapping(pool.body, "spec", "template", "spec", "nodeClassRef").get("name", ""))


def _mapping(body: dict[str, Any], *path: str) -> dict[str, Any]:
    """The mapping at this path, made where there is none; what is something else is left to validation."""
    for key in path:
        value = body.get(key)
        if not isinstance(value, dict):
            value = body[key] = {}
        body = value
    return body
