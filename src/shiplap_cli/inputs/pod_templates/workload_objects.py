"""Controllers of pods, as files describe them: Deployments, StatefulSets, Jobs and the like."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod, PodTemplateSpec
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.related_objects import PersistentVolumeClaim
from shiplap.manifests.files.documents import Document
from shiplap_cli.inputs.object_validation import invalid_field, pod_spec_problems, raise_first, typed_object
from shiplap_lab.cluster_simulator.workloads.workload_labels import IndexRange, index_ranges

_JOB_CONTROLLER = "kubernetes.io/job-controller"
"""`managedBy` of a Job whose pods Kubernetes makes."""

_INDEXED = "Indexed"


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Ordinals(_Fields, frozen=True):
    start: int = 0


class _ReplicatedSpec(_Fields, frozen=True):
    replicas: int | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()
    ordinals: _Ordinals = _Ordinals()


class _ReplicatedStatus(_Fields, frozen=True):
    update_revision: str = ""


class _Replicated(_Fields, frozen=True):
    metadata: ObjectMeta
    spec: _ReplicatedSpec = _ReplicatedSpec()
    status: _ReplicatedStatus = _ReplicatedStatus()


class _Condition(_Fields, frozen=True):
    type: str = ""
    status: str = ""


class _JobStatus(_Fields, frozen=True):
    succeeded: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    conditions: tuple[_Condition, ...] = ()


class _JobSpec(_Fields, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    manual_selector: bool = False
    managed_by: str = _JOB_CONTROLLER
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
    """A controller of pods."""

    kind: str
    namespace: str
    name: str

    wanted: int
    """How many living pods it wants."""

    template: PodTemplateSpec

    owner: OwnerReference | None = None
    """Its own controller, if it has one."""

    claims: tuple[PersistentVolumeClaim, ...] = ()
    """Of a StatefulSet: templates of the claims of each pod."""

    uid: str = ""
    """Empty where the object has not been created yet."""

    revision: str = ""
    """Of a StatefulSet: the name of its newest template. Of a ReplicaSet: the number of its Deployment's template."""

    first: int = 0
    """Of a StatefulSet: the ordinal of the first pod."""

    ended: tuple[IndexRange, ...] | None = None
    """Of an Indexed Job: the indexes that have succeeded or failed, in order. None of any other workload."""

    labels_itself: bool = True
    """Of a Job: whether the API server adds the labels by which the Job finds its pods."""

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

_REVISION = "deployment.kubernetes.io/revision"


def read_workload(document: Document) -> Workload:
    """The workload of a document of one of `KINDS`. Raises InvalidInput, with file, line and field."""
    kind = document.data["kind"]
    if kind in REPLICATED:
        item = typed_object(document, _Replicated)
        wanted = 1 if item.spec.replicas is None else item.spec.replicas
        return replace(
            checked_workload(document, item.metadata, wanted, item.spec.template),
            claims=item.spec.volume_claim_templates,
            first=_first_ordinal(document, item.spec.ordinals.start),
            revision=item.status.update_revision or item.metadata.annotations.get(_REVISION, ""),
        )
    if kind == "Job":
        job = typed_object(document, _Job)
        ended = _ended_indexes(document, job.spec, job.status)
        workload = checked_workload(
            document, job.metadata, _wanted_by_job(job.spec, job.status, ended), job.spec.template
        )
        return replace(workload, ended=ended, labels_itself=not job.spec.manual_selector)
    cron_job = typed_object(document, _CronJob)
    spec = cron_job.spec.job_template.spec
    workload = checked_workload(document, cron_job.metadata, 0, spec.template, at="spec.jobTemplate.spec.template.spec")
    ended = () if spec.completion_mode == _INDEXED else None
    return replace(workload, ended=ended, labels_itself=not spec.manual_selector)


def checked_workload(
    document: Document, meta: ObjectMeta, wanted: int, template: PodTemplateSpec, *, at: str = "spec.template.spec"
) -> Workload:
    """The workload of a document with sound pods, at this path. Raises InvalidInput."""
    if wanted < 0:
        raise invalid_field(document, "spec.replicas", f"must not be negative, is {wanted}")
    raise_first(document, pod_spec_problems(template.spec, at))
    try:
        pod_requests(Pod(spec=template.spec))
    except ValueError as error:
        raise invalid_field(document, f"{at}.containers", str(error)) from error
    owner = next((owner for owner in meta.owner_references if owner.controller), None)
    namespace = meta.namespace or "default"
    return Workload(document.data["kind"], namespace, meta.name, wanted, template, owner=owner, uid=meta.uid)


def _first_ordinal(document: Document, start: int) -> int:
    if start < 0:
        raise invalid_field(document, "spec.ordinals.start", f"must not be negative, is {start}")
    return start


def _ended_indexes(document: Document, spec: _JobSpec, status: _JobStatus) -> tuple[IndexRange, ...] | None:
    """The indexes of an Indexed Job that need no pod any more; None of a Job without indexes."""
    if spec.completion_mode != _INDEXED:
        return None
    ranges: list[IndexRange] = []
    for field, text in (("completedIndexes", status.completed_indexes), ("failedIndexes", status.failed_indexes)):
        try:
            ranges += index_ranges(text)
        except ValueError as error:
            raise invalid_field(document, f"status.{field}", f"{text[:40]!r} are no indexes such as 0,2-4") from error
    return tuple(sorted(ranges))


def _wanted_by_job(spec: _JobSpec, status: _JobStatus, ended: tuple[IndexRange, ...] | None) -> int:
    """Return how many pods of a Job may run: none if it has ended, is suspended, or has another controller."""
    over = any(item.type in ("Complete", "Failed") and item.status == "True" for item in status.conditions)
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if over or spec.suspend or spec.managed_by != _JOB_CONTROLLER:
        return 0
    if spec.completions is None:  # of a work queue: nobody is started once one has succeeded
        return 0 if status.succeeded else parallelism
    done = max(status.succeeded, sum(last - first + 1 for first, last in ended or ()))
    return max(min(parallelism, spec.completions - done), 0)
