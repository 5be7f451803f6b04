"""Finds the commitments of a decision: the counted ones, the use by all clusters of the install, and the room left."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from shiplap.errors import AwsError, AwsUnavailable, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.flows.optional.policy_port import PolicyPort
from shiplap.flows.policies.policy import DecisionFacts
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import AccountCommitments, InstanceUse, merged
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom, counted_on, room_left
from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.commitments.commitment_store import CommitmentSource, CommitmentStore, CommitmentUseStore
from shiplap.policies.commitments.commitment_use import SharedUse, UsedCommitments
from shiplap.ports import Meter
from shiplap.scheduling.model.planned_pods import pair
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

COMMITMENTS = PolicyPort[CommitmentStore]("commitments", OptionalPart("commitments"))
"""The port to the account's commitments in the cluster's Region, as they were last described."""

SOURCE = PolicyPort[CommitmentSource]("commitment_source", OptionalPart("commitments of the account", AwsUnavailable))
"""The port to the account's commitments in the cluster's Region, as AWS shows them."""


USE = PolicyPort[CommitmentUseStore]("commitment_use", OptionalPart("use of commitments"))
"""The port to the notes of who uses commitments."""


def read_commitments(settings: ClusterSettings, context: FlowContext) -> AccountCommitments | None:
    """The account's commitments, and who else uses them. Not knowing it must not keep pods waiting."""
    store = context.policy_port(COMMITMENTS)
    if settings.policy(CommitmentSettings) is None or store is None:
        return None
    try:
        return store.load()
    except StoreError as error:
        context.meter.count("CommitmentsNotRead")
        _LOG.warning("commitments not read: %s", error, extra={"cluster": settings.name})
        return None


def read_use(settings: ClusterSettings, context: FlowContext) -> SharedUse | None:
    """Return the notes of who uses commitments; None if they are not known. Not knowing must not keep pods waiting."""
    store = context.policy_port(USE)
    if settings.policy(CommitmentSettings) is None or store is None:
        return None
    try:
        return store.read()
    except StoreError as error:
        context.meter.count("CommitmentsNotRead")
        _LOG.warning("use of commitments not read: %s", error, extra={"cluster": settings.name})
        return None


def commitment_room(
    settings: CommitmentSettings,
    known: AccountCommitments | None,
    noted: SharedUse | None,
    cluster: str,
    facts: DecisionFacts,
) -> CommitmentRoom:
    """Return the room that new nodes may use of the counted commitments."""
    counted = counted_on(settings, known if noted is not None else None, facts.snapshot.now)
    others = known.others if known is not None else ()
    ours = _used_by_install(noted, cluster, facts)
    return room_left(counted, others, ours, listed_prices(facts.catalog))


def used_commitments(
    settings: CommitmentSettings,
    known: AccountCommitments | None,
    noted: SharedUse | None,
    cluster: str,
    facts: DecisionFacts,
) -> UsedCommitments:
    """Return the counted commitments as a disruption decision knows them."""
    prices = listed_prices(facts.catalog)
    ledger = CommitmentLedger(counted_on(settings, known if noted is not None else None, facts.snapshot.now))
    ledger.settle(known.others if known is not None else (), prices)
    uses = _used_by_install(noted, cluster, facts)
    names = {use.instance_type for use in uses}
    return UsedCommitments(ledger.room, uses, {name: price for name, price in prices.items() if name in names})


def _used_by_install(noted: SharedUse | None, cluster: str, facts: DecisionFacts) -> tuple[InstanceUse, ...]:
    """Return the use that other clusters have noted, and the use by this cluster's nodes and claims."""
    others = noted.of_others(cluster, facts.snapshot.now) if noted is not None else ()
    return merged(others, running_use(facts.snapshot.view.nodes, facts.snapshot.claims))


def listed_prices(catalog: Catalog) -> dict[str, int]:
    """On-demand prices by type, micro-dollars per hour, as far as they are known."""
    return {
        name: round(prices.on_demand * MICROS) for name, prices in sorted(catalog.prices.items()) if prices.on_demand
    }


def running_use(nodes: Sequence[Node], claims: Sequence[NodeClaim]) -> tuple[InstanceUse, ...]:
    """A cluster's own on-demand instances: those of its nodes, and of claims that have none yet.

    A node that has just joined may lack its labels: its claim knows what it is.
    """
    paired, waiting = pair(nodes, claims)
    settled = (node for node in nodes if node.metadata.name not in paired)
    return merged(
        (_use_of_node(node) for node in settled if node.metadata.labels.get(labels.NODE_CLAIM)),
        planned_use((*paired.values(), *waiting)),
    )


