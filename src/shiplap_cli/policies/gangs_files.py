"""Gangs as files describe them: the pods that Jobs, JobSets, LeaderWorkerSets and the like will have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod, PodTemplateSpec
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang_membership import Asked, membership
from shiplap.policies.gangs.provisioning_requests import REQUEST_KIND, KnownTemplates, capacity_request
from shiplap.policies.gangs.requested_pods import waiting_pods
from shiplap_cli.policies.gangs_objects import checked_pod_groups, facts_of_objects
from shiplap_cli.policies.gangs_requests import checked_requests, templates_of
from shiplap_cli.policy_views import FeatureObjects

_MOST_PODS = 10_000
"""Pods of one set that are looked at; no gang is larger."""


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _PodSet(_Fields, frozen=True):
    """Pods of one template; kinds call their number differently."""

    replicas: int | None = None
    parallelism: int | None = None
    template: PodTemplateSpec = PodTemplateSpec()

    @property
    def number(self) -> int:
        """How many there are at once; one where nothing is said."""
        return next((given for given in (self.parallelism, self.replicas) if given is not None), 1)


class _Job(_Fields, frozen=True):
    spec: _PodSet = _PodSet()


class _ReplicatedJob(_Fields, frozen=True):
    replicas: int = 1
    template: _Job = _Job()


class _LeaderWorkers(_Fields, frozen=True):
    size: int = 1
    leader_template: PodTemplateSpec | None = None
    worker_template: PodTemplateSpec = PodTemplateSpec()


class _Spec(_PodSet, frozen=True):
    """The fields of all kinds: after the common ones those of JobSet, LeaderWorkerSet, RayCluster and MPIJob."""

    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    leader_worker_template: _LeaderWorkers | None = None
    head_group_spec: _PodSet | None = None
    worker_group_specs: tuple[_PodSet, ...] = ()
    mpi_replica_specs: dict[str, _PodSet] = {}


class _Object(_Fields, frozen=True):
    metadata: ObjectMeta
    spec: _Spec = _Spec()


_Sets = Iterator[tuple[int, PodTemplateSpec]]


def _of_leader_workers(spec: _Spec) -> _Sets:
    """Yield the pods of one group: each group of the set is a gang of its own."""
    group = spec.leader_worker_template or _LeaderWorkers()
    yield 1, group.leader_template or group.worker_template
    yield group.size - 1, group.worker_template


_KINDS: Mapping[tuple[str, str], tuple[Callable[[_Spec], _Sets], Mapping[str, str]]] = {
    ("batch", "Job"): (lambda spec: iter([(spec.number, spec.template)]), {}),
    ("apps", "StatefulSet"): (lambda spec: iter([(spec.number, spec.template)]), {}),
    ("apps", "Deployment"): (lambda spec: iter([(spec.number, spec.template)]), {}),
    ("jobset.x-k8s.io", "JobSet"): (
        lambda spec: (
            (job.replicas * job.template.spec.number, job.template.spec.template) for job in spec.replicated_jobs
        ),
        {"jobset.sigs.k8s.io/jobset-name": ""},
    ),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (
        _of_leader_workers,
        {"leaderworkerset.sigs.k8s.io/name": "", "leaderworkerset.sigs.k8s.io/group-index": "0"},
    ),
    ("ray.io", "RayCluster"): (
        lambda spec: (
            (each.number, each.template)
            for each in chain([spec.head_group_spec] if spec.head_group_spec else [], spec.worker_group_specs)
        ),
        {"ray.io/cluster": ""},
    ),
    ("kubeflow.org", "MPIJob"): (
        lambda spec: ((each.number, each.template) for _, each in sorted(spec.mpi_replica_specs.items())),
        {"training.kubeflow.org/job-name": ""},
    ),
}
"""The pods of each kind, by the group of its API, and the labels that its controller gives them: empty for its name."""


class WrittenGang(msgspec.Struct, frozen=True):
    """A gang of files: how many members it needs, its pods as far as files say them, and where the first is written.

    `name` has its kind before it: `gang ml/train`.
    """

    name: str
    minimum: int
    pods: tuple[Pod, ...]
    document: Document


def written_gangs(documents: Sequence[Document]) -> Iterator[WrittenGang]:
    """Yield the gangs of more than one pod, by name. Objects that cannot be read are passed over."""
    sound = [document for document, group in checked_pod_groups(documents) if not isinstance(group, InvalidInput)]
    minima = {
        (item.api, item.namespace, item.name): item.minimum for item in facts_of_objects(FeatureObjects(tuple(sound)))
    }
    found: dict[Asked, list[tuple[Document, Pod]]] = {}
    for document in documents:
        for pod in _pods_of(document):
            item = membership(pod)
            if item is None or item.problem:
                continue
            asked = (item.api, pod.metadata.namespace, item.name)
            minima[asked] = max(item.minimum, minima.get(asked, 0))
            found.setdefault(asked, []).append((document, pod))
    for asked, members in sorted(found.items(), key=lambda pair: pair[0]):
        if minima[asked] > 1:
            pods = tuple(pod for _, pod in members)
            yield WrittenGang(f"gang {asked[1]}/{asked[2]}", minima[asked], pods, members[0][0])
    yield from _requested(documents)


def _requested(documents: Sequence[Document]) -> Iterator[WrittenGang]:
    """Yield the pods of ProvisioningRequests that launch nodes, as far as their PodTemplates are there."""
    requests = [
        (document, item) for document, item in checked_requests(documents) if not isinstance(item, InvalidInput)
    ]
    atomic = [(document, item) for document, item in requests if item.is_ours and not item.is_check]
    try:
        templates = templates_of(documents) if atomic else KnownTemplates()
    except InvalidInput:
        return  # `plan` says what is wrong with a PodTemplate
    for document, item in atomic:
        request = capacity_request(item, templates, item.created_at, 0.0)
        if request.sets:
            pods = tuple(waiting_pods(request, ()))
            yield WrittenGang(f"{REQUEST_KIND} {item.key}", len(pods), pods, document)


def _pods_of(document: Document) -> Iterator[Pod]:
    data = document.data
    try:
        if data.get("kind") == "Pod":
            pod = msgspec.convert(without_nulls(data), Pod)
            yield replace(pod, metadata=replace(pod.metadata, namespace=pod.metadata.namespace or "default"))
            return
        version, kind = data.get("apiVersion"), data.get("kind")
        known = (
            _KINDS.get((version.partition("/")[0], kind))
            if isinstance(version, str) and isinstance(kind, str)
            else None
        )
        if known is None:
            return
        item = msgspec.convert(without_nulls(data), _Object)
        sets = list(known[0](item.spec))
    except (msgspec.ValidationError, RecursionError):
        return
    yield from _made(item.metadata, str(kind), sets, known[1])


def _made(
    meta: ObjectMeta, kind: str, sets: Sequence[tuple[int, PodTemplateSpec]], marks: Mapping[str, str]
) -> Iterator[Pod]:
    labels = {key: value or meta.name for key, value in marks.items()}
    owner = (OwnerReference(kind, meta.name, controller=True),)
    for number, template in sets:
        made = Pod(
            ObjectMeta(
                namespace=meta.namespace or "default",
                labels={**template.metadata.labels, **labels},
                annotations=template.metadata.annotations,
                owner_references=owner,
            ),
            template.spec,
        )
        yield from repeat(made, min(max(number, 0), _MOST_PODS))
