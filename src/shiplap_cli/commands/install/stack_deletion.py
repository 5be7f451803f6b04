"""Deletes an install's CloudFormation stack and waits for the end of it. Tables and bucket have the policy Retain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.failures import FAILURES
from shiplap.errors import AwsError

_POLL_S = 10.0
_GONE = ("", "DELETE_COMPLETE")


class StackState(msgspec.Struct, frozen=True):
    """The status of a stack, empty if there is none; `reasons` are those of resources that could not be deleted."""

    status: str
    reasons: tuple[str, ...] = ()

    @property
    def is_gone(self) -> bool:
        """True if nothing is left of it but what is retained."""
        return self.status in _GONE


def stack_state(client: Any, stack: str) -> StackState:
    """Return the state of a stack in CloudFormation. Raises AwsError."""
    try:
        (described,) = client.describe_stacks(StackName=stack)["Stacks"]
        status = str(described["StackStatus"])
        return StackState(status, _reasons(client, stack) if status == "DELETE_FAILED" else ())
    except FAILURES as error:
        if isinstance(error, ClientError) and "does not exist" in str(error):
            return StackState("")
        raise AwsError(f"could not look up stack {stack}: {error}") from error


def _reasons(client: Any, stack: str) -> tuple[str, ...]:
    events = client.describe_stack_events(StackName=stack)["StackEvents"]
    failed = (item for item in events if item.get("ResourceStatus") == "DELETE_FAILED")
    return tuple(
        f"{item['LogicalResourceId']}: {item.get('ResourceStatusReason', 'no reason is given')}" for item in failed
    )


def delete_stack(
    client: Any, stack: str, *, now: Callable[[], float], sleep: Callable[[float], None], until: float
) -> StackState:
    """Delete a stack, or go on with a deletion that runs, and wait until an epoch second.

    Returns the last state: gone, DELETE_IN_PROGRESS when the time is up, or DELETE_FAILED with the reasons.

    Raises:
        AwsError: CloudFormation refuses, for example because of termination protection.
    """
    state = stack_state(client, stack)
    if state.is_gone:
        return state
    if state.status != "DELETE_IN_PROGRESS":
        try:
            client.delete_stack(StackName=stack)
        except FAILURES as error:
            raise AwsError(f"stack {stack} was not deleted: {error}") from error
        state = stack_state(client, stack)
    while state.status == "DELETE_IN_PROGRESS" and now() < until:
        sleep(_POLL_S)
        state = stack_state(client, stack)
    return state
