"""Does to PersistentVolumeClaims what the API server does beyond storing them: the default StorageClass."""

from __future__ import annotations

from collections.abc import Iterable

from shiplap_lab.api_server.changelog import Object

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def with_default_class(claim: Object, classes: Iterable[Object]) -> Object:
    """The claim, of the default StorageClass if it names none and there is one; an empty name asks for none."""
    if (claim.get("spec") or {}).get("storageClassName") is not None:
        return claim
    default = [
        item["metadata"] for item in classes if (item["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    if not default:
        return claim
    newest = max(default, key=lambda metadata: (metadata["creationTimestamp"], metadata["name"]))
    return {**claim, "spec": {**(claim.get("spec") or {}), "storageClassName": newest["name"]}}
