"""The names of instance profiles, for the stack that makes them and the launches that refer to them.

An EC2NodeClass names a role; EC2 takes an instance profile. The stack makes one for each role, under a name of our own:
a role often has a profile already, for example one of the same name, that others look after.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Protocol

from botocore.exceptions import ClientError

from shiplap.aws.ec2_errors import aws_error
from shiplap.aws.failures import FAILURES, code_of

_LOG = logging.getLogger(__name__)

_LONGEST = 128
_LONGEST_ROLE = 64
_DIGEST = 10


class InstanceProfileClient(Protocol):
    """The part of an IAM client that is used."""

    def get_instance_profile(self, *, InstanceProfileName: str) -> Any: ...  # noqa: N803 - the API's name


def profile_name(install: str, region: str, cluster: str, role: str) -> str:
    """The instance profile for a role, which may be written with its path; at most 128 characters.

    IAM knows neither installs nor Regions, so the name carries both.
    """
    return shortened(f"{install or 'shiplap'}-{region}-{cluster}-{role_name(role)}", _LONGEST)


def node_role_name(install: str, region: str, cluster: str) -> str:
    """The node role that the stack makes for a cluster; at most 64 characters."""
    return shortened(f"{install or 'shiplap'}-node-{region}-{cluster}", _LONGEST_ROLE)


def shortened(name: str, longest: int) -> str:
    """A name as it is, or one that is too long cut and ended by a digest of the whole."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - _DIGEST - 1]}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]}"


def role_name(role: str) -> str:
    """A role's name without its path."""
    return role.rpartition("/")[2]


def is_missing(iam: InstanceProfileClient, name: str) -> bool:
    """Whether IAM knows no instance profile of this name. When IAM does not say, it is taken to be there."""
    try:
        iam.get_instance_profile(InstanceProfileName=name)
    except FAILURES as error:
        if isinstance(error, ClientError) and code_of(error) == "NoSuchEntity":
            return True
        _LOG.info("not known whether it exists: %s", aws_error(f"look at instance profile {name}", error))
    return False
