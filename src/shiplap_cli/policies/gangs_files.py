"""Gangs as files describe them: the pods that Jobs, JobSets, LeaderWorkerSets and the like will have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat, starmap

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang_membership import Asked, membership
from shiplap.policies.gangs.provisioning_requests import REQUEST_KIND, KnownTemplates, capacity_request
from shiplap.policies.gangs.requested_pods import waiting_pods
from shiplap_cli.inputs.pod_templates.pod_sets import GROUP_INDEX, PodSet, written_sets
from shiplap_cli.policies.gangs_objects import checked_pod_groups, facts_of_objects
from shiplap_cli.policies.gangs_requests import checked_requests, templates_of
from shiplap_cli.policy_views import FeatureObjects

_MOST_PODS = 10_000
"""Pods of one object that are looked at; no gang is larger."""


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
    if document.data.get("kind") == "Pod":
        try:
            pod = msgspec.convert(without_nulls(document.data), Pod)
        except (msgspec.ValidationError, RecursionError):
            return
        yield replace(pod, metadata=replace(pod.metadata, namespace=pod.metadata.namespace or "default"))
        return
    yield from islice(chain.from_iterable(starmap(_made, written_sets(document))), _MOST_PODS)


def _made(meta: ObjectMeta, pod_set: PodSet) -> Iterator[Pod]:
    """The pods of a set. Each group of a LeaderWorkerSet is a gang of its own: the first stands for all."""
    if pod_set.labels.get(GROUP_INDEX, "0") != "0":
        return iter(())
    made = Pod(
        ObjectMeta(
            namespace=meta.namespace or "default",
            labels={**pod_set.template.metadata.labels, **pod_set.labels},
            annotations=pod_set.template.metadata.annotations,
            owner_references=(OwnerReference(pod_set.owner, f"{meta.name}{pod_set.suffix}", controller=True),),
        ),
        pod_set.template.spec,
    )
    return repeat(made, max(pod_set.number, 0))
