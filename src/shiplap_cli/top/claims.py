"""The claims of a live install beside its cluster: tiers, what is on its way, what is really paid.

The table is read every few seconds, and only claims that have changed are fetched; where it may not be read, that is
said, and nodes alone are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

import msgspec

from shiplap.manifests.nodeclaim import NodeClaim
from shiplap_cli.inputs.follow import Trouble
from shiplap_cli.installs.find_install import Install
from shiplap_cli.top import looking

_SUBJECT = looking.Subject(
    "claims", "claims are not seen, so tiers and nodes on their way are unknown and prices estimated"
)


class Claimed(msgspec.Struct, frozen=True):
    """All claims of the cluster that are not over."""

    claims: tuple[NodeClaim, ...]


Put = Callable[[Claimed | Trouble], None]
Read = Callable[[], Sequence[NodeClaim]]


def reader(located: Callable[[], tuple[Install, str]]) -> Read:
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


def look(read: Read, put: Put) -> None:
    """Once. Raises InvalidInput: there is no such install or cluster."""
    looking.look(_SUBJECT, lambda: Claimed(tuple(read())), put)


def follow_claims(read: Read, put: Put, ended: Event) -> None:
    """Look again and again, in a thread that ends with the process at the latest."""
    looking.keep_looking(_SUBJECT, lambda: Claimed(tuple(read())), put, ended)
