"""Checks `amiSelectorTerms` and `amiFamily` of an EC2NodeClass, and derives the AMI family from both fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.manifests.custom_resources import AMI_FAMILIES, AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation.common_rules import id_problems, selector_tags, written_fields

FAMILY_OF_ALIAS = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
CUSTOM = "Custom"

_LATEST = "latest"
_ALIAS = re.compile(r"[a-zA-Z0-9]+@.+\Z", re.ASCII)
_RELEASE = re.compile(r"v[0-9]+", re.ASCII)
_BOTTLEROCKET_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9a-f]+)?", re.ASCII)
_TERMS: Path = ("spec", "amiSelectorTerms")
_FAMILY: Path = ("spec", "amiFamily")


def ami_family(spec: EC2NodeClassSpec) -> str:
    """The AMI family of a valid node class: what is written, else that of its alias."""
    alias = _alias_family(spec)
    return spec.ami_family or (FAMILY_OF_ALIAS[alias] if alias is not None else "")


def ami_admission_problems(node_class: EC2NodeClass, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Of the AMI selectors and the family, what an API server refuses. `data` is the node class as it was written."""
    terms = node_class.spec.ami_selector_terms
    for number, (term, raw) in enumerate(zip(terms, data["spec"].get("amiSelectorTerms") or (), strict=True)):
        path, written = (*_TERMS, number), written_fields(raw)
        if not written - {"owner"}:
            yield path, "a term needs alias, tags, id, name or ssmParameter; owner only narrows tags and name"
        yield from selector_tags(term.tags, (*path, "tags"))
        if "id" in written and {"tags", "name", "owner"} & written:
            yield path, "id cannot be combined with tags, name or owner"
        if "alias" in written:
            if {"id", "tags", "name", "owner"} & written:
                yield path, "alias stands alone in a term"
            if wrong := _alias_form_problem(term.alias):
                yield (*path, "alias"), wrong
            if len(terms) > 1:
                yield _TERMS, "a term with an alias must be the only term"
    yield from _family(node_class.spec, data["spec"])


def ami_problems(node_class: EC2NodeClass) -> Iterator[Problem]:
    """Of the AMI selectors, what makes them unusable though an API server accepts them."""
    for number, term in enumerate(node_class.spec.ami_selector_terms):
        path = (*_TERMS, number)
        yield from id_problems("ami", term.id, (*path, "id"))
        written = [name for name in AmiSelectorTerm.__struct_fields__ if getattr(term, name)]
        if not set(written) - {"owner"}:
            yield path, "a term needs alias, tags, id, name or ssmParameter; owner only narrows tags and name"
        if term.alias:
            if len(written) > 1:
                yield path, "alias stands alone in a term"
            if wrong := _alias_version_problem(term.alias):
                yield (*path, "alias"), wrong


def _alias_form_problem(alias: str) -> str | None:
    if not _ALIAS.match(alias):
        return f"{alias!r} is not of the form family@version, such as al2023@latest"
    family, version = alias.split("@")[:2]
    if family not in FAMILY_OF_ALIAS:
        return f"unknown family {family!r}; known are {', '.join(FAMILY_OF_ALIAS)}"
    if family.startswith("windows") and version != _LATEST:
        return "Windows images are known only as latest"
    return None


def _alias_version_problem(alias: str) -> str | None:
    family, _, version = alias.partition("@")
    if version == _LATEST:
        return None
    if family == "bottlerocket":
        valid, form = _BOTTLEROCKET_VERSION.fullmatch(version), "1.32.0 or 1.32.0-cacc4ce9"
    else:
        valid, form = _RELEASE.fullmatch(version), "v20240625"
    return None if valid else f"{version!r} is not a version of {family}: expected latest or the form {form}"


def _family(spec: EC2NodeClassSpec, written: Mapping[str, Any]) -> Iterator[Problem]:
    is_by_alias = any(term.get("alias") is not None for term in written.get("amiSelectorTerms") or ())
    if not is_by_alias and written.get("amiFamily") is None:
        yield _FAMILY, "is needed when no AMI is selected by alias"
    alias = _alias_family(spec)
    if alias is None or spec.ami_family not in AMI_FAMILIES:
        return
    if spec.ami_family not in (FAMILY_OF_ALIAS[alias], CUSTOM):
        yield _FAMILY, f"must be {FAMILY_OF_ALIAS[alias]}, as the alias says, or {CUSTOM}; is {spec.ami_family}"


def _alias_family(spec: EC2NodeClassSpec) -> str | None:
    """The known family an alias names."""
    named = [term.alias.partition("@")[0] for term in spec.ami_selector_terms if term.alias]
    return named[0] if named and named[0] in FAMILY_OF_ALIAS else None
