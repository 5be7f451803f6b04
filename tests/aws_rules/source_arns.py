"""Conditions on aws:SourceArn: each service fills it in its own way, and an ARN of another shape never matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.aws_rules.cloud_assembly import ACCOUNT, REGION, Template

SHAPES = {
    # EventBridge Scheduler asks for the group; names and prefixes of schedules are refused.
    "scheduler.amazonaws.com": rf"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule-group/[\w.-]{{1,64}}",
    # A rule of a bus other than the default one has the bus in its ARN.
    "events.amazonaws.com": rf"arn:aws:events:{REGION}:{ACCOUNT}:rule/([\w./-]{{1,256}}/)?[\w.-]{{1,64}}",
    # A subscription filter speaks for its log group and all streams of it; a pattern may stand for several groups.
    "logs.amazonaws.com": rf"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:[\w./#*-]{{1,512}}:\*",
    "cloudwatch.amazonaws.com": rf"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:.+",
    "sns.amazonaws.com": rf"arn:aws:sns:{REGION}:{ACCOUNT}:[\w-]{{1,256}}",
    "s3.amazonaws.com": r"arn:aws:s3:::[a-z0-9.-]{3,63}",
}
"""The documented shape by service principal."""

MADE_HERE = {
    "scheduler.amazonaws.com": "AWS::Scheduler::ScheduleGroup",
    "events.amazonaws.com": "AWS::Events::Rule",
}
"""Services that act only for what the install itself makes, with its type."""

UNBOUND = {
    "ec2.amazonaws.com": "an instance takes the role of its profile; EC2 gives no source",
    "lambda.amazonaws.com": "a function takes the role it is given by PassRole; Lambda gives no source",
}
"""Services whose permissions need no source."""


def source_problems(statement: Mapping[str, Any], made: Mapping[str, set[str]]) -> list[str]:
    """Return the faults in the sources of a statement for services. `made` holds ARNs of this install by type."""
    return list(_problems(statement, made))


def made_arns(templates: Iterable[Template]) -> dict[str, set[str]]:
    """ARNs of what an install makes, of the types in MADE_HERE."""
    found: dict[str, set[str]] = {kind: set() for kind in MADE_HERE.values()}
    for template in templates:
        for resource in template.resources():
            if resource.type in found:
                found[resource.type].add(template.arn(resource.logical_id))
    return found


def _problems(statement: Mapping[str, Any], made: Mapping[str, set[str]]) -> Iterator[str]:
    principal = statement.get("Principal", {})
    services = principal.get("Service", []) if isinstance(principal, dict) else []
    sources = [
        (operator, arn)
        for operator, tests in statement.get("Condition", {}).items()
        for key, values in tests.items()
        if key.lower() == "aws:sourcearn"
        for arn in ([values] if isinstance(values, str) else values)
    ]
    for service in [services] if isinstance(services, str) else services:
        if service in UNBOUND:
            continue
        if service not in SHAPES:
            yield f"{service}: the shape of its sources is not in {__name__}.SHAPES"
        elif not sources:
            yield f"{service}: acts for anyone's resources: aws:SourceArn is missing"
        for operator, arn in sources:
            if operator not in ("ArnLike", "ArnEquals", "StringEquals"):
                yield f"{service}: aws:SourceArn compared by {operator}"
            if not re.fullmatch(SHAPES.get(service, ".*"), arn):
                yield f"{service}: {arn} is not of the form {SHAPES[service]}"
            elif service in MADE_HERE and arn not in made[MADE_HERE[service]]:
                yield f"{service}: {arn} is no {MADE_HERE[service]} of this install"
