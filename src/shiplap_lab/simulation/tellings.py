"""The promise that what is told is so: events of the bus, timers, metrics, claims and Events agree with what is there.

Metrics count what crosses the ports: never more of it, and where nothing keeps functions from their work neither less.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from shiplap_lab.judge import raw_json
from shiplap_lab.judge.raw_json import Json
from shiplap_lab.simulation.region_facts import ClaimFacts, CommandFacts, RegionFacts, allocatable

_TOLD = {
    "Launched": ("NodeClaimLaunched", "NodesLaunched"),
    "Registered": ("NodeClaimRegistered", "NodesRegistered"),
    "Initialized": ("NodeClaimInitialized", "NodesInitialized"),
    "Failed": ("NodeClaimFailed", "ClaimsFailed"),
    "Gone": ("NodeClaimTerminated", "NodesTerminated"),
}
"""The event that tells that a claim has reached a state, and the metric that counts it."""

_ONCE = frozenset(event for event, _ in _TOLD.values())
_FIELDS = {
    "nodePool": "node_pool",
    "nodeClass": "node_class",
    "tier": "tier",
    "instanceId": "instance_id",
    "instanceType": "instance_type",
    "zone": "zone",
    "capacityType": "capacity_type",
    "ami": "ami",
    "hourly": "hourly",
}
"""Fields of events of a claim, and of its item."""

_SUMS = frozenset(
    {
        *(metric for _, metric in _TOLD.values()),
        "NodeClaimsMissed",
        "LaunchToJoined",
        "JoinedToReady",
        "EventToReady",
        "MemoryBeyondPlan",
        "MemoryShort",
        "CommandsBegun",
        "CommandsRemoving",
        "CommandsDone",
        "CommandsUndone",
        "SavingsHourly",
        "PodsEvicted",
        "PodsDeleted",
    }
)
"""Metrics whose sum is that of what has happened."""

_STEPS = frozenset(
    {
        "join",
        "register",
        "initialize",
        "vanished",
        "node gone",
        "returned",
        "cordon",
        "drain",
        "terminate",
        "ended",
        "garbage",
        "disruption",
        "reboot",
    }
)
_MOST_DELAY_S = 900
_APART_S = 60.0
"""Seconds that an event may be older than its publication."""

_QUIET_S = 30.0
"""For so many seconds nothing must have changed before a value that is measured has to be exact."""

_EXACT = 1e-6
_GIB = 2**30
_NODE_POOL = "karpenter.sh/nodepool"
_ZONE, _CAPACITY_TYPE = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"

PriceOf = Callable[[str, str, str], float]


class Tellings:
    """Compares what is told with the facts.

    Args:
        facts: the Region; whoever calls this has updated them before.
        now: epoch seconds.
        found: called with each telling that is not so.
        price: USD per hour of an instance type, in a zone, of a capacity type.
        is_undisturbed: nothing keeps functions from their work, so that they tell of all that they do.
        apart_s: how far the clocks of functions may be from the clock of the world.
    """

    def __init__(
        self,
        facts: RegionFacts,
        now: Callable[[], float],
        found: Callable[[str], object],
        *,
        price: PriceOf,
        is_undisturbed: bool,
        apart_s: float = 0.0,
    ) -> None:
        self._facts, self._now, self._found, self._price = facts, now, found, price
        self._is_undisturbed, self._apart_s = is_undisturbed, apart_s
        self._uncounted: dict[str, float] = defaultdict(float)
        self._untold: set[tuple[str, str]] = set()
        self._events: dict[tuple[str, str, str], Json] = {}
        self._times: Counter[tuple[str, str]] = Counter()

    # What happens

    def claim_written(self, install: str, before: ClaimFacts | None, claim: ClaimFacts) -> None:
        """A claim is durable; `before` is what it was, None if it was not there."""
        if before is None:
            self._check_plan(claim)
            return
        returned = claim.state == "Initialized" and before.state != "Registered"
        if claim.state == before.state or claim.state not in _TOLD or returned:
            return
        event, metric = _TOLD[claim.state]
        self._uncounted[metric] += 1
        self._untold.add((install, f"{claim.cluster}/{claim.name}/{event}"))
        self._uncounted["NodeClaimsMissed"] += claim.missed and not before.missed
        if claim.state == "Registered":
            self._uncounted["LaunchToJoined"] += max(claim.changed_at - before.changed_at, 0.0)
            self._expect_memory(before)
        if claim.state == "Initialized":
            self._uncounted["JoinedToReady"] += max(claim.changed_at - before.changed_at, 0.0)
            self._uncounted["EventToReady"] += max(claim.changed_at - (claim.first_event_at or claim.created_at), 0.0)
            self._check_node(claim)

    def _expect_memory(self, planned: ClaimFacts) -> None:
        """Add up the memory that a node has beyond its plan, or lacks. The node may have gone since it was read."""
        node = self._facts.last_nodes.get((planned.cluster, planned.instance_id))
        counted_on, has = planned.allocatable.get("memory", 0), allocatable(node).get("memory")
        if counted_on and has is not None:
            beyond = (float(has) - counted_on) / _GIB
            self._uncounted["MemoryBeyondPlan" if beyond > 0 else "MemoryShort"] += abs(beyond)

    def table_restored(self, install: str) -> None:
        """Table `state` is as it was at an earlier moment: what has happened since may happen again."""
        self._events = {key: detail for key, detail in self._events.items() if key[0] != install}
        self._times = Counter({key: times for key, times in self._times.items() if key[0] != install})

    def command_written(self, before: CommandFacts | None, command: CommandFacts) -> None:
        """A disruption command is durable."""
        if before is None:
            self._uncounted["CommandsBegun"] += 1
        elif command.state != before.state:
            self._uncounted[f"Commands{command.state}"] += 1
            self._uncounted["SavingsHourly"] += command.savings_hourly if command.state == "Done" else 0.0

    def pod_deleted(self, cluster: str, pod: Json, forced: bool) -> None:  # noqa: ARG002, FBT001 - a listener
        """A function has had a pod deleted; `forced` if it was no eviction."""
        self._uncounted["PodsDeleted" if forced else "PodsEvicted"] += 1

    def _check_plan(self, claim: ClaimFacts) -> None:
        """A claim is for pods that there are, or that requests stand for, and asks for as much as they do."""
        pods = [self._facts.pods.get(claim.cluster, {}).get(pod["uid"]) for pod in claim.pods]
        self._check_pods(claim.name, claim.cluster, [list(pod.values()) for pod in _with_objects(claim)])
        wanted = raw_json.total(raw_json.requests_of(pod) for pod in pods if pod is not None)
        for name, amount in wanted.items():
            has = claim.requests.get(name, 0)
            if (1000 if name == "cpu" else 1) * amount > has:
                self._found(f"{claim.name} asks for {has} {name}, its pods for {amount}")

    def _check_node(self, claim: ClaimFacts) -> None:
        """A node in service says of itself what its claim says."""
        node = self._facts.node_of(claim)
        labels = (node["metadata"].get("labels") or {}) if node is not None else {}
        wrong = sorted(name for name, value in claim.labels.items() if labels.get(name) != value)
        if self._is_undisturbed and wrong:
            self._found(f"{claim.name} is in service without the labels {wrong}")

    def fleet_requested(self, install: str, call: Json) -> None:
        """CreateFleet is called: only for what its claims allow."""
        for name in call["claims"]:
            claim = self._facts.claims.get((install, call["cluster"], name))
            if claim is None:
                continue
            allowed = {item["key"]: item["values"] for item in claim.requirements if item["operator"] == "In"}
            wrong = [kind for kind, _ in call["offerings"] if kind not in claim.instance_types]
            wrong += [zone for _, zone in call["offerings"] if zone not in allowed.get(_ZONE, [zone])]
            if wrong or call["capacity_type"] not in allowed.get(_CAPACITY_TYPE, [call["capacity_type"]]):
                self._found(f"{call['capacity_type']} {wrong} is requested for {name}, which does not allow it")

    # What is told

    def published(self, install: str, kind: str, detail: Json) -> None:
        """An event was put on the bus."""
        cluster, name = detail.get("cluster", ""), detail.get("id", "")
        late_s = abs(self._now() - raw_json.moment(detail["time"]))
        if not name.startswith(f"{cluster}/") or (late_s > _APART_S + self._apart_s and self._is_undisturbed):
            self._found(f"{kind} {name!r} is of {detail['time']}")
        self._check_pods(name, cluster, detail.get("pods", ()))
        known = self._events.setdefault((install, kind, name), detail)
        if any(
            detail[key] != value for key, value in known.items() if key in ("claim", "node", "reason", "providerID")
        ):
            self._found(f"{name} stands for {known} and for {detail}")
        if "claim" in detail:
            self._check_claim_event(install, kind, detail)

    def _check_pods(self, where: str, cluster: str, pods: Sequence[Sequence[str]]) -> None:
        for namespace, name, uid in pods:
            if self._facts.names.get((cluster, uid)) != (namespace, name):
                self._found(f"{where} names {namespace}/{name} {uid}, and there is no such pod")

    def _check_claim_event(self, install: str, kind: str, detail: Json) -> None:
        claim = self._facts.claims.get((install, detail["cluster"], detail["claim"]))
        if claim is None:
            self._found(f"{detail['id']} names {detail['claim']}, and there is no such claim")
            return
        wrong = [field for field, key in _FIELDS.items() if detail[field] != getattr(claim, key)]
        expected = {"reason": claim.failure, "missed": claim.missed, "node": claim.node_name}
        wrong += [field for field, value in expected.items() if detail.get(field) not in ("", None, value)]
        wrong += ["pods"] * ([pod[2] for pod in detail["pods"]] != [pod["uid"] for pod in _with_objects(claim)])
        wrong += ["deadline"] * (bool(detail.get("deadline")) and not claim.deadline_at)
        if wrong:
            self._found(f"{detail['id']} tells {', '.join(wrong)} otherwise than its claim: {detail}")
        if kind in _ONCE:
            self._untold.discard((install, detail["id"]))
            self._times[install, detail["id"]] += 1
            if self._times[install, detail["id"]] > 1:
                self._found(f"{detail['id']} is told twice")

    def reminded(self, install: str, cluster: str, claim: str, step: str, delay_s: float) -> None:
        """A timer was set."""
        if step not in _STEPS or not 0 <= delay_s <= _MOST_DELAY_S:
            self._found(f"timer {step!r} of {claim} is due in {delay_s} s")
        if claim != "*" and step != "garbage" and (install, cluster, claim) not in self._facts.claims:
            self._found(f"timer {step} names {claim}, and there is no such claim")

    def object_written(self, cluster: str, item: Json, plural: str) -> None:
        """The API server has stored an object."""
        about, ours = item.get("involvedObject") or {}, (item.get("source") or {}).get("component") == "shiplap"
        if plural == "events" and ours and about.get("kind") == "Pod":
            self._check_pods("an Event", cluster, [[about.get("namespace", ""), about["name"], about.get("uid", "")]])

    def counted(self, name: str, value: float, of: Mapping[str, str]) -> None:
        """A value of a metric was written, with its dimensions."""
        if not isfinite(value):
            self._found(f"{name} is {value}")
        if name in _SUMS:
            self._uncounted[name] -= value
            if self._uncounted[name] < -_EXACT and name != "SavingsHourly":
                self._found(f"{name} counts {-self._uncounted[name]:g} more than there was")
        elif self._is_undisturbed and of:
            for expected, off in self._measured(name, of):
                if abs(value - expected) > off:
                    self._found(f"{name} of {dict(of)} is {value:g}, not {expected:g}")

    def _measured(self, name: str, of: Mapping[str, str]) -> Iterator[tuple[float, float]]:
        """Yield what a value has to be, and how far it may be from that; nothing if no exact value is known."""
        cluster, now = of["cluster"], self._now()
        quiet = [now - self._facts.changed_at.get((what, cluster), now) > _QUIET_S for what in ("claims", "pods")]
        running = [claim for claim in self._facts.open_claims(cluster) if claim.has_instance]
        if quiet[0] and name == "Nodes":
            kind = (of["pool"], of["tier"])
            yield sum((claim.node_pool or "none", str(claim.tier)) == kind for claim in running), 0.0
        elif quiet[0] and name == "HourlyCost":
            yield sum(claim.hourly for claim in running), _EXACT
        elif quiet[0] and name == "HourlyListPrice":
            yield sum(self._price(claim.instance_type, claim.zone, "on-demand") for claim in running), _EXACT
        elif quiet[1] and name == "Pods":
            yield self._pods_on(cluster, of["pool"]), 0.0
        elif quiet[1] and name == "PodsWaiting":
            yield len(self._facts.waiting(cluster)), 0.0
        elif quiet[1] and name == "OldestPodWaiting":
            created = [pod["metadata"]["creationTimestamp"] for pod in self._facts.waiting(cluster).values()]
            yield now - min(map(raw_json.moment, created), default=now), _QUIET_S

    def _pods_on(self, cluster: str, pool: str) -> int:
        metadata = [node["metadata"] for (of, _), node in self._facts.nodes.items() if of == cluster]
        nodes = {item["name"] for item in metadata if (item.get("labels") or {}).get(_NODE_POOL) == pool}
        pods = self._facts.pods.get(cluster, {}).values()
        return sum(pod["spec"].get("nodeName", "-") in nodes and not raw_json.is_finished(pod) for pod in pods)

    def check_end(self) -> None:
        """The run is over: all that happened was told."""
        if not self._is_undisturbed:
            return
        # What vanished by itself is counted apart.
        left: dict[str, Any] = {name: count for name, count in self._uncounted.items() if name in _SUMS}
        left.pop("NodesTerminated", None)
        for name, count in sorted(left.items()):
            if abs(count) > _EXACT:
                self._found(f"{name} counts {count:g} less than there was")
        for _, name in sorted(self._untold):
            self._found(f"{name} was not told")


def _with_objects(claim: ClaimFacts) -> list[Json]:
    """Return the pods of a claim's plan without those that stand for an object of another kind: such names have a /."""
    return [pod for pod in claim.pods if "/" not in pod["name"]]
