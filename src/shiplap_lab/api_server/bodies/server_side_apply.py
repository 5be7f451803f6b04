"""Server-side apply: a manifest is merged into an object, and the object remembers which manager applied which field.

Managers that apply conflict with each other, as on an API server. Fields that were written by other requests have no
manager here, so that nothing conflicts with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shiplap.errors import ObjectConflict
from shiplap_lab.api_server.bodies.api_types import ApiField, is_known, json_fields

Fields = dict[str, Any]
"""Fields as `fieldsV1` writes them: `f:` a field, `k:` an item of a list by its keys, `v:` a value of a set."""

_ITSELF = "."
_PLAIN = ApiField("", 0, "any")
_IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def applied(
    live: Mapping[str, Any] | None, config: Mapping[str, Any], kind: str, manager: str, *, force: bool
) -> Fields:
    """The object once a manager has applied its manifest; what it has applied before and leaves out now is gone.

    Args:
        live: the object as it is; None when there is none.
        config: the manifest.
        kind: of the object.
        manager: who applies.
        force: take fields over from other managers.

    Raises:
        ObjectConflict: another manager has applied another value, and there is no `force`.
    """
    told = ((live or {}).get("metadata") or {}).get("managedFields") or []
    entries = [each for each in told if each.get("manager") and _are_fields(each.get("fieldsV1"))]
    mine = next((each for each in entries if each["manager"] == manager and each.get("operation") == "Apply"), None)
    others = [each for each in entries if each is not mine]
    wanted = _own(config, ApiField("", 0, kind))
    conflicts = sorted(
        (each["manager"], path)
        for each in others
        for path in {*_leaves(wanted, items=False)} & {*_leaves(each["fieldsV1"], items=False)}
        if _at(live, path) != _at(config, path)
    )
    if conflicts and not force:
        named = "\n".join(f'conflict with "{other}": {_words(path)}' for other, path in conflicts)
        raise ObjectConflict(f"Apply failed with {len(conflicts)} conflict(s): {named}", status=409)
    lost = [path for _, path in conflicts]
    others = [{**each, "fieldsV1": _without(each["fieldsV1"], lost)} for each in others]
    result = _merge(dict(live or {}), config, ApiField("", 0, kind))
    kept = [*_leaves(wanted), *(path for each in others for path in _leaves(each["fieldsV1"]))]
    for path in _leaves(mine["fieldsV1"]) if mine else ():
        if path not in kept:
            result = _removed(result, path)
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": config.get("apiVersion", ""),
        "fieldsType": "FieldsV1",
        "fieldsV1": wanted,
    }
    metadata = {**(result.get("metadata") or {}), "managedFields": [*others, entry]}
    return {**result, "metadata": metadata}


def _are_fields(told: Any) -> bool:
    """True of fields as they are written here: any client may have written something else."""
    if not isinstance(told, dict):
        return False
    for name, inner in told.items():
        if name[:2] in ("k:", "v:"):
            try:
                item = msgspec.json.decode(name[2:])
            except msgspec.DecodeError:
                return False
            if name.startswith("k:") and not isinstance(item, dict):
                return False
        elif name != _ITSELF and not name.startswith("f:"):
            return False
        if not _are_fields(inner):
            return False
    return True


def _fields(field: ApiField) -> Mapping[str, ApiField]:
    return json_fields(field.kind) if is_known(field.kind) else {}


def _inner(field: ApiField, name: str) -> ApiField:
    """The field of a struct or the value of a map; of what no type describes, lists are replaced as a whole."""
    if field.holds == "map":
        return msgspec.structs.replace(field, holds="")
    return _fields(field).get(name, _PLAIN)


def _key(item: Any, field: ApiField) -> str:
    if field.keys and isinstance(item, dict):
        found = {key: item.get(key, "TCP" if key == "protocol" else None) for key in field.keys}
        return f"k:{msgspec.json.encode(found, order='sorted').decode()}"
    return f"v:{msgspec.json.encode(item, order='sorted').decode()}"


def _own(value: Any, field: ApiField, *, top: bool = True) -> Fields:
    """The fields of a value; at the top, that of an object."""
    if isinstance(value, dict) and field.holds != "list":
        found: Fields = {}
        for name, each in _managed(value).items() if top else value.items():
            if each is not None:
                found[f"f:{name}"] = _own(each, _inner(field, name), top=False)
        return found
    if isinstance(value, list) and field.holds == "list" and field.keys is not None:
        plain = msgspec.structs.replace(field, holds="", keys=None)
        return {
            _key(each, field): {_ITSELF: {}, **_own(each, plain, top=False)} if field.keys else {} for each in value
        }
    return {}


def _managed(item: Mapping[str, Any]) -> dict[str, Any]:
    """An object without its kind and what identifies it."""
    metadata = {name: value for name, value in (item.get("metadata") or {}).items() if name not in _IDENTITY}
    rest = {name: value for name, value in item.items() if name not in ("apiVersion", "kind", "metadata")}
    return {**({"metadata": metadata} if metadata else {}), **rest}


def _merge(live: Any, config: Any, field: ApiField) -> Any:
    if isinstance(config, dict) and field.holds != "list":
        merged = dict(live) if isinstance(live, dict) else {}
        for name, each in config.items():
            if each is not None:
                merged[name] = _merge(merged.get(name), each, _inner(field, name))
        return merged
    if not isinstance(config, list) or field.holds != "list" or field.keys is None:
        return config
    plain = msgspec.structs.replace(field, holds="", keys=None)
    items = {_key(each, field): each for each in live or []} if isinstance(live, list) else {}
    for each in config:
        key = _key(each, field)
        items[key] = _merge(items.get(key), each, plain) if field.keys else each
    return list(items.values())


Path = tuple[str, ...]


def _leaves(fields: Fields, path: Path = (), *, items: bool = True) -> Iterator[Path]:
    """Yield the paths of the values, and with `items` those of the items of lists."""
    for name, inner in fields.items():
        if name == _ITSELF:
            if items:
                yield path
        elif inner:
            yield from _leaves(inner, (*path, name), items=items)
        else:
            yield (*path, name)


def _without(fields: Fields, paths: list[Path], at: Path = ()) -> Fields:
    left: Fields = {}
    for name, inner in fields.items():
        kept = _without(inner, paths, (*at, name))
        if (*at, name) not in paths and (kept or not inner):
            left[name] = kept
    return left


def _at(item: Any, path: Path) -> Any:
    for step in path:
        if step.startswith("f:"):
            item = item.get(step[2:]) if isinstance(item, dict) else None
        else:
            items = item if isinstance(item, list) else []
            item = next((each for each in items if _is_item(each, step)), None)
    return item


def _is_item(item: Any, step: str) -> bool:
    wanted = msgspec.json.decode(step[2:])
    if step.startswith("v:"):
        return bool(item == wanted)
    return isinstance(item, dict) and all(
        item.get(key, "TCP" if key == "protocol" else None) == value for key, value in wanted.items()
    )


def _removed(item: Any, path: Path) -> Any:
    """The value without what a path leads to; what that leaves empty stays, as on an API server."""
    step, *rest = path
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(item, dict) or name not in item:
            return item
        if not rest:
            return {key: value for key, value in item.items() if key != name}
        return {**item, name: _removed(item[name], tuple(rest))}
    if not isinstance(item, list):
        return item
    if not rest:
        return [each for each in item if not _is_item(each, step)]
    return [_removed(each, tuple(rest)) if _is_item(each, step) else each for each in item]


def _words(path: Path) -> str:
    """A path as upstream writes it: `.spec.template.spec.containers[name="main"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:], type=dict[str, Any])
            text += f"[{','.join(f'{key}={msgspec.json.encode(value).decode()}' for key, value in keys.items())}]"
        else:
            text += f"[={step[2:]}]"
    return text
