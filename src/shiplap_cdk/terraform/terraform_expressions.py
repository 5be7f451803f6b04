"""References and functions of CloudFormation as Terraform's template strings.

Every value becomes a text with `${...}` in it that holds no quotation mark, so that it may stand inside JSON text too.
What needs quotation marks becomes a local value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.errors import ShiplapError
from shiplap_cdk.terraform.resource_types import TYPES, attribute_name, terraform_type

Json = dict[str, Any]

_PSEUDO = {
    "AWS::AccountId": "${data.aws_caller_identity.current.account_id}",
    "AWS::Partition": "${data.aws_partition.current.partition}",
    "AWS::Region": "${data.aws_region.current.region}",
    "AWS::URLSuffix": "${data.aws_partition.current.dns_suffix}",
}
_PLACEHOLDER = re.compile(r"\$\{(!?)([^}]*)\}")


class Scope:
    """The names that one template may use: its resources, the values of its parameters, its nested templates.

    Parameters and outputs are read when something refers to them, so stacks may be converted in any order.
    """

    def __init__(self, template: Json, prefix: str, given: Json, outer: Scope | None, shared: dict[str, str]) -> None:
        """Take what the outer template gives for parameters, and the local values that all templates share."""
        self._types = {name: item["Type"] for name, item in template["Resources"].items()}
        self._outputs = template.get("Outputs", {})
        self._prefix = prefix
        self._given = given
        self._outer = outer
        self._locals = shared
        self.nested: dict[str, Scope] = {}

    def address(self, name: str) -> str:
        """Return the address of a resource.

        Raises:
            ShiplapError: the template has no such resource, or one without a counterpart.
        """
        kind = self._types.get(name)
        if kind is None or kind not in TYPES:
            raise ShiplapError(f"the template refers to {name}, which is no resource that Terraform gets")
        return f"{terraform_type(kind)}.{self._prefix}{name}"

    def rendered(self, value: Any) -> Any:
        """Return a value of the template with all that it refers to.

        Raises:
            ShiplapError: it has a function, or refers to something, that has no counterpart.
        """
        if isinstance(value, str):
            return _literal(value)
        if isinstance(value, list):
            return [self.rendered(item) for item in value]
        if not isinstance(value, dict):
            return value
        if not is_function(value):
            return {_literal(name): self.rendered(item) for name, item in value.items()}
        ((function, argument),) = value.items()
        return self._result(function, argument)

    def _result(self, function: str, argument: Any) -> Any:
        match function, argument:
            case "Ref", str():
                return self._reference(argument)
            case "Fn::GetAtt", [str() as name, str() as attribute] if name in self.nested:
                return self.nested[name]._output(attribute.removeprefix("Outputs."))
            case "Fn::GetAtt", [str() as name, str() as attribute] if "." not in attribute:
                return f"${{{self.address(name)}.{attribute_name(attribute)}}}"
            case "Fn::Join", [str() as separator, list() as parts]:
                return _literal(separator).join(self._text(part) for part in parts)
            case "Fn::Sub", str():
                return "".join(self._substituted(argument))
            case "Fn::Select", [int() as index, {"Fn::Split": [str() as separator, text]}]:
                return self._selected(index, separator, text)
        raise ShiplapError(f"Terraform has no counterpart of {function} with {argument!r}")

    def _text(self, part: Any) -> str:
        rendered = self.rendered(part)
        if not isinstance(rendered, str):
            raise ShiplapError(f"Fn::Join joins {part!r}, which is no text")
        return rendered

    def _reference(self, name: str) -> Any:
        if name in _PSEUDO:
            return _PSEUDO[name]
        if name in self._given and self._outer is not None:
            return self._outer.rendered(self._given[name])
        address = self.address(name)
        attribute = TYPES[self._types[name]].ref
        if not attribute:
            raise ShiplapError(f"the template refers to {name}: Ref of {self._types[name]} has no counterpart")
        return f"${{{address}.{attribute}}}"

    def _output(self, name: str) -> Any:
        if name not in self._outputs:
            raise ShiplapError(f"the template refers to the output {name}, which its nested template does not have")
        return self.rendered(self._outputs[name]["Value"])

    def _substituted(self, text: str) -> Iterator[str]:
        """Split a text of Fn::Sub; `${!name}` stands for itself."""
        end = 0
        for found in _PLACEHOLDER.finditer(text):
            yield _literal(text[end : found.start()])
            plain, name = found.groups()
            resource, dot, attribute = name.partition(".")
            if plain:
                yield _literal(f"${{{name}}}")
            else:
                yield self._text({"Fn::GetAtt": [resource, attribute]} if dot else {"Ref": name})
            end = found.end()
        yield _literal(text[end:])

    def _selected(self, index: int, separator: str, text: Any) -> str:
        escaped = self._text(text).replace("\\", "\\\\").replace('"', '\\"')
        expression = f'${{split("{separator}", "{escaped}")[{index}]}}'
        name = self._locals.setdefault(expression, f"part_{len(self._locals)}")
        return f"${{local.{name}}}"


def is_function(value: Mapping[str, Any]) -> bool:
    """True if this is a reference or a function of CloudFormation, and no structure."""
    return len(value) == 1 and all(name in {"Ref", "Condition"} or name.startswith("Fn::") for name in value)


def _literal(text: str) -> str:
    return text.replace("${", "$${").replace("%{", "%%{")
