"""The claims of a live install beside its cluster: tiers, what is on its way, what is really paid.

The table is read every few seconds, and only claims that have changed are fetched; where it may not be read, that is
said, and nodes alone are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

import msgspec

from shiplap.manifests.nodeclaim import NodeClaim
from shiplap_cli.inputs.cluster_events import SourceProblem
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.top import polling

_SUBJECT = polling.PolledSource(
    "claims", "claims are not seen, so tiers and nodes on their way are unknown and prices estimated"
)


class ClaimsRead(msgspec.Struct, frozen=True):
    """All claims of the cluster that are not over."""

    claims: tuple[NodeClaim, ...]


Put = Callable[[ClaimsRead | SourceProblem], None]
Read = Callable[[], Sequence[NodeClaim]]


def claim_reader(located: Callable[[], tuple[DeployedInstall, str]]) -> Read:
    """What reads the claims of a cluster of an install, which is looked for when it is first used."""
    known: list[Read] = []

    def read() -> Sequence[NodeClaim]:
        if not known:
            from shiplap.aws.dynamodb.state_table import DynamoState  # noqa: PLC0415 - loads botocore
            from shiplap.aws.session import client  # noqa: PLC0415 - as above

            install, cluster = located()
            state = DynamoState(client("dynamodb"), install.output("StateTable"))
            known.append(lambda: state.claims(cluster))
        return known[0]()

    return read


def poll_claims(read: Read, put: Put) -> None:
    """Once. Raises InvalidInput: there is no such install or cluster."""
    polling.poll_once(_SUBJECT, lambda: ClaimsRead(tuple(read())), put)


def follow_claims(read: Read, put: Put, ended: Event) -> None:
    """Look again and again, in a thread that ends with the process at the latest."""
    polling.keep_polling(_SUBJECT, lambda: ClaimsRead(tuple(read())), put, ended)
