"""Gangs as files describe them, and warnings of those for which limits of NodePools in files are too low in any case.

The pods are those that Jobs, JobSets, LeaderWorkerSets and the like will have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat, starmap

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import format_amount, parse_amount
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.files.documents import Document
from shiplap.manifests.tiers import expand
from shiplap.policies.gangs.gang_membership import Asked, membership
from shiplap.policies.gangs.provisioning_requests import REQUEST_KIND, KnownTemplates, capacity_request
from shiplap.policies.gangs.requested_pods import waiting_pods
from shiplap.scheduling.model.pod_classes import node_terms
from shiplap_cli.inputs.pod_templates.pod_sets import GROUP_INDEX, PodSet, written_sets
from shiplap_cli.labels_of_types import Supply
from shiplap_cli.policies.gangs.gangs_objects import checked_pod_groups, facts_of_objects
from shiplap_cli.policies.gangs.gangs_requests import checked_requests, templates_of
from shiplap_cli.policy_views import FeatureObjects

_MOST_PODS = 10_000
"""Pods of one object that are looked at; no gang is larger."""

_NVIDIA = "nvidia.com/gpu"
_HAS_NVIDIA = Requirement.one_of("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia")
"""What a NodePool must allow to launch nodes with such GPUs: without it, it has no room for them, limit or not."""


class WrittenGang(msgspec.Struct, frozen=True):
    """A gang of files: how many members it needs, its pods as far as files say them, and where the first is written.

    `name` has its kind before it: `gang ml/train`. `explained_by` is the command that explains it.
    """

    name: str
    minimum: int
    pods: tuple[Pod, ...]
    document: Document
    explained_by: str


def limit_warnings(documents: Sequence[Document], pools: Sequence[NodePool], supply: Supply) -> Iterator[InvalidInput]:
    """Yield a warning for each gang whose members request more than all NodePools that suit them may launch.

    Args:
        documents: all objects of the files but the manifests.
        pools: the NodePools of the files.
        supply: the labels of instance types.
    """
    for gang in _written_gangs(documents):
        try:
            requests = [pod_requests(pod) for pod in gang.pods]
            kinds = {id(pod): pod for pod in gang.pods}.values()
            suiting = [pool for pool in pools if any(_suits(pool, pod) for pod in kinds)]
        except ValueError:
            continue  # `plan` says what is wrong with a pod
        for resource in sorted({name for each in requests for name in each} - {"pods"}):
            amounts = sorted(each.get(resource, 0) for each in requests)
            needed = sum(amounts[: gang.minimum])
            having = [pool for pool in suiting if _may_have(pool, resource, supply)]
            if needed and having and all(resource in pool.spec.limits for pool in having):
                allowed = sum(parse_amount(resource, pool.spec.limits[resource]) for pool in having)
                if allowed < needed:
                    yield _warning(gang, resource, needed, allowed, sorted(pool.metadata.name for pool in having))


def _suits(pool: NodePool, pod: Pod) -> bool:
    """Return True unless taints or labels of a NodePool keep a pod off all of its nodes. Raises ValueError."""
    template = pool.spec.template
    if untolerated(template.spec.taints, pod.spec.tolerations, ignore_preferences=True) is not None:
        return False
    given = {**template.metadata.labels, **labels.of_pool(pool.metadata.name)}
    offered = Requirements.of(template.spec.requirements).and_(Requirements.of_labels(given).values())
    return any(offered.compatible(term, labels.WELL_KNOWN) for term in node_terms(pod.spec, strict=False))


def _may_have(pool: NodePool, resource: str, supply: Supply) -> bool:
    if resource != _NVIDIA:
        return True
    return any(supply.has_any(tier.requirements.and_([_HAS_NVIDIA])) for tier in expand(pool, supply.values_of))


def _warning(gang: WrittenGang, resource: str, needed: int, allowed: int, pools: Sequence[str]) -> InvalidInput:
    document = gang.document
    which = (
        f"the limit of NodePool {pools[0]} is" if len(pools) == 1 else f"the limits of NodePools {', '.join(pools)} are"
    )
    why = (
        f"{gang.name} can never start: its {gang.minimum} members request {resource} "
        f"{format_amount(resource, needed)} together, {which} {format_amount(resource, allowed)}; whole nodes count, "
        f"which are no less: `shiplap {gang.explained_by}` names what suffices"
    )
    return InvalidInput(document.source, why, document=document.name, field="spec", line=document.line_of(("spec",)))


def _written_gangs(documents: Sequence[Document]) -> Iterator[WrittenGang]:
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
            document = members[0][0]
            told = f"explain pod {asked[1]}/{document.name.partition('/')[2]}"
            yield WrittenGang(f"gang {asked[1]}/{asked[2]}", minima[asked], pods, document, told)
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
            told = f"explain provisioningrequest {item.key}"
            yield WrittenGang(f"{REQUEST_KIND} {item.key}", len(pods), pods, document, told)


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
