"""The key `sleep` of shiplap.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.decoding import Problem
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import annotation_problem
from shiplap_cdk.policy_document import PolicyDocument, unknown_node_pool


class SleepDocument(PolicyDocument):
    """Sleep: nothing sleeps without the key."""

    explanation = "Hours in which NodePools and namespaces need no nodes."
    of_cluster = (SleepSettings | None, None)

    def settings(self, written: SleepSettings | None) -> SleepSettings | None:
        """Return the settings as they are written."""
        return written

    def problems(self, written: SleepSettings | None) -> Iterable[Problem]:
        """Return what is wrong with windows and bounds."""
        return () if written is None else written.problems()

    def misfits(self, written: SleepSettings | None, manifests: Manifests) -> Iterator[Problem]:
        """Yield the NodePools that could never sleep. Those that are read later stay awake."""
        by_name = {pool.metadata.name: pool for pool in manifests.node_pools}
        for place, name in enumerate(() if written is None else written.node_pools):
            pool = by_name.get(name)
            where = ("nodePools", place)
            if pool is None:
                yield where, unknown_node_pool(name, manifests)
            elif pool.spec.replicas is not None:
                yield where, f"NodePool {name!r} is static: its `replicas` say how many nodes"
            elif reason := annotation_problem(pool):
                yield where, reason


DOCUMENT = SleepDocument()
