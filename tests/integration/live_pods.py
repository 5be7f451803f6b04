"""Pods of a live cluster."""

from __future__ import annotations

from typing import Any

from tests.builders.pods import pod_object


def pod(name: str, namespace: str = "web", **more: Any) -> dict[str, Any]:
    return pod_object(name, "1", namespace=namespace, **{"tolerations": [{"operator": "Exists"}], **more})
