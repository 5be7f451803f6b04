"""Holds the quotas of AWS against the synthesised templates before anything is deployed.

All quotas here are published ones that cannot be raised, or their defaults. Names that AWS chooses when it deploys are
reckoned long.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from shiplap_cdk.constructs.events import PATTERN_CHARACTERS
from shiplap_cdk.constructs.function_roles import MANAGED_POLICY_CHARACTERS

Template = Mapping[str, Any]
Templates = Mapping[str, Template]

RESOURCES = 500
RESOURCES_OF_ALL_TEMPLATES = 2_500
PARAMETERS = OUTPUTS = 200
TEMPLATE_BYTES = 1_000_000
"""CloudFormation counts a template as it is uploaded, white space included."""
INLINE_POLICY_CHARACTERS = 10_240
ATTACHED_POLICIES = 10
RESOURCE_POLICY_BYTES = 20_480
QUEUE_POLICY_BYTES = 8_192
QUEUE_POLICY_STATEMENTS = 20
QUEUE_POLICY_CONDITIONS = 10
ENVIRONMENT_BYTES = 4_096
UNZIPPED_BYTES = 250 * 1024 * 1024
CONCURRENCY = 1_000
WIDGETS = 500
METRICS_OF_WIDGET = 500
METRICS_OF_DASHBOARD = 2_500
RULES_OF_BUS = 100
TARGETS_OF_RULE = 5
INPUT_BYTES = 256 * 1024

_ANOTHER_INSTALL = "serve some of the clusters by another install"
_ANOTHER_NETWORK = "give some of the clusters a network of their own, `vpc: {name: …}`, or another install"
_PSEUDO_PARAMETERS = {
    "AWS::Partition": "aws-us-gov",
    "AWS::AccountId": "0" * 12,
    "AWS::Region": "ap-southeast-1",
    "AWS::URLSuffix": "amazonaws.com.cn",
}
# An ARN with a name that CloudFormation makes of logical id and chance.
_REFERENCE = "x" * 128
# What Lambda adds to a statement: its id, the principal, the condition's frame.
_STATEMENT_FRAME = 220


def exceeded(templates: Templates) -> Iterator[str]:
    """Yield each quota exceeded, in words, with what to do; templates by the name of their stack."""
    for check in (_templates, _roles, _functions, _queues, _events, _dashboards):
        yield from check(templates)


def too_long(files: Mapping[str, Path]) -> Iterator[str]:
    """The same of the files that are uploaded as templates, by the name of their stack."""
    for name, path in files.items():
        yield from _above(f"bytes of the template of {name}", path.stat().st_size, TEMPLATE_BYTES, _ANOTHER_INSTALL)


def too_large(code: Mapping[str, Path]) -> Iterator[str]:
    """The same of the layers of all functions, folders or zip files by name."""
    sizes = {name: _unzipped(path) for name, path in code.items()}
    listed = ", ".join(f"{name} {size / 1024**2:.0f}" for name, size in sizes.items())
    yield from _above(
        f"MiB of layers, unzipped ({listed}),",
        sum(sizes.values()) // 1024**2,
        UNZIPPED_BYTES // 1024**2,
        f"shorten the manifests, or {_ANOTHER_INSTALL}",
    )


def _above(what: str, found: int, limit: int, advice: str) -> Iterator[str]:
    if found > limit:
        yield f"{what} would be {found:,}, AWS allows {limit:,}: {advice}"


def _templates(templates: Templates) -> Iterator[str]:
    for name, template in templates.items():
        counts = (("Resources", RESOURCES), ("Parameters", PARAMETERS), ("Outputs", OUTPUTS))
        for section, limit in counts:
            what = f"{section.lower()} in the template of {name}"
            yield from _above(what, len(template.get(section, {})), limit, _ANOTHER_INSTALL)
    total = sum(len(template["Resources"]) for template in templates.values())
    yield from _above("resources in all templates", total, RESOURCES_OF_ALL_TEMPLATES, _ANOTHER_INSTALL)


def _roles(templates: Templates) -> Iterator[str]:
    for template in templates.values():
        inline: Counter[str] = Counter()
        attached: Counter[str] = Counter()
        for role, properties in _of(template, "AWS::IAM::Role"):
            attached[role] += len(properties.get("ManagedPolicyArns", ()))
            inline[role] += sum(_length(policy["PolicyDocument"]) for policy in properties.get("Policies", ()))
        for policy, properties in _of(template, "AWS::IAM::ManagedPolicy"):
            size = _length(properties["PolicyDocument"])
            what = f"characters of the managed policy {policy}"
            yield from _above(what, size, MANAGED_POLICY_CHARACTERS, _ANOTHER_NETWORK)
            attached.update(_names(properties["Roles"]))
        for _, properties in _of(template, "AWS::IAM::Policy"):
            for role in _names(properties["Roles"]):
                inline[role] += _length(properties["PolicyDocument"])
        for role, size in sorted(inline.items()):
            what = f"characters of the inline policies of {role}"
            yield from _above(what, size, INLINE_POLICY_CHARACTERS, _ANOTHER_NETWORK)
        for role, number in sorted(attached.items()):
            yield from _above(f"policies attached to {role}", number, ATTACHED_POLICIES, _ANOTHER_NETWORK)


def _functions(templates: Templates) -> Iterator[str]:
    concurrency = 0
    for template in templates.values():
        for function, properties in _of(template, "AWS::Lambda::Function"):
            given = properties.get("Environment", {}).get("Variables", {})
            size = sum(len(name) + len(_text(value)) for name, value in given.items())
            yield from _above(f"bytes of environment of {function}", size, ENVIRONMENT_BYTES, _ANOTHER_INSTALL)
        policies: Counter[str] = Counter()
        for _, properties in _of(template, "AWS::Lambda::Permission"):
            policies[_text(properties["FunctionName"], name=True)] += _length(properties) + _STATEMENT_FRAME
        for function, size in sorted(policies.items()):
            what = f"bytes of the resource policy of {function}"
            yield from _above(what, size, RESOURCE_POLICY_BYTES, _ANOTHER_INSTALL)
        for _, properties in _of(template, "AWS::Lambda::EventSourceMapping"):
            concurrency += properties.get("ScalingConfig", {}).get("MaximumConcurrency", 0)
    advice = f"{_ANOTHER_INSTALL}, in another account"
    yield from _above("invocations at once that queues may start", concurrency, CONCURRENCY, advice)


def _queues(templates: Templates) -> Iterator[str]:
    """The policies of queues: what each rule adds to send to one, and what refuses plain connections."""
    for template in templates.values():
        for policy, properties in _of(template, "AWS::SQS::QueuePolicy"):
            document = properties["PolicyDocument"]
            statements = document["Statement"]
            conditions = sum(len(keys) for each in statements for keys in each.get("Condition", {}).values())
            for what, found, limit in (
                ("bytes", _length(document), QUEUE_POLICY_BYTES),
                ("statements", len(statements), QUEUE_POLICY_STATEMENTS),
                ("conditions", conditions, QUEUE_POLICY_CONDITIONS),
            ):
                yield from _above(f"{what} of the queue policy {policy}", found, limit, _ANOTHER_NETWORK)


def _events(templates: Templates) -> Iterator[str]:
    rules: Counter[str] = Counter()
    for template in templates.values():
        for rule, properties in _of(template, "AWS::Events::Rule"):
            bus = "the install's event bus" if "EventBusName" in properties else "the default event bus"
            rules[bus] += 1
            size = _length(properties.get("EventPattern", {}))
            yield from _above(f"characters of the pattern of {rule}", size, PATTERN_CHARACTERS, _ANOTHER_NETWORK)
            yield from _above(f"targets of {rule}", len(properties["Targets"]), TARGETS_OF_RULE, _ANOTHER_INSTALL)
        for schedule, properties in _of(template, "AWS::Scheduler::Schedule"):
            size = len(_text(properties["Target"].get("Input", "")).encode())
            yield from _above(f"bytes of input of {schedule}", size, INPUT_BYTES, _ANOTHER_NETWORK)
    for bus, number in sorted(rules.items()):
        yield from _above(f"rules of {bus}", number, RULES_OF_BUS, _ANOTHER_NETWORK)


def _dashboards(templates: Templates) -> Iterator[str]:
    for template in templates.values():
        for dashboard, properties in _of(template, "AWS::CloudWatch::Dashboard"):
            widgets = json.loads(_text(properties["DashboardBody"]))["widgets"]
            metrics = [len(widget.get("properties", {}).get("metrics", ())) for widget in widgets]
            advice = "set `dashboard: false`"
            yield from _above(f"widgets of {dashboard}", len(widgets), WIDGETS, advice)
            yield from _above(f"metrics of a widget of {dashboard}", max(metrics, default=0), METRICS_OF_WIDGET, advice)
            yield from _above(f"metrics of {dashboard}", sum(metrics), METRICS_OF_DASHBOARD, advice)


def _of(template: Template, kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, resource in sorted(template["Resources"].items()):
        if resource["Type"] == kind:
            yield name, resource.get("Properties", {})


def _names(references: Sequence[Mapping[str, str]]) -> list[str]:
    return [_text(reference, name=True) for reference in references]


def _length(value: Any) -> int:
    """Characters of a document once deployed; AWS counts no white space between its parts."""
    return len(json.dumps(_resolved(value, _REFERENCE), separators=(",", ":"), ensure_ascii=False))


def _text(value: Any, *, name: bool = False) -> str:
    """A text of a template; with `name`, references are called by what they refer to."""
    resolved = _resolved(value, "" if name else _REFERENCE)
    return resolved if isinstance(resolved, str) else json.dumps(resolved)


def _resolved(value: Any, reference: str) -> Any:
    if isinstance(value, list):
        return [_resolved(item, reference) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": str(name)} if name in _PSEUDO_PARAMETERS:
            return _PSEUDO_PARAMETERS[name]
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            return reference or name
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(str(_resolved(part, reference)) for part in parts)
    return {key: _resolved(item, reference) for key, item in value.items()}


def _unzipped(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    with ZipFile(path) as packed:
        return sum(item.file_size for item in packed.infolist())
