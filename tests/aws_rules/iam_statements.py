"""Every policy statement of a template, wherever it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.aws_rules.cloud_assembly import Template


class Found(NamedTuple):
    """A statement and where it stands."""

    where: str
    statement: Mapping[str, Any]


def statements(templates: list[Template]) -> list[Found]:
    """Statements of roles, policies and resource policies of all kinds; Lambda's permissions as what they become."""
    return [
        Found(str(resource), statement)
        for template in templates
        for resource in template.resources()
        for statement in (
            [permission(resource.properties)]
            if resource.type == "AWS::Lambda::Permission"
            else _within(resource.properties)
        )
    ]


def permission(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The statement that Lambda writes for a permission."""
    principal = properties["Principal"]
    arn, account = properties.get("SourceArn"), properties.get("SourceAccount")
    function = properties["FunctionName"]
    return {
        "Effect": "Allow",
        "Principal": {"Service": principal} if "." in principal else {"AWS": principal},
        "Action": properties["Action"],
        "Resource": function if function.startswith("arn:") else f"arn:aws:lambda:eu-west-1:123456789012:{function}",
        "Condition": ({"ArnLike": {"aws:SourceArn": arn}} if arn else {})
        | ({"StringEquals": {"aws:SourceAccount": account}} if account else {}),
    }


def _within(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, str) and value.startswith("{") and '"Statement"' in value:
        yield from _within(json.loads(value))
    elif isinstance(value, list):
        for item in value:
            yield from _within(item)
    elif isinstance(value, dict):
        if value.get("Effect") in ("Allow", "Deny"):
            yield value
        else:
            for item in value.values():
                yield from _within(item)
