"""The pods of ProvisioningRequests: pods without objects, which hold room until pods that consume the request have it.

A request that waits has one pod without a node for each that it asks for: together they are a gang. Once it is
provisioned, its pods are bound to the nodes that its status names, until they are consumed or the booking ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import without_object
from shiplap.kubernetes.objects import Node, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.manifests.nodeclaim import PodReference
from shiplap.policies.gangs.gang_membership import REQUEST, REQUESTED
from shiplap.policies.gangs.provisioning_requests import (
    CLASS,
    REQUEST_KIND,
    CapacityRequest,
    RequestedPods,
    consumed_by,
)
from shiplap.scheduling.model.snapshot import ClusterView

_NODES = "BookedNodes"
_DETAIL = 32_000
"""Characters of one detail; the API allows 768 more."""
_MOST_DETAILS = 60

Place = tuple[int, str]
"""A set of pods, by its place in the request, and the name of a node."""

Booking = Mapping[Place, int]
"""How many pods of a set have room on a node."""


def waiting_pods(request: CapacityRequest, consumers: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods of a request that has yet to be provisioned, less those that consume it and have a node."""
    taken = Counter[int]()
    for (place, _), number in taken_places(request, consumers).items():
        taken[place] += number
    total = request.total - taken.total()
    for place, each in enumerate(request.sets):
        template = _pod(request, each, total)
        for number in range(taken[place], each.count):
            yield _named(template, request, place, str(number))


def taken_places(request: CapacityRequest, consumers: Iterable[Pod]) -> Counter[Place]:
    """Return where pods that consume a request have room, no more of each set than it has."""
    left = Counter({place: each.count for place, each in enumerate(request.sets)})
    taken = Counter[Place]()
    for pod in sorted(consumers, key=lambda item: item.key):
        first = _set_of(request.sets, pod)
        place = first if left[first] else min((each for each, number in left.items() if number), default=-1)
        if place >= 0:
            left[place] -= 1
            taken[place, pod.spec.node_name] += 1
    return taken


def booked_pods(request: CapacityRequest, consumers: Iterable[Pod]) -> Iterator[Pod]:
    """Yield the pods of a provisioned request whose room nobody has taken yet, bound to their nodes.

    Like static pods they stay with their node.
    """
    for (place, node), number in sorted(unconsumed(request, consumers).items()):
        template = _pod(request, request.sets[place], request.total)
        owner = (OwnerReference(kind="Node", name=node, controller=True),)
        bound = replace(
            template,
            metadata=replace(template.metadata, owner_references=owner),
            spec=replace(template.spec, node_name=node),
            status=PodStatus(phase="Running"),
        )
        for count in range(number):
            yield _named(bound, request, place, f"{node}/{count}")


def guards(nodes: Iterable[Node]) -> Iterator[Pod]:
    """Yield a pod for each node of a NodePool, as requests that cannot be read may have booked any."""
    for node in nodes:
        if labels.NODE_POOL in node.metadata.labels:
            name = node.metadata.name
            meta = ObjectMeta(
                name=without_object("ProvisioningRequests that cannot be read", "", name),
                namespace="default",
                uid=f"unread/{name}",
                annotations={REQUEST: ""},
                owner_references=(OwnerReference(kind="Node", name=name, controller=True),),
            )
            yield Pod(metadata=meta, spec=PodSpec(node_name=name), status=PodStatus(phase="Running"))


def unconsumed(request: CapacityRequest, consumers: Iterable[Pod]) -> dict[Place, int]:
    """Return the booking of a request less the pods that have taken its room, each on its node if it can be."""
    left = Counter(booking_of(request))
    for (place, node), number in sorted(taken_places(request, consumers).items()):
        mine = sorted((key for key in left if key[0] == place), key=lambda key: (key[1] != node, key))
        open_ = number
        for key in mine:
            less = min(open_, left[key])
            left[key] -= less
            open_ -= less
    return {key: number for key, number in left.items() if number > 0}


