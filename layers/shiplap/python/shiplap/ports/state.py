"""Table `state`: the epoch, claims, commands, what EC2 refused, and what launches have taken of what is counted."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Unpack

import msgspec

from shiplap.disruption.progress import CommandChanges, CommandState, DisruptionCommand
from shiplap.errors import ConditionFailed
from shiplap.instances.offerings.unavailability import (
    FIRST_WAIT_FOR_QUOTA_S,
    FIRST_WAIT_S,
    after_failure,
    remembered_until,
)
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, NodeClaim
from shiplap.manifests.stored_form import StoredForm
from shiplap.ports.compute import OfferingFailure

COMMIT_GROUP = 99
"""Claims one transaction can hold beside the epoch: DynamoDB allows 100 actions."""


COMMIT_BYTES = 3_000_000
"""Encoded claims one transaction can hold: DynamoDB takes 4 MB, and names, keys and later changes need some of it."""


CLAIM_BYTES = 380_000
"""Bytes a stored claim may have: an item of DynamoDB holds 400 KiB, and keys and later changes need some of it."""

_PLAIN_BYTES = 300_000
"""A longer claim is stored compressed. Shorter ones stay text, which people and older versions read."""

CLAIM_FORM = StoredForm(NodeClaim, always=("schema",))
"""The flat form of stored claims. An item without `schema` was written before that field existed, in schema 1."""

COMMAND_FORM = StoredForm(DisruptionCommand, always=("schema",))
"""The form of stored commands."""

_CLAIMS = msgspec.json.Decoder(CLAIM_FORM.flat_type)
_COMMANDS = msgspec.json.Decoder(COMMAND_FORM.flat_type)


def written_claim(claim: NodeClaim) -> str | bytes:
    """A claim as it is stored: flat JSON, or compressed JSON where that is long."""
    document = msgspec.json.encode(CLAIM_FORM.flat(claim))
    return zlib.compress(document, 9) if len(document) > _PLAIN_BYTES else document.decode()


def read_claim(stored: str | bytes) -> NodeClaim:
    """The inverse of `written_claim`, also for items of other releases.

    Raises:
        msgspec.DecodeError, zlib.error: it is no claim.
    """
    return CLAIM_FORM.nested(_CLAIMS.decode(stored if isinstance(stored, str) else zlib.decompress(stored)))


def written_command(command: DisruptionCommand) -> str:
    """A command as it is stored: flat JSON."""
    return msgspec.json.encode(COMMAND_FORM.flat(command)).decode()


def read_command(stored: str) -> DisruptionCommand:
    """The inverse of `written_command`, also for items of other releases. Raises msgspec.DecodeError."""
    return COMMAND_FORM.nested(_COMMANDS.decode(stored))


def can_be_stored(claim: NodeClaim) -> bool:
    """Whether a claim is small enough to be written."""
    return len(written_claim(claim)) <= CLAIM_BYTES


MISSED_FOR_S = 30 * 24 * 3600
"""How long a pod is remembered as one whose node turned out too small, in seconds."""


REFUSED_FOR_S = 7 * 24 * 3600
"""How long it is remembered that nodes were launched for a pod in vain, in seconds."""


ADDRESSES_S = 60
"""How long addresses of a launch are counted apart, in seconds: until describing a subnet must show them."""


class UnavailableOffering(msgspec.Struct, frozen=True, omit_defaults=True):
    """An offering not to try before `until` (epoch seconds); `failures` in a row lengthen the wait, 3 min to 1 h.

    It may stand for more than one, see `OfferingFailure.scope`. Known to all clusters of the account.
    """

    instance_type: str
    zone: str
    capacity_type: str
    until: float
    failures: int = 1
    code: str = ""

    @classmethod
    def after(cls, known: UnavailableOffering | None, failure: OfferingFailure, now: float) -> UnavailableOffering:
        """What is known once `failure` was seen at `now`; `known` itself while that still rests."""
        if known is not None and now < known.until:
            return known
        past = (known.failures, known.until) if known is not None else (0, 0.0)
        first_s = FIRST_WAIT_FOR_QUOTA_S if failure.kind == "quota" else FIRST_WAIT_S
        failures, until = after_failure(*past, now, first_s)
        return cls(*failure.scope, until, failures, failure.code)

    @property
    def scope(self) -> tuple[str, str, str]:
        """What is left alone; see `OfferingFailure.scope`."""
        return self.instance_type, self.zone, self.capacity_type

    def relieved(self) -> UnavailableOffering:
        """What is known once it has given an instance again: one failure less, so that twice as much may be asked."""
        return msgspec.structs.replace(self, failures=max(self.failures - 1, 0))

    def is_recovering(self, now: float) -> bool:
        """Whether it rests no more, but its failures are not forgotten yet."""
        return self.until <= now < remembered_until(self.failures, self.until) and self.failures > 0


FUTILE_FOR_S = 3600.0
"""How long it is remembered that a node was launched in vain, in seconds after its claim was created."""


PROVEN_FOR_S = 14 * 24 * 3600
"""How long it is remembered that a node ran pods of a kind, in seconds after it was last noted."""


class Refusals(msgspec.Struct, frozen=True):
    """Nodes that were launched for a pod and that it does not run on: the newest claims by name, and when it was noted.

    `tries` counts how often nodes were launched in vain for pods like it, up to this one; those launched together count
    once. `launched_at` is when the youngest of the claims was created. Times are epoch seconds. `like` is equal for
    pods alike. Items written before these fields existed lack them.
    """

    claims: tuple[str, ...] = ()
    at: float = 0.0
    tries: int = 0
    launched_at: float = 0.0
    like: str = ""

    @property
    def number(self) -> int:
        """How many tries there were."""
        return self.tries or len(self.claims)


class DecisionState(msgspec.Struct, frozen=True):
    """What the store knows when a decision starts, read after the epoch.

    `recovering` offerings rest no more, but failed not long ago. `addresses` are those that launches in flight will
    take from each subnet, by its id; `reserved` the instances they will take of each capacity reservation, by token.
    `refused` holds pods by uid, `futile` the claims of nodes in vain with the time they were created, `proven` the
    kinds of pods that nodes were seen to run with the time that was last noted.
    """

    epoch: int
    claims: tuple[NodeClaim, ...] = ()
    unavailable: tuple[UnavailableOffering, ...] = ()
    recovering: tuple[UnavailableOffering, ...] = ()
    addresses: dict[str, int] = {}
    reserved: dict[str, dict[str, int]] = {}
    missed_pods: frozenset[str] = frozenset()
    refused: dict[str, Refusals] = {}
    futile: dict[str, float] = {}
    proven: dict[str, float] = {}


class Move(msgspec.Struct, frozen=True):
    """A claim on its way to a state."""

    claim: NodeClaim
    to: ClaimState
    changes: ClaimChanges = {}


Taken = Mapping[str, tuple[int, float]]
"""Instances of a capacity reservation and the epoch second until which they count, by the token of a launch."""


def taken_now(taken: Mapping[str, Taken], now: float) -> dict[str, dict[str, int]]:
    """What still counts, by reservation and token, sorted."""
    counted = {
        name: {token: number for token, (number, until) in sorted(taken[name].items()) if until > now and number}
        for name in sorted(taken)
    }
    return {name: tokens for name, tokens in counted.items() if tokens}


def may_take(taken: Taken, token: str, count: int, available: int, now: float) -> int:
    """How many of a reservation's instances a launch may take."""
    others = sum(number for other, (number, until) in taken.items() if other != token and until > now)
    return max(min(count, available - others), 0)


