"""Options of pods: each function adds one to a draft, on one workload or more.

Every public function of this module is an option; its name is the option's.
"""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.related_objects import ReplicaSet
from tests.builders.pools import rule
from tests.combinations.cluster_draft import (
    FAMILY,
    TEAM,
    TOLERATES_TAINT,
    ZONES,
    ClusterDraft,
    Workload,
    accelerated_type,
)
from tests.conformance import given as case
from tests.conformance.catalogues import GPU_A
from tests.rules import HOST, KIND, ZONE


def _spread(draft: ClusterDraft, workload: Workload, key: str, *, required: bool = True) -> dict[str, Any]:
    rng = draft.rng
    constraint: dict[str, Any] = {
        "topologyKey": key,
        "maxSkew": rng.choice([1, 1, 1, 2]),
        "whenUnsatisfiable": "DoNotSchedule" if required else "ScheduleAnyway",
        "labelSelector": draft.selector(workload),
    }
    if required and rng.random() < 0.2:
        constraint["minDomains"] = rng.choice([2, 3])
    if rng.random() < 0.2:
        constraint["nodeTaintsPolicy"] = "Honor"
    if rng.random() < 0.2:
        constraint["nodeAffinityPolicy"] = "Ignore"
    return constraint


def _term(draft: ClusterDraft, workload: Workload, key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": draft.selector(workload)}


def zone_spread(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_spread(_spread(draft, workload, ZONE))


def host_spread(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_spread(_spread(draft, workload, HOST))


def capacity_type_spread(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_spread(_spread(draft, workload, KIND))


def soft_spread(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_spread(_spread(draft, workload, draft.rng.choice([ZONE, HOST]), required=False))


def zone_affinity(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_term("podAffinity", _term(draft, workload, ZONE))


def host_affinity(draft: ClusterDraft) -> None:
    workload = draft.rng.choice(draft.workloads)
    workload.add_term("podAffinity", _term(draft, workload, HOST))


def host_anti_affinity(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_term("podAntiAffinity", _term(draft, workload, HOST))


def zone_anti_affinity(draft: ClusterDraft) -> None:
    workload = draft.rng.choice(draft.workloads)
    workload.add_term("podAntiAffinity", _term(draft, workload, ZONE))


def soft_affinity(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        side = draft.rng.choice(["podAffinity", "podAntiAffinity"])
        entry = {"weight": 50, "podAffinityTerm": _term(draft, workload, draft.rng.choice([ZONE, HOST]))}
        kind = workload.spec.setdefault("affinity", {}).setdefault(side, {})
        kind.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).append(entry)


def other_namespace(draft: ClusterDraft) -> None:
    """A workload of another namespace, which affinity terms of the first workload select by its labels."""
    workload = draft.rng.choice(draft.workloads)
    workload.namespace = "other"
    draft.workloads[0].add_term(
        draft.rng.choice(["podAffinity", "podAntiAffinity"]),
        {
            "topologyKey": ZONE,
            "labelSelector": {"matchLabels": {"app": workload.labels["app"]}},
            "namespaceSelector": {"matchLabels": {"team": draft.rng.choice(["red", "blue"])}},
        },
    )


def zone_selector(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.fields["selector"] = workload.fields.get("selector", {}) | {ZONE: draft.rng.choice(ZONES)}


def node_affinity_terms(draft: ClusterDraft) -> None:
    """Two terms, either of which suffices."""
    for workload in draft.some_workloads():
        if terms := workload.node_terms():
            first, second = draft.rng.sample(ZONES, 2)
            other = {"matchExpressions": [*terms[0].get("matchExpressions", []), rule(ZONE, "In", second)]}
            terms[0].setdefault("matchExpressions", []).append(rule(ZONE, "In", first))
            terms.append(other)


def family_affinity(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_rule(draft.rng.choice([rule(FAMILY, "In", "m"), rule(FAMILY, "NotIn", "c")]))


def capacity_type_affinity(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.add_rule(rule(KIND, "In", draft.rng.choice(["spot", "on-demand"])))


def team_affinity(draft: ClusterDraft) -> None:
    """A label that no instance type has: a NodePool or a node gives it."""
    for workload in draft.some_workloads():
        workload.add_rule(draft.rng.choice([rule(TEAM, "DoesNotExist"), rule(TEAM, "NotIn", "red")]))


def soft_node_affinity(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        affinity = workload.spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 10, "preference": {"matchExpressions": [rule(ZONE, "In", draft.rng.choice(ZONES))]}}
        ]


def toleration(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.fields["tolerations"] = [draft.rng.choice([TOLERATES_TAINT, {"operator": "Exists"}])]


def host_port(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.fields["ports"] = [draft.rng.choice([8080, 9100])]


def pod_priority(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.fields["priority"] = draft.rng.choice([10, 1000])


def sidecar(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.spec.setdefault("initContainers", []).append(_container("sidecar", "200m", restartPolicy="Always"))


def init_container(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.spec.setdefault("initContainers", []).append(_container("prepare", draft.rng.choice(["100m", "2"])))


def _container(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": name, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}, **fields}


def runtime_overhead(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}


def pod_level_resources(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.spec["resources"] = {"requests": {"cpu": "3500m", "memory": "4Gi"}}


def large_pod(draft: ClusterDraft) -> None:
    workload = draft.rng.choice(draft.workloads)
    workload.fields |= {"cpu": draft.rng.choice(["7", "12"]), "memory": "10Gi"}


def accelerator(draft: ClusterDraft) -> None:
    draft.types["g.2xlarge"] = accelerated_type()
    draft.rng.choice(draft.workloads).request(GPU_A, "1")


def many_replicas(draft: ClusterDraft) -> None:
    draft.rng.choice(draft.workloads).count = draft.rng.randint(10, 25)


def bound_volume(draft: ClusterDraft) -> None:
    """A volume that exists in one zone, shared by the pods of a workload."""
    draft.rng.choice(draft.workloads).shared_volumes["bound"] = draft.rng.choice(ZONES)


def waiting_volume(draft: ClusterDraft) -> None:
    """A volume that is made once the first pod has a node, shared by the pods of a workload."""
    draft.rng.choice(draft.workloads).shared_volumes["waiting"] = ""


def own_volumes(draft: ClusterDraft) -> None:
    """A volume for each pod, to be made in the zone of its node, as a StatefulSet asks for."""
    draft.rng.choice(draft.workloads).owns_volumes = True


def replica_set_owner(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload.name, "uid": f"rs-{workload.name}"}
        workload.metadata["ownerReferences"] = [{**owner, "controller": True}]
        draft.replica_sets.append(_replica_set(workload))


def _replica_set(workload: Workload) -> ReplicaSet:
    made = case.controller(ReplicaSet, workload.name, app=workload.labels["app"])
    assert isinstance(made, ReplicaSet)
    return made


def do_not_disrupt(draft: ClusterDraft) -> None:
    for workload in draft.some_workloads():
        workload.metadata["annotations"] = {labels.DO_NOT_DISRUPT: "true"}
