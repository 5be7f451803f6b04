"""The part of a snapshot that is planned for while NodePools or namespaces sleep."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from shiplap.manifests.nodeclaim import PodReference
from shiplap.policies.sleep.sleep_state import SleepState
from shiplap.policies.sleep.sleeping_pods import SleepingPods
from shiplap.scheduling.model.planned_pods import leaving, pair
from shiplap.scheduling.model.scheduling_plan import SLEEPS, BufferState, Unschedulable
from shiplap.scheduling.model.snapshot import Snapshot


class AsleepPart(msgspec.Struct, frozen=True):
    """Holds what is not planned for: pods that wait for their sleep to end, and buffers without room until then."""

    pods: tuple[Unschedulable, ...] = ()
    buffers: tuple[BufferState, ...] = ()


NOTHING_ASLEEP = AsleepPart()


def awake_part(snapshot: Snapshot, state: SleepState) -> tuple[Snapshot, AsleepPart]:
    """Return the snapshot without what sleeps, and what sleeps.

    Pods of nodes on their way out are left out as well: where they slept, they will wait, and need no room elsewhere.
    """
    sleepers = SleepingPods(state, snapshot.manifests.node_pools)
    if not sleepers.any:
        return snapshot, NOTHING_ASLEEP
    view = snapshot.view
    gone = leaving(view.nodes, pair(view.nodes, snapshot.claims)[0])
    reasons = {
        id(pod): reason
        for pod in view.pods
        if (not pod.spec.node_name or pod.spec.node_name in gone) and (reason := sleepers.reason(pod))
    }
    waiting = tuple(
        Unschedulable(PodReference.of(pod), f"{SLEEPS}{reasons[id(pod)]}")
        for pod in view.unbound
        if id(pod) in reasons and not pod.metadata.deletion_timestamp and not pod.status.nominated_node_name
    )
    buffers = _sleeping_buffers(snapshot, sleepers)
    left = {(state.namespace, state.name) for state in buffers}
    manifests = replace(
        snapshot.manifests,
        capacity_buffers=tuple(
            item
            for item in snapshot.manifests.capacity_buffers
            if (item.metadata.namespace or "default", item.metadata.name) not in left
        ),
    )
    awake = replace(view, pods=tuple(pod for pod in view.pods if id(pod) not in reasons)) if reasons else view
    return replace(snapshot, view=awake, manifests=manifests), AsleepPart(waiting, buffers)


def _sleeping_buffers(snapshot: Snapshot, sleepers: SleepingPods) -> tuple[BufferState, ...]:
    if not snapshot.manifests.capacity_buffers:
        return ()
    from shiplap.scheduling.packing.buffers import buffers_of  # noqa: PLC0415 - few installs have buffers

    states = []
    for buffer in buffers_of(snapshot):
        if buffer.pods and (why := sleepers.reason(buffer.pods[0])):
            number = len(buffer.pods)
            states.append(BufferState(buffer.namespace, buffer.name, number, missing=number, reason=f"{SLEEPS}{why}"))
    return tuple(states)
