"""Drift: a node that its NodePool, its EC2NodeClass or EC2 itself would no longer make like this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiplap.api.template_hash import HASH_VERSION, POOL_HASH, POOL_HASH_VERSION, pool_hash
from shiplap.api.tiers import Tier, expand
from shiplap.api.types import NodePool
from shiplap.disruption.candidates import Candidate
from shiplap.disruption.market import Market
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements

YOUNG_S = 3600.0
"""How old a claim is before a vanished instance type counts: launching found it a moment ago."""


def tiers_of(pool: NodePool, market: Market, nodes: Sequence[Candidate]) -> tuple[Tier, ...]:
    """What the pool's requirements allow, globs matched against the catalogue and the labels of these nodes."""
    name = pool.metadata.name
    values: dict[str, set[str]] = {}
    for item in market.by_pool.get(name, {}).values():
        for entry in item.requirements:
            values.setdefault(entry.key, set()).update(() if entry.complement else entry.values)
    for node in nodes:
        for key, value in node.node.metadata.labels.items():
            values.setdefault(key, set()).add(value)
    return expand(pool, lambda key: values.get(key, ()))


def wanted_hashes(pool: NodePool) -> dict[str, str]:
    """What the hash annotation of a pool's claims should say, by its version: Shiplap's, and Karpenter's if written."""
    written = {pool.metadata.annotations.get(POOL_HASH_VERSION, ""): pool.metadata.annotations.get(POOL_HASH, "")}
    return written | {HASH_VERSION: pool_hash(pool)}


def drifted(candidate: Candidate, market: Market, tiers: Sequence[Tier], wanted: Mapping[str, str], now: float) -> str:
    """Why a node has drifted, or nothing.

    Checked in this order: the pool's template, its requirements, the AMI, the instance type.

    Args:
        candidate: the node.
        market: what the pools can buy.
        tiers: what its NodePool allows now, see `tiers_of`.
        wanted: the `wanted_hashes` of its NodePool now.
        now: epoch seconds.
    """
    name = candidate.pool.metadata.name
    born_with = candidate.claim.annotations
    known, should = born_with.get(POOL_HASH), wanted.get(born_with.get(POOL_HASH_VERSION, ""))
    if known and should and known != should:
        return f"NodePoolDrifted: the template of NodePool {name} has changed since"
    marks = {**candidate.claim.labels, **candidate.node.metadata.labels}
    missed = [_missed(tier.requirements, marks) for tier in tiers]
    if missed and all(missed):
        # The last tier is the widest: what it forbids, all of them do.
        return f"RequirementsDrifted: NodePool {name} wants {missed[-1]}"
    item = market.type_of(name, candidate.node.metadata.labels.get(labels.INSTANCE_TYPE, ""))
    if candidate.claim.ami and item is not None and item.ami and item.ami != candidate.claim.ami:
        return f"AMIDrift: {candidate.claim.ami}, new nodes of its type get {item.ami}"
    # Without any catalogue nothing is known about types: that is a problem of the pool, not of its nodes.
    if now - candidate.born_at > YOUNG_S and market.by_pool.get(name):
        return _gone(candidate, market)
    return ""


def _missed(requirements: Requirements, marks: Mapping[str, str]) -> str:
    for key in sorted(requirements):
        entry, value = requirements[key], marks.get(key)
        if not (entry.forbids_nothing_defined if value is None else entry.has(value)):
            return f"{entry}, the node has {value or 'no such label'}"
    return ""


def _gone(candidate: Candidate, market: Market) -> str:
    marks = candidate.node.metadata.labels
    name = marks.get(labels.INSTANCE_TYPE, "")
    item = market.type_of(candidate.pool.metadata.name, name)
    if item is None:
        return f"InstanceTypeNotFound: {name or 'the node names no instance type, it'} is not in the catalogue"
    kinds = {marks.get(labels.CAPACITY_TYPE, "")}
    if labels.RESERVED in kinds:
        kinds.add(labels.ON_DEMAND)
    zone = marks.get(labels.ZONE, "")
    if not any(offering.zone == zone and offering.capacity_type in kinds for offering in item.offerings):
        return f"InstanceTypeNotFound: {name} is no longer offered as {' or '.join(sorted(kinds))} in {zone}"
    return ""
