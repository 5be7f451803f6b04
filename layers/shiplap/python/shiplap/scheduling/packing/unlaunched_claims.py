"""Takes claims that are not launched out of a plan: their pods, static NodePools and buffers wait, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import BufferState, Plan, PlannedClaim, StaticPool, Unschedulable


def without_claims(plan: Plan, left_out: Sequence[PlannedClaim], reasons: Mapping[str, str]) -> Plan:
    """Return the plan without these claims of it; `reasons` has by name why each of them is not launched."""
    names = {claim.name for claim in left_out}
    waiting = (Unschedulable(pod, reasons[claim.name]) for claim in left_out for pod in claim.pods)
    kept = with_claims(plan, [claim for claim in plan.node_claims if claim.name not in names])
    return replace(
        kept,
        unschedulable=tuple(sorted((*plan.unschedulable, *waiting), key=lambda entry: entry.pod)),
        static_pools=tuple(_lacking(pool, left_out, reasons) for pool in plan.static_pools),
        buffers=_without_room(plan.buffers, left_out, reasons),
    )


def with_claims(plan: Plan, claims: Sequence[PlannedClaim]) -> Plan:
    """Return the plan with other claims in the place of its own, and with what they cost."""
    hourly = round(sum((claim.launch.price for claim in claims), 0.0), 6)
    return replace(plan, node_claims=tuple(claims), hourly=hourly)


def _lacking(pool: StaticPool, left_out: Sequence[PlannedClaim], reasons: Mapping[str, str]) -> StaticPool:
    mine = [claim for claim in left_out if claim.node_pool == pool.node_pool]
    if not mine:
        return pool
    return replace(pool, missing=pool.missing + len(mine), reason=pool.reason or reasons[mine[0].name])


def _without_room(
    buffers: Collection[BufferState], left_out: Sequence[PlannedClaim], reasons: Mapping[str, str]
) -> tuple[BufferState, ...]:
    """Buffers less the virtual pods of these claims; a virtual pod is named after its buffer."""
    lost: Counter[tuple[str, str]] = Counter()
    told: dict[tuple[str, str], str] = {}
    for claim in left_out:
        for pod in claim.virtual_pods:
            buffer = next((item for item in buffers if _is_of(pod, item)), None)
            if buffer is not None:
                lost[buffer.namespace, buffer.name] += 1
                told.setdefault((buffer.namespace, buffer.name), reasons[claim.name])
    return tuple(
        replace(
            buffer,
            new=buffer.new - lost[buffer.namespace, buffer.name],
            missing=buffer.missing + lost[buffer.namespace, buffer.name],
            reason=buffer.reason or told.get((buffer.namespace, buffer.name), ""),
        )
        for buffer in buffers
    )


def _is_of(pod: PodReference, buffer: BufferState) -> bool:
    return pod.namespace == buffer.namespace and pod.name.rpartition("-")[0] == buffer.name
