"""CapacityBuffers and the pod templates that they keep room for."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.manifests.custom_resources import CapacityBuffer, PodTemplate


def template(name: str = "small", *, cpu: str = "1", **spec: Any) -> PodTemplate:
    body = {"containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": cpu}}}], **spec}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default"}, "template": {"metadata": {}, "spec": body}}, PodTemplate
    )


def buffer(name: str = "spare", **spec: Any) -> CapacityBuffer:
    body = spec if "scalableRef" in spec else {"podTemplateRef": {"name": "small"}, **spec}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": body}, CapacityBuffer)
