"""The outputs of a CloudFormation stack, and why a stack that was never completed has none."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from shiplap.aws.failures import FAILURES
from shiplap.errors import AwsError, InvalidInput

_WAIT = "wait for its end"
_FAILED = "its first deployment failed"
_EVENTS = "`aws cloudformation describe-stack-events --stack-name {stack}` says why"

# By https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_Stack.html. The CDK deletes a stack in the
# states ROLLBACK_COMPLETE and ROLLBACK_FAILED before it makes it anew; in CREATE_FAILED it does not.
_INCOMPLETE = {
    "REVIEW_IN_PROGRESS": "has a change set that nobody has executed: run `npx aws-cdk deploy`",
    "CREATE_IN_PROGRESS": f"is being made: {_WAIT}",
    "CREATE_FAILED": f"{_FAILED}: {_EVENTS}; run `aws cloudformation delete-stack --stack-name {{stack}}`, then deploy",
    "ROLLBACK_IN_PROGRESS": f"{_FAILED} and is being undone: {_WAIT}",
    "ROLLBACK_FAILED": f"{_FAILED}: {_EVENTS}; `npx aws-cdk deploy` deletes it and makes it anew",
    "ROLLBACK_COMPLETE": f"{_FAILED}: {_EVENTS}; `npx aws-cdk deploy` deletes it and makes it anew",
    "DELETE_IN_PROGRESS": f"is being deleted: {_WAIT}",
}


def no_stack(stack: str) -> InvalidInput:
    """The refusal where `stack_outputs` is None."""
    reason = f"there is no stack {stack!r} in this account and Region: check --stack, --region and --profile"
    return InvalidInput("--stack", reason)


def stack_outputs(cloudformation: Any, stack: str) -> dict[str, str] | None:
    """The outputs of a stack by name; None when there is no such stack.

    Raises:
        AwsError: CloudFormation does not answer.
        InvalidInput: the stack was never completed, so that it has no outputs.
    """
    try:
        (described,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except FAILURES as error:
        if isinstance(error, ClientError) and "does not exist" in str(error):
            return None
        raise AwsError(f"could not look up stack {stack}: {error}") from error
    outputs = {item["OutputKey"]: item["OutputValue"] for item in described.get("Outputs", ())}
    status = described.get("StackStatus", "")
    if not outputs and status in _INCOMPLETE:
        raise InvalidInput("--stack", f"stack {stack!r} is {status}: {_INCOMPLETE[status].format(stack=stack)}")
    return outputs
