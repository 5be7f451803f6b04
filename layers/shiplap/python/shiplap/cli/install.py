"""How commands find an install: by the outputs of its stack, by its bucket, or the `shiplap dev` of this machine."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
import typer

from shiplap.errors import AwsError, InvalidInput

_PANEL = "Which install"
Bucket = Annotated[
    str,
    typer.Option(
        envvar="SHIPLAP_BUCKET", help="The install's bucket; found by the stack without.", rich_help_panel=_PANEL
    ),
]
Stack = Annotated[str, typer.Option(help="Name of the install's CloudFormation stack.", rich_help_panel=_PANEL)]
Dev = Annotated[
    bool, typer.Option("--dev", help="The `shiplap dev` that runs on this machine.", rich_help_panel=_PANEL)
]
STACK = "Shiplap"
"""What the stack is called where nothing else is said."""


class Install(msgspec.Struct, frozen=True):
    """What an install consists of, by the names of AWS resources; empty where it is not known.

    `outputs` are those of the stack, empty when the install was named by its bucket alone.
    """

    bucket: str
    outputs: dict[str, str] = {}

    def output(self, name: str) -> str:
        """A resource by the name of its output.

        Raises:
            InvalidInput: it is not known.
        """
        found = self.outputs.get(name, "")
        if not found:
            raise InvalidInput("--stack", f"the output {name} is not known; name the install's stack, not its bucket")
        return found


def find(*, bucket: str, stack: str, dev: bool) -> Install:
    """The install that the options name.

    Raises:
        AwsError: the stack cannot be looked up.
        InvalidInput: there is no such stack, it is not Shiplap's, or no `shiplap dev` runs.
    """
    if dev:
        from shiplap.local.running import find as running  # noqa: PLC0415 - not for those who ask a live install

        found = running()
        os.environ.update(found.environment)
        return Install(found.bucket, _outputs(stack) or {})
    if bucket:
        return Install(bucket)
    outputs = _outputs(stack)
    if outputs is None:
        raise InvalidInput("--stack", f"there is no stack {stack!r}; name it, or the bucket by --bucket")
    if "Bucket" not in outputs:
        raise InvalidInput("--stack", f"stack {stack!r} has no output Bucket: it is not an install of Shiplap")
    return Install(outputs["Bucket"], outputs)


def _outputs(stack: str) -> dict[str, str] | None:
    """The outputs of a stack; None when there is none. Raises AwsError."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - so that --help does not wait for it

    from shiplap.aws.failures import FAILURES  # noqa: PLC0415
    from shiplap.aws.session import config, session  # noqa: PLC0415

    try:  # functions never ask for it, so it is not among the clients that are shipped with them
        formation: Any = session().create_client("cloudformation", os.environ.get("AWS_REGION"), config=config())
        (found,) = formation.describe_stacks(StackName=stack)["Stacks"]
    except FAILURES as error:
        if isinstance(error, ClientError) and "does not exist" in str(error):
            return None
        hint = "see whether `aws sts get-caller-identity` is answered, and in which region"
        raise AwsError(f"could not look up stack {stack}: {error}; {hint}") from error
    return {item["OutputKey"]: item["OutputValue"] for item in found.get("Outputs", ())}
