"""A judge that is told of claims, nodes and pods one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import DisruptionCommand
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance, written_claim, written_command
from shiplap_lab.judge.judge import Judge
from shiplap_lab.scenarios.scenario import load
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node_object

WAY = (ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED)


def initialized(name: str) -> dict[str, Any]:
    marks, room = {"karpenter.sh/initialized": "true"}, {"cpu": "64", "memory": "256Gi", "pods": "100"}
    made = node_object(f"node-{name}", labels=marks, providerID=f"aws:///eu-west-1a/i-{name}")
    return made | {"status": {"allocatable": room}}


class Play:
    """Plays events before a judge of two pools.

    Pool `flex` may have two nodes disrupted at once, pool `spot` half of its nodes at once.
    """

    def __init__(self, *, steered: bool = True) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.judge = Judge(
            lambda: self.now,
            lambda violation: self.told.append(violation.promise),
            machine_types={},
            pools={
                (cluster, pool.metadata.name): msgspec.to_builtins(pool.spec)
                for cluster, manifests in load("mixed").manifests.items()
                for pool in manifests.node_pools
            },
            price=lambda *_: 0.1,
            most_nodes_per_pod=2,
            steered=steered,
        )

    def put(self, name: str, uid: str) -> None:
        """A pod is bound to a node."""
        pod = {"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": f"node-{name}", "containers": []}}
        self.judge.object_written("demo", "ADDED", "pods", pod)

    def write(self, claim: NodeClaim) -> NodeClaim:
        """The next version of a claim."""
        written = replace(claim, version=claim.version + 1)
        self.judge.claim_written("shiplap", written_claim(written))
        return written

    def end_node(self, name: str) -> None:
        self.judge.object_written("demo", "DELETED", "nodes", initialized(name))

    def node(
        self,
        name: str,
        *,
        pods: tuple[PodReference, ...] = (),
        size: str = "m7i-flex.large",
        until: ClaimState = ClaimState.INITIALIZED,
        owner: str = "schedule-1",
        pool: str = "flex",
        **fields: Any,
    ) -> NodeClaim:
        """A claim on its way up to a state."""
        claim = node_claim(
            cluster="demo",
            name=name,
            node_pool=pool,
            node_class="default",
            pods=pods,
            owner=owner,
            token=name,
            **fields,
        )
        for state in WAY[: WAY.index(until) + 1]:
            if state is ClaimState.LAUNCHED:
                at = Instance(f"i-{name}", size, "eu-west-1a", "on-demand", "ami-1", "running", launched_at=self.now)
                self.judge.machine_added(msgspec.json.encode(replace(at, launch=name)))
                claim = with_fields(claim, instance_id=at.id, instance_type=size, hourly=0.1)
            named = f"node-{name}" if state in (ClaimState.REGISTERED, ClaimState.INITIALIZED) else ""
            if state is ClaimState.REGISTERED:
                self.judge.object_written("demo", "ADDED", "nodes", initialized(name))
                self.judge.node_read("demo", f"i-{name}")
            claim = self.write(replace(claim, state=state, node_name=named))
        return claim

    def leave(self, claim: NodeClaim, failure: str) -> NodeClaim:
        return self.write(replace(claim, state=ClaimState.DRAINING, failure=failure))

    def command(self, name: str, targets: Sequence[str], replacements: Sequence[str] = ()) -> DisruptionCommand:
        command = DisruptionCommand(
            cluster="demo",
            name=name,
            reason=Reason.UNDERUTILIZED,
            method=Method.CONSOLIDATION,
            targets=tuple(targets),
            nodes=tuple(f"node-{target}" for target in targets),
            replacements=tuple(replacements),
            created_at=self.now,
        )
        self.judge.command_written("shiplap", written_command(command))
        return command
