"""The places of instance profiles, for the stack that makes them and the launches that refer to them.

An EC2NodeClass names a role; EC2 takes an instance profile. The stack makes one for each role of a cluster.
CloudFormation gives it a name, because a profile outlives its deployment while instances carry it: under a name of our
own, the next deployment could not make it again. So a parameter in SSM has the name, and the path in IAM says whose
profile it is.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Any, Protocol

from botocore.exceptions import ClientError

from shiplap.aws.ec2_errors import aws_error
from shiplap.aws.failures import FAILURES, code_of

_LOG = logging.getLogger(__name__)

_DIGEST = 8
# SSM takes these in the name of a parameter: https://docs.aws.amazon.com/systems-manager/latest/userguide/sysman-paramstore-su-create.html
_NOT_IN_PARAMETERS = re.compile(r"[^a-zA-Z0-9_.-]")


class InstanceProfileClient(Protocol):
    """The part of an IAM client that is used."""

    def get_instance_profile(self, *, InstanceProfileName: str) -> Any: ...  # noqa: N803 - the API's name


def identity_path(install: str, region: str, *below: str) -> str:
    """The path in IAM of what an install makes for its nodes in a Region.

    `below` are the cluster, and behind it the role that an instance profile holds. IAM takes 512 characters.
    """
    return "/".join(("/shiplap", region, install, *below, ""))


def parameters_path(install: str) -> str:
    """The path in SSM of the parameters that hold the names of an install's instance profiles."""
    return f"/shiplap/{install}/"


def profile_parameter(install: str, cluster: str, role: str) -> str:
    """The SSM parameter with the name of the instance profile for a role, which may be written with its path.

    The digest tells roles apart that differ in characters that SSM does not take.
    """
    name = role_name(role)
    return f"{parameters_path(install)}{cluster}/{_NOT_IN_PARAMETERS.sub('-', name)}-{digest_of(name)}"


def digest_of(text: str) -> str:
    """Eight hexadecimal digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


def shortened(name: str, longest: int) -> str:
    """A name as it is, or one that is too long cut and ended by a digest of the whole."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - _DIGEST - 1]}-{digest_of(name)}"


def role_name(role: str) -> str:
    """A role's name without its path."""
    return role.rpartition("/")[2]


def is_missing(iam: InstanceProfileClient, name: str) -> bool:
    """True if IAM knows no instance profile of this name. When IAM does not answer, the profile counts as present."""
    try:
        iam.get_instance_profile(InstanceProfileName=name)
    except FAILURES as error:
        if isinstance(error, ClientError) and code_of(error) == "NoSuchEntity":
            return True
        _LOG.info("not known whether it exists: %s", aws_error(f"look at instance profile {name}", error))
    return False
