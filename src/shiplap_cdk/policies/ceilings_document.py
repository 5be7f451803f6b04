"""The keys `ceilings` of shiplap.yaml: those of a cluster, and those of all clusters together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.decoding import Problem
from shiplap.policies.ceilings.ceilings import Ceiling, ceiling_problems
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap_cdk.policy_document import PolicyDocument, unknown_node_pool

_Written = tuple[Ceiling, ...]


class CeilingsDocument(PolicyDocument):
    """Ceilings in dollars: a cluster has its own beside those of the install."""

    explanation = "What nodes may cost per hour or month, in USD."
    of_cluster = (_Written, ())
    of_install = (_Written, ())

    def settings_of(self, cluster: _Written, install: _Written) -> CeilingSettings | None:
        """Return both; None without any."""
        found = CeilingSettings(cluster, install)
        return found if found.is_on else None

    def problems(self, written: _Written) -> Iterable[Problem]:
        """Return what is wrong with ceilings of a cluster."""
        return ceiling_problems(written, of_account=False)

    def misfits(self, written: _Written, manifests: Manifests) -> Iterator[Problem]:
        """Yield the NodePools that are not there: such a ceiling would bound nothing."""
        names = {pool.metadata.name for pool in manifests.node_pools}
        for place, ceiling in enumerate(written):
            if ceiling.node_pool and ceiling.node_pool not in names:
                yield (place, "nodePool"), unknown_node_pool(ceiling.node_pool, manifests)

    def problems_of_install(self, written: _Written, install: str) -> Iterable[Problem]:  # noqa: ARG002 - all are alike
        """Return what is wrong with ceilings of all clusters together."""
        return ceiling_problems(written, of_account=True)


DOCUMENT = CeilingsDocument()
