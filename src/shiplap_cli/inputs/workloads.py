"""Workloads among the objects of a cluster in files: the pods that their controllers have still to make.

A workload adds as many pods as it wants, less the living ones that it owns, also through ReplicaSets. So a listing of
all objects plans like one of the pods. The pods that are added have names that no cluster takes: `web+1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import (
    TERMINAL_PHASES,
    ObjectMeta,
    OwnerReference,
    PersistentVolumeClaimVolume,
    Pod,
    PodTemplateSpec,
    Volume,
)
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.related_objects import PersistentVolumeClaim
from shiplap.manifests.files.documents import Document
from shiplap_cli.inputs.object_validation import invalid_field, pod_spec_problems, raise_first, typed_object

_HASH = "pod-template-hash"
MOST_PODS = 100_000
"""So many pods may be added; more are a mistake in a number."""


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _ReplicatedSpec(_Fields, frozen=True):
    replicas: int | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()


class _Replicated(_Fields, frozen=True):
    metadata: ObjectMeta
    spec: _ReplicatedSpec = _ReplicatedSpec()


class _Condition(_Fields, frozen=True):
    type: str = ""
    status: str = ""


class _JobStatus(_Fields, frozen=True):
    succeeded: int = 0
    conditions: tuple[_Condition, ...] = ()


class _JobSpec(_Fields, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    template: PodTemplateSpec = PodTemplateSpec()


class _Job(_Fields, frozen=True):
    metadata: ObjectMeta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _JobTemplate(_Fields, frozen=True):
    spec: _JobSpec = _JobSpec()


class _CronJobSpec(_Fields, frozen=True):
    job_template: _JobTemplate = _JobTemplate()


class _CronJob(_Fields, frozen=True):
    metadata: ObjectMeta
    spec: _CronJobSpec = _CronJobSpec()


class Workload(msgspec.Struct, frozen=True):
    """A controller of pods. It wants `wanted` living ones; `owner` is its own controller, if it has one."""

    kind: str
    namespace: str
    name: str
    wanted: int
    template: PodTemplateSpec
    owner: OwnerReference | None = None
    claims: tuple[PersistentVolumeClaim, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    @property
    def text(self) -> str:
        """As messages call it."""
        return f"{self.kind} {self.namespace}/{self.name}"


REPLICATED = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"})
KINDS = REPLICATED | {"Job", "CronJob"}
"""The kinds that `read_workload` reads."""


def read_workload(document: Document) -> Workload:
    """The workload of a document of one of `KINDS`. Raises InvalidInput, with file, line and field."""
    kind = document.data["kind"]
    if kind in REPLICATED:
        item = typed_object(document, _Replicated)
        wanted = 1 if item.spec.replicas is None else item.spec.replicas
        return _checked(document, item.metadata, wanted, item.spec.template, item.spec.volume_claim_templates)
    if kind == "Job":
        job = typed_object(document, _Job)
        return _checked(document, job.metadata, _wanted_by_job(job.spec, job.status), job.spec.template)
    cron_job = typed_object(document, _CronJob)
    template = cron_job.spec.job_template.spec.template
    return _checked(document, cron_job.metadata, 0, template, at="spec.jobTemplate.spec.template.spec")


def _checked(
    document: Document,
    meta: ObjectMeta,
    wanted: int,
    template: PodTemplateSpec,
    claims: tuple[PersistentVolumeClaim, ...] = (),
    *,
    at: str = "spec.template.spec",
) -> Workload:
    if wanted < 0:
        raise invalid_field(document, "spec.replicas", f"must not be negative, is {wanted}")
    raise_first(document, pod_spec_problems(template.spec, at))
    try:
        pod_requests(Pod(spec=template.spec))
    except ValueError as error:
        raise invalid_field(document, f"{at}.containers", str(error)) from error
    owner = next((owner for owner in meta.owner_references if owner.controller), None)
    return Workload(
        document.data["kind"], meta.namespace or "default", meta.name, wanted, template, owner=owner, claims=claims
    )


def _wanted_by_job(spec: _JobSpec, status: _JobStatus) -> int:
    """How many pods of a Job may run now: none of one that has ended or is suspended."""
    ended = any(item.type in ("Complete", "Failed") and item.status == "True" for item in status.conditions)
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if ended or spec.suspend:
        return 0
    if spec.completions is None:  # of a work queue: nobody is started once one has succeeded
        return 0 if status.succeeded else parallelism
    return max(min(parallelism, spec.completions - status.succeeded), 0)


class Scale(msgspec.Struct, frozen=True):
    """A what-if: the workload of this name wants so many pods; kind and namespace may be empty."""

    kind: str
    namespace: str
    name: str
    replicas: int

    def means(self, workload: Workload) -> bool:
        """Whether it is about this workload."""
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
    missing = {
        key: workload.wanted - len(owned.get(key, ()))
        for key, workload in sorted(known.items())
        if workload.wanted > len(owned.get(key, ())) and not _is_made_by_another(workload, known)
    }
    if sum(missing.values()) > MOST_PODS:
        raise InvalidInput("--cluster-state", f"workloads want {sum(missing.values()):,} pods that do not exist")
    made: list[Pod] = []
    claims: list[PersistentVolumeClaim] = []
    for key, number in missing.items():
        for pod, of_pod in _made(known[key], number, owned.get(key, ()), with_claims=with_claims):
            made.append(pod)
            claims += of_pod
    counts = tuple((known[key].text, number) for key, number in missing.items())
    return MissingPods(tuple(made), tuple(claims), counts)


def _meant(scale: Scale, known: Mapping[tuple[str, str, str], Workload]) -> Workload:
    meant = [workload for _, workload in sorted(known.items()) if scale.means(workload)]
    meant = [workload for workload in meant if not _is_made_by_another(workload, known)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise InvalidInput("--scale", f"there is no workload {scale.name} among the objects")
    raise InvalidInput("--scale", f"{scale.name} may be {' or '.join(item.text for item in meant)}: name one of them")


def _is_made_by_another(workload: Workload, known: Mapping[tuple[str, str, str], Workload]) -> bool:
    """Whether the number of a ReplicaSet follows from its Deployment, which is there as well."""
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
    """The Deployment of a ReplicaSet; where that is not among the objects, its name ends in the template's hash."""
    if workload is not None:
        return workload.owner.name if workload.owner is not None else ""
    return replica_set.removesuffix(f"-{pod.metadata.labels.get(_HASH, '')}")


