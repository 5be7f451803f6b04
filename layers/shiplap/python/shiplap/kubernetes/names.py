"""The spelling rules of Kubernetes for label keys, label values and object names.

Each function answers with what is wrong, or None.
"""

from __future__ import annotations

import re

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def subdomain_problem(name: str, longest: int = 253) -> str | None:
    """Of an object's name or a label key's prefix: lower-case letters, digits, `-` and `.`."""
    if not name:
        return "must not be empty"
    if len(name) > longest:
        return f"is longer than {longest} characters"
    if not _SUBDOMAIN.fullmatch(name):
        return f"{name!r} may hold only lower-case letters, digits, '-' and '.', and a letter or digit at either end"
    return None


def label_key_problem(key: str) -> str | None:
    """Of a qualified name: `name`, or `prefix/name` with a DNS subdomain as prefix."""
    prefix, slash, name = key.rpartition("/")
    if slash and (wrong := subdomain_problem(prefix)):
        return f"the prefix of the key {key!r} {wrong}"
    if not name or len(name) > 63 or not _NAME.fullmatch(name):
        return (
            f"{key!r} is not a label key: the name must be 1 to 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit at either end"
        )
    return None


def label_value_problem(value: str) -> str | None:
    """Of a label's value, which may be empty."""
    if len(value) > 63:
        return f"the value {value!r} is longer than 63 characters"
    if value and not _NAME.fullmatch(value):
        return (
            f"{value!r} is not a label value: letters, digits, '-', '_' and '.', with a letter or digit at either end"
        )
    return None
