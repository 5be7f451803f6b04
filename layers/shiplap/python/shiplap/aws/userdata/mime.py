"""Multi-part user data: taking a user's archive apart and putting parts together."""

from __future__ import annotations

import msgspec

from shiplap.errors import NodeClassNotReady
from shiplap.manifests.validation.user_data_rules import archive_message, archive_problem

SHELL = 'text/x-shellscript; charset="us-ascii"'


def invalid(reason: str, code: str = "UserDataInvalid") -> NodeClassNotReady:
    """The error for user data that cannot be made."""
    return NodeClassNotReady(reason, code=code)


class MimePart(msgspec.Struct, frozen=True):
    """One part: its headers as they are written, without a closing empty line, and its body."""

    headers: str
    body: str

    @classmethod
    def of(cls, content_type: str, body: str) -> MimePart:
        """A part with nothing but a content type."""
        return cls(f"Content-Type: {content_type}", body)


def parts(text: str) -> list[MimePart]:
    """The parts of a MIME document, unaltered; a document of one part is that part.

    Raises:
        NodeClassNotReady: it calls itself multi-part but holds no parts.
    """
    if wrong := archive_problem(text):
        raise invalid(f"userData {wrong}")
    message = archive_message(text)
    if message.get_content_maintype() != "multipart":
        return [_part(text.lstrip())]
    return [_part(inner.as_string()) for inner in message.get_payload() if not isinstance(inner, str)]


def _part(text: str) -> MimePart:
    headers, _, body = text.replace("\r\n", "\n").partition("\n\n")
    kept = [line for line in headers.splitlines() if not line.lower().startswith("mime-version:")]
    return MimePart("\n".join(kept), body)


def archive(contents: list[MimePart]) -> str:
    """A MIME document of several parts, the same for the same parts."""
    boundary = "//"
    while any(f"--{boundary}" in part.body for part in contents):
        boundary += "/"
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for part in contents:
        lines += [f"--{boundary}", part.headers, "", part.body.rstrip("\n"), ""]
    return "\n".join([*lines, f"--{boundary}--", ""])
