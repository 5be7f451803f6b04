"""Checks before any launch that the AMI family of an EC2NodeClass can merge its `userData`.

A message never quotes user data: users keep secrets in it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from email import message_from_string
from email.message import Message

from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation.ami_rules import ami_family

LIMIT_BYTES = 16384
"""EC2 counts the bytes before base64, of all that a node is told."""

_MERGES_ARCHIVES = ("AL2", "AL2023")
_FIELD: Path = ("spec", "userData")


def user_data_problems(node_class: EC2NodeClass) -> Iterator[Problem]:
    """Yield the reasons why Shiplap cannot merge `userData` into the user data of nodes."""
    text = node_class.spec.user_data or ""
    size = len(text.encode(errors="surrogatepass"))
    if size > LIMIT_BYTES:
        yield _FIELD, f"is {size} bytes, EC2 takes {LIMIT_BYTES} together with what Shiplap adds"
    family = ami_family(node_class.spec)
    if family == "Bottlerocket":
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            yield _FIELD, f"is not TOML: {error}"
    elif family in _MERGES_ARCHIVES and is_archive(text) and (wrong := archive_problem(text)):
        yield _FIELD, wrong


def is_archive(text: str) -> bool:
    """True if user data is a MIME document, whichever of its headers comes first."""
    start = text.lstrip().lower()
    return start.startswith(("mime-version:", "content-type:"))


def archive_message(text: str) -> Message:
    """A MIME document, parsed. One that ends with the line between two parts is closed by it, as Karpenter takes it."""
    message = message_from_string(text.lstrip())
    boundary = message.get_boundary()
    if boundary and re.search(rf"\n--{re.escape(boundary)}[ \t]*\r?\n?\Z", text):
        return message_from_string(f"{text.strip()}--\n")
    return message


def archive_problem(text: str) -> str:
    """Return what is wrong with a MIME document; empty for a sound document, and for a document of a single part."""
    message = archive_message(text)
    if message.get_content_maintype() != "multipart":
        return ""
    if isinstance(message.get_payload(), list) and not message.defects:
        return ""
    why = type(message.defects[0]).__name__ if message.defects else "no parts"
    return f"is not a well-formed MIME document: {why}"
