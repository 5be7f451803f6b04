"""The node that a pod is on: since when, whether it was launched for the pod, and which of its demands it meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shiplap.kubernetes.objects import Node, NodeSelectorRequirement, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import format_part, parse_resources
from shiplap.kubernetes.selectors import term_matches
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.output import Printed


class PresentPlace(Printed, frozen=True):
    """`since` is RFC 3339, empty if nobody has told; `claim` is the one that was launched for the pod, empty if none.

    `origin` says in words whether one was, empty where no install is known. `meets` are the demands of the pod that the
    node meets, in words.
    """

    node: str
    since: str
    claim: str
    origin: str
    meets: tuple[str, ...]


def present_place_of(snapshot: Snapshot, pod: Pod, claims: Sequence[NodeClaim] | None) -> PresentPlace:
    """The place of a pod that is on a node; `claims` are those of the install, None where none is known."""
    name = pod.spec.node_name
    bound = (each.last_transition_time for each in pod.status.conditions if (each.type, each.status) == _BOUND)
    own = next((claim.name for claim in claims or () if claim.node_name == name and _is_for(claim, pod)), "")
    node = next((node for node in snapshot.view.nodes if node.metadata.name == name), None)
    none = "" if claims is None else "which was there: no node was launched for it"
    return PresentPlace(
        node=name,
        since=next(bound, "") or pod.status.start_time or "",
        claim=own,
        origin=f"which was launched for it as claim {own}" if own else none,
        meets=tuple(_met(pod, node)) if node is not None else (),
    )


def place_in_words(place: PresentPlace) -> str:
    """Where the pod is, since when, and why there."""
    since = f" since {place.since}" if place.since else ""
    return f"runs on node {place.node}{since}" + (f", {place.origin}" if place.origin else "")


_BOUND = ("PodScheduled", "True")


def _is_for(claim: NodeClaim, pod: Pod) -> bool:
    return any(planned.key == pod.key for planned in claim.plan.pods)


def _met(pod: Pod, node: Node) -> Iterator[str]:
    room = parse_resources(node.status.allocatable)
    for resource, wanted in sorted(pod_requests(pod).items()):
        if resource in room:
            yield f"{resource} {format_part(resource, wanted, room[resource])}"
    for key, value in sorted(pod.spec.node_selector.items()):
        yield f"label {key}={value}"
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        if term_matches(term, node):
            yield from (_expression(each) for each in term.match_expressions)
            break
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule":
            yield f"tolerates {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _expression(requirement: NodeSelectorRequirement) -> str:
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"
