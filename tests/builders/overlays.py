"""NodeOverlays."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.manifests.custom_resources import NodeOverlay


def overlay(name: str, *rules: dict[str, Any], **spec: Any) -> NodeOverlay:
    written = {key.replace("adjustment", "priceAdjustment"): value for key, value in spec.items()}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"requirements": list(rules), **written}}, NodeOverlay)
