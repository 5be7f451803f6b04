"""Measures a run: the stages of the time from a pod to its instance, and the cost of its nodes against the plan.

Everything is read off what others have written down: the API server's audit log, the messages of the queue, the claims,
EC2. So measuring changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from shiplap.manifests.nodeclaim import NodeClaim
from tests.event_source import EventSourcePoller

FIGURES = Path(__file__).parents[2] / "build" / "e2e.json"

STAGES = ("judged", "told", "invoked", "planned", "launched")
"""What happens to a pod, in this order, each stage from the end of the one before.

judged: kube-scheduler has found no node for it. told: the watch function has put the event on the bus that its claim
goes back to; it may name other pods, for who looks because of one sees all. invoked: the queue has delivered that
event, and the window in which others join it is over. planned: the decision is committed. launched: EC2 has made the
instance that CreateFleet asked for.
"""


class Moments(msgspec.Struct, frozen=True):
    """The times at which a pod was created and at which each stage ended, epoch seconds."""

    created: float
    judged: float
    told: float
    invoked: float
    planned: float
    launched: float

    def spans(self) -> dict[str, float]:
        """Seconds by stage; `whole` from the pod to its instance."""
        times = [getattr(self, name) for name in ("created", *STAGES)]
        found = {name: after - before for name, before, after in zip(STAGES, times, times[1:], strict=False)}
        return {**found, "whole": self.launched - self.created}


def audit_events(path: Path) -> list[dict[str, Any]]:
    """The events of an audit log, one per line; a line that is being written is left out."""
    lines = path.read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]


def seconds(text: str) -> float:
    """A time of an audit log or an event as epoch seconds."""
    return datetime.fromisoformat(text).timestamp()


def moments(
    audit_log: Path, source: EventSourcePoller, claims: Iterable[NodeClaim], launched_at: Mapping[str, float]
) -> dict[str, Moments]:
    """The moments of each pod that was launched for, by uid.

    Args:
        audit_log: of the API server.
        source: what has delivered the messages of the queue `provisioning`.
        claims: the first claim that names a pod counts.
        launched_at: epoch seconds by instance id.
    """
    created, judged = _written(audit_log)
    invoked = _heard(source)
    found: dict[str, Moments] = {}
    for claim in sorted(claims, key=lambda item: item.created_at):
        launched = launched_at.get(claim.instance_id)
        for pod in claim.plan.pods:
            if launched is None or pod.uid not in created or pod.uid in found:
                continue
            times = [
                created[pod.uid],
                judged.get(pod.uid, 0.0),
                claim.cause.first_event_at,
                invoked.get(claim.cause.event_id, 0.0),
            ]
            times = [min(at, claim.created_at) for at in accumulate(times, max)]
            found[pod.uid] = Moments(*times, claim.created_at, launched)
    return found


def _written(audit_log: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the times at which each pod was created and at which kube-scheduler first wrote its status, by uid."""
    created: dict[str, float] = {}
    judged: dict[str, float] = {}
    for event in audit_events(audit_log):
        reference = event.get("objectRef") or {}
        uid = ((event.get("responseObject") or {}).get("metadata") or {}).get("uid")
        if reference.get("resource") != "pods" or not uid:
            continue
        at = seconds(event["requestReceivedTimestamp"])
        if event["verb"] == "create" and not reference.get("subresource"):
            created[uid] = at
        elif reference.get("subresource") == "status" and event["user"]["username"] == "system:kube-scheduler":
            judged.setdefault(uid, at)
    return created, judged


def _heard(source: EventSourcePoller) -> dict[str, float]:
    """Return the time of the function's first invocation with each event, by the event's id."""
    invoked_at = {name: handed.invoked_at for handed in reversed(source.answered) for name in handed.messages}
    found: dict[str, float] = {}
    for name, body in list(source.bodies.items()):
        event = (json.loads(body).get("detail") or {}).get("id", "")
        if event and name in invoked_at:
            found[event] = min(invoked_at[name], found.get(event, invoked_at[name]))
    return found


def breakdown(found: Iterable[Moments]) -> dict[str, list[float]]:
    """Seconds of all pods by stage, and of the whole."""
    spans = [item.spans() for item in found]
    return {name: [item[name] for item in spans] for name in (*STAGES, "whole")}


class Bill(msgspec.Struct, frozen=True):
    """USD per hour: what the first plan for each pod wanted, and what was launched in the end."""

    planned: float
    realised: float


def bill(claims: Sequence[NodeClaim], uids: frozenset[str]) -> Bill:
    """Return the planned and real cost of nodes for some pods: pods off their plan may have caused other launches."""
    first: dict[str, NodeClaim] = {}
    about = [claim for claim in claims if claim.instance_id and any(pod.uid in uids for pod in claim.plan.pods)]
    for claim in sorted(about, key=lambda item: (item.created_at, item.name)):
        for pod in claim.plan.pods:
            first.setdefault(pod.uid, claim)
    planned = {claim.name: claim.hourly for uid, claim in first.items() if uid in uids}
    return Bill(sum(planned.values()), sum(claim.hourly for claim in about))


def at_home(claims: Iterable[NodeClaim], pods: Iterable[Mapping[str, Any]]) -> list[bool]:
    """Of each pod that was launched for, whether it is on a node that was launched for it."""
    homes: dict[str, set[str]] = {}
    for claim in claims:
        for pod in claim.plan.pods:
            homes.setdefault(pod.uid, set()).add(claim.node_name)
    return [
        pod["spec"]["nodeName"] in homes[pod["metadata"]["uid"]]
        for pod in pods
        if pod["metadata"]["uid"] in homes and pod["spec"].get("nodeName")
    ]


def figure(name: str, values: Sequence[float]) -> None:
    """Keep what was measured, its number, median and 99th percentile, in `build/e2e.json`, and say it."""
    ordered = sorted(values)
    percentiles = {f"p{share}": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99)}
    keep(name, {"n": len(ordered), **percentiles})


def keep(name: str, value: Mapping[str, Any]) -> None:
    """Keep a measure of any form in `build/e2e.json`, and say it."""
    known = msgspec.json.decode(FIGURES.read_bytes()) if FIGURES.exists() else {}
    FIGURES.parent.mkdir(exist_ok=True)
    FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode({**known, name: value}), indent=1))
    print(f"{name}: {', '.join(f'{key} {_rounded(item)}' for key, item in value.items())}")  # noqa: T201


def _rounded(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
