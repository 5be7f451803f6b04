"""JSON patches (RFC 6902), by which `kubectl rollout undo` and `kubectl patch --type=json` change objects."""

from __future__ import annotations

from typing import Any

from shiplap.errors import ClusterError

_MOST = 1000
"""Operations of one patch."""


def json_patch(target: Any, operations: Any) -> Any:
    """The target with every operation carried out, in their order; the target itself stays as it is.

    Raises:
        ClusterError: status 422, an operation names what is not there, or is none.
    """
    if not isinstance(operations, list) or len(operations) > _MOST:
        raise _refused(f"a JSON patch is a list of at most {_MOST} operations")
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise _refused("an operation of a JSON patch needs op and path")
        target = _carried_out(target, operation)
    return target


def _carried_out(target: Any, operation: dict[str, Any]) -> Any:
    steps = _steps(operation["path"])
    match operation.get("op"):
        case "test":
            if _found(target, steps) != operation.get("value"):
                raise _refused(f"test of {operation['path']!r} failed")
            return target
        case "remove":
            return _changed(target, steps, "remove")
        case "add" | "replace" as act if "value" in operation:
            return _changed(target, steps, act, operation["value"])
        case "copy" | "move" as act if isinstance(operation.get("from"), str):
            source = _steps(operation["from"])
            value = _found(target, source)
            kept = target if act == "copy" else _changed(target, source, "remove")
            return _changed(kept, steps, "add", value)
    raise _refused(f"operation {operation.get('op')!r} of a JSON patch lacks what it needs")


def _steps(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise _refused(f"path {path!r} does not begin with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _found(target: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(target, dict) and step in target:
            target = target[step]
        elif isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        else:
            raise _refused(f"there is no {'/'.join(steps)}")
    return target


def _changed(target: Any, steps: list[str], act: str, value: Any = None) -> Any:
    if not steps:
        return value
    step, *rest = steps
    if isinstance(target, dict):
        result = dict(target)
        if rest:
            result[step] = _changed(_found(target, [step]), rest, act, value)
        elif act == "add":
            result[step] = value
        else:
            _found(target, [step])
            result.pop(step)
            if act == "replace":
                result[step] = value
        return result
    if isinstance(target, list):
        return _changed_list(list(target), step, rest, act, value)
    raise _refused(f"there is no {step!r}")


def _changed_list(items: list[Any], step: str, rest: list[str], act: str, value: Any) -> list[Any]:
    if act == "add" and not rest and (step == "-" or (step.isdecimal() and int(step) <= len(items))):
        items.insert(len(items) if step == "-" else int(step), value)
        return items
    current = _found(items, [step])
    if rest:
        items[int(step)] = _changed(current, rest, act, value)
    elif act == "replace":
        items[int(step)] = value
    else:
        items.pop(int(step))
    return items


def _refused(reason: str) -> ClusterError:
    return ClusterError(f"the server rejected our request due to an error in our request: {reason}", status=422)
