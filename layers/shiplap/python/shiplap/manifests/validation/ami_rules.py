"""What `amiSelectorTerms` and `amiFamily` of an EC2NodeClass must satisfy, and the family they come to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation.common_rules import count_problems, id_problems, one_of, selector_tags

FAMILY_OF_ALIAS = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}
CUSTOM = "Custom"
FAMILIES = (*FAMILY_OF_ALIAS.values(), CUSTOM)

_LATEST = "latest"
_RELEASE = re.compile(r"v[0-9]+", re.ASCII)
_BOTTLEROCKET_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9a-f]+)?", re.ASCII)
_TERMS: Path = ("spec", "amiSelectorTerms")
_FAMILY: Path = ("spec", "amiFamily")


def ami_family(spec: EC2NodeClassSpec) -> str:
    """The AMI family of a valid node class: what is written, else that of its alias."""
    alias = _alias_family(spec)
    return spec.ami_family or (FAMILY_OF_ALIAS[alias] if alias is not None else "")


def ami_problems(node_class: EC2NodeClass) -> Iterator[Problem]:
    """Of the AMI selectors and the family."""
    terms = node_class.spec.ami_selector_terms
    yield from count_problems(len(terms), 30, _TERMS)
    for number, term in enumerate(terms):
        yield from _term(term, (*_TERMS, number))
    if len(terms) > 1 and any(term.alias for term in terms):
        yield _TERMS, "a term with an alias must be the only term"
    yield from _family(node_class.spec)


def _term(term: AmiSelectorTerm, path: Path) -> Iterator[Problem]:
    written = [name for name in AmiSelectorTerm.__struct_fields__ if getattr(term, name)]
    if not set(written) - {"owner"}:
        yield path, "a term needs alias, tags, id, name or ssmParameter; owner only narrows tags and name"
    yield from selector_tags(term.tags, (*path, "tags"))
    yield from id_problems("ami", term.id, (*path, "id"))
    if term.id and {"tags", "name", "owner"} & set(written):
        yield path, "id cannot be combined with tags, name or owner"
    if term.alias:
        if len(written) > 1:
            yield path, "alias stands alone in a term"
        if wrong := _alias_problem(term.alias):
            yield (*path, "alias"), wrong


def _alias_problem(alias: str) -> str | None:
    if len(alias) > 30:
        return "an alias has at most 30 characters"
    family, at, version = alias.partition("@")
    if not (family and at and version):
        return f"{alias!r} is not of the form family@version, such as al2023@latest"
    if family not in FAMILY_OF_ALIAS:
        return f"unknown family {family!r}; known are {', '.join(FAMILY_OF_ALIAS)}"
    if version == _LATEST:
        return None
    if family.startswith("windows"):
        return "Windows images are known only as latest"
    if family == "bottlerocket":
        valid, form = _BOTTLEROCKET_VERSION.fullmatch(version), "1.32.0 or 1.32.0-cacc4ce9"
    else:
        valid, form = _RELEASE.fullmatch(version), "v20240625"
    return None if valid else f"{version!r} is not a version of {family}: expected latest or the form {form}"


def _family(spec: EC2NodeClassSpec) -> Iterator[Problem]:
    yield from one_of(spec.ami_family or None, FAMILIES, _FAMILY)
    alias = _alias_family(spec)
    if alias is None:
        if not spec.ami_family and not any(term.alias for term in spec.ami_selector_terms):
            yield _FAMILY, "is needed when no AMI is selected by alias"
    elif spec.ami_family in FAMILIES and spec.ami_family not in (FAMILY_OF_ALIAS[alias], CUSTOM):
        yield _FAMILY, f"must be {FAMILY_OF_ALIAS[alias]}, as the alias says, or {CUSTOM}; is {spec.ami_family}"


def _alias_family(spec: EC2NodeClassSpec) -> str | None:
    """The known family an alias names."""
    named = [term.alias.partition("@")[0] for term in spec.ami_selector_terms if term.alias]
    return named[0] if named and named[0] in FAMILY_OF_ALIAS else None