def planned_use(claims: Iterable[NodeClaim]) -> tuple[InstanceUse, ...]:
    """Return the instances that claims run, or would be launched as first, on demand."""
    return merged(_use_of_claim(claim) for claim in claims if claim.state not in FINAL)


def _use_of_node(node: Node) -> InstanceUse:
    marks = node.metadata.labels
    kind = marks.get(labels.CAPACITY_TYPE)
    billed = kind == labels.ON_DEMAND or (kind == labels.RESERVED and _is_plain_reservation(marks))
    zone = marks.get(labels.ZONE, "") if kind == labels.ON_DEMAND else _NO_ZONE
    return InstanceUse(
        marks.get(labels.INSTANCE_TYPE, ""), zone, int(billed and marks.get(labels.OS, "linux") == "linux")
    )


_NO_ZONE = ""
"""The zone of an instance in a capacity reservation. Zonal Reserved Instances do not pay for it; all other commitments
do, as for any on-demand one."""


def _use_of_claim(claim: NodeClaim) -> InstanceUse:
    known, plan = claim.known_instance, claim.plan
    kinds = frozenset((known.capacity_type,)) if known.capacity_type else _allowed(claim, labels.CAPACITY_TYPE)
    billed = bool(kinds) and kinds <= {labels.ON_DEMAND, labels.RESERVED}
    if labels.RESERVED in kinds:
        marks = {
            key: "".join(_allowed(claim, key)) for key in (labels.RESERVATION_TYPE, labels.RESERVATION_INTERRUPTIBLE)
        }
        billed = billed and _is_plain_reservation({**marks, **plan.labels})
    name = known.type or next(iter(plan.instance_types), "")
    zone = _NO_ZONE if labels.RESERVED in kinds else known.zone or plan.labels.get(labels.ZONE, "")
    return InstanceUse(name, zone, int(billed and bool(name) and _may_be_linux(claim)))


def _is_plain_reservation(marks: Mapping[str, str]) -> bool:
    """True if the capacity that these labels name is billed as on-demand: capacity blocks are paid in advance."""
    is_block = marks.get(labels.RESERVATION_TYPE) == "capacity-block"
    return not is_block and marks.get(labels.RESERVATION_INTERRUPTIBLE) != "true"


def _may_be_linux(claim: NodeClaim) -> bool:
    system = claim.plan.labels.get(labels.OS)
    allowed = frozenset((system,)) if system else _allowed(claim, labels.OS)
    return not allowed or "linux" in allowed


def _allowed(claim: NodeClaim, key: str) -> frozenset[str]:
    lines = (line for line in claim.plan.requirements if line.key == key and line.operator == "In")
    return frozenset(value for line in lines for value in line.values)


def note_use(
    settings: ClusterSettings,
    known: SharedUse,
    running: Sequence[InstanceUse],
    planned: Iterable[NodeClaim],
    context: FlowContext,
) -> SharedUse | None:
    """Note what a cluster runs and is about to launch.

    Returns the notes of all clusters as they are stored then; None if another one has changed since they were `known`.

    Raises StoreError.
    """
    now = context.clock.now()
    use, store = known.noted(settings.name, running, planned_use(planned), now), context.policy_port(USE)
    if use is None or store is None:
        return known
    if store.note(known, settings.name, use, now):
        return known.with_cluster(settings.name, use, now)
    context.meter.count("CommitmentsMoved")
    _LOG.info("another cluster used commitments first", extra={"cluster": settings.name})
    return None


def refresh_commitments(
    wanted: CommitmentSettings, source: CommitmentSource, store: CommitmentStore, meter: Meter
) -> None:
    """Describe the account's commitments anew; those known before stay if AWS refuses, and end when they are too old.

    Where only written plans are counted on, these are the account's other instances alone.

    Raises:
        StoreError: they could not be stored.
    """
    try:
        known = source.describe(others_alone=not wanted.share)
    except AwsError as error:
        meter.count("CommitmentsNotDescribed")
        _LOG.warning("commitments not described: %s", error, extra={"code": error.code})
        return
    store.save(known)
    _LOG.info(
        "commitments described",
        extra={
            "region": known.region,
            "savings_plans": len(known.savings_plans),
            "reserved_instances": len(known.reserved_instances),
            "instances_of_others": sum(use.count for use in known.others),
            "left_out": {item.id: item.reason for item in known.left_out},
        },
    )
