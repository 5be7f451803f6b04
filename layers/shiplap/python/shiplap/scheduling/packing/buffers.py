"""CapacityBuffers: room kept free by planning for pods that do not exist.

Virtual pods are planned after all real ones, so they take nothing from them, and appear in no binding and no
nomination. Room on existing nodes counts; missing room is launched. Once real pods have taken the room, the
next plan makes it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod, PodSpec, PodTemplateSpec
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.related_objects import Scalable
from shiplap.manifests.custom_resources import CapacityBuffer
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.scheduling_plan import BufferState
from shiplap.scheduling.model.snapshot import Snapshot

_Templates = Mapping[tuple[str, str], dict[str, object]]
_Scalables = Mapping[tuple[str, str, str], Scalable]


class Buffer(msgspec.Struct, frozen=True):
    """One CapacityBuffer with its virtual pods; `problem` says why it has none."""

    namespace: str
    name: str
    pods: tuple[Pod, ...] = ()
    problem: str = ""


def buffers_of(snapshot: Snapshot) -> tuple[Buffer, ...]:
    """The buffers of a snapshot by namespace and name."""
    templates = {
        (item.metadata.namespace or "default", item.metadata.name): item.template
        for item in snapshot.manifests.pod_templates
    }
    scalables = {
        (item.metadata.namespace or "default", item.kind, item.metadata.name): item for item in snapshot.view.scalables
    }
    found = [_buffer(buffer, templates, scalables) for buffer in snapshot.manifests.capacity_buffers]
    return tuple(sorted(found, key=lambda buffer: (buffer.namespace, buffer.name)))


def _buffer(buffer: CapacityBuffer, templates: _Templates, scalables: _Scalables) -> Buffer:
    namespace, name = buffer.metadata.namespace or "default", buffer.metadata.name
    try:
        template, share = _template(buffer, namespace, templates, scalables)
        number = _pod_count(buffer, share, template)
    except ValueError as error:
        return Buffer(namespace, name, problem=str(error))
    return Buffer(namespace, name, tuple(_virtual_pod(namespace, name, place, template) for place in range(number)))


def _template(
    buffer: CapacityBuffer, namespace: str, templates: _Templates, scalables: _Scalables
) -> tuple[PodTemplateSpec, int]:
    """The template of the buffer's pods, and its percentage of a workload's replicas. Raises ValueError."""
    spec = buffer.spec
    if spec.pod_template_ref is not None:
        name = spec.pod_template_ref.name
        written = templates.get((namespace, name))
        if written is None:
            raise ValueError(f"PodTemplate {name} not found")
        try:
            return msgspec.convert(written, PodTemplateSpec), 0
        except msgspec.ValidationError as error:
            raise ValueError(f"PodTemplate {name}: {error}") from error
    if spec.scalable_ref is None:
        raise ValueError("neither podTemplateRef nor scalableRef is set")
    kind, name = spec.scalable_ref.kind, spec.scalable_ref.name
    scalable = scalables.get((namespace, kind, name))
    if scalable is None:
        raise ValueError(f"{kind} {name} not found")
    replicas = 1 if scalable.spec.replicas is None else scalable.spec.replicas
    return scalable.spec.template, max(-(-replicas * spec.percentage // 100), 1) if spec.percentage else 0


def _pod_count(buffer: CapacityBuffer, share: int, template: PodTemplateSpec) -> int:
    """The larger of replicas and share, cut by what the limits hold; with limits alone as many as they hold."""
    spec = buffer.spec
    requests = pod_requests(Pod(spec=template.spec))
    held = [
        amount // requests[resource]
        for resource, amount in parse_resources(spec.limits).items()
        if requests.get(resource)
    ]
    if spec.replicas is None and spec.percentage is None:
        if not held:
            raise ValueError("its limits name nothing that its pods request, so they hold any number")
        number = min(held)
    else:
        number = min([max(spec.replicas or 0, share), *held])
    if number > BOUNDS.virtual_pods:
        raise ValueError(f"{number} pods are more than the {BOUNDS.virtual_pods} a buffer may have")
    return number


def _virtual_pod(namespace: str, buffer: str, place: int, template: PodTemplateSpec) -> Pod:
    """A pod of the template without volumes that only a real pod could have, and without a node or gates."""
    volumes = tuple(
        volume
        for volume in template.spec.volumes
        if volume.persistent_volume_claim is None and volume.ephemeral is None
    )
    spec: PodSpec = replace(template.spec, volumes=volumes, node_name="", scheduling_gates=(), priority=-(2**31))
    meta = ObjectMeta(
        name=f"{buffer}-{place:05}",
        namespace=namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
    )
    return Pod(metadata=meta, spec=spec)


def states_of(
    buffers: Sequence[Buffer],
    on_claims: Iterable[PodReference],
    on_nodes: Iterable[tuple[str, Sequence[Pod]]],
    problems: Mapping[int, str],
) -> tuple[BufferState, ...]:
    """The state of each buffer after a plan.

    Args:
        buffers: by namespace and name.
        on_claims: the virtual pods on nodes that the plan launches.
        on_nodes: the pods, real and virtual, that were put on each node that exists or is in flight, by its name.
        problems: why a pod can be put nowhere at all, by its identity.
    """
    planned = Counter(on_claims)
    home = {id(pod): name for name, placed in on_nodes for pod in placed}
    states = []
    for buffer in buffers:
        nodes = Counter(home[id(pod)] for pod in buffer.pods if id(pod) in home)
        existing = nodes.total()
        new = sum(planned[PodReference.of(pod)] for pod in buffer.pods)
        missing = len(buffer.pods) - existing - new
        reason = buffer.problem or next((problems[id(pod)] for pod in buffer.pods if id(pod) in problems), "")
        if missing and not reason:
            reason = "no room could be found or launched for all of it"
        names = tuple(sorted(nodes))
        held = tuple(nodes[name] for name in names)
        states.append(
            BufferState(buffer.namespace, buffer.name, len(buffer.pods), existing, new, missing, reason, names, held)
        )
    return tuple(states)


def pods_in_place(snapshot: Snapshot, states: Iterable[BufferState]) -> Iterator[Pod]:
    """The virtual pods that a plan for the snapshot has found room for on nodes, as if they were bound there.

    They stay: like a static pod, none of them is made anew elsewhere.
    """
    known = {(state.namespace, state.name): state for state in states}
    for buffer in buffers_of(snapshot):
        state = known.get((buffer.namespace, buffer.name), BufferState(buffer.namespace, buffer.name))
        places = [name for name, number in zip(state.nodes, state.held, strict=True) for _ in range(number)]
        for pod, name in zip(buffer.pods, places, strict=False):
            yield replace(
                pod,
                metadata=replace(pod.metadata, owner_references=(OwnerReference(kind="Node", name=name),)),
                spec=replace(pod.spec, node_name=name),
            )
