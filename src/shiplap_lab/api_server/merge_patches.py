"""JSON merge patches, and strategic merge patches as far as core objects need them; both leave their input alone."""

from __future__ import annotations

from typing import Any

from shiplap.errors import ClusterError

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "ownerReferences": "uid",
    "addresses": "type",
}
"""Lists that a strategic merge patch merges by a key; every other list is replaced (taints and tolerations too)."""


def json_merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = json_merge(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """As `json_merge`, with lists of keyed objects merged item by item and finalizers joined.

    `$setElementOrder`, which kubectl adds to each list that it merges, changes no content and is passed over; an item
    with `$patch: delete` goes, `$patch: replace` leaves nothing of what was there, and `$retainKeys` keeps only the
    fields it names.

    Raises:
        ClusterError: status 422, the patch holds another `$` directive, or a list of the wrong kind.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") or key == "$retainKeys":
            continue
        if key.startswith("$"):
            raise ClusterError(f"patch directive {key} is not supported", status=422)
        if value is None:
            merged.pop(key, None)
        elif key in _MERGE_KEYS and isinstance(value, list):
            merged[key] = _merge_items(merged.get(key) or [], value, _MERGE_KEYS[key])
        elif key == "finalizers":
            merged[key] = list(dict.fromkeys([*(merged.get(key) or []), *value]))
        else:
            merged[key] = strategic_merge(merged.get(key), value)
    retained = patch.get("$retainKeys")
    return {key: value for key, value in merged.items() if key in retained} if isinstance(retained, list) else merged


def _merge_items(items: list[dict[str, Any]], patches: list[dict[str, Any]], merge_key: str) -> list[dict[str, Any]]:
    merged = list(items)
    positions = {item.get(merge_key): index for index, item in enumerate(merged)}
    for patch in patches:
        if not isinstance(patch, dict) or merge_key not in patch:
            raise ClusterError(f"an item of the patch lacks its merge key {merge_key!r}", status=422)
        if patch.get("$patch") == "delete":
            merged = [item for item in merged if item.get(merge_key) != patch[merge_key]]
            positions = {item.get(merge_key): index for index, item in enumerate(merged)}
            continue
        position = positions.get(patch[merge_key])
        if position is None:
            positions[patch[merge_key]] = len(merged)
            merged.append(strategic_merge({}, patch))
        else:
            merged[position] = strategic_merge(merged[position], patch)
    return merged
