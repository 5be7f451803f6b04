"""Text that a terminal, a log or a page may show, whoever wrote it.

Names come from manifests, contexts, pods and answers of API servers. An escape sequence in one of them would move the
cursor, hide lines or change the title of an engineer's terminal; a mark of direction would show other text than there
is.
"""

from __future__ import annotations

import re

# Control characters of Unicode's category Cc but tab and line feed, and the marks of direction of its bidi algorithm.
_HIDDEN = "\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069"
_IN_TEXT = re.compile(f"[{_HIDDEN}]")


def printable(text: str) -> str:
    """The text with each hidden character written as Python writes it, such as `\\x1b`. Lines and tabs stay."""
    return _IN_TEXT.sub(lambda found: ascii(found[0])[1:-1], text)


def printable_json(text: str) -> str:
    """JSON with each hidden character of its strings in JSON's own notation, such as `\\u009b`."""
    return _IN_TEXT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
