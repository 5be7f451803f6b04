"""Warns of gangs in files for which the limits of NodePools in files are too low, whatever else runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import format_amount, parse_amount
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.files.documents import Document
from shiplap.manifests.tiers import expand
from shiplap.scheduling.model.pod_classes import node_terms
from shiplap_cli.labels_of_types import Supply
from shiplap_cli.policies.gangs_files import WrittenGang, written_gangs

_NVIDIA = "nvidia.com/gpu"
_HAS_NVIDIA = Requirement.one_of("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia")
"""What a NodePool must allow to launch nodes with such GPUs: without it, it has no room for them, limit or not."""


def limit_warnings(documents: Sequence[Document], pools: Sequence[NodePool], supply: Supply) -> Iterator[InvalidInput]:
    """Yield a warning for each gang whose members request more than all NodePools that suit them may launch.

    Args:
        documents: all objects of the files but the manifests.
        pools: the NodePools of the files.
        supply: the labels of instance types.
    """
    for gang in written_gangs(documents):
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
        f"{format_amount(resource, needed)} together, {which} {format_amount(resource, allowed)}"
    )
    return InvalidInput(document.source, why, document=document.name, field="spec", line=document.line_of(("spec",)))
