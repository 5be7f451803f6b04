"""`shiplap install template`: a CloudFormation template with its assets, for those who deploy without the CDK."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap_cli.commands.install.synthesis_inputs import read_for_synthesis
from shiplap_cli.output import Format, Output, Printed, counted, emit, progress

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PLACEHOLDER = re.compile(r"\$\{AWS::(AccountId|Region)\}")


class TemplateDocument(Printed, frozen=True):
    """The files written, and the commands that deploy them; the template expects its assets in `bucket`."""

    stack: str
    template: str
    assets: tuple[str, ...]
    rbac: tuple[str, ...]
    bucket: str
    remarks: tuple[str, ...]
    commands: tuple[str, ...]


def template(
    *,
    settings: Annotated[Path, typer.Option(help="The shiplap.yaml of the install.")] = Path("shiplap.yaml"),
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("shiplap-template"),
    bucket: Annotated[
        str,
        typer.Option(
            help="The bucket that will hold the assets, in the stack's Region; that of `bootstrapQualifier`, or"
            " shiplap-assets-ACCOUNT-REGION, without.",
            show_default=False,
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Write the stack as a plain CloudFormation template, the assets that it needs, and the RBAC manifests.

    It is the stack that `cdk deploy` would make, but for the bucket of the assets. It needs Node.js, on which the CDK
    runs, and the extra `cdk` of the wheel; whoever deploys what it writes needs neither. AWS is not asked.

    Example: shiplap install template --to build/stack --bucket my-assets
    """
    if bucket and not _BUCKET_NAME.fullmatch(_PLACEHOLDER.sub("1" * 12, bucket)):
        raise InvalidInput("--bucket", f"{bucket!r} is no name of a bucket")
    install = read_for_synthesis(settings)
    from shiplap_cdk.plain_template import write_template  # noqa: PLC0415 - it starts Node.js

    with progress("synthesising"):
        written = write_template(install, to, bucket)
    document = TemplateDocument(
        stack=written.stack,
        template=str(written.template),
        assets=tuple(map(str, written.assets)),
        rbac=tuple(map(str, written.rbac)),
        bucket=written.bucket,
        remarks=written.remarks,
        commands=_commands(to, written.stack, written.bucket),
    )
    emit(document, output, lambda: _view(document))
    return 0


def _commands(to: Path, stack: str, bucket: str) -> tuple[str, ...]:
    """The next three commands, with a placeholder where only the account's owner knows the name."""
    named = _PLACEHOLDER.sub(lambda found: {"AccountId": "ACCOUNT", "Region": "REGION"}[found[1]], bucket)
    return (
        f"aws s3 sync {to / 'assets'} s3://{named}/",
        f"aws cloudformation deploy --stack-name {stack} --capabilities CAPABILITY_NAMED_IAM \\\n"
        f"    --s3-bucket {named} --template-file {to / 'template.json'}",
        f"kubectl apply -f {to / 'rbac.yaml'}",
    )


def _view(document: TemplateDocument) -> Text:
    told = f"{document.template}, {counted(len(document.assets), 'asset')}, {', '.join(document.rbac)}"
    notes = [f"note: {remark}" for remark in document.remarks]
    lines = [f"wrote {told}", *notes, "next:", *(f"  {command}" for command in document.commands)]
    return Text("\n".join(lines))
