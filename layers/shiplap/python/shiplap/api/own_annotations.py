"""The annotations by which manifests say what Karpenter's fields cannot. Those nobody reads are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from shiplap.api.decoding import Path, Problem

PREFIX = "shiplap.dev/"
VM_MEMORY_OVERHEAD_PERCENT = PREFIX + "vm-memory-overhead-percent"
"""On an EC2NodeClass, a fraction such as 0.075; with `.<family>` or `.<instance type>` appended, for those only."""
PREFIX_DELEGATION = PREFIX + "prefix-delegation"
"""On an EC2NodeClass, `on` or `off`, whatever the VPC CNI's DaemonSet says."""


REBALANCE = PREFIX + "rebalance-recommendation"
"""On a NodePool: what a rebalance recommendation does to a node; one of REBALANCE_POLICIES."""
IGNORE, CORDON, REPLACE = REBALANCE_POLICIES = ("ignore", "cordon", "replace")


def _fraction(value: str) -> str | None:
    try:
        valid = 0 <= float(value) < 1
    except ValueError:
        valid = False
    return None if valid else f"{value!r} is not a fraction from 0 to 1, such as 0.075"


def _switch(value: str) -> str | None:
    return None if value in ("on", "off") else f"{value!r} is neither on nor off"


def _rebalance_policy(value: str) -> str | None:
    return None if value in REBALANCE_POLICIES else f"{value!r} is none of {', '.join(REBALANCE_POLICIES)}"


_OF_NODE_POOL: dict[str, Callable[[str], str | None]] = {
    REBALANCE: _rebalance_policy,
}

_OF_NODE_CLASS: dict[str, Callable[[str], str | None]] = {
    VM_MEMORY_OVERHEAD_PERCENT: _fraction,
    PREFIX_DELEGATION: _switch,
}


def node_class_problems(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """What is wrong with the annotations of an EC2NodeClass that belong to Shiplap."""
    for key, value in annotations.items():
        if key.startswith(PREFIX):
            special = key.startswith(VM_MEMORY_OVERHEAD_PERCENT + ".")
            check = _OF_NODE_CLASS.get(VM_MEMORY_OVERHEAD_PERCENT if special else key)
            if check is None:
                yield (*path, key), f"unknown annotation; known are {', '.join(_OF_NODE_CLASS)}"
            elif wrong := check(value):
                yield (*path, key), wrong


def node_pool_problems(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """What is wrong with the annotations of a NodePool that belong to Shiplap."""
    for key, value in annotations.items():
        if key.startswith(PREFIX):
            check = _OF_NODE_POOL.get(key)
            if check is None:
                yield (*path, key), f"unknown annotation; known are {', '.join(_OF_NODE_POOL)}"
            elif wrong := check(value):
                yield (*path, key), wrong


def unsupported(annotations: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """Every annotation of Shiplap's, for objects on which none is supported yet."""
    for key in annotations:
        if key.startswith(PREFIX):
            yield (*path, key), "this annotation is not supported yet"
