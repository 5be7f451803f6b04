"""`shiplap install rollback`: lists the releases of an install, and moves the aliases of all functions to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import STACK, DeployedInstall, Stack, aws_client, find_install
from shiplap_cli.installs.published_versions import (
    functions_of,
    library_layers,
    live_aliases,
    move_aliases,
    move_back,
    published_versions,
    stored_schemas,
)
from shiplap_cli.installs.releases import (
    AliasMove,
    InstallRelease,
    LiveAlias,
    StoredSchemas,
    moves_to,
    objections,
    releases_of,
)
from shiplap_cli.options import Yes
from shiplap_cli.output import (
    Format,
    Output,
    Printed,
    confirm,
    counted,
    emit,
    fail,
    plain_table,
    somebody_answers,
    warning_line,
)


class RollbackDocument(Printed, frozen=True, omit_defaults=True):
    """The output of the command: all releases, or the moves to one and what forbids them; `moved` if they were made."""

    releases: tuple[InstallRelease, ...] = ()
    moves: tuple[AliasMove, ...] = ()
    objections: tuple[str, ...] = ()
    moved: bool = False


class DeployedVersions(msgspec.Struct, frozen=True):
    """The releases of an install and the aliases as they were read."""

    releases: tuple[InstallRelease, ...]
    aliases: tuple[LiveAlias, ...]


def rollback(
    version: Annotated[
        int | None,
        typer.Argument(help="A release of the list: the version of function `schedule`.", show_default=False),
    ] = None,
    *,
    stack: Stack = STACK,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> int:
    """Moves all functions of an install to an earlier release, or lists the releases.

    A release is what was in service together: code, library and settings. Without --yes, and where nobody can answer,
    it only prints the moves. It moves all aliases or none. It refuses if table `state`, which it reads once as a whole,
    holds an item that is newer than the release reads, or if a function has no version of the release.

    Exit code 0 when the moves were made or printed, 1 when they are refused or fail, 2 for bad input and when AWS
    could not be asked.

    Example: shiplap install rollback 41
    """
    install = find_install(bucket="", stack=stack, dev=False)
    client = aws_client("lambda")
    try:
        deployed = deployed_versions(client, install)
        if version is None:
            emit(RollbackDocument(deployed.releases), output, lambda: _releases_table(deployed.releases))
            return 0
        release = _named(deployed.releases, version)
        refused = objections(release, deployed.aliases, _stored(install))
    except (AwsError, StoreError) as error:
        raise InvalidInput(f"stack {stack}", f"nothing was moved: {with_hint(error)}") from error
    moves = moves_to(release, deployed.aliases)
    document = RollbackDocument(moves=moves, objections=refused)
    if not refused and moves and _agreed(moves, yes=yes):
        try:
            _move(client, install, deployed, release)
        except (AwsError, StoreError) as error:
            fail(with_hint(error))
            return 1
        document = msgspec.structs.replace(document, moved=True)
    emit(document, output, lambda: _moves_view(document))
    return 1 if refused else 0


def deployed_versions(client: Any, install: DeployedInstall) -> DeployedVersions:
    """Ask Lambda for the releases of an install. Raises AwsError, InvalidInput: its functions are not known."""
    functions = functions_of(install)
    # The aliases first: a deployment that publishes meanwhile changes them, and the move is refused.
    aliases = live_aliases(client, functions)
    published = published_versions(client, functions)
    return DeployedVersions(
        releases_of(published, aliases, library_layers(client, published), leading=functions[0]), aliases
    )


def _named(releases: Sequence[InstallRelease], version: int) -> InstallRelease:
    for release in releases:
        if release.version == version:
            return release
    known = ", ".join(str(release.version) for release in releases)
    raise InvalidInput("VERSION", f"there is no release {version}; there are {known or 'none'}")


def _stored(install: DeployedInstall) -> StoredSchemas:
    return stored_schemas(aws_client("dynamodb"), install.output("StateTable"))


def _agreed(moves: Sequence[AliasMove], *, yes: bool) -> bool:
    """True if the user wants the moves; False if nobody can answer. Raises typer.Abort where the answer is no."""
    if yes:
        return True
    if not somebody_answers():
        return False
    steps = ", ".join(f"{move.function} {move.current} to {move.target}" for move in moves)
    confirm("install rollback", f"Move the aliases of {counted(len(moves), 'function')} ({steps})?")
    return True


def _move(client: Any, install: DeployedInstall, deployed: DeployedVersions, release: InstallRelease) -> None:
    """Move the aliases, and back if the newer code has stored something new in the meantime.

    Raises:
        AwsError: an alias could not be moved, or such an item is there now.
        StoreError: the table could not be read again.
    """
    moved = move_aliases(client, moves_to(release, deployed.aliases), deployed.aliases)
    if all(other.schema <= release.schema for other in deployed.releases if other.live != "none"):
        return
    try:
        refused = objections(release, deployed.aliases, _stored(install))
    except StoreError as error:
        refused = (str(error),)
    if refused:
        left = move_back(client, moved)
        then = f"not moved back: {'; '.join(left)}" if left else "every alias is where it was"
        raise AwsError(f"{'; '.join(refused)}; {then}")


def _releases_table(releases: Sequence[InstallRelease]) -> RenderableType:
    rows = [
        (
            str(release.version),
            release.published_at,
            release.shiplap or "?",
            str(release.schema or "?"),
            release.library.rpartition("layer:")[2] or "?",
            ", ".join(f"{function} {number}" for function, number in release.functions.items()),
            {"all": "live", "some": "partly live"}.get(release.live, ""),
        )
        for release in releases
    ]
    return plain_table("release", "published", "shiplap", "schema", "library", "functions", "", rows=rows)


def _moves_view(document: RollbackDocument) -> RenderableType:
    if not document.moves and not document.objections:
        return "All functions are at this release."
    rows = [(move.function, str(move.current), str(move.target)) for move in document.moves]
    lines: list[RenderableType] = [plain_table("function", "in service", "release", rows=rows)] if rows else []
    lines += [warning_line(objection) for objection in document.objections]
    if not document.objections:
        lines.append("Moved." if document.moved else "Nothing is moved; --yes moves the aliases.")
    return Group(*lines)
