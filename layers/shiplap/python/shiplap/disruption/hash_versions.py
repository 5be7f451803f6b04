"""Which hashes the annotations of claims may hold, by the version they were written with, and how old ones are renewed.

Hashes of two versions cannot be compared with each other. So a claim with hashes of an older version is judged by what
that version makes of the manifests as they are now, and once it has not drifted by them it gets those of today.
"""

from __future__ import annotations

from collections.abc import Mapping

from shiplap.api.first_hashes import FIRST_VERSION, first_pool_hashes
from shiplap.api.template_hash import (
    HASH_VERSION,
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH,
    POOL_HASH_VERSION,
    pool_hash,
)
from shiplap.api.types import EC2NodeClass, NodePool
from shiplap.scheduling.snapshot import NodeClassCatalog

Hashes = Mapping[str, frozenset[str]]
"""By version, the hashes of nodes that have not drifted."""


def pool_hashes_of(pool: NodePool) -> Hashes:
    """Those of a NodePool: Shiplap's, and Karpenter's where it wrote one on the manifest."""
    return {
        **_written(pool.metadata.annotations, POOL_HASH, POOL_HASH_VERSION),
        FIRST_VERSION: first_pool_hashes(pool),
        HASH_VERSION: frozenset({pool_hash(pool)}),
    }


def class_hashes_of(catalog: NodeClassCatalog, node_class: EC2NodeClass | None = None) -> Hashes:
    """Those of an EC2NodeClass as its catalogue knows them, and Karpenter's where it wrote one on the manifest."""
    annotations = node_class.metadata.annotations if node_class is not None else {}
    found = _written(annotations, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION)
    if catalog.spec_hash:
        found[HASH_VERSION] = frozenset({catalog.spec_hash})
    if catalog.first_hashes:
        found[FIRST_VERSION] = frozenset(catalog.first_hashes)
    return found


def renewed(annotations: Mapping[str, str], pool_hashes: Hashes, class_hashes: Hashes) -> dict[str, str] | None:
    """A claim's annotations with the hashes of today for those of the version before; None if nothing is to be changed.

    A hash by which the claim has drifted stays, so that it remains drifted.
    """
    found = dict(annotations)
    for key, version, known in (
        (POOL_HASH, POOL_HASH_VERSION, pool_hashes),
        (NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, class_hashes),
    ):
        is_first = annotations.get(version) == FIRST_VERSION
        now = known.get(HASH_VERSION)
        if is_first and now and annotations.get(key) in known.get(FIRST_VERSION, ()):
            (found[key],) = now
            found[version] = HASH_VERSION
    return found if found != annotations else None


def _written(annotations: Mapping[str, str], key: str, version: str) -> dict[str, frozenset[str]]:
    written = annotations.get(key)
    return {annotations.get(version, ""): frozenset({written})} if written else {}
