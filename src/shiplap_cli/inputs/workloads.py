"""Workloads among the objects of a cluster in files: the pods that their controllers have still to make.

A workload adds as many pods as it wants, less the living ones that it owns, also through ReplicaSets. So a listing of
all objects plans like one of the pods. The pods that are added have names that no cluster takes: `web+1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod
from shiplap.kubernetes.related_objects import PersistentVolumeClaim
from shiplap_cli.inputs.pod_templates.made_pods import made_pods, missing_places
from shiplap_cli.inputs.pod_templates.workload_objects import KINDS, Workload
from shiplap_lab.cluster_simulator.workloads.workload_labels import TEMPLATE_HASH

MOST_PODS = 100_000
"""So many pods may be added; more are a mistake in a number."""


class Scale(msgspec.Struct, frozen=True):
    """A what-if: the workload of this name wants so many pods; kind and namespace may be empty."""

    kind: str
    namespace: str
    name: str
    replicas: int

    def means(self, workload: Workload) -> bool:
        """True if the what-if is about this workload."""
        return (
            self.name == workload.name
            and self.kind in ("", workload.kind.lower())
            and self.namespace in ("", workload.namespace)
        )


def read_scale(text: str) -> Scale:
    """Read `[KIND/][NAMESPACE/]NAME=NUMBER`. Raises InvalidInput."""
    name, equals, number = text.rpartition("=")
    *before, last = name.split("/")
    kinds = {kind.lower() for kind in KINDS}
    kind = before.pop(0).lower() if before and before[0].lower() in kinds else ""
    if not equals or not last or len(before) > 1 or not number.isdecimal() or int(number) > MOST_PODS:
        form = "[KIND/][NAMESPACE/]NAME=NUMBER, such as web=20 or job/batch/import=3"
        raise InvalidInput("--scale", f"{text!r} is not of the form {form}, with at most {MOST_PODS:,}")
    return Scale(kind, before[0] if before else "", last, int(number))


class MissingPods(msgspec.Struct, frozen=True):
    """Pods that workloads have still to make, claims for them, and how many of which workload."""

    pods: tuple[Pod, ...] = ()
    claims: tuple[PersistentVolumeClaim, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


def missing_pods(
    workloads: Iterable[Workload], pods: Sequence[Pod], scales: Sequence[Scale] = (), *, with_claims: bool = True
) -> MissingPods:
    """The pods that workloads want beside those that live.

    Args:
        workloads: all of a cluster.
        pods: all of a cluster.
        scales: workloads that want another number than they say.
        with_claims: whether the claims of StatefulSets count; without storage classes nothing is known of them.

    Raises:
        InvalidInput: a scale means no workload, several, or fewer pods than live; or there are too many pods.
    """
    known = {workload.key: workload for workload in workloads}
    owned = _living(pods, known)
    for scale in scales:
        workload = _meant(scale, known)
        if scale.replicas < len(owned.get(workload.key, ())):
            number = len(owned[workload.key])
            raise InvalidInput("--scale", f"{workload.text} has {number} living pods, and none can be taken away")
        known[workload.key] = replace(workload, wanted=scale.replicas)
    makers = {key: item for key, item in sorted(known.items()) if not _is_made_by_another(item, known)}
    wanted = sum(max(item.wanted - len(owned.get(key, ())), 0) for key, item in makers.items())
    if wanted > MOST_PODS:
        raise InvalidInput("--cluster-state", f"workloads want {wanted:,} pods that do not exist")
    made: list[Pod] = []
    claims: list[PersistentVolumeClaim] = []
    counts: list[tuple[str, int]] = []
    for key, workload in makers.items():
        living = owned.get(key, ())
        places = list(missing_places(workload, living))
        for pod, of_pod in made_pods(workload, places, living, _sets_of(workload, known), with_claims=with_claims):
            made.append(pod)
            claims += of_pod
        if places:
            counts.append((workload.text, len(places)))
    return MissingPods(tuple(made), tuple(claims), tuple(counts))


def _sets_of(workload: Workload, known: Mapping[tuple[str, str, str], Workload]) -> list[Workload]:
    """The ReplicaSets of a Deployment."""
    return [
        item
        for _, item in sorted(known.items())
        if item.kind == "ReplicaSet" and item.owner is not None
        if (item.owner.kind, item.namespace, item.owner.name) == workload.key
    ]


def _meant(scale: Scale, known: Mapping[tuple[str, str, str], Workload]) -> Workload:
    meant = [workload for _, workload in sorted(known.items()) if scale.means(workload)]
    meant = [workload for workload in meant if not _is_made_by_another(workload, known)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise InvalidInput("--scale", f"there is no workload {scale.name} among the objects")
    raise InvalidInput("--scale", f"{scale.name} may be {' or '.join(item.text for item in meant)}: name one of them")


def _is_made_by_another(workload: Workload, known: Mapping[tuple[str, str, str], Workload]) -> bool:
    """True if the number of a ReplicaSet follows from its Deployment, which is there as well."""
    owner = workload.owner
    return workload.kind == "ReplicaSet" and owner is not None and (owner.kind, workload.namespace, owner.name) in known


def _living(
    pods: Iterable[Pod], known: Mapping[tuple[str, str, str], Workload]
) -> dict[tuple[str, str, str], list[Pod]]:
    """The living pods of each workload: those of its ReplicaSets are a Deployment's."""
    owned: dict[tuple[str, str, str], list[Pod]] = {}
    for pod in pods:
        if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp:
            continue
        controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        if controller is None:
            continue
        namespace = pod.metadata.namespace or "default"
        owned.setdefault((controller.kind, namespace, controller.name), []).append(pod)
        if controller.kind == "ReplicaSet":
            deployment = _deployment_of(pod, controller.name, known.get(("ReplicaSet", namespace, controller.name)))
            owned.setdefault(("Deployment", namespace, deployment), []).append(pod)
    return owned


def _deployment_of(pod: Pod, replica_set: str, workload: Workload | None) -> str:
    """The Deployment of a ReplicaSet; where that is not among the objects, its name ends in the template's hash.

    A pod that somebody wrote by hand may lack the label of the hash.
    """
    if workload is not None:
        return workload.owner.name if workload.owner is not None else ""
    return replica_set.removesuffix(f"-{pod.metadata.labels.get(TEMPLATE_HASH) or replica_set.rpartition('-')[2]}")


def deployment_of_pod(pod: Pod, replica_set: str) -> str:
    """The name of the Deployment whose ReplicaSet, of this name, a pod is of."""
    return _deployment_of(pod, replica_set, None)
