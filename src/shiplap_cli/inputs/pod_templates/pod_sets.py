"""Sets of pods as files describe them: those of Jobs, JobSets, LeaderWorkerSets and the like, one template each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.kubernetes.objects import ObjectMeta, Pod, PodTemplateSpec
from shiplap.manifests.files.documents import Document
from shiplap_cli.inputs.object_validation import invalid_field, typed_object
from shiplap_cli.inputs.pod_templates.workload_objects import Workload, checked_workload

MOST_SETS = 10_000
"""Sets of one object that are looked at; more are a mistake in a number."""

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
"""Label of the pods of a LeaderWorkerSet: the number of their group."""

_JOB_SET = "jobset.sigs.k8s.io/jobset-name"
_LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
_RAY_CLUSTER = "ray.io/cluster"
_TRAINING_JOB = "training.kubeflow.org/job-name"
_NAMING_LABELS = (_JOB_SET, _LEADER_WORKER_SET, _RAY_CLUSTER, _TRAINING_JOB)
"""Labels of pods that name the object above their controllers."""


class PodSet(msgspec.Struct, frozen=True):
    """Pods of one template.

    `owner` is the kind of their controller, `suffix` what its name has beside that of the object. `labels` are those
    that the controller gives them, empty for the object's name. `field` leads to the specification of the pods.
    """

    owner: str
    suffix: str
    number: int
    template: PodTemplateSpec
    field: str
    labels: Mapping[str, str] = {}


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Pods(_Fields, frozen=True):
    """Pods of one template; kinds call their number differently."""

    replicas: int | None = None
    parallelism: int | None = None
    suspend: bool = False
    group_name: str = ""
    template: PodTemplateSpec = PodTemplateSpec()

    @property
    def number(self) -> int:
        """How many there are at once; one where nothing is said."""
        return next((given for given in (self.parallelism, self.replicas) if given is not None), 1)


class _Job(_Fields, frozen=True):
    spec: _Pods = _Pods()


class _ReplicatedJob(_Fields, frozen=True):
    name: str = ""
    replicas: int = 1
    template: _Job = _Job()


class _LeaderWorkers(_Fields, frozen=True):
    size: int = 1
    leader_template: PodTemplateSpec | None = None
    worker_template: PodTemplateSpec = PodTemplateSpec()


class _RunPolicy(_Fields, frozen=True):
    suspend: bool = False


class _Spec(_Pods, frozen=True):
    """The fields of all kinds: after the common ones those of JobSet, LeaderWorkerSet, RayCluster and MPIJob."""

    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    leader_worker_template: _LeaderWorkers | None = None
    head_group_spec: _Pods | None = None
    worker_group_specs: tuple[_Pods, ...] = ()
    mpi_replica_specs: dict[str, _Pods] = {}
    run_policy: _RunPolicy = _RunPolicy()


class _Status(_Fields, frozen=True):
    terminal_state: str = ""


class _Object(_Fields, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_suspended(self) -> bool:
        """True if its controller makes no pods until it is resumed."""
        return (self.spec.suspend or self.spec.run_policy.suspend) and not self.status.terminal_state


def _of_workload(kind: str) -> Callable[[_Spec], Iterator[PodSet]]:
    return lambda spec: iter([PodSet(kind, "", spec.number, spec.template, "spec.template.spec")])


def _of_job_set(spec: _Spec) -> Iterator[PodSet]:
    for place, job in enumerate(spec.replicated_jobs):
        field = f"spec.replicatedJobs[{place}].template.spec.template.spec"
        for index in range(min(job.replicas, MOST_SETS + 1)):
            name = f"-{job.name}-{index}"
            labels = {_JOB_SET: "", "jobset.sigs.k8s.io/replicatedjob-name": job.name}
            yield PodSet("Job", name, job.template.spec.number, job.template.spec.template, field, labels)


def _of_leader_workers(spec: _Spec) -> Iterator[PodSet]:
    """Yield a leader and its workers for each group."""
    group = spec.leader_worker_template or _LeaderWorkers()
    at = "spec.leaderWorkerTemplate"
    leader = "leaderTemplate" if group.leader_template else "workerTemplate"
    for index in range(min(1 if spec.replicas is None else spec.replicas, MOST_SETS + 1)):
        labels = {_LEADER_WORKER_SET: "", GROUP_INDEX: str(index)}
        template = group.leader_template or group.worker_template
        yield PodSet("StatefulSet", f"-{index}", 1, template, f"{at}.{leader}.spec", labels)
        workers = PodSet(
            "StatefulSet", f"-{index}-workers", group.size - 1, group.worker_template, f"{at}.workerTemplate.spec"
        )
        yield replace(workers, labels=labels)


def _of_ray(spec: _Spec) -> Iterator[PodSet]:
    heads = [("headGroupSpec", spec.head_group_spec)] if spec.head_group_spec else []
    workers = [(f"workerGroupSpecs[{place}]", each) for place, each in enumerate(spec.worker_group_specs)]
    for at, each in chain(heads, workers):
        name = f"-{each.group_name or 'head'}"
        yield PodSet("RayCluster", name, each.number, each.template, f"spec.{at}.template.spec", {_RAY_CLUSTER: ""})


def _of_mpi(spec: _Spec) -> Iterator[PodSet]:
    labels = {_TRAINING_JOB: ""}
    for role, each in sorted(spec.mpi_replica_specs.items()):
        field = f"spec.mpiReplicaSpecs.{role}.template.spec"
        yield PodSet("MPIJob", f"-{role.lower()}", each.number, each.template, field, labels)


_OF_CUSTOM_KINDS: Mapping[tuple[str, str], Callable[[_Spec], Iterator[PodSet]]] = {
    ("jobset.x-k8s.io", "JobSet"): _of_job_set,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _of_leader_workers,
    ("ray.io", "RayCluster"): _of_ray,
    ("kubeflow.org", "MPIJob"): _of_mpi,
}
"""The sets of each custom resource that makes pods, by the group of its API."""

_OF_KINDS = {
    **_OF_CUSTOM_KINDS,
    ("batch", "Job"): _of_workload("Job"),
    ("apps", "StatefulSet"): _of_workload("StatefulSet"),
    ("apps", "Deployment"): _of_workload("Deployment"),
}


def _key(document: Document) -> tuple[str, str]:
    version, kind = document.data.get("apiVersion"), document.data.get("kind")
    return (version.partition("/")[0], kind) if isinstance(version, str) and isinstance(kind, str) else ("", "")


def written_sets(document: Document) -> Sequence[tuple[ObjectMeta, PodSet]]:
    """Return the sets of an object, whatever runs already; none of one that makes no pods, or that cannot be read."""
    sets = _OF_KINDS.get(_key(document))
    if sets is None:
        return []
    try:
        item = msgspec.convert(without_nulls(document.data), _Object)
    except (msgspec.ValidationError, RecursionError):
        return []
    return [(item.metadata, _with_names(each, item.metadata)) for each in islice(sets(item.spec), MOST_SETS)]


def _with_names(pod_set: PodSet, meta: ObjectMeta) -> PodSet:
    return replace(pod_set, labels={key: value or meta.name for key, value in pod_set.labels.items()})


def makes_sets(document: Document) -> bool:
    """True for a custom resource whose controller makes pods, or makes Jobs or StatefulSets that do."""
    return _key(document) in _OF_CUSTOM_KINDS


def suspended_workload(document: Document) -> str:
    """Return a Job or custom resource as messages call it if it is suspended, as by Kueue; empty for others.

    Raises InvalidInput.
    """
    if not (makes_sets(document) or document.data.get("kind") == "Job"):
        return ""
    item = typed_object(document, _Object)
    meta = item.metadata
    return f"{document.data['kind']} {meta.namespace or 'default'}/{meta.name}" if item.is_suspended else ""


def makers_of_sets(pod: Pod) -> Iterator[str]:
    """Yield the names of the objects above the controllers of a pod, such as its JobSet."""
    return (pod.metadata.labels[label] for label in _NAMING_LABELS if label in pod.metadata.labels)


def has_pod_template(data: object, deep: int = 12) -> bool:
    """True if an object, or a part of it above this depth, holds the template of pods."""
    if isinstance(data, dict):
        spec = data.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            return True
        data = list(data.values())
    return isinstance(data, list) and deep > 0 and any(has_pod_template(part, deep - 1) for part in data)


def workloads_of_sets(document: Document) -> list[Workload]:
    """Return a workload for each set of such an object that has not ended and is not suspended. Raises InvalidInput."""
    item = typed_object(document, _Object)
    if item.is_suspended or item.status.terminal_state:
        return []
    sets = list(islice(_OF_CUSTOM_KINDS[_key(document)](item.spec), MOST_SETS + 1))
    if len(sets) > MOST_SETS:
        raise invalid_field(document, "spec", f"makes more than {MOST_SETS:,} Jobs or groups of pods")
    found = []
    for each in sets:
        made = _with_names(each, item.metadata)
        labels = {**made.template.metadata.labels, **made.labels}
        template = replace(made.template, metadata=replace(made.template.metadata, labels=labels))
        meta = replace(item.metadata, name=f"{item.metadata.name}{made.suffix}", owner_references=(), uid="")
        found.append(replace(checked_workload(document, meta, made.number, template, at=made.field), kind=made.owner))
    return found
