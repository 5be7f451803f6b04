"""A stage whose cluster has thousands of nodes in service, each with its NodeClaim object."""

from __future__ import annotations

from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL, claim_object_changes
from shiplap.manifests.nodeclaim import ClaimState, LaunchedInstance
from tests.builders.claims import node_claim
from tests.integration.flows.live_stage import LiveStage

_AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "58"}


class CrowdedStage(LiveStage):
    """Claims are Initialized; nothing has an instance of FakeCompute."""

    def __init__(self, claims: int) -> None:
        super().__init__()
        for number in range(claims):
            self._add_node(number)
        planned = [
            node_claim(cluster=self.name, name=f"flex-{number:05}", node_pool="flex") for number in range(claims)
        ]
        self.state.commit(self.name, self.state.read(self.name, 0.0).epoch, planned)
        for number, claim in enumerate(planned):
            claim = self.state.advance(claim, ClaimState.LAUNCHING)  # noqa: PLW2901 - as it is now
            instance = LaunchedInstance(_instance(number), "c7i-flex.xlarge", "eu-west-1a", "on-demand")
            claim = self.state.advance(claim, ClaimState.LAUNCHED, instance=instance)  # noqa: PLW2901 - as above
            claim = self.state.advance(claim, ClaimState.REGISTERED, node_name=_node_name(number))  # noqa: PLW2901 - as above
            self.state.advance(claim, ClaimState.INITIALIZED)
        pools, now = self.read().manifests.node_pools, self.clock.now()
        changes = claim_object_changes(self.claims(), (), pools, self.cluster.nodes(), self.settings.install, now)
        for body in changes.created:
            self.server.create("nodeclaims", dict(body))

    def _add_node(self, number: int) -> None:
        metadata = {
            "name": _node_name(number),
            "labels": {INSTALL_LABEL: self.settings.install},
            "finalizers": [FINALIZER],
        }
        spec = {"providerID": f"aws:///eu-west-1a/{_instance(number)}"}
        status = {"capacity": _AMOUNTS, "allocatable": _AMOUNTS}
        self.server.create("nodes", {"metadata": metadata, "spec": spec, "status": status})


def _node_name(number: int) -> str:
    return f"ip-{number:05}"


def _instance(number: int) -> str:
    return f"i-{number:017x}"
