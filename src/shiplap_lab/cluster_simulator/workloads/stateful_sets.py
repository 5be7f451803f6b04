"""The StatefulSet controller: pods with names and claims of their own, made, updated and removed in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shiplap.errors import ObjectConflict
from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod, is_ready
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, is_active
from shiplap_lab.cluster_simulator.workloads.template_revisions import keep_history, revision_name
from shiplap_lab.cluster_simulator.workloads.templated_pods import pod_from
from shiplap_lab.cluster_simulator.workloads.workload_labels import POD_INDEX, POD_NAME, REVISION_HASH
from shiplap_lab.cluster_simulator.workloads.workload_specs import StatefulSetSpec

PLURAL = "statefulsets"


class _Set(msgspec.Struct):
    """A StatefulSet during a step."""

    item: Object
    spec: StatefulSetSpec
    pods: dict[int, Pod]
    """By ordinal."""
    templates: dict[str, Object]
    """By the name of the revision."""
    current: str
    """The revision from which an update leads away."""
    update: str

    @property
    def is_ordered(self) -> bool:
        return self.spec.pod_management_policy != "Parallel"

    @property
    def ordinals(self) -> range:
        return range(self.spec.ordinals.start, self.spec.ordinals.start + self.spec.replicas)


def reconcile_stateful_set(client: ControllerClient, item: Object) -> None:
    """Take the set one step further: create what is missing, then remove what is too much, then update."""
    spec = client.spec(item, StatefulSetSpec)
    pods = {ordinal: pod for pod in client.pods_of(item) if (ordinal := _ordinal(item, pod)) is not None}
    update = revision_name(item)
    current = (item.get("status") or {}).get("currentRevision") or update
    in_use = {pod.metadata.labels.get(REVISION_HASH, "") for pod in pods.values()} | {current}
    if item["metadata"].get("deletionTimestamp"):
        return
    which = _Set(item, spec, pods, keep_history(client, item, in_use), current, update)
    if _filled(client, which) and _shrunk(client, which):
        _updated(client, which)
    _report(client, which)


def _ordinal(item: Object, pod: Pod) -> int | None:
    stem, _, digits = pod.metadata.name.rpartition("-")
    return int(digits) if stem == item["metadata"]["name"] and digits.isdecimal() else None


def _is_healthy(pod: Pod) -> bool:
    return is_active(pod) and is_ready(pod.status)


def _filled(client: ControllerClient, which: _Set) -> bool:
    """Create missing pods; True if every ordinal has one and, where order counts, it is healthy."""
    ended = [pod for ordinal, pod in which.pods.items() if pod.status.phase in TERMINAL_PHASES]
    client.delete_pods(ended)
    if which.is_ordered:
        waits = next((ordinal for ordinal in which.ordinals if not _has_healthy(which, ordinal)), None)
        if waits is None:
            return not ended
        if waits not in which.pods:
            client.create_pods(which.item, _bodies(client, which, iter((waits,))), 1)
        return False
    missing = which.spec.replicas - sum(ordinal in which.ordinals for ordinal in which.pods)
    if missing:
        free = (ordinal for ordinal in which.ordinals if ordinal not in which.pods)
        client.create_pods(which.item, _bodies(client, which, free), missing)
    return not (missing or ended)


def _has_healthy(which: _Set, ordinal: int) -> bool:
    return ordinal in which.pods and _is_healthy(which.pods[ordinal])


def _bodies(client: ControllerClient, which: _Set, ordinals: Iterator[int]) -> Iterator[Object]:
    for ordinal in ordinals:
        keeps_old = ordinal - which.spec.ordinals.start < which.spec.update_strategy.rolling.partition
        revision = which.current if keeps_old and which.current in which.templates else which.update
        yield _body(client, which, ordinal, revision)


def _body(client: ControllerClient, which: _Set, ordinal: int, revision: str) -> Object:
    item, namespace = which.item, which.item["metadata"]["namespace"]
    name = f"{item['metadata']['name']}-{ordinal}"
    labels = {REVISION_HASH: revision, POD_NAME: name, POD_INDEX: str(ordinal)}
    spec = {**item["spec"], "template": which.templates[revision]}
    pod = pod_from({**item, "spec": spec}, name=name, labels=labels)
    claims = {}
    for template in item["spec"].get("volumeClaimTemplates") or []:
        volume = template["metadata"]["name"]
        claims[volume] = {"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}}
        _claim(client, template, f"{volume}-{name}", namespace)
    volumes = [each for each in pod["spec"].get("volumes") or [] if each.get("name") not in claims]
    pod["spec"] |= {"hostname": name, "subdomain": item["spec"].get("serviceName") or ""}
    pod["spec"]["volumes"] = [*volumes, *claims.values()]
    return pod


def _claim(client: ControllerClient, template: Mapping[str, Any], name: str, namespace: str) -> None:
    metadata = {**template["metadata"], "name": name}
    try:
        client.server.create("persistentvolumeclaims", {**template, "metadata": metadata}, namespace)
    except ObjectConflict:
        return  # a pod of this name had it before, and its data with it


def _shrunk(client: ControllerClient, which: _Set) -> bool:
    """Remove pods beyond the wanted number, the last ones first; True if there are none."""
    spare = [which.pods[ordinal] for ordinal in sorted(which.pods, reverse=True) if ordinal not in which.ordinals]
    going = spare[:1] if which.is_ordered else spare
    client.delete_pods([pod for pod in going if not pod.metadata.deletion_timestamp])
    return not spare


def _updated(client: ControllerClient, which: _Set) -> None:
    """Delete the last pod of an older template, once all after it are healthy; it comes back with the newest."""
    if which.spec.update_strategy.type != "RollingUpdate":
        return
    first = which.spec.ordinals.start + which.spec.update_strategy.rolling.partition
    for ordinal in sorted(which.pods, reverse=True):
        pod = which.pods[ordinal]
        if ordinal < first or not is_active(pod):
            return
        if pod.metadata.labels.get(REVISION_HASH) != which.update:
            client.delete_pods([pod])
            return
        if not _is_healthy(pod):
            return


def _report(client: ControllerClient, which: _Set) -> None:
    pods = [pod for pod in which.pods.values() if is_active(pod)]
    revisions = [pod.metadata.labels.get(REVISION_HASH) for pod in pods]
    ready = sum(is_ready(pod.status) for pod in pods)
    updated, current = revisions.count(which.update), which.current
    if updated == ready == len(pods) == which.spec.replicas:
        current = which.update
    status = {
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": sum(client.is_available(pod, which.spec.min_ready_seconds) for pod in pods),
        "currentReplicas": revisions.count(current),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": which.update,
        "observedGeneration": which.item["metadata"].get("generation", 0),
        "collisionCount": 0,
    }
    client.set_status(PLURAL, which.item, status)
