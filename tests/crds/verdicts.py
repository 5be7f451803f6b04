"""Our verdict on a manifest, and the written list of where it differs from an API server's on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from shiplap.manifests.validation.manifest_check import Manifest, check_object

Object = dict[str, Any]


class Difference(NamedTuple):
    """One case in which the verdicts may differ: the API server's verdict, and the manifests with this case."""

    what: str
    accepted_there: bool
    applies: Callable[[Object], bool]


def is_accepted(manifest: Object) -> bool:
    """True if `shiplap validate` finds that an API server accepts a manifest."""
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
"""docs/reference/manifests.md has the list for users."""


def _exceeds_32_bits_only(manifest: Object) -> bool:
    return is_accepted(_within_32_bits(manifest))


def _within_32_bits(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _within_32_bits(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_within_32_bits(entry) for entry in value]
    return _LARGEST if isinstance(value, int) and value > _LARGEST else value


_LARGEST = 2**31 - 1
BEFORE_1_36 = (Difference("a whole number of more than 32 bits, before Kubernetes 1.36", True, _exceeds_32_bits_only),)
"""Differences that an older API server has as well."""


def difference_of(manifest: Object, *, accepted_there: bool, kubernetes: str = "1.36") -> str:
    """Return the difference that explains the other verdict of an API server of a minor version; empty if none does."""
    minor = int(kubernetes.partition(".")[2])
    for difference in (*DIFFERENCES, *(BEFORE_1_36 if minor < 36 else ())):
        if difference.accepted_there == accepted_there and difference.applies(manifest):
            return difference.what
    return ""
