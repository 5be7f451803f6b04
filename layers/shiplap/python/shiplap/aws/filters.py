"""Selector terms of an EC2NodeClass as EC2's Describe filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef


def of_tags(tags: Mapping[str, str]) -> list[FilterTypeDef]:
    """One filter per tag, sorted by key; the value `*` asks only that the tag exists."""
    return [
        {"Name": "tag-key", "Values": [key]} if value == "*" else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]
