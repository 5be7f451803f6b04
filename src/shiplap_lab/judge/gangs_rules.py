"""The judge of gangs and ProvisioningRequests: what is launched for them, what is booked, and what their status says.

It reads raw JSON and imports nothing of what it judges. Times that a rule states count only while no fault is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from shiplap_lab.judge import raw_json
from shiplap_lab.judge.decisions import COMMAND_REASONS
from shiplap_lab.judge.judge import Judge, Key
from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.raw_json import ClaimItem, Json

IDLE_S = 600.0
"""A node of a gang or request that is not whole may be paid for so long without a pod, in seconds."""

WAITS_S = 600.0
"""A request that could be placed waits no longer, in seconds."""

BOOKED_S = 600.0
"""Room is kept for so long after it was there, in seconds."""

LATE_S = 180.0
"""A booking ends no later after its time, in seconds."""

_JUST_NOW_S = 90.0
"""A decision may have read what was so before, in seconds."""

_SERVES = ("Launched", "Registered", "Initialized")
_LEAVES = ("Disrupting", "Draining")
_OVER = ("Failed", "BookingExpired", "CapacityRevoked")
_CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
_CHECK = "check-capacity.autoscaling.x-k8s.io"
_CPUS = 2  # of each node that scenarios with requests launch


class _Request(msgspec.Struct):
    """A ProvisioningRequest as it was last written. `waited_s` and `late_s` count undisturbed seconds."""

    cluster: str
    body: Json
    cpu: Decimal
    is_deleted: bool = False
    provisioned_at: float = 0.0
    waited_s: float = 0.0
    late_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name, as messages have it."""
        return str(self.body["metadata"]["name"])

    @property
    def count(self) -> int:
        """The number of its pods."""
        return sum(each["count"] for each in self.body["spec"]["podSets"])

    @property
    def is_check(self) -> bool:
        """True if nothing is launched for it."""
        return bool(self.body["spec"]["provisioningClassName"] == _CHECK)

    @property
    def is_over(self) -> bool:
        """True if nothing is to be done for it any more."""
        return self.is_deleted or any(held(self.body, kind) for kind in _OVER)

    @property
    def waits(self) -> bool:
        """True if it has not been provisioned yet."""
        return not self.is_over and not held(self.body, "Provisioned")

    @property
    def booking(self) -> dict[str, int]:
        """The number of its pods by node, as its status names them; empty unless they are booked now."""
        return {} if self.is_over or not held(self.body, "Provisioned") else booked(self.body)


