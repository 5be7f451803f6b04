"""Options of what runs already, and of optional features: each function adds one to a draft.

Every public function of this module is an option; its name is the option's.
"""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.kubernetes.objects import TopologySpreadConstraint
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.combinations.cluster_draft import TAINT, TOLERATES_TAINT, ZONES, ClusterDraft
from tests.conformance import given as case
from tests.conformance.disruptions import Standing, pdb, standing
from tests.rules import ZONE

_HOUR_S = 3600


def _stand(draft: ClusterDraft, name: str, **fields: object) -> Standing:
    """A node of the first NodePool that can hold some pods."""
    zone = draft.rng.choice(ZONES)
    node = standing(
        name,
        "m.xlarge",
        pool="pool-0",
        zone=zone,
        labels={"example.com/family": "m"},
        cpu="3900m",
        memory="15Gi",
        pods="32",
        **fields,  # type: ignore[arg-type]
    )
    draft.standing.append(node)
    return node


def existing_nodes(draft: ClusterDraft) -> None:
    """Nodes with pods of the workloads' labels, so that topology counts them."""
    for number in range(draft.rng.randint(1, 3)):
        name = f"node-{number}"
        _stand(draft, name)
        for place in range(draft.rng.randint(0, 2)):
            app = draft.rng.choice(draft.workloads).labels
            draft.bound.append(pod(f"old-{number}-{place}", cpu="500m", node=name, metadata={"labels": app}))


def tainted_node(draft: ClusterDraft) -> None:
    _stand(draft, "tainted", taints=[TAINT])


def cordoned_node(draft: ClusterDraft) -> None:
    _stand(draft, "cordoned", cordoned=True)


def leaving_node(draft: ClusterDraft) -> None:
    """A node that is being deleted, with a pod that has to move."""
    _stand(draft, "leaving", deleting=True)
    app = draft.rng.choice(draft.workloads).labels
    owner = {"kind": "ReplicaSet", "name": "old", "uid": "old", "controller": True}
    draft.bound.append(pod("moving", cpu="500m", node="leaving", metadata={"labels": app, "ownerReferences": [owner]}))


def starting_node(draft: ClusterDraft) -> None:
    """A node that has joined and is not ready yet."""
    _stand(draft, "starting", ready=False, initialized=False)


def foreign_node(draft: ClusterDraft) -> None:
    """A node of a managed node group."""
    zone = draft.rng.choice(ZONES)
    draft.standing.append(Standing(node("foreign", cpu="2", memory="4Gi", labels={ZONE: zone}), None))


def anti_affine_neighbour(draft: ClusterDraft) -> None:
    """A pod that runs and keeps pods of a workload out of its zone."""
    name = _stand(draft, "guarded").node.metadata.name
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": draft.workloads[0].labels}}
    required = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    draft.bound.append(pod("guard", cpu="100m", node=name, spec={"affinity": required}))


def attach_limit(draft: ClusterDraft) -> None:
    """A node whose EBS driver attaches one more volume."""
    _stand(draft, "attached")
    draft.csi_nodes.append(case.csi_node("attached", ebs_csi_aws_com=1))


def open_claim(draft: ClusterDraft) -> None:
    """A claim in flight: the first of an earlier plan for the same pods."""

    def planned_before(snapshot: Snapshot) -> Snapshot:
        launched = plan(snapshot).node_claims[:1]
        return replace(snapshot, claims=(*snapshot.claims, *map(case.in_flight, launched)), epoch=snapshot.epoch + 1)

    draft.amendments.append(planned_before)


def daemon_set(draft: ClusterDraft) -> None:
    draft.daemon_sets.append(case.daemon_set("agent", cpu="150m", memory="200Mi", tolerations=[{"operator": "Exists"}]))


def selective_daemon_set(draft: ClusterDraft) -> None:
    """A DaemonSet of one zone's nodes, which does not tolerate taints."""
    draft.daemon_sets.append(
        case.daemon_set("zonal", cpu="300m", memory="100Mi", selector={ZONE: draft.rng.choice(ZONES)})
    )


def daemon_set_port(draft: ClusterDraft) -> None:
    draft.daemon_sets.append(
        case.daemon_set("exporter", cpu="50m", memory="50Mi", ports=[9100], tolerations=[TOLERATES_TAINT])
    )


def disruption_blocked_by_pdb(draft: ClusterDraft) -> None:
    """Budgets that let no pod go, or one at a time."""
    for workload in draft.some_workloads():
        allowed = draft.rng.choice([0, 1])
        budget = pdb(f"pdb-{workload.name}", allowed, **workload.labels)
        draft.budgets.append(replace(budget, spec=replace(budget.spec, max_unavailable=allowed)))


def ignored_preferences(draft: ClusterDraft) -> None:
    draft.settings["preference_policy"] = "Ignore"


def default_spread(draft: ClusterDraft) -> None:
    """The scheduler's default constraints, for pods of a ReplicaSet that have none."""
    draft.settings["default_spread"] = (
        TopologySpreadConstraint(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule"),
    )


def missed_pods(draft: ClusterDraft) -> None:
    """Pods whose node turned out too small."""
    first = draft.workloads[0].pods()[0]
    draft.fields["missed_pods"] = frozenset({first.metadata.uid})
