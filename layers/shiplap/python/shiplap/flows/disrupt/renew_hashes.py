"""Gives the claims of nodes made by an older version the hashes of today, so that upgrading drifts no node.

Each claim is one conditional write that changes nothing else. Until it has happened the older hashes are judged by what
their version makes of the manifests, so it may come late, in part, or after a change.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from shiplap.disruption.methods.drift import class_hashes_of, has_first_hash, pool_hashes_of, renewed_hashes
from shiplap.errors import ConditionFailed
from shiplap.flows.claim_updates import facts
from shiplap.flows.context import FlowContext
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.scheduling.model.snapshot import NodeClassCatalog

_LOG = logging.getLogger(__name__)

MOST_WRITES = 50
"""Claims written by one look at the cluster; there is no hurry."""


def renew_hashes(
    claims: Sequence[NodeClaim],
    node_pools: Sequence[NodePool],
    catalogs: Sequence[NodeClassCatalog],
    context: FlowContext,
) -> tuple[NodeClaim, ...]:
    """All claims, those that were written as they are now.

    Args:
        claims: of one cluster. Those whose NodePool or EC2NodeClass is not known keep the hash of it.
        node_pools: of the cluster.
        catalogs: what is known of its EC2NodeClasses.
        context: state is written.

    Raises:
        StoreError: the next look goes on.
    """
    if not any(has_first_hash(claim.plan.annotations) for claim in claims):
        return tuple(claims)
    pools = {pool.metadata.name: pool_hashes_of(pool) for pool in node_pools}
    classes = {catalog.node_class: class_hashes_of(catalog) for catalog in catalogs}
    renewed, written = [], 0
    for claim in claims:
        now = renewed_hashes(
            claim.plan.annotations, pools.get(claim.plan.node_pool, {}), classes.get(claim.plan.node_class, {})
        )
        if now is not None and claim.state not in FINAL and written < MOST_WRITES:
            plan = replace(claim.plan, annotations=now)
            try:
                claim = context.state.advance(claim, claim.state, plan=plan)  # noqa: PLW2901 - as it is now
                written += 1
            except ConditionFailed as error:  # somebody else is at it; the next look comes
                context.meter.count("ClaimsLost")
                _LOG.info("claim was advanced meanwhile: %s", error, extra=facts(claim))
        renewed.append(claim)
    if written:
        context.meter.count("HashesRenewed", written)
        _LOG.info("hashes of %d claims renewed", written, extra={"cluster": claims[0].cluster})
    return tuple(renewed)
