"""Deletion costs within flows: after each decision on disruption, pods whose deletion cost differs are written."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.flows.policies.policy import Policy
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.policies.deletion_costs.deletion_costs_settings import REMOVE, DeletionCostSettings

if TYPE_CHECKING:
    from shiplap.disruption.commands import Decision
    from shiplap.disruption.disruption_snapshot import DisruptionSnapshot

_LOG = logging.getLogger(__name__)

DELETION_COSTS = OptionalPart("deletion costs", ClusterUnreachable, budget_s=15.0)
"""Each pod that is written is a request."""

MOST_NODES = 50
"""Nodes whose pods are read in one decision. Those of further nodes wait for the next one."""


class _NodeToWrite(msgspec.Struct, frozen=True):
    """A node with pods to write: the cost that they get, None for none, and the annotations of its NodePool."""

    name: str
    cost: int | None
    of_pool: Mapping[str, str]


class DeletionCostPolicy(Policy):
    """Writes the deletion costs of pods, no more at once than the settings allow."""

    parts = (DELETION_COSTS,)

    def decided(self, decision: Decision, snapshot: DisruptionSnapshot) -> None:
        """Write pods whose deletion cost differs from the one of their node."""
        chosen = self.settings.policy(DeletionCostSettings) or DeletionCostSettings()
        left = chosen.most_writes
        try:
            for node in self._differing(decision, snapshot, remove=chosen.mode == REMOVE)[:MOST_NODES]:
                left -= self._write(node, left)
                if left <= 0:
                    break
        except ClusterDenied as error:
            self.context.meter.count("DeletionCostsDenied")
            _LOG.warning("deletion costs are not written: apply docs/rbac-deletion-costs.yaml: %s", error)
        except ClusterError as error:  # the next decision writes what is left
            self.context.meter.count("DeletionCostsFailed")
            _LOG.warning("deletion costs are not written: %s", error)

    def _differing(self, decision: Decision, snapshot: DisruptionSnapshot, *, remove: bool) -> list[_NodeToWrite]:
        """Return the nodes with pods to write, as far as the snapshot shows, in the order in which they are written."""
        # Only the disrupt function decides; it has loaded what these need.
        from shiplap.policies.deletion_costs.node_costs import by_urgency, node_costs  # noqa: PLC0415
        from shiplap.policies.deletion_costs.pod_costs import cost_changes  # noqa: PLC0415

        view = snapshot.scheduling.view
        costs = dict.fromkeys(view.by_node) if remove else node_costs(snapshot, decision)
        pools = self.settings.manifests.node_pools
        annotations = {label_value_of(pool.metadata.name): pool.metadata.annotations for pool in pools}
        pool_of = {node.metadata.name: node.metadata.labels.get(labels.NODE_POOL, "") for node in view.nodes}
        nodes = (
            _NodeToWrite(name, costs[name], annotations.get(pool_of.get(name, ""), {})) for name in by_urgency(costs)
        )
        return [node for node in nodes if cost_changes(view.by_node.get(node.name, ()), node.cost, node.of_pool)]

    def _write(self, node: _NodeToWrite, most: int) -> int:
        """Write pods of a node as they are now; return how many were tried.

        Raises ClusterDenied; ClusterUnreachable.
        """
        from shiplap.policies.deletion_costs.pod_costs import cost_changes  # noqa: PLC0415 - as above

        cluster = self.context.within(DELETION_COSTS, self.context.cluster)
        changes = cost_changes(cluster.pods_on(node.name), node.cost, node.of_pool)[:most]
        for change in changes:
            try:
                cluster.annotate_pod(change.pod, change.annotations)
            except (ObjectConflict, ObjectNotFound):  # the next decision sees what it is now
                continue
            except (ClusterDenied, ClusterUnreachable):
                raise
            except ClusterError as error:  # such as an admission webhook's refusal
                self.context.meter.count("DeletionCostsFailed")
                _LOG.warning("deletion cost of pod %s is not written: %s", change.pod.key, error)
                continue
            self.context.meter.count("DeletionCostsWritten")
        return len(changes)
