"""Names the remedies that people have for a refusal of AWS that no retry and no other offering ends.

Texts that people see carry the remedy behind AWS's message: claims that failed, pods' events, conditions of an
EC2NodeClass. docs/how-to/operations.md has all remedies as a table.
"""

from __future__ import annotations

import msgspec

ENCODED = "Encoded authorization failure message"
"""Begins the part of a refused permission that only those may read who may decode it; thousands of characters."""


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy against some errors.

    codes: AWS's error codes, without what follows a dot.
    phrase: what AWS's message has to contain for it, because the code says too little; empty for any message.
    effect: what Shiplap does until then.
    action: what people do.
    """

    codes: tuple[str, ...]
    phrase: str = ""
    effect: str
    action: str


_CLASS = "does not launch from the EC2NodeClass in that minute, and tries again in the next"
_ACCOUNT = "leaves the capacity type alone for 15 minutes, doubled up to an hour"

REMEDIES = (
    Remedy(
        codes=("VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded"),
        effect="leaves the types of that quota alone for 15 minutes, doubled up to an hour, and launches others",
        action="raise the quota of vCPUs in Service Quotas (`shiplap doctor` shows all), or allow other families or "
        "capacity types",
    ),
    Remedy(
        codes=("VolumeLimitExceeded", "MaxIOPSLimitExceeded"),
        effect=_ACCOUNT,
        action="request more EBS storage in Service Quotas, or ask for smaller volumes in blockDeviceMappings",
    ),
    Remedy(
        codes=("MaxTemplateLimitExceeded",),
        effect="launches from the launch templates that exist",
        action="delete launch templates that nothing uses, or request more in Service Quotas",
    ),
    Remedy(
        codes=("PendingVerification", "Blocked", "AccountDisabled"),
        effect=_ACCOUNT,
        action="wait for AWS's e-mail about the account, or open a case with AWS Support",
    ),
    Remedy(
        codes=("OptInRequired",),
        phrase="accept terms and subscribe",
        effect=_CLASS,
        action="accept the terms of the AMI in AWS Marketplace with this account, or select another AMI",
    ),
    Remedy(
        codes=("AuthFailure.ServiceLinkedRoleCreationNotPermitted",),
        effect="leaves spot alone for 15 minutes, doubled up to an hour, and launches on-demand",
        action="run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once",
    ),
    Remedy(
        codes=("AuthFailure",),
        phrase="Not authorized for images",
        effect=_CLASS,
        action="share the AMI with this account, or select another one",
    ),
    Remedy(
        codes=("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        effect=_CLASS,
        action="look at the action in the message, at service control policies and at the permissions boundary; "
        "`aws sts decode-authorization-message --encoded-message TEXT` decodes the encoded part",
    ),
    Remedy(
        codes=("InvalidParameterValue", "InvalidIamInstanceProfileName"),
        phrase="IAM Instance Profile",
        effect=_CLASS,
        action="run `cdk deploy` after a change of `role`; `instanceProfile` is the name of a profile that has a role",
    ),
    Remedy(
        codes=("InvalidParameterValue",),
        phrase="architecture",
        effect=_CLASS,
        action="select AMIs of the architecture of the NodePool's instance types",
    ),
    Remedy(
        codes=("InvalidParameter",),
        phrase="belong to different networks",
        effect=_CLASS,
        action="let subnetSelectorTerms and securityGroupSelectorTerms select in one VPC",
    ),
    Remedy(
        codes=("InvalidSubnetID", "InvalidSubnetId", "InvalidGroup", "InvalidSecurityGroupID"),
        effect=_CLASS,
        action="let subnetSelectorTerms and securityGroupSelectorTerms select what exists",
    ),
    Remedy(
        codes=("TagPolicyViolation",),
        effect=_CLASS,
        action="give the EC2NodeClass the `tags` that the tag policy of the organisation asks for",
    ),
    Remedy(
        codes=("InvalidAMIID",),
        effect=_CLASS,
        action="select an AMI that exists in this Region",
    ),
    Remedy(
        codes=("InvalidBlockDeviceMapping",),
        effect=_CLASS,
        action="make the volumes in blockDeviceMappings as large as the snapshots of the AMI, at least",
    ),
    Remedy(
        codes=("InvalidSnapshot",),
        effect=_CLASS,
        action="a snapshot of the AMI or of blockDeviceMappings does not exist, or is not shared with this account",
    ),
    Remedy(
        codes=("InvalidUserData", "InvalidParameterValue"),
        phrase="User data is limited",
        effect=_CLASS,
        action="shorten userData: with what Shiplap adds it may have 16 KB",
    ),
    Remedy(
        codes=("InvalidKMSKey", "CustomerKeyHasBeenRevoked", "Client.InternalError"),
        effect="leaves the EC2NodeClass alone for 3 minutes, doubled up to an hour",
        action="most often EC2 may not use the KMS key of an encrypted volume: list the key under `volumeKeys` in "
        "shiplap.yaml, deploy, and check that the policy of the key admits this account",
    ),
    Remedy(
        codes=("InsufficientFreeAddressesInSubnet",),
        effect="leaves the subnet alone for 3 minutes, doubled up to an hour, and uses others",
        action="add subnets with free addresses to the EC2NodeClass",
    ),
    Remedy(
        codes=("OperationNotPermitted",),
        phrase="may not be terminated",
        effect="tries again to end the instance, every minute",
        action="take the termination protection off the instance",
    ),
)


def remedy(code: str, message: str = "") -> str:
    """Return what people can do about an error; empty when no remedy is known.

    Args:
        code: AWS's error code, or the reason for the end of an instance: `Client.` and an error code. It counts by its
            beginning: `InvalidKMSKey.InvalidState`.
        message: AWS's message.
    """
    names = (code, code.removeprefix("Client."))
    for known in REMEDIES:
        begins = any(name == start or name.startswith(f"{start}.") for name in names for start in known.codes)
        if begins and known.phrase in message:
            return known.action
    return ""


def with_remedy(code: str, text: str, message: str = "") -> str:
    """The text with the remedy, if there is one.

    It stands before the encoded part of a refused permission, because long texts are cut.

    Args:
        code: AWS's error code.
        text: what people would read without it.
        message: AWS's message, where the text lacks it.
    """
    action = remedy(code, message or text)
    if not action:
        return text
    plain, marker, encoded = text.partition(ENCODED)
    rest = f". {marker}{encoded}" if marker else ""
    return f"{plain.rstrip(' .')}; {action}{rest}"
