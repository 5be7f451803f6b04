"""The table of errors as AWS wrote them, and the documents in which each service sends one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

_TABLE = Path(__file__).with_name("error_texts.toml")

_STATUS = 400


class ErrorText(msgspec.Struct, frozen=True, kw_only=True):
    """One error, as a public thread shows it.

    service: botocore's name of the service.
    operation: the request that the error answered.
    code, message: as AWS wrote them; the message may be empty.
    status: the HTTP status, 0 where the thread does not show it.
    outcome: what the thread reports came of it, as a word of `error_outcomes.py`.
    reported: the same in short.
    source: the thread.
    """

    service: str
    operation: str
    code: str
    message: str
    outcome: str
    reported: str
    source: str
    status: int = 0

    @property
    def id(self) -> str:
        return f"{self.service}-{self.operation}-{self.code}-{self.source}"

    @property
    def http_status(self) -> int:
        return self.status or _STATUS


class Answer(msgspec.Struct, frozen=True):
    """An error as its service sends it."""

    body: str
    status: int
    headers: dict[str, str]


def error_texts() -> tuple[ErrorText, ...]:
    """All rows, in the order of the file."""
    tables = tomllib.loads(_TABLE.read_text())
    return tuple(
        msgspec.convert({"service": service, **row}, ErrorText) for service, rows in tables.items() for row in rows
    )


def answer_of(row: ErrorText) -> Answer:
    """The document of the row's service: EC2's XML, the Query protocol's, S3's, or JSON with the code in a header."""
    code, message = escape(row.code), escape(row.message)
    error = f"<Code>{code}</Code><Message>{message}</Message>"
    if row.service == "ec2":
        body = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>ea966190</RequestID></Response>"
        return Answer(body, row.http_status, {})
    if row.service in ("iam", "sts", "cloudformation"):
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>ea966190</RequestId></ErrorResponse>"
        )
        return Answer(body, row.http_status, {})
    if row.service == "s3":
        return Answer(f"<Error>{error}<RequestId>ea966190</RequestId></Error>", row.http_status, {})
    if row.service == "sqs":  # JSON, with the code of the protocol that came before it
        return Answer(_json(row), row.http_status, {"x-amzn-query-error": f"{row.code};Sender"})
    if row.service in ("eks", "lambda"):
        return Answer(_json(row), row.http_status, {"x-amzn-errortype": row.code})
    return Answer(_json(row), row.http_status, {})


def _json(row: ErrorText) -> str:
    fields: dict[str, object] = {"__type": f"com.amazonaws#{row.code}", "message": row.message}
    reasons = re.search(r"specific reasons \[(.*)\]", row.message)
    if reasons:
        fields["CancellationReasons"] = [{"Code": reason} for reason in reasons[1].split(", ")]
    return msgspec.json.encode(fields).decode()