def held(request: Json, kind: str) -> bool:
    """True if a condition of a request is True."""
    conditions = (request.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def booked(request: Json) -> dict[str, int]:
    """Return the number of pods by node in the details of a request."""
    found: dict[str, int] = {}
    for key, text in ((request.get("status") or {}).get("provisioningClassDetails") or {}).items():
        for part in text.split(",") if key.startswith("BookedNodes") else ():
            node, _, number = part.partition(":")[2].partition("=")
            found[node] = found.get(node, 0) + int(number)
    return found


class GangJudge:
    """Judges gangs and requests of all clusters of a run.

    Args:
        judge: told of each violation.
        pools: the limits on CPU of NodePools, by cluster and name.
        apart_s: how far the clocks of functions may be from the world's.
    """

    def __init__(self, judge: Judge, pools: Mapping[tuple[str, str], Decimal], apart_s: float) -> None:
        self._judge, self._pools, self._apart_s = judge, pools, apart_s
        self._requests: dict[str, _Request] = {}
        self._templates: dict[tuple[str, str], Decimal] = {}
        self._nodes: dict[tuple[str, str], Json] = {}
        self._gone_at: dict[tuple[str, str], float] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        self._claims: dict[Key, ClaimItem] = {}
        self._idle_s: dict[Key, float] = {}

    def object_written(self, cluster: str, kind: str, plural: str, item: Json) -> None:
        """An object was written or removed."""
        name, gone = item["metadata"]["name"], kind == "DELETED"
        if plural == "nodes":
            self._nodes[cluster, name] = item
            if gone:
                del self._nodes[cluster, name]
                self._gone_at[cluster, name] = self._judge.now()
        elif plural == "pods":
            pods = self._pods.setdefault(cluster, {})
            pods[item["metadata"]["uid"]] = item
            if gone or raw_json.is_finished(item):
                del pods[item["metadata"]["uid"]]
        elif plural == "podtemplates":
            self._templates[cluster, name] = raw_json.requests_of(item["template"])["cpu"]
        elif plural == "provisioningrequests":
            self._request_written(cluster, item, gone=gone)

    def _request_written(self, cluster: str, item: Json, *, gone: bool) -> None:
        uid, known = item["metadata"]["uid"], self._requests.get(item["metadata"]["uid"])
        if known is None:
            cpu = self._templates[cluster, item["spec"]["podSets"][0]["podTemplateRef"]["name"]]
            self._requests[uid] = _Request(cluster, item, cpu)
            return
        before, known.body, known.is_deleted = known.body, item, gone
        if gone or before.get("status") == item.get("status"):
            return
        if any(held(before, kind) for kind in _OVER):
            self._found(known, "was over, and its status has changed")
        if held(before, "Provisioned") and not held(item, "Provisioned"):
            self._found(known, "was provisioned, and is not any more")
        if not held(before, "Provisioned") and held(item, "Provisioned"):
            known.provisioned_at = self._judge.now()
            self._check_booking(known)
        until = known.provisioned_at + BOOKED_S - self._apart_s - 1.0
        if held(item, "BookingExpired") and not (known.provisioned_at and self._judge.now() >= until):
            self._found(known, "its booking has ended before its time")

    def _check_booking(self, request: _Request) -> None:
        """What is provisioned names room for each pod, on nodes that are there."""
        booking, now = request.booking, self._judge.now()
        if sum(booking.values()) != request.count:
            self._found(request, f"is provisioned with room for {sum(booking.values())} of {request.count} pods")
        for node in sorted(booking):
            key = (request.cluster, node)
            if key not in self._nodes and now > self._gone_at.get(key, 0.0) + _JUST_NOW_S + self._apart_s:
                self._found(request, f"has room on {node}, which does not exist")

    def claim_written(self, install: str, stored: str | bytes) -> None:
        """An item of a claim is durable."""
        claim = raw_json.CLAIMS.decode(raw_json.plain(stored))
        key = (install, claim.cluster, claim.name)
        before, self._claims[key] = self._claims.get(key), claim
        state = before.state if before is not None else ""
        if claim.state == "Launched" and state != "Launched":
            for uid in self._asked_by(claim):
                self._check_launch(uid)
        if claim.state in _LEAVES and state not in _LEAVES and claim.failure in ("", *COMMAND_REASONS):
            for request in self._requests.values():
                open_ = self._unconsumed(request).get(claim.node_name, 0) if request.cluster == claim.cluster else 0
                if open_ and self._judge.now() > request.provisioned_at + _JUST_NOW_S + self._apart_s:
                    self._found(request, f"has booked {claim.node_name}, which leaves: {claim.failure or claim.state}")

    def restored(self, install: str, claims: Sequence[str | bytes], _commands: Sequence[str | bytes]) -> None:
        """Table `state` is as it was at an earlier moment."""
        self._claims = {key: claim for key, claim in self._claims.items() if key[0] != install}
        for stored in claims:
            claim = raw_json.CLAIMS.decode(raw_json.plain(stored))
            self._claims[install, claim.cluster, claim.name] = claim

    def _asked_by(self, claim: ClaimItem) -> set[str]:
        """Return the uids of the requests that a claim was planned for."""
        return {uid for pod in claim.pods if (uid := pod["uid"].rpartition("/")[0]) in self._requests}

    def _check_launch(self, uid: str) -> None:
        """All nodes that were launched for a request, and that run no other pods, have no more than its pods.

        Room that others lack may be theirs by now: what was launched for one request serves whoever comes first.
        """
        request, mine = self._requests[uid], self._launched_for(uid)
        others = [(key, item) for key, item in self._requests.items() if item is not request and item.waits]
        lacking = sum(max(item.count - self._launched_for(key), 0) for key, item in others)
        lacking += sum(not pod["spec"].get("nodeName") for pod in self._pods.get(request.cluster, {}).values())
        if mine > request.count + lacking:
            self._found(
                request, f"asks for {request.count} pods, and has room launched for {mine}, {lacking} lack room"
            )

    def _launched_for(self, uid: str) -> int:
        """Return how many pods of a request have room on nodes that were launched for it and run nothing else."""
        request = self._requests[uid]
        return sum(
            sum(pod["uid"].rpartition("/")[0] == uid for pod in claim.pods)
            for claim in self._claims.values()
            if claim.state in _SERVES and not claim.missed and not self._runs_others(claim, request)
        )

    def _on(self, cluster: str, node: str) -> list[Json]:
        pods = self._pods.get(cluster, {}).values()
        return [pod for pod in pods if node and pod["spec"].get("nodeName") == node]

    def _runs_others(self, claim: ClaimItem, request: _Request) -> bool:
        return any(_consumed(pod) != request.name for pod in self._on(claim.cluster, claim.node_name))

    def _unconsumed(self, request: _Request) -> dict[str, int]:
        """Return the booked room by node, less what consumers have taken there.

        Nothing is known of it once kube-scheduler, which knows no bookings, has bound one of them elsewhere.
        """
        left = dict(request.booking)
        if not left:
            return left
        pods = self._pods.get(request.cluster, {}).values()
        for pod in pods:
            node = pod["spec"].get("nodeName", "")
            if node and _consumed(pod) == request.name:
                if not left.get(node):
                    return {}
                left[node] -= 1
        return {node: number for node, number in left.items() if number}

    def tick(self, passed_s: float) -> None:
        """So many seconds have passed in which no fault was active."""
        for uid, request in self._requests.items():
            if not request.is_over:
                self._check_times(uid, request, passed_s)
        self._check_idle(passed_s)

    def _check_times(self, uid: str, request: _Request, passed_s: float) -> None:
        now = self._judge.now()
        is_late = request.provisioned_at and now > request.provisioned_at + BOOKED_S + self._apart_s
        request.late_s = request.late_s + passed_s if is_late else 0.0
        if request.late_s > LATE_S:
            self._found(request, f"was to end its booking {request.late_s:.0f} s ago")
        could_be = request.waits and self._has_room(uid, request)
        request.waited_s = request.waited_s + passed_s if could_be else 0.0
        if request.waited_s > WAITS_S:
            self._found(request, f"has waited for {request.waited_s:.0f} s while there was room for it")

    def _has_room(self, uid: str, request: _Request) -> bool:
        """True if nodes in service, or all that limits allow besides, have room for all pods of a request."""
        room = sum(self._free(request, key) for key in self._nodes if key[0] == request.cluster)
        if not request.is_check:
            coming = (claim for claim in self._claims.values() if claim.state in _SERVES[:2])
            room += sum(any(pod["uid"].rpartition("/")[0] == uid for pod in claim.pods) for claim in coming)
            room += sum(self._launchable(*pool) for pool in self._pools if pool[0] == request.cluster)
        return room >= request.count

    def _free(self, request: _Request, key: tuple[str, str]) -> int:
        """Return how many pods of a request fit on a node that is in service, beside what others have booked there."""
        node = self._nodes[key]
        if not raw_json.is_ready(node) or node["spec"].get("taints") or "deletionTimestamp" in node["metadata"]:
            return 0
        has = raw_json.amounts(node["status"]["allocatable"]).get("cpu", Decimal(0))
        used = sum((raw_json.requests_of(pod)["cpu"] for pod in self._on(*key)), Decimal(0))
        others = (item for item in self._requests.values() if item.cluster == key[0] and item is not request)
        used += sum((self._unconsumed(item).get(key[1], 0) * item.cpu for item in others), Decimal(0))
        return max(int((has - used) / request.cpu), 0)

    def _launchable(self, cluster: str, pool: str) -> int:
        """Return how many nodes the limit of a NodePool allows besides those that there are."""
        there = (
            claim
            for claim in self._claims.values()
            if (claim.cluster, claim.node_pool) == (cluster, pool) and claim.state not in ("Gone", "Failed")
        )
        return int(self._pools[cluster, pool] / _CPUS) - len(list(there))

    def _check_idle(self, passed_s: float) -> None:
        """No node of a request that is over, or not whole, is paid for without a pod for long."""
        idle: dict[Key, float] = {}
        for key, claim in self._claims.items():
            if claim.state in _SERVES and not self._on(claim.cluster, claim.node_name) and self._is_useless(claim):
                idle[key] = self._idle_s.get(key, 0.0) + passed_s
                if idle[key] > IDLE_S:
                    names = ", ".join(sorted({pod["name"] for pod in claim.pods})[:3])
                    why = f"{claim.name} ({names}) has been paid for without a pod for {idle[key]:.0f} s"
                    self._judge.found(Promise.GANGS, why)
        self._idle_s = idle

    def _is_useless(self, claim: ClaimItem) -> bool:
        """True if a node was launched for requests of which none is whole or booked there, or for pods alone."""
        if any(self._unconsumed(item).get(claim.node_name) for item in self._requests.values()):
            return False
        waiting = [uid for uid in self._asked_by(claim) if self._requests[uid].waits]
        return not any(self._launched_for(uid) >= self._requests[uid].count for uid in waiting)

    def _found(self, request: _Request, what: str) -> None:
        self._judge.found(Promise.REQUESTS, f"{request.cluster}/{request.name} {what}")


def _consumed(pod: Json) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(_CONSUMES, ""))
