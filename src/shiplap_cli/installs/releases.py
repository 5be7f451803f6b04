"""Releases of an install: which versions of its functions were in service together, and what forbids a return to one.

A deployment that changes the library or the settings gives every function new layers, and so publishes all of them.
Hence versions with the same layers make up a release. A deployment that changes only one function's own settings adds
its version to the release that is there; the newest version of each function counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from shiplap_cli.output import Printed, counted

_LIBRARY = re.compile(r"The package shiplap(?: (?P<shiplap>\S+), reads items up to schema (?P<schema>\d+))?")
"""The description of the library's layer, as the stack writes it. All code that did not say its schema reads 1."""


class LibraryLayer(msgspec.Struct, frozen=True):
    """The layer with the package shiplap: its ARN, Shiplap's version if it is known, and the newest schema it reads."""

    arn: str
    shiplap: str
    schema: int


class PublishedVersion(msgspec.Struct, frozen=True):
    """A version of a function; `at` is when it was published, as Lambda writes it, `layers` are ARNs."""

    function: str
    number: int
    at: str
    layers: tuple[str, ...] = ()


class LiveAlias(msgspec.Struct, frozen=True):
    """The alias `live` as it was read. `revision` changes with every write; `weights` send calls elsewhere."""

    function: str
    version: int
    revision: str
    weights: dict[str, float] = {}


class InstallRelease(Printed, frozen=True):
    """Versions that belong together.

    `version` is the number of the function `schedule`. `library` is empty and `schema` is 0 where no layer of them is
    known to be the library. `functions` are numbers by the name of the function. `live` is `all`, `some` or `none`: how
    many of the aliases name this release.
    """

    version: int
    published_at: str
    shiplap: str
    schema: int
    library: str
    functions: dict[str, int]
    live: str


class AliasMove(Printed, frozen=True):
    """One step of a rollback."""

    function: str
    current: int
    target: int


class StoredSchemas(msgspec.Struct, frozen=True):
    """The number of items of table `state` with each schema, by their kind."""

    counts: dict[str, dict[int, int]] = {}


def library_layer(arn: str, description: str) -> LibraryLayer | None:
    """Return the versions in the description of a layer; None if it is not the library's."""
    found = _LIBRARY.fullmatch(description)
    return LibraryLayer(arn, found["shiplap"] or "", int(found["schema"] or 1)) if found else None


def releases_of(
    published: Sequence[PublishedVersion],
    aliases: Sequence[LiveAlias],
    libraries: Sequence[LibraryLayer],
    leading: str,
) -> tuple[InstallRelease, ...]:
    """The releases that can be named, newest first.

    Args:
        published: the versions of all functions.
        aliases: one of each function.
        libraries: those among the layers.
        leading: the function whose numbers name releases; a release without a version of it is left out.
    """
    together: dict[tuple[str, ...], list[PublishedVersion]] = defaultdict(list)
    for version in published:
        together[tuple(sorted(version.layers))].append(version)
    known = {library.arn: library for library in libraries}
    releases = []
    for layers, versions in together.items():
        numbers: dict[str, int] = {}
        for version in sorted(versions, key=lambda item: (item.function, item.number)):
            numbers[version.function] = version.number
        if leading not in numbers:
            continue
        library = next((known[layer] for layer in layers if layer in known), LibraryLayer("", "", 0))
        releases.append(
            InstallRelease(
                numbers[leading],
                max(version.at for version in versions if numbers[version.function] == version.number),
                library.shiplap,
                library.schema,
                library.arn,
                numbers,
                _live(numbers, aliases),
            )
        )
    return tuple(sorted(releases, key=lambda release: -release.version))


def _live(numbers: Mapping[str, int], aliases: Sequence[LiveAlias]) -> str:
    here = sum(numbers.get(alias.function) == alias.version and not alias.weights for alias in aliases)
    if not here:
        return "none"
    return "all" if here == len(aliases) else "some"


def moves_to(release: InstallRelease, aliases: Sequence[LiveAlias]) -> tuple[AliasMove, ...]:
    """The aliases that have to move; those of functions without a version of the release are left out."""
    return tuple(
        AliasMove(alias.function, alias.version, release.functions[alias.function])
        for alias in aliases
        if alias.function in release.functions and (alias.version != release.functions[alias.function] or alias.weights)
    )


def objections(release: InstallRelease, aliases: Sequence[LiveAlias], stored: StoredSchemas) -> tuple[str, ...]:
    """The reasons why the aliases must not be moved to a release; empty if they may be."""
    found = [
        f"function {alias.function} has no version of this release: deploy the commit of the release instead"
        for alias in aliases
        if alias.function not in release.functions
    ]
    if not release.schema:
        unknown = "the library layer of this release is gone or does not say which items it reads"
        return (*found, f"{unknown}: deploy the commit of the release instead")
    for kind, counts in sorted(stored.counts.items()):
        newer = {schema: count for schema, count in counts.items() if schema > release.schema}
        if newer:
            found.append(
                f"table state holds {counted(sum(newer.values()), kind)} of schema {max(newer)}, and this release "
                f"reads up to {release.schema}: it would neither end nor replace their nodes"
            )
    return tuple(found)
