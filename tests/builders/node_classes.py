"""EC2NodeClasses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shiplap.manifests.custom_resources import EC2NodeClass


def node_class(
    name: str = "default", family: str = "AL2023", annotations: Mapping[str, str] | None = None, **spec: Any
) -> EC2NodeClass:
    """An EC2NodeClass as users write it; `spec` in camelCase."""
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return msgspec.convert({"metadata": metadata, "spec": {"amiFamily": family, **spec}}, EC2NodeClass)
