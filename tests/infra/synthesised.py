"""The synthesised template of the install beside this file, and how to look things up in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the CDK's binding starts Node.js when it is imported
    from aws_cdk.assertions import Template

INSTALL = Path(__file__).parent / "install" / "shiplap.yaml"
FUNCTIONS = ("schedule", "lifecycle", "interrupt", "catalog", "disrupt", "watch", "audit", "widget")
QUEUES = {"provisioning": "schedule", "lifecycle": "lifecycle", "interruption": "interrupt"}
"""The function that each queue feeds."""

Resource = dict[str, Any]


def template_with(folder: Path, line: str) -> Template:
    """The stack of the test's install with one more line in its shiplap.yaml."""
    from aws_cdk.assertions import Template  # noqa: PLC0415 - the CDK's binding starts Node.js when it is imported

    from shiplap_cdk.install_document import read  # noqa: PLC0415 - as above
    from shiplap_cdk.synthesis import build  # noqa: PLC0415 - as above

    settings = folder / "shiplap.yaml"
    settings.write_text(INSTALL.read_text().replace("manifests/", f"{INSTALL.parent}/manifests/") + f"{line}\n")
    return Template.from_stack(build(read(settings), outdir=str(folder / "cdk.out")).node.find_child("Shiplap"))


def resources(template: Template, type_: str) -> dict[str, Resource]:
    found: dict[str, Resource] = template.find_resources(type_)
    return found


def functions(template: Template) -> dict[str, Resource]:
    """Properties by the name of the function, without the install's."""
    found = (item["Properties"] for item in resources(template, "AWS::Lambda::Function").values())
    return {item["FunctionName"].removeprefix("shiplap-"): item for item in found}


def started(template: Template, alias: str) -> str:
    """The function whose version in service an alias names, by the alias's logical id."""
    made = resources(template, "AWS::Lambda::Alias")[alias]["Properties"]
    assert made["Name"] == "live"
    function = resources(template, "AWS::Lambda::Function")[made["FunctionName"]["Ref"]]
    name: str = function["Properties"]["FunctionName"]
    return name.removeprefix("shiplap-")


def statements(template: Template, function: str) -> list[dict[str, Any]]:
    """Everything that a function's role allows; CDK moves what is too long for one policy into others."""
    role = functions(template)[function]["Role"]["Fn::GetAtt"][0]
    policies = [
        policy["Properties"]
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for policy in resources(template, kind).values()
        if {"Ref": role} in policy["Properties"]["Roles"]
    ]
    assert policies, f"{function} has no policy"
    assert "ManagedPolicyArns" not in resources(template, "AWS::IAM::Role")[role]["Properties"]
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


def actions(statement: dict[str, Any]) -> set[str]:
    written = statement["Action"]
    return {written} if isinstance(written, str) else set(written)


def allowing(template: Template, action: str) -> dict[str, list[dict[str, Any]]]:
    """The statements that allow an action, by function."""
    found = {
        function: [statement for statement in statements(template, function) if action in actions(statement)]
        for function in FUNCTIONS
    }
    return {function: allowed for function, allowed in found.items() if allowed}
