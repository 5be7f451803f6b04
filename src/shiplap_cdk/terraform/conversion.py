"""Conversion of a template and its nested templates into resources of Terraform.

A nested stack is dissolved: its resources get its name as a prefix, and its parameters become what the outer template
gives them. What has no counterpart is refused with its name; nothing is left out but the CDK's metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from shiplap.errors import ShiplapError
from shiplap_cdk.terraform.resource_types import (
    NESTED_STACK,
    ROLE_POLICY,
    TYPES,
    ResourceType,
    attribute_name,
    terraform_type,
)
from shiplap_cdk.terraform.terraform_expressions import Json, Scope, is_function

_SECTIONS = {"Description", "Outputs", "Parameters", "Resources"}
_ATTRIBUTES = {"DeletionPolicy", "DependsOn", "Metadata", "Properties", "Type", "UpdateReplacePolicy"}

# The stack's own tags are also on each resource below it: the CDK writes both.
_STACK_PROPERTIES = {"Parameters", "Tags", "TemplateURL"}
_NESTED_TEMPLATE = re.compile(r"[0-9a-f]{64}\.json")

_KEPT = {"Retain", "RetainExceptOnCreate"}

# Each release has new ones. The alias must have left the old one before it goes, which Lambda demands.
_REPLACED = {"AWS::Lambda::LayerVersion", "AWS::Lambda::Version"}


class Module(Struct, frozen=True):
    """The resources of a module by type and name, with all that they refer to."""

    resources: Mapping[str, Mapping[str, Json]]
    outputs: Mapping[str, Any]
    local_values: Mapping[str, str]
    archives: tuple[str, ...]
    """The file names of the archives with code; each becomes an object of the bucket."""
    retained: tuple[str, ...]
    """The addresses of resources that CloudFormation would keep when they leave the template."""


class _Conversion:
    """What has been converted so far; all templates of a stack share it."""

    def __init__(self, nested: Mapping[str, Json]) -> None:
        self._nested = nested
        self.resources: dict[str, dict[str, Json]] = {}
        self.local_values: dict[str, str] = {}
        self.archives: set[str] = set()
        self.retained: list[str] = []

    def scope(self, template: Json, prefix: str, given: Json, outer: Scope | None) -> Scope:
        """Return the names of a template and of all templates nested in it."""
        _refuse_unknown("the template", "section", set(template) - _SECTIONS)
        missing = sorted(set(template.get("Parameters", {})) - set(given))
        if missing:
            raise ShiplapError(f"nobody gives the parameter {missing[0]} of the template a value")
        scope = Scope(template, prefix, given, outer, self.local_values)
        for name, item in template["Resources"].items():
            if item["Type"] == NESTED_STACK:
                inner = self._inner(name, item["Properties"])
                parameters = item["Properties"].get("Parameters", {})
                scope.nested[name] = self.scope(inner, f"{prefix}{name}_", parameters, scope)
        return scope

    def add(self, template: Json, prefix: str, scope: Scope) -> list[str]:
        """Convert all resources of a template; returns their addresses."""
        resources: Mapping[str, Json] = template["Resources"]
        placed: dict[str, list[str]] = {}
        for name, item in resources.items():
            _refuse_unknown(name, "attribute", set(item) - _ATTRIBUTES)
            if item["Type"] == NESTED_STACK:
                inner = self._inner(name, item["Properties"])
                placed[name] = self.add(inner, f"{prefix}{name}_", scope.nested[name])
            elif item["Type"] in TYPES:
                placed[name] = [scope.address(name)]
                self._place(name, item, prefix, scope)
            else:
                raise ShiplapError(f"{name}: the type {item['Type']} has no counterpart in Terraform")
        for name, item in resources.items():
            self._depend(item.get("DependsOn", []), placed, placed[name])
        return [address for addresses in placed.values() for address in addresses]

    def _place(self, name: str, item: Json, prefix: str, scope: Scope) -> None:
        kind: str = item["Type"]
        try:
            arguments = self._arguments(kind, item.get("Properties", {}), scope)
        except ShiplapError as error:
            raise ShiplapError(f"{name} ({kind}): {error}") from error
        if kind in _REPLACED:
            arguments["lifecycle"] = {"create_before_destroy": True}
        elif item.get("DeletionPolicy") in _KEPT:
            arguments["lifecycle"] = {"prevent_destroy": True}
            self.retained.append(scope.address(name))
        self.resources.setdefault(terraform_type(kind), {})[prefix + name] = arguments

    def _inner(self, name: str, properties: Json) -> Json:
        """Return the template of a nested stack."""
        _refuse_unknown(name, "property", set(properties) - _STACK_PROPERTIES)
        found = _NESTED_TEMPLATE.search(json.dumps(properties["TemplateURL"]))
        if found is None or found[0] not in self._nested:
            raise ShiplapError(f"{name}: there is no file of its template among the assets")
        return self._nested[found[0]]

    def _depend(self, wanted: str | list[str], placed: Mapping[str, list[str]], addresses: list[str]) -> None:
        """Have resources wait for those that their resource, or their nested stack, depends on."""
        names = [wanted] if isinstance(wanted, str) else wanted
        unknown = sorted(set(names) - set(placed))
        if unknown:
            raise ShiplapError(f"the template depends on {unknown[0]}, which it does not have")
        others = {address for name in names for address in placed[name]}
        for address in addresses:
            kind, _, name = address.partition(".")
            arguments = self.resources[kind][name]
            if others:
                arguments["depends_on"] = sorted(others | set(arguments.get("depends_on", [])))

    def _arguments(self, kind: str, properties: Json, scope: Scope) -> Json:
        known = TYPES[kind]
        _refuse_unknown(kind, "property", set(properties) - known.properties)
        if kind == ROLE_POLICY:
            return _role_policy(properties, scope)
        return {
            attribute_name(key): self._code(value) if key == known.code else _argument(known, key, value, scope)
            for key, value in properties.items()
        }

    def _code(self, value: Json) -> Json:
        """Refer to the object of an archive, whose file is beside the module."""
        _refuse_unknown("the code", "property", set(value) - {"S3Bucket", "S3Key"})
        archive = value["S3Key"]
        self.archives.add(archive)
        address = f"aws_s3_object.{object_name(archive)}"
        return {"s3_bucket": f"${{{address}.bucket}}", "s3_key": f"${{{address}.key}}"}


def converted(template: Json, nested: Mapping[str, Json]) -> Module:
    """Convert a template; `nested` has the templates of its nested stacks by file name.

    Raises:
        ShiplapError: something in it has no counterpart in Terraform.
    """
    conversion = _Conversion(nested)
    scope = conversion.scope(template, "", {}, None)
    conversion.add(template, "", scope)
    outputs = {}
    for name, output in template.get("Outputs", {}).items():
        _refuse_unknown(f"the output {name}", "attribute", set(output) - {"Description", "Value"})
        outputs[name] = scope.rendered(output["Value"])
    return Module(
        resources=conversion.resources,
        outputs=outputs,
        local_values={name: expression for expression, name in conversion.local_values.items()},
        archives=tuple(sorted(conversion.archives)),
        retained=tuple(sorted(conversion.retained)),
    )


def object_name(archive: str) -> str:
    """Return the name of the object that holds an archive; a name begins with a letter."""
    return f"asset_{archive.partition('.')[0]}"


def _argument(known: ResourceType, path: str, value: Any, scope: Scope) -> Any:
    if path in known.documents and not isinstance(value, str):
        return json.dumps(scope.rendered(value))
    if isinstance(value, list):
        return [_argument(known, path, item, scope) for item in value]
    if isinstance(value, dict) and not is_function(value) and path not in known.maps:
        return {attribute_name(key): _argument(known, f"{path}.{key}", item, scope) for key, item in value.items()}
    return scope.rendered(value)


def _role_policy(properties: Json, scope: Scope) -> Json:
    roles = properties["Roles"]
    if len(roles) != 1:
        raise ShiplapError(f"an inline policy belongs to one role, not to {len(roles)}")
    return {
        "name": scope.rendered(properties["PolicyName"]),
        "policy": json.dumps(scope.rendered(properties["PolicyDocument"])),
        "role": scope.rendered(roles[0]),
    }


def _refuse_unknown(where: str, kind: str, unknown: set[str]) -> None:
    if unknown:
        raise ShiplapError(f"{where}: the {kind} {min(unknown)} has no counterpart in Terraform")
