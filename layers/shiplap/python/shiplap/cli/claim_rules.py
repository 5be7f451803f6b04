"""A file of claim rules, for commands that decide on files: the same text as `claimRules` in shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

from shiplap.api.claim_rules import ClaimRule, ClaimRules, rule_problems
from shiplap.api.decoding import decode, field_name
from shiplap.api.documents import read_documents
from shiplap.errors import InvalidInput, InvalidManifests


def read_claim_rules(path: Path) -> tuple[ClaimRule, ...]:
    """The rules of a file.

    Raises:
        InvalidInput: the file cannot be read, or is not one document.
        InvalidManifests: with every problem of it.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        raise InvalidInput(str(path), f"expected one document with claimRules, found {len(documents)}")
    document = documents[0]
    found, problems = decode(document.data, ClaimRules)
    if found is not None:
        problems += ((("claimRules", *where), reason) for where, reason in rule_problems(found.claim_rules))
    if found is None or problems:
        raise InvalidManifests(
            [
                InvalidInput(document.source, reason, field=field_name(where), line=document.line_of(where))
                for where, reason in problems
            ]
        )
    return found.claim_rules