def _set_of(sets: Sequence[RequestedPods], pod: Pod) -> int:
    """Return the set whose pods request as much as a pod does; the first if none does."""
    try:
        wanted = pod_requests(pod)
    except ValueError:
        return 0
    alike = (place for place, each in enumerate(sets) if pod_requests(Pod(spec=each.template.spec)) == wanted)
    return next(alike, 0)


def _pod(request: CapacityRequest, each: RequestedPods, together: int) -> Pod:
    """Return a pod of a set, without what only an object has: its volumes, gates and groups of other APIs."""
    item, template = request.item, each.template
    volumes = tuple(
        volume
        for volume in template.spec.volumes
        if volume.persistent_volume_claim is None and volume.ephemeral is None
    )
    spec = replace(template.spec, volumes=volumes, node_name="", scheduling_gates=(), scheduling_group=None)
    annotations = {
        **{key: text for key, text in template.metadata.annotations.items() if key in labels.ANNOTATIONS_OF_PODS},
        REQUEST: item.metadata.name,
        CLASS: item.spec.provisioning_class_name,
        REQUESTED: str(together),
    }
    meta = ObjectMeta(
        namespace=item.name[0],
        labels=template.metadata.labels,
        annotations=annotations,
        creation_timestamp=item.metadata.creation_timestamp,
        owner_references=(OwnerReference(REQUEST_KIND, item.metadata.name, item.metadata.uid, controller=True),),
    )
    return Pod(metadata=meta, spec=spec)


def _named(pod: Pod, request: CapacityRequest, place: int, number: str) -> Pod:
    meta = request.item.metadata
    name = without_object(REQUEST_KIND, meta.name, f"{place}-{number}")
    return replace(pod, metadata=replace(pod.metadata, name=name, uid=f"{meta.uid}/{place}-{number}"))


def set_of_reference(reference: PodReference) -> int:
    """Return the place, in its request, of the set of a pod of `waiting_pods`."""
    return int(reference.uid.rpartition("/")[2].partition("-")[0])


def request_of_reference(reference: PodReference) -> str:
    """Return the uid of the request of a pod of `waiting_pods`."""
    return reference.uid.rpartition("/")[0]


def consumers_of(view: ClusterView, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Pod]]:
    """Return the pods that have a node, or had one, and consume these requests, by namespace and name."""
    found: dict[tuple[str, str], list[Pod]] = {name: [] for name in names}
    if found:
        for pod in view.pods:
            if pod.metadata.annotations and pod.spec.node_name and (name := consumed_by(pod)):
                key = (pod.metadata.namespace or "default", name)
                if key in found:
                    found[key].append(pod)
    return found


def lost_nodes(booking: Iterable[Place], nodes: Iterable[Node]) -> list[str]:
    """Return the nodes of a booking that are gone or on their way out, sorted."""
    there = {node.metadata.name for node in nodes if not node.metadata.deletion_timestamp}
    return sorted({node for _, node in booking} - there)


def booking_details(booking: Booking) -> dict[str, str]:
    """Return a booking as details of a status; of a huge one what details can hold."""
    parts = [f"{place}:{node}={number}" for (place, node), number in sorted(booking.items())]
    texts = [""]
    for part in parts:
        if len(texts[-1]) + len(part) + 1 > _DETAIL:
            texts.append("")
        texts[-1] = f"{texts[-1]},{part}" if texts[-1] else part
    return {f"{_NODES}{number or ''}": text for number, text in enumerate(texts[:_MOST_DETAILS]) if text}


def booking_of(request: CapacityRequest) -> dict[Place, int]:
    """Return the booking that the details of a request name; what is malformed books nothing."""
    details, found = request.item.status.provisioning_class_details, dict[Place, int]()
    for key in sorted(details):
        if key.startswith(_NODES):
            for part in details[key].split(","):
                place, _, rest = part.partition(":")
                node, _, number = rest.partition("=")
                if _is_count(place) and _is_count(number) and int(place) < len(request.sets) and node:
                    found[int(place), node] = int(number)
    return found if sum(found.values()) <= request.total else {}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
