"""The spelling rules of Kubernetes for label keys, label values and object names.

Each `…_problem` function returns the reason why a text is invalid, or None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

LABEL_VALUE_MAX = 63
_DIGEST = 10
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@lru_cache(maxsize=4096)
def label_value_of(name: str) -> str:
    """An object's name as the value of a label; a name that is too long is cut and ends in a digest of the whole."""
    if len(name) <= LABEL_VALUE_MAX:
        return name
    return f"{name[: LABEL_VALUE_MAX - _DIGEST - 1]}-{sha256(name.encode()).hexdigest()[:_DIGEST]}"


def claim_name(pool: str, suffix: str) -> str:
    """`<pool>-<suffix>` as a DNS label, the pool's name cut where that would be too long."""
    return claim_name_stem(pool, len(suffix)) + suffix


def claim_name_stem(pool: str, digits: int) -> str:
    """Return the part of `claim_name` before a suffix of so many digits."""
    return pool.replace(".", "-")[: LABEL_VALUE_MAX - digits - 1].rstrip("-") + "-"


def namespaced_name(namespace: str, name: str) -> str:
    """`namespace/name`, as plans, events and people name an object; an empty namespace is `default`."""
    return f"{namespace or 'default'}/{name}"


def name_of_label(value: str, names: Iterable[str]) -> str:
    """Return the name that the value of a label stands for; the value itself if none of the names fits."""
    if len(value) < LABEL_VALUE_MAX:
        return value
    return next((name for name in names if label_value_of(name) == value), value)


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
    if not name or len(name) > LABEL_VALUE_MAX or not _NAME.fullmatch(name):
        return (
            f"{key!r} is not a label key: the name must be 1 to 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit at either end"
        )
    return None


def label_value_problem(value: str) -> str | None:
    """Of a label's value, which may be empty."""
    if len(value) > LABEL_VALUE_MAX:
        return f"the value {value!r} is longer than 63 characters"
    if value and not _NAME.fullmatch(value):
        return (
            f"{value!r} is not a label value: letters, digits, '-', '_' and '.', with a letter or digit at either end"
        )
    return None


def without_object(kind: str, name: str, part: str) -> str:
    """Return the name of a pod that stands for a part of another object: no pod of an API server can have it."""
    return f"{kind}/{name}/{part}"


def stands_for(namespace: str, name: str) -> str:
    """Return kind and name of the object that a pod without an object stands for."""
    kind, of, _ = name.split("/", 2)
    return f"{kind} {namespaced_name(namespace, of)}" if of else kind


def has_no_object(name: str) -> bool:
    """True if the name of a pod says that it stands for room only: it is never written, bound or told about."""
    return "/" in name
