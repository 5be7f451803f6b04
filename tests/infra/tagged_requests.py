"""Parts of requests: resources of EC2, and tags of an install that a request or a resource has."""

from __future__ import annotations

from tests.permissions.authorizations import arn
from tests.permissions.story import REGION

_TAGS = {"shiplap.dev/cluster": "production", "shiplap.dev/nodepool": "general", "shiplap.dev/install": "shiplap"}
OURS = {f"aws:ResourceTag/{key}": value for key, value in _TAGS.items()}
REQUESTED = {f"aws:RequestTag/{key}": value for key, value in _TAGS.items()}


def ec2(resource: str) -> str:
    return arn("ec2", REGION, resource)


def without(context: dict[str, str], key: str, value: str | None = None) -> dict[str, str]:
    kept = {name: found for name, found in context.items() if not name.endswith(key)}
    return kept | ({name: value for name in context if name.endswith(key)} if value else {})
