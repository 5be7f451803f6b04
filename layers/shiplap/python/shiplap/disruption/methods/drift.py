"""Drift: nodes that no longer match their NodePool, their EC2NodeClass or EC2's catalogue.

Hashes of two versions cannot be compared. So a claim with hashes of an older version is compared with the hashes that
this version computes of the present manifests. If it has not drifted by them, it gets hashes of the present version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.current_prices import PoolMarket
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap.manifests.template_hash import (
    FIRST_VERSION,
    HASH_VERSION,
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH,
    POOL_HASH_VERSION,
    differ,
    first_pool_hashes,
    pool_hash,
)
from shiplap.manifests.tiers import Tier, expand
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot

Hashes = Mapping[str, frozenset[str]]
"""By version, the hashes of nodes that have not drifted."""


def pool_hashes_of(pool: NodePool) -> Hashes:
    """Return the hashes of a NodePool: Shiplap's, and Karpenter's where it wrote one on the manifest."""
    return {
        **_written(pool.metadata.annotations, POOL_HASH, POOL_HASH_VERSION),
        FIRST_VERSION: first_pool_hashes(pool),
        HASH_VERSION: frozenset({pool_hash(pool)}),
    }


def class_hashes_of(catalog: NodeClassCatalog, node_class: EC2NodeClass | None = None) -> Hashes:
    """Return the hashes of an EC2NodeClass as its catalogue knows them, and Karpenter's if the manifest has one."""
    annotations = node_class.metadata.annotations if node_class is not None else {}
    hashes = _written(annotations, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION)
    if catalog.spec_hash:
        hashes[HASH_VERSION] = frozenset({catalog.spec_hash})
    if catalog.first_hashes:
        hashes[FIRST_VERSION] = frozenset(catalog.first_hashes)
    return hashes


def has_first_hash(annotations: Mapping[str, str]) -> bool:
    """True if a claim's hash is of the previous version."""
    return FIRST_VERSION in (annotations.get(POOL_HASH_VERSION), annotations.get(NODE_CLASS_HASH_VERSION))


def renewed_hashes(annotations: Mapping[str, str], pool_hashes: Hashes, class_hashes: Hashes) -> dict[str, str] | None:
    """A claim's annotations with hashes of the present version instead of the previous one; None without a change.

    A hash by which the claim has drifted stays, so that it remains drifted.
    """
    renewed = dict(annotations)
    for key, version, known in (
        (POOL_HASH, POOL_HASH_VERSION, pool_hashes),
        (NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, class_hashes),
    ):
        is_first = annotations.get(version) == FIRST_VERSION
        now = known.get(HASH_VERSION)
        if is_first and now and annotations.get(key) in known.get(FIRST_VERSION, ()):
            (renewed[key],) = now
            renewed[version] = HASH_VERSION
    return renewed if renewed != annotations else None


def _written(annotations: Mapping[str, str], key: str, version: str) -> dict[str, frozenset[str]]:
    written = annotations.get(key)
    return {annotations.get(version, ""): frozenset({written})} if written else {}


_PLACEMENT_GROUP = labels.AWS_PREFIX + "placement-group-id"
_EVERY_NODE_HAS = frozenset(
    {labels.INSTANCE_TYPE, labels.ARCH, labels.OS, labels.ZONE, labels.ZONE_ID, labels.REGION, labels.CAPACITY_TYPE}
)
"""Labels that every node has: if one is absent, its value is unknown."""
YOUNG_S = 3600.0
"""How old a claim is before a vanished instance type counts: launching found it a moment ago."""


def tiers_of(pool: NodePool, market: PoolMarket, nodes: Sequence[Candidate]) -> tuple[Tier, ...]:
    """The pool's requirements by tier, globs matched against the catalogue and the labels of these nodes."""
    types = market.by_pool.get(pool.metadata.name, {}).values()

    def values(key: str) -> set[str]:
        entries = (entry for instance_type in types for entry in instance_type.requirements if entry.key == key)
        known = {value for entry in entries if not entry.complement for value in entry.values}
        return known | {node.node.metadata.labels[key] for node in nodes if key in node.node.metadata.labels}

    return expand(pool, values)


class ExpectedNode(msgspec.Struct, frozen=True, eq=False):
    """Describes new nodes of a NodePool: `tiers` as of `tiers_of`, and the state of its EC2NodeClass.

    The annotations of its claims should have these hashes: Shiplap's, and Karpenter's where it wrote one on the
    manifest.
    """

    tiers: tuple[Tier, ...]
    pool_hashes: Hashes
    class_hashes: Hashes
    catalog: NodeClassCatalog


def expected_node_of(
    pool: NodePool, snapshot: Snapshot, market: PoolMarket, nodes: Sequence[Candidate]
) -> ExpectedNode:
    """Describe new nodes of a NodePool; `nodes` are the nodes of the pool to compare."""
    name = pool.spec.template.spec.node_class_ref.name
    known = (catalog for catalog in snapshot.catalogs if catalog.node_class == name)
    catalog = next(known, NodeClassCatalog(name))
    node_class = next((item for item in snapshot.manifests.node_classes if item.metadata.name == name), None)
    tiers = tiers_of(pool, market, nodes)
    return ExpectedNode(tiers, pool_hashes_of(pool), class_hashes_of(catalog, node_class), catalog)


