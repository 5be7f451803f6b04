"""`shiplap status fleet`: all clusters of all installs, over accounts and Regions, on one screen or one page."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from shiplap.errors import InvalidInput
from shiplap.manifests.files.described_installs import STACK, DescribedInstall, is_description, read_installs
from shiplap_cli.output import Format, HtmlFile, Output, emit, progress, write_page

_DEFAULTS = ("installs.yaml", "shiplap.yaml")


def fleet(
    *,
    installs: Annotated[
        Path | None,
        typer.Option("-f", "--installs", help="YAML with `installs:`; installs.yaml or shiplap.yaml without."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the install of this name.")] = None,
    html: HtmlFile = None,
    output: Output = Format.TABLE,
) -> int:
    """Nodes, waiting pods, dollars, savings still possible, versions and problems of every cluster.

    The installs are those of one description, each asked with the credentials of its profile, all at once. Without a
    description it is the stack Shiplap of the caller's account and Region. No cluster's API server is asked.

    Exit code 0 when nothing is wrong, 1 when something is, 2 for bad input.

    Example: shiplap status fleet --installs installs.yaml --html fleet.html
    """
    chosen = _chosen(_described(installs), only or [])
    from shiplap_cli.commands.status.fleet_document import fleet_document  # noqa: PLC0415 - so that --help does not wait for botocore
    from shiplap_cli.commands.status.fleet_page import fleet_report, fleet_screen  # noqa: PLC0415 - as above
    from shiplap_cli.commands.status.fleet_reading import AwsClients, read_fleet  # noqa: PLC0415 - as above

    begun = time.monotonic()
    now = time.time()
    with progress("reading installs") as say:
        found = read_fleet(chosen, AwsClients().of, now, say=say)
    document = fleet_document(found, now, time.monotonic() - begun)
    if html is not None:
        write_page(html, fleet_report(document))
    emit(document, output, lambda: fleet_screen(document))
    return 1 if document.problems else 0


def _described(path: Path | None) -> tuple[DescribedInstall, ...]:
    """Raises InvalidInput, InvalidManifests."""
    if path is not None:
        if not path.exists():
            raise InvalidInput(str(path), "does not exist")
        return read_installs(path)
    for name in _DEFAULTS:
        if Path(name).exists() and is_description(Path(name)):
            return read_installs(Path(name))
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    if not region:
        raise InvalidInput("--installs", "there is no installs.yaml here; name a description, or a --region")
    return (DescribedInstall(name=STACK, region=region, profile=os.environ.get("AWS_PROFILE", "")),)


def _chosen(installs: tuple[DescribedInstall, ...], names: list[str]) -> tuple[DescribedInstall, ...]:
    known = {item.name for item in installs}
    for name in names:
        if name not in known:
            raise InvalidInput("--only", f"there is no install {name}; there are {', '.join(sorted(known))}")
    return tuple(item for item in installs if not names or item.name in names)
