"""Ends what an install has left in IAM for nodes that ran on, once its stack and its catalog function are gone."""

from __future__ import annotations

from shiplap.errors import InvalidInput
from shiplap.flows.catalog.identity_sweep import end_identities, look_at_identities
from shiplap.node_identities import EndingIdentities, KeptIdentities
from shiplap.ports import NodeIdentities
from shiplap_cli.installs.find_install import aws_client
from shiplap_cli.output import Printed, counted


class LeftIdentity(Printed, frozen=True):
    """An instance profile or node role that stays. `carriers` are a few of `count` instances or profiles with it."""

    kind: str
    name: str
    cluster: str
    count: int
    carriers: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Reason why the identity stays."""
        if not self.count:
            return "IAM or EKS did not delete it: the line before says why"
        what = "instance" if self.kind == "instance profile" else "instance profile"
        return f"{counted(self.count, what)} {'carry' if self.count > 1 else 'carries'} it: {', '.join(self.carriers)}"


def identities_of(install: str, region: str) -> NodeIdentities:
    """Return the identities of an install's nodes in a Region."""
    from shiplap.aws.iam_identities import AwsNodeIdentities  # noqa: PLC0415 - so that --help does not wait for botocore

    return AwsNodeIdentities(
        install,
        region,
        iam=aws_client("iam", region),
        ec2=aws_client("ec2", region),
        ssm=lambda: aws_client("ssm", region),
        eks=lambda: aws_client("eks", region),
    )


def abandoned(identities: NodeIdentities, now: float) -> EndingIdentities:
    """Return the identities of a deleted install that may end, and those that are kept.

    Raises:
        InvalidInput: the install is deployed.
        AwsError: it cannot be told what exists, or who carries it.
    """
    if identities.find().current:
        raise InvalidInput("--identities", "the install is deployed: its catalog function ends what no node carries")
    return look_at_identities(identities, KeptIdentities(), now, grace_s=0.0)


def end_abandoned(identities: NodeIdentities, now: float) -> tuple[LeftIdentity, ...]:
    """End all that nothing carries, each profile before its role; what is left.

    Raises:
        InvalidInput, AwsError: as `abandoned`.
    """
    while True:
        ending = abandoned(identities, now)
        if not end_identities(identities, ending):
            return left_identities(ending.kept)


def left_identities(kept: KeptIdentities) -> tuple[LeftIdentity, ...]:
    """Return the kept identities, as commands print them."""
    profiles = [
        LeftIdentity("instance profile", item.name, item.cluster, item.instances, item.examples)
        for item in kept.profiles
    ]
    roles = [LeftIdentity("node role", item.name, item.cluster, len(item.holders), item.holders) for item in kept.roles]
    return (*profiles, *roles)
