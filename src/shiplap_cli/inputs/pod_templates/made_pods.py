"""Pods as the controllers of Kubernetes make them from templates: labels, ordinals, indexes, claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from zlib import crc32

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import (
    ObjectMeta,
    OwnerReference,
    PersistentVolumeClaimVolume,
    Pod,
    Volume,
)
from shiplap.kubernetes.related_objects import PersistentVolumeClaim
from shiplap_cli.inputs.pod_templates.workload_objects import Workload
from shiplap_lab.cluster_simulator.workloads.workload_labels import (
    JOB_INDEX,
    JOB_NAMES,
    JOB_UIDS,
    POD_INDEX,
    POD_NAME,
    REVISION_HASH,
    TEMPLATE_HASH,
    free_indexes,
)


def missing_places(workload: Workload, living: Sequence[Pod]) -> Iterator[int]:
    """Places that no living pod has: ordinals of a StatefulSet, indexes of an Indexed Job, else numbers from 1."""
    names = {pod.metadata.name for pod in living}
    if workload.kind == "StatefulSet":
        ordinals = range(workload.first, workload.first + workload.wanted)
        return (place for place in ordinals if f"{workload.name}-{place}" not in names)
    missing = max(workload.wanted - len(living), 0)
    free: Iterator[int]
    if workload.ended is None:
        free = (place for place in range(1, missing + len(names) + 1) if f"{workload.name}-{place}" not in names)
    else:
        free = free_indexes(workload.ended, {_index_of(pod) for pod in living})
    return islice(free, missing)


def _index_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(JOB_INDEX, "") or pod.metadata.labels.get(JOB_INDEX, "")


def made_pods(
    workload: Workload,
    places: Iterable[int],
    living: Sequence[Pod],
    replica_sets: Sequence[Workload],
    *,
    with_claims: bool,
) -> Iterator[tuple[Pod, list[PersistentVolumeClaim]]]:
    """The pods of a workload at these places, with their claims.

    Args:
        workload: the controller.
        places: as `missing_places`.
        living: its pods that live.
        replica_sets: of a Deployment: those that it owns.
        with_claims: whether the claims of StatefulSets count.
    """
    shared = workload.template.metadata.labels | _labels_of_all(workload, living, replica_sets)
    for place in places:
        claims = _claims_of(workload, place) if with_claims else []
        meta = ObjectMeta(
            name=f"{workload.name}+{place}",
            namespace=workload.namespace,
            labels=shared | _labels_of_one(workload, place),
            annotations=workload.template.metadata.annotations,
            owner_references=(OwnerReference(workload.kind, workload.name, workload.uid, controller=True),),
        )
        yield (
            Pod(metadata=meta, spec=replace(workload.template.spec, volumes=_volumes(workload, claims), node_name="")),
            claims,
        )


def _labels_of_all(workload: Workload, living: Sequence[Pod], replica_sets: Sequence[Workload]) -> dict[str, str]:
    """Return the labels that the controller adds to the template's: spreads and pod affinity may match them."""
    match workload.kind:
        case "Deployment":
            return {TEMPLATE_HASH: _template_hash(workload, living, replica_sets)}
        case "StatefulSet":
            return {REVISION_HASH: workload.revision or _stand_in(workload)}
        case "Job" | "CronJob" if workload.labels_itself:
            stand_in = _stand_in(workload)
            # The Job of the next run of a CronJob is named after a time that nobody knows yet.
            name, uid = (workload.name, workload.uid) if workload.kind == "Job" else (f"{workload.name}-{stand_in}", "")
            added = dict.fromkeys(JOB_NAMES, name) | dict.fromkeys(JOB_UIDS, uid or stand_in)
            return {key: value for key, value in added.items() if key not in workload.template.metadata.labels}
    return {}


def _labels_of_one(workload: Workload, place: int) -> dict[str, str]:
    if workload.kind == "StatefulSet":
        return {POD_NAME: f"{workload.name}-{place}", POD_INDEX: str(place)}
    return {JOB_INDEX: str(place)} if workload.ended is not None else {}


def _template_hash(workload: Workload, living: Sequence[Pod], replica_sets: Sequence[Workload]) -> str:
    """The hash of the newest ReplicaSet; without ReplicaSets that of the living pods, if it is one."""
    newest = max(replica_sets, key=lambda item: (_number(item.revision), item.name), default=None)
    if newest is not None and TEMPLATE_HASH in newest.template.metadata.labels:
        return newest.template.metadata.labels[TEMPLATE_HASH]
    hashes = {pod.metadata.labels[TEMPLATE_HASH] for pod in living if TEMPLATE_HASH in pod.metadata.labels}
    return hashes.pop() if len(hashes) == 1 else _stand_in(workload)


def _number(revision: str) -> int:
    return int(revision) if revision.isdecimal() else 0


def _stand_in(workload: Workload) -> str:
    """A hash in the place of one that only the cluster computes: no other workload has it."""
    return f"{crc32(msgspec.json.encode((workload.key, workload.template))):08x}"


def _volumes(workload: Workload, claims: Sequence[PersistentVolumeClaim]) -> tuple[Volume, ...]:
    """The volumes of the template; a claim takes the place of a volume of the same name."""
    claimed = {
        template.metadata.name: Volume(template.metadata.name, PersistentVolumeClaimVolume(claim.metadata.name))
        for template, claim in zip(workload.claims, claims, strict=False)
    }
    return (*(volume for volume in workload.template.spec.volumes if volume.name not in claimed), *claimed.values())


def _claims_of(workload: Workload, place: int) -> list[PersistentVolumeClaim]:
    return [
        replace(
            template,
            metadata=ObjectMeta(name=f"{template.metadata.name}-{workload.name}-{place}", namespace=workload.namespace),
        )
        for template in workload.claims
    ]
