"""EC2NodeClasses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec

_WRITTEN = dict(zip(EC2NodeClassSpec.__struct_fields__, EC2NodeClassSpec.__struct_encode_fields__, strict=True))


def node_class(
    name: str = "default", family: str = "AL2023", annotations: Mapping[str, str] | None = None, **spec: Any
) -> EC2NodeClass:
    """An EC2NodeClass; fields of `spec` in camelCase, as users write them, or in snake_case."""
    written = {_WRITTEN.get(field, field): value for field, value in spec.items()}
    metadata = {"name": name, "annotations": dict(annotations or {})}
    return msgspec.convert({"metadata": metadata, "spec": {"amiFamily": family, **written}}, EC2NodeClass)
