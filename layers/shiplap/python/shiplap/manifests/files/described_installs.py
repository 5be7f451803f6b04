"""The installs of a fleet from one description, `installs:` in a YAML file: for who deploys and for who looks.

```yaml
installs:
  - {name: staging, settings: staging/shiplap.yaml, profile: staging}
  - {name: production, settings: production/shiplap.yaml, profile: production, wave: 2}
```
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.decoding import Problem, decode, field_name
from shiplap.manifests.files.documents import Document, read_documents

KEY = "installs"
STACK = "Shiplap"
"""The stack's name where none is said."""


class DescribedInstall(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One stack in one Region of one account.

    `name` tells it apart in this description. `settings` is its shiplap.yaml, relative to the description; `region` and
    `account` are taken from there where they are not given. `profile` of the AWS configuration asks and deploys it.
    Installs of a `wave` are deployed together, those of the lowest number first.
    """

    name: str
    settings: str = ""
    region: str = ""
    account: str = ""
    profile: str = ""
    stack: str = STACK
    wave: int = 1


class _Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    installs: tuple[DescribedInstall, ...]


def read_installs(path: Path) -> tuple[DescribedInstall, ...]:
    """The installs of a description, by wave and in the file's order; every one has a Region.

    Raises:
        InvalidInput: the file, or a settings file of it, cannot be read.
        InvalidManifests: it says something wrong; holds all problems.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document, found {len(documents)}")
    source = documents[0]
    described, problems = decode(source.data, _Description)
    found: list[DescribedInstall] = []
    if described is not None:
        found = [_completed(item, path.parent) for item in described.installs]
        problems += _problems(found)
    if problems:
        raise InvalidManifests([_refusal(source, where, reason) for where, reason in problems])
    return tuple(sorted(found, key=lambda item: item.wave))


def is_description(path: Path) -> bool:
    """True if a file has the key `installs`. Raises InvalidInput."""
    return any(KEY in document.data for document in read_documents(path))


def _completed(install: DescribedInstall, folder: Path) -> DescribedInstall:
    """With Region and account of its settings. Raises InvalidInput."""
    if not install.settings:
        return install
    path = folder / install.settings
    if not path.exists():
        raise InvalidInput(str(path), f"does not exist; install {install.name} names it")
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document, found {len(documents)}; install {install.name} names it")
    data = documents[0].data
    region, account = (str(data.get(key, "")) for key in ("region", "account"))
    return msgspec.structs.replace(install, region=install.region or region, account=install.account or account)


def _problems(installs: list[DescribedInstall]) -> Iterator[Problem]:
    if not installs:
        yield (KEY,), "names no install"
    names = [item.name for item in installs]
    places = [(item.profile, item.account, item.region, item.stack) for item in installs]
    for number, item in enumerate(installs):
        if not item.name or item.name in names[:number]:
            yield (KEY, number, "name"), "must be there once" if not item.name else f"{item.name} is there twice"
        if not item.region:
            yield (KEY, number, "region"), "is missing, and there are no settings that say it"
        if places[number] in places[:number]:
            other = names[places.index(places[number])]
            yield (KEY, number, "stack"), f"is that of {other}: same profile, account and Region"
        if item.wave < 1:
            yield (KEY, number, "wave"), f"must be 1 or more, is {item.wave}"


def _refusal(source: Document, where: tuple[str | int, ...], reason: str) -> InvalidInput:
    return InvalidInput(source.source, reason, field=field_name(where), line=source.line_of(where))
