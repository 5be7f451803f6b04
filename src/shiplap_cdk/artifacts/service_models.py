"""Cuts botocore's descriptions of AWS services down to what the library calls.

botocore reads a service's whole description when a client is made. EC2's holds 800 operations in four megabytes and
alone takes a quarter of a cold start; the dozen that are called fit into a hundred kilobytes. Which ones those are is
read from the library's source: an operation stays if the name of its method occurs there as a word. A word too many
costs nothing, and an operation that is called cannot be forgotten.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore
from botocore import xform_name

# The services of which clients are made; botocore describes 400, which are most of its size.
SERVICES = (
    "arc-zonal-shift",
    "dynamodb",
    "ec2",
    "eks",
    "events",
    "iam",
    "pricing",
    "s3",
    "savingsplans",
    "secretsmanager",
    "sqs",
    "ssm",
    "sts",
)

Operations = Mapping[str, Sequence[str]]
Document = dict[str, Any]

_WORD = re.compile(r"[a-z][a-z0-9_]*")


INSTALLED = Path(botocore.__file__).parent / "data"
"""The descriptions of this environment's botocore."""


def called(sources: Iterable[Path], data: Path = INSTALLED) -> dict[str, list[str]]:
    """The operations, by service, whose methods are named in source files; both sorted.

    `data` is the folder with botocore's descriptions of the services.
    """
    words = {word for path in sources for word in _WORD.findall(path.read_text("utf-8"))}
    return {
        service: sorted(
            name for name in _read(_newest(data / service), "service-2")["operations"] if xform_name(name) in words
        )
        for service in SERVICES
    }


def trim(data: Path, operations: Operations) -> None:
    """Rewrite botocore's folder `data`: the services of `operations` with these operations only, and no others."""
    for folder in data.iterdir():
        if folder.is_dir() and folder.name not in operations:
            shutil.rmtree(folder)
    for service, names in operations.items():
        newest = _newest(data / service)
        for version in (data / service).iterdir():
            if version != newest:
                shutil.rmtree(version)
        _trim_service(newest, set(names))
    endpoints = json.loads((data / "endpoints.json").read_bytes())
    for partition in endpoints["partitions"]:
        partition["services"] = {
            name: written for name, written in partition["services"].items() if name in _endpoint_names(operations)
        }
    _write(data / "endpoints.json", endpoints)


def _trim_service(folder: Path, names: set[str]) -> None:
    model = _read(folder, "service-2")
    model["operations"] = {name: item for name, item in model["operations"].items() if name in names}
    model["shapes"] = _reachable(model)
    paginators = _read(folder, "paginators-1") if (folder / "paginators-1.json").exists() else {"pagination": {}}
    paginators["pagination"] = {name: item for name, item in paginators["pagination"].items() if name in names}
    kept = ("endpoint-rule-set-1.json.gz", "paginators-1.sdk-extras.json", "service-2.sdk-extras.json")
    for path in folder.iterdir():
        if path.name not in kept:
            path.unlink()
    _write(folder / "service-2.json", _undocumented(model))
    _write(folder / "paginators-1.json", paginators)


def _reachable(model: Document) -> Document:
    """The shapes that the model's operations use, directly or through other shapes."""
    shapes: Document = model["shapes"]
    found: Document = {}
    ahead = [name for operation in model["operations"].values() for name in _references(operation)]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found[name] = shapes[name]
            ahead += _references(shapes[name])
    return {name: shapes[name] for name in shapes if name in found}


def _references(item: Any) -> list[str]:
    """Names of shapes in an operation or a shape, at any depth."""
    if isinstance(item, list):
        return [name for part in item for name in _references(part)]
    if not isinstance(item, dict):
        return []
    named = [item["shape"]] if isinstance(item.get("shape"), str) else []
    return named + [name for part in item.values() for name in _references(part)]


def _undocumented(item: Any) -> Any:
    """With the texts of the documentation emptied, which a function never shows; botocore insists on some of them."""
    if isinstance(item, list):
        return [_undocumented(part) for part in item]
    if not isinstance(item, dict):
        return item
    return {
        name: "" if name == "documentation" and isinstance(part, str) else _undocumented(part)
        for name, part in item.items()
    }


def _endpoint_names(operations: Operations) -> set[str]:
    """As endpoints.json names services: by the prefix of their hosts."""
    return {"api.pricing" if service == "pricing" else service for service in operations}


def _newest(service: Path) -> Path:
    return max((folder for folder in service.iterdir() if folder.is_dir()), key=lambda folder: folder.name)


def _read(folder: Path, name: str) -> Document:
    plain = folder / f"{name}.json"
    data = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.json.gz").read_bytes())
    document: Document = json.loads(data)
    return document


def _write(path: Path, document: Document) -> None:
    path.write_text(json.dumps(document, separators=(",", ":")))
