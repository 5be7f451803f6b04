"""Counts how often a chain of requests has invoked each function: the lineage in X-Ray's trace header.

Lambda gives each invocation a trace header (environment variable _X_AMZN_TRACE_ID). The SDKs send it along with every
request, SQS keeps it with a message (attribute AWSTraceHeader), and so it comes back with the next invocation. Its part
`Lineage=a87bd80c:1|68fd508a:5` counts invocations by a hash of the function. Lambda stops a function after about 16.

botocore percent-encodes the header that it sends on, `|` as well, so headers are decoded first.

The Lambda Developer Guide describes this under "recursive loop detection". It does not say how the counts of a batch
are joined; here a batch continues its longest chain, which stops earliest.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote
from zlib import crc32

MOST_TURNS = 16
"""Invocations of one function in one chain. AWS says "approximately"."""

HEADER = "X-Amzn-Trace-Id"

_NEW = "Root=1-00000000-000000000000000000000000;Parent=0000000000000000;Sampled=0"


def turns(trace: str, function: str) -> int:
    """Return how often the chain of a trace header has invoked a function so far."""
    return _counts(trace).get(_hash(function), 0)


def longest(traces: Iterable[str], function: str) -> str:
    """Of several trace headers the one that has invoked a function most often; empty for none."""
    return max(traces, key=lambda trace: turns(trace, function), default="")


def invoked(trace: str, function: str) -> str:
    """The trace header of the next invocation of a function in a chain; `trace` is empty where a chain begins."""
    counts = _counts(trace)
    counts[_hash(function)] = turns(trace, function) + 1
    fields = [field for field in unquote(trace or _NEW).split(";") if not field.startswith("Lineage=")]
    return ";".join([*fields, "Lineage=" + "|".join(f"{name}:{count}" for name, count in counts.items())])


def _counts(trace: str) -> dict[str, int]:
    fields = dict(field.partition("=")[::2] for field in unquote(trace).split(";"))
    entries = (entry.partition(":") for entry in fields.get("Lineage", "").split("|") if entry)
    return {name: int(count) for name, _, count in entries}


def _hash(function: str) -> str:
    """Of the function alone: all its versions are one."""
    return f"{crc32(function.partition(':')[0].encode()):08x}"
