"""Finds what optional features add to tests that go over everything: modules that are named by the feature."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from shiplap.policies.registry import POLICIES

ALL = tuple(entry.name for entry in POLICIES)


def policy_parts(package: str, kind: str, policies: Sequence[str] = ALL) -> list[ModuleType]:
    """Return the modules `tests.<package>.<policy>_<kind>`, of those features that have one."""
    names = [f"tests.{package}.{name}_{kind}" for name in policies]
    return [import_module(name) for name in names if find_spec(name) is not None]