def total_addresses(reservations: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Addresses by subnet id, added up over launches and sorted."""
    total: Counter[str] = Counter()
    for reservation in reservations:
        total.update(reservation)
    return {subnet: total[subnet] for subnet in sorted(total)}


def check_together(moves: Sequence[Move]) -> None:
    """Moves can be one transaction: each claim once, and not too many. Raises ConditionFailed."""
    if len(moves) > COMMIT_GROUP or len({(move.claim.cluster, move.claim.name) for move in moves}) < len(moves):
        raise ConditionFailed(f"{len(moves)} moves cannot be made together")


class StateStore(Protocol):
    """Table `state`: the epoch, claims, unavailable offerings and the launch ledger. All writes are conditional."""

    def read(self, cluster: str, now: float) -> DecisionState:
        """The epoch first, then unsettled claims, offerings unavailable at `now` and missed pods; consistent reads.

        Everything is sorted by name. A cluster never written to is at epoch 0.
        """
        ...

    def epoch(self, cluster: str) -> int:
        """The epoch alone, a consistent read of one item: as long as it stands, no claim and no command was added."""
        ...

    def commit(
        self, cluster: str, epoch: int, claims: Sequence[NodeClaim], commands: Sequence[DisruptionCommand] = ()
    ) -> int:
        """Write commands and Planned claims exactly as given and advance the epoch, atomically in groups of at most 99.

        Commands come first. Returns the new epoch; without anything to write the epoch stays. The claims are also the
        launch ledger: how many nodes were launched for a pod is how many claims list it.

        Raises:
            EpochMoved: somebody decided meanwhile. Groups written before stay and are resumed as theirs.
            ConditionFailed: a claim is not Planned, or a name is taken.
        """
        ...

    def commands(self, cluster: str) -> tuple[DisruptionCommand, ...]:
        """The disruption commands that are not over, sorted by name; consistent."""
        ...

    def advance_command(
        self, command: DisruptionCommand, to: CommandState, **changes: Unpack[CommandChanges]
    ) -> DisruptionCommand:
        """Move a command to a state if it is unchanged since it was read (see `disruption.progress.advanced`).

        Raises ConditionFailed.
        """
        ...

    def claim(self, cluster: str, name: str) -> NodeClaim | None: ...

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        """By the index on instance ids; the index may lag behind a launch by a moment."""
        ...

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        """All claims that are not Gone, sorted by name; Failed ones as long as they are remembered."""
        ...

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Unpack[ClaimChanges]) -> NodeClaim:
        """Move a claim to a state if it is unchanged since it was read (see `nodeclaim.moved`); returns it as written.

        `changed_at` belongs among the changes where the state does, for an ended claim is forgotten by it.
        Raises ConditionFailed.
        """
        ...

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        """Move claims together: all of them, or none if any has changed since it was read.

        At most COMMIT_GROUP claims of at most COMMIT_BYTES. Raises ConditionFailed.
        """
        ...

    def adopt(self, claim: NodeClaim) -> bool:
        """Write a claim, in whichever state, if there is none of its name; whether it was written.

        The epoch stays: the claim's node is in service, and decisions see it with or without a claim.
        """
        ...

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        """Remember for the whole account that offerings failed; their waits double while failures repeat.

        Returns what is known then, once for each `scope` of the failures, sorted. What is already unavailable at `now`
        is left as it is (see `instances.unavailability`).
        """
        ...

    def relieve(self, offering: UnavailableOffering) -> None:
        """Remember that an offering which had failed gave an instance; does nothing if it has changed since."""
        ...

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        """Count a capacity reservation's instances as taken by a launch for ADDRESSES_S seconds; how many it may take.

        Never more than `available`, as EC2 described it a moment ago, less what other launches have taken meanwhile.
        Again for a token replaces what it took.
        """
        ...

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        """Count addresses per subnet id as taken by a launch, for ADDRESSES_S seconds; again for a token replaces."""
        ...

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        """Remember pods whose node turned out too small, for 30 days."""
        ...

    def mark_refused(self, cluster: str, pod_uid: str, refusals: Refusals) -> None:
        """Remember for REFUSED_FOR_S that a pod does not run on nodes of its own; what is newer stays as it is."""
        ...

    def mark_futile(self, cluster: str, created_at: Mapping[str, float]) -> None:
        """Remember claims of nodes in vain by name, until FUTILE_FOR_S after they were created."""
        ...

    def mark_proven(self, cluster: str, kinds: Sequence[str], now: float) -> None:
        """Remember for PROVEN_FOR_S that nodes run pods of these kinds; see `flows.planning.unproven`."""
        ...


class JoinLog(Protocol):
    """How instances of a cluster become nodes: times by NodePool, successes and failures by AMI and type."""

    def read(self, cluster: str) -> JoinHistory:
        """Everything known, sorted by name."""
        ...

    def joined(
        self, cluster: str, pool: str, ami: str, instance_type: str, seconds: Sequence[float], now: float
    ) -> None:
        """Nodes were registered, each so many seconds after its launch."""
        ...

    def initialized(self, cluster: str, pool: str, seconds: Sequence[float], now: float) -> None:
        """Nodes were complete, each so many seconds after its registration."""
        ...

    def failed(self, cluster: str, ami: str, instance_type: str, launched_at: float, now: float) -> None:
        """An instance did not become a complete node in time."""
        ...
