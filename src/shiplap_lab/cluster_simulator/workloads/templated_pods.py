"""Pods made from the template of a workload, and the hash that tells one template from another."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from shiplap.kubernetes.quantity import parse_resources
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.workloads.controller_client import owner_reference

_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits of generated names: no vowels, so that they spell nothing."""


_MAPS = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
_AMOUNTS = frozenset({"requests", "limits"})
_OF_PODS = ("hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly", "hostPort", "generation")
_OF_PROBES = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_PLAIN = frozenset({*_OF_PODS, *_OF_PROBES})
"""Fields whose zero is the same as none; of the others a false or a 0 says something."""


def template_hash(template: Object) -> str:
    """The same for two templates that differ in nothing but the spelling of empty fields and of amounts.

    API servers store one spelling; here clients' own are stored, and `kubectl rollout undo` sends Go's.
    """
    number = crc32(msgspec.json.encode(_canonical(template), order="deterministic"))
    return "".join(_SAFE[int(digit)] for digit in str(number))


def _canonical(item: Any) -> Any:
    if isinstance(item, list):
        return [_canonical(each) for each in item]
    if not isinstance(item, dict):
        return item
    return {name: kept for name, value in item.items() if (kept := _field(name, value)) not in (None, "", {}, [])}


def _field(name: str, value: Any) -> Any:
    if name in _MAPS:
        return value
    if name in _PLAIN and not value:
        return None
    if name in _AMOUNTS and isinstance(value, dict):
        try:
            return parse_resources(value)
        except ValueError:
            return value
    return _canonical(value)


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
