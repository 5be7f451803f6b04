"""Alarms of one install. Their names begin with the install's, which another install's name may begin with, too."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

_ALARM = "AWS::CloudWatch::Alarm"


def ringing_alarms(cloudformation: Any, cloudwatch: Any, stack: str, name: str) -> list[str]:
    """Names of the alarms of an install that are in alarm.

    An alarm `shiplap-eu-misses` may be of the install `shiplap` or of `shiplap-eu`: the stack knows its own. It is only
    asked when there is an alarm. Without the stack, all that may be the install's are named.

    Args:
        cloudformation: a client where the install is.
        cloudwatch: the same.
        stack: the install's stack.
        name: the install's own name.

    Raises:
        ClientError, BotoCoreError: AWS refuses or does not answer.
    """
    pages = cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=f"{name}-", StateValue="ALARM")
    ringing = [str(item["AlarmName"]) for page in pages for item in page.get("MetricAlarms", ())]
    own = _alarms_of(cloudformation, stack) if ringing else None
    return ringing if own is None else [alarm for alarm in ringing if alarm in own]


def _alarms_of(cloudformation: Any, stack: str) -> set[str] | None:
    """Names of all alarms of a stack; None if there is no such stack. Raises ClientError, BotoCoreError."""
    try:
        pages = list(cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack))
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    summaries = (item for page in pages for item in page["StackResourceSummaries"])
    return {str(item.get("PhysicalResourceId", "")) for item in summaries if item["ResourceType"] == _ALARM}