def deployment_of_pod(pod: Pod, replica_set: str) -> str:
    """The name of the Deployment whose ReplicaSet, of this name, a pod is of."""
    return _deployment_of(pod, replica_set, None)


def _made(
    workload: Workload, number: int, living: Sequence[Pod], *, with_claims: bool
) -> Iterable[tuple[Pod, list[PersistentVolumeClaim]]]:
    """Pods of a workload with their claims. Those of a StatefulSet have the lowest ordinals that are free."""
    hashes = {pod.metadata.labels[_HASH] for pod in living if _HASH in pod.metadata.labels}
    # Spread constraints may look at it; of several, which one is the newest is not known.
    labels = workload.template.metadata.labels | ({_HASH: min(hashes)} if len(hashes) == 1 else {})
    taken = {pod.metadata.name for pod in living}
    first = 0 if workload.kind == "StatefulSet" else 1
    ordinals = (place for place in range(first, number + len(taken) + first) if f"{workload.name}-{place}" not in taken)
    for _, place in zip(range(number), ordinals, strict=False):
        claims = _claims_of(workload, place) if with_claims else []
        volumes = [
            Volume(template.metadata.name, PersistentVolumeClaimVolume(claim.metadata.name))
            for template, claim in zip(workload.claims, claims, strict=False)
        ]
        meta = ObjectMeta(
            name=f"{workload.name}+{place}",
            namespace=workload.namespace,
            labels=labels,
            annotations=workload.template.metadata.annotations,
            owner_references=(OwnerReference(workload.kind, workload.name, controller=True),),
        )
        spec = replace(workload.template.spec, volumes=(*workload.template.spec.volumes, *volumes), node_name="")
        yield Pod(metadata=meta, spec=spec), claims


def _claims_of(workload: Workload, place: int) -> list[PersistentVolumeClaim]:
    return [
        replace(
            template,
            metadata=ObjectMeta(name=f"{template.metadata.name}-{workload.name}-{place}", namespace=workload.namespace),
        )
        for template in workload.claims
    ]
