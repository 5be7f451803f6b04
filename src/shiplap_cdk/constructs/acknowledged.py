"""Findings of cdk-nag that are right as they are, each with its reason beside the resource it speaks of."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def acknowledge(scope: IConstruct, rule: str, reason: str, *findings: str) -> None:
    """Accept a rule of the pack AwsSolutions below a scope, or only some findings of it (`Resource::*`)."""
    ids = [f"AwsSolutions::{rule}[{finding}]" for finding in findings] or [f"AwsSolutions::{rule}"]
    Validations.of(scope).acknowledge(*(Acknowledgment(id=id_, reason=reason) for id_ in ids))
