"""`shiplap install terraform`: a Terraform module of native resources, for those who deploy with Terraform."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap_cli.commands.install.synthesis_inputs import read_for_synthesis
from shiplap_cli.output import Format, Output, Printed, counted, emit, progress


class TerraformDocument(Printed, frozen=True):
    """The files written, how many resources they describe, and what the Region does without."""

    files: tuple[str, ...]
    resources: int
    remarks: tuple[str, ...]


def terraform(
    *,
    settings: Annotated[Path, typer.Option(help="The shiplap.yaml of the install.")] = Path("shiplap.yaml"),
    to: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("shiplap-terraform"),
    output: Output = Format.TABLE,
) -> int:
    """Write the stack as a Terraform module of resources, with the functions' code and the RBAC manifests.

    Each resource of the CloudFormation template becomes one of the providers hashicorp/awscc and hashicorp/aws. The
    module was never applied; its README says in what it differs from the stack. Whoever applies it needs neither
    Node.js nor the CDK. AWS is not asked.

    Example: shiplap install terraform --to modules/shiplap
    """
    if to.exists() and not to.is_dir():
        raise InvalidInput("--to", f"{str(to)!r} is a file: name a folder")
    install = read_for_synthesis(settings)
    from shiplap_cdk.terraform.module_files import write_module  # noqa: PLC0415 - it starts Node.js

    with progress("synthesising"):
        written = write_module(install, to)
    document = TerraformDocument(tuple(map(str, written.files)), written.resources, written.remarks)
    emit(document, output, lambda: _view(document, to))
    return 0


def _view(document: TerraformDocument, to: Path) -> Text:
    told = f"wrote {counted(document.resources, 'resource')} to {to}, {counted(len(document.files), 'file')}"
    notes = [f"note: {remark}" for remark in document.remarks]
    return Text("\n".join([told, *notes, f"It was never applied: read {to / 'README.md'} first."]))
