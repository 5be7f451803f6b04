"""Finds the notes of sleep of an install."""

from __future__ import annotations

from shiplap.policies.sleep.sleep_store import SleepStore
from shiplap_cli.installs.find_install import DeployedInstall


def sleep_notes(install: DeployedInstall) -> SleepStore:
    """Return the store of notes on the sleep of its clusters. Raises InvalidInput: table `state` has no known name."""
    from shiplap.aws.policies.sleep_adapters import DynamoSleep  # noqa: PLC0415 - so that --help does not wait for botocore
    from shiplap.aws.session import client  # noqa: PLC0415 - as above

    return DynamoSleep(client("dynamodb"), install.output("StateTable"))