def drift_reason(candidate: Candidate, market: PoolMarket, expected: ExpectedNode, clock: DecisionClock) -> str:
    """Return why a node has drifted, or "". Unknown values are no drift.

    The order of the checks: the pool's template, its requirements, the instance type, then the EC2NodeClass and the
    resources that its selectors select.

    Args:
        candidate: the node.
        market: what the pools can buy.
        expected: what new nodes of its NodePool look like.
        clock: of the decision.
    """
    name = candidate.pool.metadata.name
    if has_another_spec(candidate.claim.plan.annotations, expected.pool_hashes):
        return f"NodePoolDrifted: the template of NodePool {name} has changed since"
    marks = _labels_of(candidate)
    missed = [_unmet_requirement(tier.requirements, marks) for tier in expected.tiers]
    if missed and all(missed):
        # The last tier is the widest: what it forbids, all of them do.
        return f"RequirementsDrifted: NodePool {name} wants {missed[-1]}"
    # Without any catalogue nothing is known about types: that is a problem of the pool, not of its nodes.
    if market.by_pool.get(name) and clock.is_past(candidate.born_at + YOUNG_S):
        gone = _type_not_offered(marks, name, market)
        if gone:
            return gone
    if _changed(candidate.claim.plan.annotations, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, expected.class_hashes):
        return f"NodeClassDrift: EC2NodeClass {expected.catalog.node_class} has changed since"
    instance_type = market.type_of(name, marks.get(labels.INSTANCE_TYPE, ""))
    if (
        candidate.claim.known_instance.ami
        and instance_type is not None
        and instance_type.ami
        and instance_type.ami != candidate.claim.known_instance.ami
    ):
        return f"AMIDrift: {candidate.claim.known_instance.ami}, new nodes of its type get {instance_type.ami}"
    return _misplaced(candidate, expected.catalog)


def has_another_spec(born_with: Mapping[str, str], pool_hashes: Hashes) -> bool:
    """True if a claim's annotations show that its NodePool has another spec than the claim was planned by."""
    return _changed(born_with, POOL_HASH, POOL_HASH_VERSION, pool_hashes)


def _changed(born_with: Mapping[str, str], key: str, version: str, wanted: Hashes) -> bool:
    """True if a claim holds a hash that should be another one; versions are never compared with each other."""
    known, should = born_with.get(key, ""), wanted.get(born_with.get(version, ""), frozenset())
    return bool(known and should) and all(differ(known, item) for item in should)


def _labels_of(candidate: Candidate) -> dict[str, str]:
    """The known labels of the node: labels of the Node win over labels of the claim, and those over its fields.

    Empty values are ignored.
    """
    claim = candidate.claim
    launched = {
        labels.INSTANCE_TYPE: claim.known_instance.type,
        labels.ZONE: claim.known_instance.zone,
        labels.CAPACITY_TYPE: claim.known_instance.capacity_type,
    }
    known = dict(launched)
    for said in (claim.plan.labels, candidate.node.metadata.labels):
        known |= {key: value for key, value in said.items() if value or key not in launched}
    return {key: value for key, value in known.items() if value or key not in launched}


def _misplaced(candidate: Candidate, catalog: NodeClassCatalog) -> str:
    """Name what the instance uses and its EC2NodeClass no longer selects, or "". A class not ready selects all."""
    claim, now, name = candidate.claim, catalog.selection, catalog.node_class
    if now is None or catalog.not_ready:
        return ""
    groups, wanted = sorted(claim.known_instance.security_groups), sorted(now.security_groups)
    if groups and wanted and groups != wanted:
        return f"SecurityGroupDrift: in {', '.join(groups)}, EC2NodeClass {name} selects {', '.join(wanted)}"
    if claim.known_instance.subnet and now.subnets and claim.known_instance.subnet not in now.subnets:
        return f"SubnetDrift: EC2NodeClass {name} no longer selects {claim.known_instance.subnet}"
    held = (
        claim.plan.labels.get(labels.RESERVATION_ID, "")
        if claim.known_instance.capacity_type == labels.RESERVED
        else ""
    )
    if held and held not in now.reservations:
        return f"CapacityReservationDrift: EC2NodeClass {name} no longer selects {held}"
    group = claim.plan.labels.get(_PLACEMENT_GROUP, "")
    # The labels of its type are written with the launch: before that nothing is known.
    if labels.INSTANCE_TYPE in claim.plan.labels and group != now.placement_group:
        was, wanted_group = group or "no group", now.placement_group or "none"
        return f"PlacementGroupDrift: in {was}, EC2NodeClass {name} selects {wanted_group}"
    return ""


def _unmet_requirement(requirements: Requirements, marks: Mapping[str, str]) -> str:
    for key in sorted(requirements):
        entry, value = requirements[key], marks.get(key)
        if value is None and key in _EVERY_NODE_HAS:
            continue
        if not (entry.allows_undefined if value is None else entry.has(value)):
            return f"{entry}, the node has {value or 'no such label'}"
    return ""


def _type_not_offered(marks: Mapping[str, str], pool: str, market: PoolMarket) -> str:
    """That the node's type is no longer sold as the node was bought; a zone or capacity type not known is any."""
    name, kind, zone = (marks.get(key, "") for key in (labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE))
    instance_type = market.type_of(pool, name)
    if instance_type is None:
        return f"InstanceTypeNotFound: {name or 'the node names no instance type, it'} is not in the catalogue"
    kinds = (labels.RESERVED, labels.ON_DEMAND) if kind == labels.RESERVED else (kind,)
    for offering in instance_type.offerings:
        if zone in ("", offering.zone) and (not kind or offering.capacity_type in kinds):
            return ""
    where = f" in {zone}" if zone else ""
    return f"InstanceTypeNotFound: {name} is no longer offered as {' or '.join(sorted(kinds)) or 'anything'}{where}"
