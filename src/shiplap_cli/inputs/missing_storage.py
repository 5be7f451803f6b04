"""Notes of storage kinds that files of a cluster lack: pods with claims are then left alone for want of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.related_objects import has_claims, is_claim
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.scheduling.model.planned_pods import running, sort_pods_of_view
from shiplap.scheduling.model.pod_volumes import claim_key
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_cli.output import counted

_CLAIM, _VOLUME, _CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"

_ADD = "add pv,pvc,storageclasses,csinodes,csidrivers to what kubectl gets"
"""All kinds at once: an object of one of them may refer to one of the next."""


def notes_of_waiting_pods(view: ClusterView, rules: Sequence[ClaimRule] = ()) -> Iterator[str]:
    """Yield a note for each kind without which pods that would be planned are left alone, then one of volume limits.

    `rules` say which pods are planned.
    """
    if not any(map(has_claims, view.unbound)):
        return
    names = {node.metadata.name for node in view.nodes}
    pods = [pod for pod in sort_pods_of_view(view, nodes=names, leaving=(), rules=rules).pending if has_claims(pod)]
    for kind, number in _left_alone(view, pods):
        yield f"{_none_of(kind)}: {counted(number, 'pod')} with claims {_is(number)} left alone; {_ADD}"
    if pods and names and view.persistent_volume_claims and not view.csi_nodes:
        yield f"{_none_of('CSINode')}: the volumes a node takes are not counted; {_ADD}"


def notes_of_running_pods(view: ClusterView) -> Iterator[str]:
    """Yield a note for each kind without which pods cannot leave their nodes."""
    pods = [pod for on_node in running(view).values() for pod in on_node if has_claims(pod)]
    for kind, number in _left_alone(view, pods):
        yield f"{_none_of(kind)}: {counted(number, 'pod')} with claims cannot leave {_their(number)}; {_ADD}"


def _none_of(kind: str) -> str:
    return f"no {kind} is among the objects"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _their(number: int) -> str:
    return "its node" if number == 1 else "their nodes"


def _left_alone(view: ClusterView, pods: Iterable[Pod]) -> list[tuple[str, int]]:
    """The kinds of which no object is there and that pods ask for, each with their number."""
    there = {_CLAIM: view.persistent_volume_claims, _VOLUME: view.persistent_volumes, _CLASS: view.storage_classes}
    lacking = [kind for kind, objects in there.items() if not objects]
    if not lacking:
        return []
    numbers = Counter(kind for kinds in _kinds_asked_for(view, pods) for kind in kinds)
    return [(kind, numbers[kind]) for kind in lacking if numbers[kind]]


def _kinds_asked_for(view: ClusterView, pods: Iterable[Pod]) -> Iterator[set[str]]:
    """Yield for each pod the kinds of the next objects that its claims refer to."""
    claims = {
        namespaced_name(item.metadata.namespace, item.metadata.name): item for item in view.persistent_volume_claims
    }
    for pod in pods:
        kinds = set()
        for volume in filter(is_claim, pod.spec.volumes):
            claim = claims.get(claim_key(pod, volume))
            if claim is None:
                kinds.add(_CLAIM if volume.ephemeral is None else _CLASS)
            elif claim.spec.volume_name:
                kinds.add(_VOLUME)
            elif claim.spec.storage_class_name != "":
                kinds.add(_CLASS)
        yield kinds
