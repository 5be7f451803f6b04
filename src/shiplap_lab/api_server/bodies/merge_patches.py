"""JSON merge patches and strategic merge patches; both leave their input alone."""

from __future__ import annotations

from typing import Any

from shiplap.errors import ClusterError
from shiplap_lab.api_server.bodies.api_types import ApiField, is_known, json_fields

_UNKNOWN = ApiField("", 0, "")


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


def strategic_merge(target: Any, patch: Any, kind: str) -> Any:
    """As `json_merge`, with the lists of a type merged as Kubernetes' types say: item by item, or as sets.

    `$setElementOrder`, which kubectl adds to each list that it merges, changes no content and is passed over; an item
    with `$patch: delete` goes, `$patch: replace` leaves nothing of what was there, `$retainKeys` keeps only the
    fields it names, and `$deleteFromPrimitiveList` takes values out.

    Args:
        target: what is patched.
        patch: the changes.
        kind: the type of the target; of one that Kubernetes does not have, lists are replaced.

    Raises:
        ClusterError: status 422, the patch holds another `$` directive, or a list of the wrong kind.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    fields = json_fields(kind) if is_known(kind) else {}
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            _obey(merged, key, value)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, fields.get(key, _UNKNOWN))
    retained = patch.get("$retainKeys")
    return {key: value for key, value in merged.items() if key in retained} if isinstance(retained, list) else merged


def _obey(merged: dict[str, Any], key: str, value: Any) -> None:
    directive, _, field = key.partition("/")
    if directive == "$deleteFromPrimitiveList" and isinstance(value, list):
        merged[field] = [each for each in merged.get(field) or [] if each not in value]
    elif directive not in ("$setElementOrder", "$retainKeys"):
        raise ClusterError(f"patch directive {key} is not supported", status=422)


def _merged(target: Any, value: Any, field: ApiField) -> Any:
    if not isinstance(value, list) or field.merge is None:
        return strategic_merge(target, value, "" if field.holds else field.kind)
    items = target if isinstance(target, list) else []
    if not field.merge:
        return [*items, *(each for each in value if each not in items)]
    return _merge_items(items, value, field.merge, field.kind)


def _merge_items(items: list[Any], patches: list[Any], merge_key: str, kind: str) -> list[Any]:
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
            merged.append(strategic_merge({}, patch, kind))
        else:
            merged[position] = strategic_merge(merged[position], patch, kind)
    return merged
