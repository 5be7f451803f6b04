"""Our verdict on a manifest, and the written list of where it differs from an API server's on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from shiplap.manifests.validation.manifest_check import Manifest, check_object

Object = dict[str, Any]


class Difference(NamedTuple):
    """Where the verdicts may differ: what an API server says there, and to which manifests it applies."""

    what: str
    accepted_there: bool
    applies: Callable[[Object], bool]


def is_accepted(manifest: Object) -> bool:
    """Whether `shiplap validate` says that an API server accepts a manifest."""
    return not check_object(manifest)[1]


def typed(manifest: Object) -> Manifest | None:
    """As functions read it."""
    return check_object(manifest)[0]


def _everything(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _everything(item)


def _holds_decimal_point(manifest: Object) -> bool:
    return any(isinstance(value, float) and value.is_integer() for value in _everything(manifest.get("spec")))


def _holds_list_as_time(manifest: Object) -> bool:
    taints = (value for value in _everything(manifest.get("spec")) if isinstance(value, dict) and "timeAdded" in value)
    return any(isinstance(taint["timeAdded"], list) for taint in taints)


def _overlays_basic_capacity(manifest: Object) -> bool:
    capacity = (manifest.get("spec") or {}).get("capacity")
    return isinstance(capacity, dict) and not {"cpu", "memory", "ephemeral-storage", "pods"}.isdisjoint(capacity)


def _asks_globs_for_more_values(manifest: Object) -> bool:
    requirements = (
        value for value in _everything(manifest.get("spec")) if isinstance(value, dict) and "minValues" in value
    )
    return any("*" in value for one in requirements for value in one.get("values") or () if isinstance(value, str))


def _has_no_spec(manifest: Object) -> bool:
    return manifest["kind"] == "EC2NodeClass" and manifest.get("spec") is None


DIFFERENCES = (
    Difference("cpu, memory, ephemeral-storage or pods in a NodeOverlay's capacity", False, _overlays_basic_capacity),
    Difference("minValues of a requirement with globs", False, _asks_globs_for_more_values),
    Difference("1.0 for 1 where a rule or the scale subresource reads it", False, _holds_decimal_point),
    Difference("a list as a taint's timeAdded", True, _holds_list_as_time),
    Difference("an EC2NodeClass without spec", True, _has_no_spec),
)
"""docs/manifests.md has the list for users."""


def difference_of(manifest: Object, *, accepted_there: bool) -> str:
    """Which difference explains that an API server decides otherwise; empty if none does."""
    for difference in DIFFERENCES:
        if difference.accepted_there == accepted_there and difference.applies(manifest):
            return difference.what
    return ""
