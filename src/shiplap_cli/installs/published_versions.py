"""The versions and aliases of an install's functions in Lambda, and the schemas of its stored items."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.settings import LAYER_DESCRIPTION
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.installs.releases import (
    AliasMove,
    LibraryLayer,
    LiveAlias,
    PublishedVersion,
    StoredSchemas,
    library_layer,
)

_ALIAS = "live"
_FUNCTION = "Function"
_KINDS = {"claim": "NodeClaim", "command": "disruption command"}
"""Attributes of table `state` that hold a document with a schema."""


class _Document(msgspec.Struct, frozen=True):
    """A stored document that does not say its schema is older than the field."""

    schema: int = 1


_DOCUMENT = msgspec.json.Decoder(_Document)


class MovedAlias(msgspec.Struct, frozen=True):
    """An alias that was moved: as it was before, and its revision since."""

    before: LiveAlias
    revision: str


def functions_of(install: DeployedInstall) -> tuple[str, ...]:
    """The names of all functions, that of `schedule` first. Raises InvalidInput: they are not known."""
    named = {key.removesuffix(_FUNCTION): name for key, name in install.outputs.items() if key.endswith(_FUNCTION)}
    leading = sorted(key for key in named if key.startswith("Schedule"))
    if not leading:
        raise InvalidInput("--stack", "the stack has no output ScheduleFunction: deploy it with this version first")
    return tuple(named[key] for key in (leading[0], *sorted(named.keys() - {leading[0]})))


def published_versions(client: Any, functions: Sequence[str]) -> tuple[PublishedVersion, ...]:
    """All numbered versions. Raises AwsError."""
    return tuple(
        PublishedVersion(
            function,
            int(item["Version"]),
            str(item["LastModified"]),
            tuple(layer["Arn"] for layer in item.get("Layers", ())),
        )
        for function in functions
        for item in _pages(client.list_versions_by_function, "Versions", FunctionName=function)
        if item["Version"] != "$LATEST"
    )


def live_aliases(client: Any, functions: Sequence[str]) -> tuple[LiveAlias, ...]:
    """The alias of each function. Raises AwsError."""
    return tuple(_alias(client, function) for function in functions)


def _alias(client: Any, function: str) -> LiveAlias:
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - so that --help does not wait for botocore

    with aws_errors(f"look up the version of {function} in service"):
        found = client.get_alias(FunctionName=function, Name=_ALIAS)
    weights = (found.get("RoutingConfig") or {}).get("AdditionalVersionWeights") or {}
    return LiveAlias(function, int(found["FunctionVersion"]), found["RevisionId"], dict(weights))


def library_layers(client: Any, published: Sequence[PublishedVersion]) -> tuple[LibraryLayer, ...]:
    """The library among the layers of these versions: one request for each layer, whatever its versions are.

    Raises:
        AwsError: Lambda does not tell.
    """
    described = (library_layer(arn, description) for arn, description in _described_layers(client, published))
    return tuple(library for library in described if library is not None)


def settings_layers(client: Any, published: Sequence[PublishedVersion]) -> tuple[str, ...]:
    """ARNs of the layer versions with settings among those that these versions of functions use, sorted.

    Another install may publish versions of the same layer: the stacks of both give it the same name.

    Raises:
        AwsError: Lambda does not tell.
    """
    used = {layer for version in published for layer in version.layers}
    described = _described_layers(client, published)
    return tuple(sorted(arn for arn, description in described if arn in used and description == LAYER_DESCRIPTION))


def _described_layers(client: Any, published: Sequence[PublishedVersion]) -> Iterator[tuple[str, str]]:
    """ARN and description of all versions of the layers that these versions of functions use. Raises AwsError."""
    for name in sorted({layer.split(":")[-2] for version in published for layer in version.layers}):
        for item in _pages(client.list_layer_versions, "LayerVersions", LayerName=name):
            yield item["LayerVersionArn"], item.get("Description", "")


def stored_schemas(client: Any, table: str) -> StoredSchemas:
    """The schemas of all claims and commands. It reads the whole table once.

    Raises:
        StoreError: the table, or one of its documents, cannot be read.
    """
    from shiplap.aws.dynamodb.items import scan  # noqa: PLC0415 - as above

    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for item in scan(client, table):
        for attribute, kind in _KINDS.items():
            if attribute in item:
                counts[kind][_schema(item["item"]["S"], item[attribute])] += 1
    return StoredSchemas({kind: dict(count) for kind, count in counts.items()})


def _schema(name: str, stored: Any) -> int:
    import zlib  # noqa: PLC0415 - only a long claim is compressed

    try:
        return _DOCUMENT.decode(stored["S"] if "S" in stored else zlib.decompress(bytes(stored["B"]))).schema
    except (msgspec.DecodeError, zlib.error) as error:
        raise StoreError(f"{name} cannot be read, so its schema is not known: {error}") from error


def move_aliases(client: Any, moves: Sequence[AliasMove], aliases: Sequence[LiveAlias]) -> tuple[MovedAlias, ...]:
    """Move all of these aliases, or none.

    Args:
        client: of Lambda.
        moves: the steps, in this order.
        aliases: as they were read. One that was changed since is not moved.

    Raises:
        AwsError: one could not be moved. Those before it were moved back; the error names the ones that were not.
    """
    known = {alias.function: alias for alias in aliases}
    moved: list[MovedAlias] = []
    for move in moves:
        before = known[move.function]
        try:
            revision = _point(client, before.function, move.target, {}, before.revision)
        except AwsError as error:
            left = move_back(client, moved)
            then = f"not moved back: {'; '.join(left)}" if left else "every alias is where it was"
            raise AwsError(f"{error}; {then}") from error
        moved.append(MovedAlias(before, revision))
    return tuple(moved)


def move_back(client: Any, moved: Sequence[MovedAlias]) -> tuple[str, ...]:
    """Undo `move_aliases`, last move first; returns why an alias is not where it was, for each such alias."""
    failures = []
    for alias in reversed(moved):
        before = alias.before
        try:
            _point(client, before.function, before.version, before.weights, alias.revision)
        except AwsError as error:
            failures.append(str(error))
    return tuple(failures)


def _point(client: Any, function: str, version: int, weights: dict[str, float], revision: str) -> str:
    """Point the alias to a version if nobody has changed it since `revision`; returns its new revision.

    botocore repeats a request whose answer is lost, and the second one then finds a changed alias. So a refused move
    whose alias names the version has happened. Raises AwsError.
    """
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

    try:
        with aws_errors(f"move {function} to version {version}"):
            answer = client.update_alias(
                FunctionName=function,
                Name=_ALIAS,
                FunctionVersion=str(version),
                RoutingConfig={"AdditionalVersionWeights": weights},
                RevisionId=revision,
            )
    except AwsError:
        now = _alias(client, function)
        if (now.version, now.weights) != (version, weights):
            raise
        return now.revision
    return str(answer["RevisionId"])


def _pages(call: Any, field: str, **request: str) -> Iterator[dict[str, Any]]:
    """All items of an answer that Lambda gives in pages. Raises AwsError."""
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - as above

    while True:
        with aws_errors(f"list {field} of {next(iter(request.values()))}"):
            page = call(**request)
        yield from page[field]
        if not page.get("NextMarker"):
            return
        request["Marker"] = page["NextMarker"]
