"""Pods made from the template of a workload, and the hash that tells one template from another."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.workloads.controller_client import owner_reference

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits of generated names: no vowels, so that they spell nothing."""


def template_hash(template: Object) -> str:
    """The same for two templates that differ in nothing but empty fields, which clients write or leave out."""
    number = crc32(msgspec.json.encode(_filled(template), order="deterministic"))
    return "".join(_SAFE[int(digit)] for digit in str(number))


def _filled(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: kept for key, value in item.items() if (kept := _filled(value)) not in (None, {}, [])}
    return [_filled(each) for each in item] if isinstance(item, list) else item


def pod_from(
    item: Object, *, name: str = "", labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> Object:
    """A pod of a workload's template, with its owner; without `name` the server gives one."""
    template = item["spec"]["template"]
    metadata = template.get("metadata") or {}
    return {
        "metadata": {
            **({"name": name} if name else {"generateName": f"{item['metadata']['name']}-"}),
            "labels": {**(metadata.get("labels") or {}), **(labels or {})},
            "annotations": {**(metadata.get("annotations") or {}), **(annotations or {})},
            "finalizers": list(metadata.get("finalizers") or []),
            "ownerReferences": [owner_reference(item)],
        },
        "spec": dict(template.get("spec") or {}),
    }
