"""Commands of the AWS command line, as people would type them, carried out by botocore's clients.

The command line derives its options from the same models: `--function-name` is the member FunctionName. A command that
no model knows, or that lacks what its operation requires, does not become a request.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from botocore import xform_name
from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.session import get_session

_OF_THE_COMMAND_LINE = ("--cli-binary-format",)
"""Options that are no part of a request, with a value."""


class AwsRequest(NamedTuple):
    """A request by the names of botocore; `file` is where the command line writes the answer's body."""

    service: str
    operation: str
    parameters: dict[str, Any]
    file: str = ""


def parsed(command: str) -> AwsRequest:
    """The request of a command. Raises ValueError with what is wrong with the command."""
    program, service, verb, *words = shlex.split(command)
    if program != "aws":
        raise ValueError(f"not of the AWS command line: {command}")
    model = get_session().get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if verb not in names:
        raise ValueError(f"{service} has no command {verb}")
    operation = model.operation_model(names[verb])
    shape = operation.input_shape
    options = {} if shape is None else {f"--{xform_name(name, '-')}": name for name in shape.members}
    parameters: dict[str, Any] = {}
    file = ""
    while words:
        option = words.pop(0)
        values = []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        if option in _OF_THE_COMMAND_LINE:
            values = values[1:]
        elif option in ("--use-latest-restorable-time",) or (option.startswith("--no-") and not values):
            parameters[options[option.replace("--no-", "--")]] = not option.startswith("--no-")
        elif option.startswith("--"):
            name = _named(options, option, f"{service} {verb}")
            assert shape is not None
            parameters[name] = _value(shape.members[name], _taken(shape.members[name], values))
        else:
            values = [option, *values]
        if values:
            if operation.output_shape is None or not operation.has_streaming_output:
                raise ValueError(f"{service} {verb} takes no {values[0]}")
            file = values.pop()
    missing = set() if shape is None else set(shape.required_members) - set(parameters)
    if missing:
        raise ValueError(f"{service} {verb} needs {', '.join(sorted(missing))}")
    if service == "ec2" and verb == "authorize-security-group-ingress":
        parameters = _ingress(parameters)
    return AwsRequest(service, xform_name(names[verb]), parameters, file)


def _named(options: dict[str, str], option: str, command: str) -> str:
    """The member of an option; EC2's commands have a few of their own."""
    own = {"--protocol": "IpProtocol", "--port": "FromPort", "--source-group": "SourceSecurityGroupName"}
    if command == "ec2 authorize-security-group-ingress" and option in own:
        return own[option]
    if option not in options:
        raise ValueError(f"{command} has no option {option}")
    return options[option]


def _ingress(parameters: dict[str, Any]) -> dict[str, Any]:
    """`--source-group` becomes a pair in a permission."""
    port = int(parameters["FromPort"])
    permission = {
        "IpProtocol": parameters["IpProtocol"],
        "FromPort": port,
        "ToPort": port,
        "UserIdGroupPairs": [{"GroupId": parameters["SourceSecurityGroupName"]}],
    }
    return {"GroupId": parameters["GroupId"], "IpPermissions": [permission]}


def _taken(shape: Shape, values: list[str]) -> list[str]:
    """The values that belong to an option; what is left behind them in `values` is an argument."""
    number = 0 if shape.type_name == "boolean" else len(values) if isinstance(shape, ListShape) else 1
    taken = values[:number]
    del values[:number]
    return taken


def _value(shape: Shape, given: Sequence[str]) -> Any:
    if shape.type_name == "boolean":
        return True
    if isinstance(shape, ListShape):
        return json.loads(given[0]) if given[0][:1] in "[{" else [_scalar(shape.member, item) for item in given]
    (text,) = given
    if isinstance(shape, StructureShape | MapShape):
        if text[:1] in "[{":
            return json.loads(text)
        pairs = dict(item.split("=", 1) for item in text.split(","))
        members = shape.members if isinstance(shape, StructureShape) else dict.fromkeys(pairs, shape.value)
        return {name: _scalar(members[name], item) for name, item in pairs.items()}
    return _scalar(shape, text)


def _scalar(shape: Shape, text: str) -> Any:
    if shape.type_name in ("integer", "long"):
        return int(text)
    if shape.type_name in ("double", "float"):
        return float(text)
    return text


def run_command(command: str, client: Callable[[str], Any]) -> Any:
    """Carry a command out with clients by the service's name; returns the answer."""
    request = parsed(command)
    return getattr(client(request.service), request.operation)(**request.parameters)
