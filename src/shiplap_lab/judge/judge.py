"""The judge of a Region. It sees what crosses the ports as raw JSON and decides whether each promise is kept.

It keeps the tables, EC2 and the clusters as they were last seen, and imports nothing of what it judges: a mistake in a
rule of Shiplap is not made here a second time.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import Any

import msgspec

from shiplap_lab.judge import raw_json
from shiplap_lab.judge.decisions import COMMAND_REASONS, ENDED, OVER, ClaimKey, DecisionJudge, canonical
from shiplap_lab.judge.dollar_rules import LEAVING, DollarJudge, PriceOf
from shiplap_lab.judge.promises import Promise, Violation
from shiplap_lab.judge.raw_json import ClaimItem, CommandItem, FleetCall, Json, LaunchedMachine

UNCLAIMED_S = 900.0  # for so long an instance may be paid for without a claim while nothing goes wrong
_SPOT_WARNING_S = 120.0  # so long after the moment of its warning spot leaves an instance
_LAST_MOMENT_S = 25.0  # so long before it must begin to end a pod may be pressed: rounds take ten seconds
_ZONE = "topology.kubernetes.io/zone"
_LEAST_OFFERINGS, _LEAST_ZONES, _MOST_SHARE = 15, 2, 0.3  # choice that risk leaves, and of a pool's nodes for one of it
_ROUNDING_S = 1.0  # moments of EC2's events are whole seconds
_LEAST_MEMORY = Decimal("0.925")  # the part of it that a machine shows to its kubelet at least, as Karpenter assumes
_NEXT = {
    "Planned": {"Launching", "Failed"},
    "Launching": {"Launched", "Failed"},
    "Launched": {"Registered", "Draining", "Terminating", "Gone", "Failed"},
    "Registered": {"Initialized", "Disrupting", "Draining", "Terminating", "Gone"},
    "Initialized": {"Disrupting", "Draining", "Terminating", "Gone"},
    "Disrupting": {"Initialized", "Draining", "Terminating", "Gone"},
    "Draining": {"Terminating", "Gone"},
    "Terminating": {"Gone", "Failed"},
}
_REMEMBERED = 20_000  # changes of where pods are, for snapshots as of earlier versions
_BEFORE_LAUNCH, _EMPTIED = ("Planned", "Launching"), ("Draining", "Terminating")
_UNDER_WAY_S = 120.0  # so long after a node has left, or stays, an eviction may take effect that was asked for before
_OPTIONAL = {"Asleep": Promise.ASLEEP}  # the promises about nodes that leave for reasons of optional features
_EMPTIED_FOR = (*COMMAND_REASONS, "SpotInterruption", "RebalanceRecommendation")  # their machines still run

Place = tuple[str, bool]  # the node of a pod, and whether the pod was asked to end
Key = tuple[str, str, str]  # install, cluster and name
LeavingRule = Callable[[Key, ClaimItem, Json | None], str]  # how a node that leaves, or evicts a pod, breaks a rule


class ClusterObjects:
    """The objects of one cluster as they were last written: pods by uid, and by node."""

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.node_of_machine: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.budgets: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.on_node: dict[str, dict[str, Json]] = {}
        self.requests: dict[str, dict[str, Decimal]] = {}
        self.in_service: dict[str, float] = {}
        self.told: dict[str, str] = {}
        self.allocatable: dict[str, dict[str, Decimal]] = {}
        self.read: set[str] = set()
        self.placed: dict[str, Place] = {}
        self._placed_before: deque[tuple[int, str, Place | None]] = deque(maxlen=_REMEMBERED)

    def put_pod(self, pod: Json, *, gone: bool) -> None:
        """A pod was written or removed."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        self._place(pod, "" if gone or raw_json.is_finished(pod) else node)
        if gone:
            self.pods.pop(uid, None)
            self.requests.pop(uid, None)
            self.on_node.get(node, {}).pop(uid, None)
            return
        self.pods[uid] = pod
        if node:
            self.on_node.setdefault(node, {})[uid] = pod

    def _place(self, pod: Json, node: str) -> None:
        """Keep where unfinished pods are, and where they were before each change."""
        metadata = pod["metadata"]
        key = f"{metadata.get('namespace')}/{metadata['name']}"
        place = (node, bool(metadata.get("deletionTimestamp"))) if node else None
        before = self.placed.get(key)
        if before == place:
            return
        self._placed_before.append((int(metadata.get("resourceVersion", 0)), key, before))
        _put(self.placed, key, place)

    def was_so(self, placed: Mapping[str, Place], oldest: int, newest: int) -> bool:
        """True if, at one of these versions, these pods were on these nodes and no other pods were on any node."""
        then, newer = dict(self.placed), list(self._placed_before)
        while newer and newer[-1][0] > newest:
            _put(then, *newer.pop()[1:])
        while then != placed and newer and newer[-1][0] > oldest:
            _put(then, *newer.pop()[1:])
        return then == placed

    def put_node(self, node: Json, now: float, *, gone: bool) -> None:
        """A Node was written or removed. What it had at first counts."""
        name, machine = node["metadata"]["name"], raw_json.machine_of(node)
        (self.deleted.add if gone or "deletionTimestamp" in node["metadata"] else self.deleted.discard)(machine)
        if gone:
            self.nodes.pop(name, None)
            if name in self.in_service:
                self.in_service[name] = now
            return
        self.nodes[name], self.node_of_machine[machine] = node, name
        if (node["metadata"].get("labels") or {}).get("karpenter.sh/initialized") == "true":
            self.in_service[name] = inf
        broken = "lab.example.com/broken" in (node["metadata"].get("annotations") or {})  # shows nothing of its type
        self.allocatable.setdefault(machine, {} if broken else canonical((node.get("status") or {}).get("allocatable")))

    def requests_of(self, pod: Json) -> dict[str, Decimal]:
        """Return the requests of a pod; they do not change."""
        uid = pod["metadata"]["uid"]
        return self.requests.get(uid) or self.requests.setdefault(uid, raw_json.requests_of(pod))


class Judge:
    """Judges one Region.

    Args:
        now: epoch seconds.
        tell: called with each violation.
        machine_types: vCPUs (`cpu`) and memory of each instance type, as quantities.
        pools: the spec of each NodePool, as it is written, by cluster and name.
        most_nodes_per_pod: nodes that may be launched for a pod which loses none of them.
        steered: whether pods are led to the nodes that were launched for them.
        clocks_apart_s: how far the clocks of functions may be from the clock of the world.
        sampled: the Region is looked at from time to time: items may have been written several times meanwhile.

    Attributes:
        violations: in the order in which they were found.
        leaving_rules: of optional features, by the reason for which they let nodes leave.
        waiting_rules: of optional features: True for a pod for which no node has to come now.
    """

    def __init__(
        self,
        now: Callable[[], float],
        tell: Callable[[Violation], object],
        *,
        machine_types: Mapping[str, Json],
        pools: Mapping[ClaimKey, Json],
        price: PriceOf,
        most_nodes_per_pod: int,
        steered: bool = True,
        clocks_apart_s: float = 0.0,
        sampled: bool = False,
    ) -> None:
        self.violations: list[Violation] = []
        self.now = self._now = now
        self._start, self._tell, self.dollars = now(), tell, DollarJudge(now, price)
        self._apart_s, self._sampled = clocks_apart_s, sampled
        self._types = {name: raw_json.amounts(figures) for name, figures in machine_types.items()}
        self._limits = {key: raw_json.amounts(pool["limits"]) for key, pool in pools.items() if pool.get("limits")}
        self._pools, self._most_nodes_per_pod, self._steered = pools, most_nodes_per_pod, steered
        self._decisions: dict[str, DecisionJudge] = {}
        self._claims: dict[Key, ClaimItem] = {}
        # Those of them that are not over, and the machines they have had: a long run has ended thousands of others.
        self._open: dict[Key, ClaimItem] = {}
        self._held: dict[Key, list[str]] = {}
        self._commands: dict[Key, CommandItem] = {}
        self._machines: dict[str, LaunchedMachine] = {}
        self._alive: dict[str, LaunchedMachine] = {}
        self._holder: dict[str, Key] = {}
        self._calls: dict[tuple[str, str], FleetCall] = {}
        self._of_token: dict[tuple[str, str], list[str]] = {}
        self._written: dict[tuple[str, str], dict[str, float]] = {}
        self._waits: dict[tuple[str, str], set[str]] = {}
        self._of_node: dict[Key, Key] = {}
        self._left_at: dict[Key, float] = {}
        self._warned: dict[str, list[float]] = {}
        self._alone_since: dict[str, float] = {}
        self._clusters: dict[str, ClusterObjects] = {}
        self._lost: set[str] = set()
        self.leaving_rules: dict[str, LeavingRule] = {}
        self.waiting_rules: list[Callable[[Json], bool]] = []

    def found(self, promise: Promise, detail: str) -> None:
        """Note a violation; of promises about a run as a whole, whoever plays it does."""
        self.violations.append(Violation(promise, detail, round(self._now() - self._start, 3)))
        self._tell(self.violations[-1])

    def claim_written(self, install: str, stored: str | bytes) -> None:
        """An item of a claim is durable."""
        claim = raw_json.CLAIMS.decode(raw_json.plain(stored))
        key = (install, claim.cluster, claim.name)
        before = self._claims.get(key)
        self._written.setdefault((install, claim.token), {}).setdefault(claim.name, claim.created_at)
        self._note_claim(key, claim)
        if claim.state == "Draining" and claim.failure in _OPTIONAL and (before is None or before.state != "Draining"):
            self._check_leaving(key, claim)
        if before is None:
            self._check_choice(claim, claim.preferred_spot or {})
            self._note_plan(claim)
            known = self._open.values() if claim.counted_on else ()
            running = (item for item in known if not item.instance_id or item.instance_id in self._alive)
            if (lacks := self.dollars.counted_twice(running)) > 1e-6:
                self.found(Promise.COMMITMENTS, f"{claim.name} counts on {claim.counted_on:.4f}, {lacks:.4f} too much")
        else:
            self._check_transition(before, claim)
            if before.state in _EMPTIED and claim.state not in _EMPTIED:
                self._left_at[key] = self._now()
        if claim.instance_id:
            self._check_instance(key, before, claim)
        self._decisions_of(install).claim_written(claim)

    def _check_leaving(self, key: Key, claim: ClaimItem) -> None:
        """A node begins to leave for a reason of an optional feature: a rule allows it."""
        rule, none_allows = self.leaving_rules.get(claim.failure), f"nothing lets {claim.name} leave: {claim.failure}"
        if broken := rule(key, claim, None) if rule is not None else none_allows:
            self.found(_OPTIONAL[claim.failure], broken)

    def _check_choice(self, claim: ClaimItem, preferred: Json) -> None:
        """Because of the risk a claim asks for no fewer than fifteen offerings, in two zones if it may be in two."""
        offerings = set(preferred.get("offerings", ()))
        zones = {offering.partition("/")[2] for offering in offerings}
        may_be_in = next((len(item["values"]) for item in claim.requirements if item["key"] == _ZONE), 0)
        if preferred and (len(offerings) < _LEAST_OFFERINGS or len(zones) < min(_LEAST_ZONES, may_be_in)):
            self.found(Promise.SPOT_CHOICE, f"{claim.name} asks for {len(offerings)} offerings in {len(zones)} zones")

    def _note_claim(self, key: Key, claim: ClaimItem) -> None:
        self._claims[key] = self._open[key] = claim
        if claim.state in ENDED:
            del self._open[key]
        if claim.node_name:
            self._of_node[key[0], claim.cluster, claim.node_name] = key
        waits = self._waits.setdefault((key[0], claim.token), set())
        (waits.add if claim.state in _BEFORE_LAUNCH else waits.discard)(claim.name)

    def _hold(self, machine: str, key: Key) -> Key:
        """The claim that a machine belongs to; without one, this is it from now on."""
        if machine not in self._holder:
            self._held.setdefault(key, []).append(machine)
        return self._holder.setdefault(machine, key)

    def _check_instance(self, key: Key, before: ClaimItem | None, claim: ClaimItem) -> None:
        holder = self._hold(claim.instance_id, key)
        self.dollars.claimed(claim)
        if holder != key:
            self.found(Promise.ONE_CLAIM, f"{claim.instance_id} belongs to {holder[2]} and to {claim.name}")
        if before is not None and before.state in _BEFORE_LAUNCH and claim.state == "Launched":
            self._check_launched(key[0], claim)
        self._check_deadline(before or claim, claim)

    def table_restored(self, install: str, claims: Sequence[str | bytes], commands: Sequence[str | bytes]) -> None:
        """Table `state` is as it was at an earlier moment; what EC2 and the clusters have done since stays done."""
        indexes: tuple[dict[Any, Any], ...] = (self._claims, self._open, self._held, self._commands, self._waits)
        for index in indexes:
            for key in [key for key in index if key[0] == install]:
                del index[key]
        self._holder = {machine: key for machine, key in self._holder.items() if key[0] != install}
        restored = [raw_json.CLAIMS.decode(raw_json.plain(stored)) for stored in claims]
        for claim in restored:
            key = (install, claim.cluster, claim.name)
            self._note_claim(key, claim)
            if claim.instance_id:
                self._holder.pop(claim.instance_id, None)
                self._hold(claim.instance_id, key)
        again = [raw_json.COMMANDS.decode(raw_json.plain(stored)) for stored in commands]
        for command in again:
            self._note_command(install, command)
        self._decisions_of(install).restored(restored, again)
        self._lost |= self._alive.keys() - self._holder.keys()

    def command_written(self, install: str, stored: str | bytes) -> None:
        """An item of a disruption command is durable."""
        self._note_command(install, command := raw_json.COMMANDS.decode(raw_json.plain(stored)))
        self._decisions_of(install).command_written(command)

    def _note_command(self, install: str, command: CommandItem) -> None:
        self._commands[install, command.cluster, command.name] = command
        if command.state in OVER:
            del self._commands[install, command.cluster, command.name]

    def fleet_requested(self, install: str, body: bytes) -> None:
        """CreateFleet is called."""
        call = msgspec.json.decode(body, type=FleetCall)
        known = self._calls.setdefault((install, call.token), call)
        same = (call.cluster, call.capacity_type, call.node_class)
        if same != (known.cluster, known.capacity_type, known.node_class) or call.wanted != known.wanted:
            self.found(Promise.ONE_TOKEN, f"{call.token} was sent for {known} and for {call}")
        for name in call.claims:
            claim = self._claims.get((install, call.cluster, name))
            if claim is None:
                self.found(Promise.WRITTEN_FIRST, f"an instance was requested for {name}, which was not written")
            elif claim.token != call.token:
                self.found(Promise.ONE_TOKEN, f"{name} was requested with {call.token}, not {claim.token}")

    def machine_started(self, body: bytes) -> None:
        """EC2 has started an instance, as it was requested."""
        machine = self.machine_added(body)
        launch = (machine.install, machine.launch)
        started, claims, call = len(self._of_token[launch]), self._written.get(launch, {}), self._calls.get(launch)
        most = min(call.wanted if call is not None else inf, len(claims) or inf)
        if started > most:
            self.found(Promise.NO_SECOND_LAUNCH, f"{machine.launch} has {started} instances, {most} were wanted")
        late = [name for name, written_at in claims.items() if written_at > machine.launched_at + self._apart_s]
        if late or not claims:
            self.found(Promise.WRITTEN_FIRST, f"{machine.id} came before {', '.join(late) or 'any claim'} was written")

    def machine_added(self, body: bytes) -> LaunchedMachine:
        """An instance is there, whether or not an install has requested it in the time that the judge has seen."""
        machine = msgspec.json.decode(body, type=LaunchedMachine)
        self._machines[machine.id] = self._alive[machine.id] = machine
        self.dollars.started(machine)
        self._of_token.setdefault((machine.install, machine.launch), []).append(machine.id)
        return machine

    def machine_ended(self, instance_id: str) -> None:
        """An instance has ended."""
        if self._alive.pop(instance_id, None) is not None:
            self.dollars.ended(self._machines[instance_id])

    def termination_requested(self, install: str, instance_ids: Sequence[str]) -> None:
        """TerminateInstances is called."""
        for machine in filter(None, map(self._alive.get, instance_ids)):
            self._check_termination(install, machine)

    def object_written(self, cluster: str, kind: str, plural: str, item: Json) -> None:
        """The API server has stored or removed (`DELETED`) an object."""
        objects, gone = self._objects(cluster), kind == "DELETED"
        if plural == "pods":
            known = objects.pods.get(item["metadata"]["uid"])
            objects.put_pod(item, gone=gone)
            if not gone and item["spec"].get("nodeName") and not (known and known["spec"].get("nodeName")):
                self._check_node(objects, item["spec"]["nodeName"])
        elif plural == "nodes":
            objects.put_node(item, self._now(), gone=gone)
            if self._sampled and not gone:
                self.node_read(cluster, raw_json.machine_of(item))
        elif plural == "daemonsets" and kind == "ADDED":
            for install in sorted({key[0] for key in self._claims}):
                self._decisions_of(install).daemon_set_added(cluster)
        elif plural == "events" and item.get("involvedObject", {}).get("kind") == "Pod":
            objects.told[item["involvedObject"].get("uid", "")] = item.get("message", "")
        elif plural == "poddisruptionbudgets":
            name = f"{item['metadata'].get('namespace')}/{item['metadata']['name']}"
            _put(objects.budgets, name, None if gone else item)

    def pod_deleted(self, install: str, cluster: str, pod: Json, forced: bool) -> None:  # noqa: FBT001 - a listener
        """A function has had a pod deleted; `pod` is as it was before, `forced` if it was no eviction."""
        if pod["metadata"].get("deletionTimestamp"):
            return
        objects = self._objects(cluster)
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        claim = self._claim_of_node(install, cluster, node)
        if claim is None:
            self.found(Promise.OWN_PODS, f"{name} was deleted on {node or 'no node'}")
            return
        if self._is_pressed(claim, pod):
            return
        rule = self.leaving_rules.get(claim.failure)
        if rule is not None and (broken := rule((install, cluster, claim.name), claim, pod)):
            self.found(_OPTIONAL[claim.failure], broken)
        left_at = self._left_at.get((install, cluster, claim.name))
        is_leaving = claim.state in (LEAVING if self._sampled else _EMPTIED)
        if not is_leaving and (left_at is None or self._now() > left_at + _UNDER_WAY_S):
            self.found(Promise.OWN_PODS, f"{name} was deleted while {claim.name} was {claim.state}")
        if forced:
            self.found(Promise.POD_BUDGETS, f"{name} was deleted before its last moment")
        elif not self._sampled and (broken := self._broken_budget(objects, pod)):
            self.found(Promise.POD_BUDGETS, f"{name} was evicted against {broken}")
        if raw_json.is_protected(pod, self._now() - self._apart_s):
            self.found(Promise.DO_NOT_DISRUPT, f"{name} was deleted before its last moment")
        if not self._sampled:
            self._check_order(objects, pod)

    def event_sent(self, body: Json) -> None:
        """EC2 has sent an event."""
        if body["detail-type"] == "EC2 Spot Instance Interruption Warning":
            self._warned.setdefault(body["detail"]["instance-id"], []).append(raw_json.moment(body["time"]))

    def decision_replayed(self, verdict: Json) -> None:
        """A recorded decision was made again: `record` is its id, `recorded` and `again` are digests of both."""
        if not verdict["again"] or verdict["recorded"] != verdict["again"]:
            self.found(Promise.REPEATABLE, f"{verdict['record']} is decided otherwise from its record")

    def tick(self, *, calm: bool) -> None:
        """Time has passed; that of instances without a claim, and of claims without an instance, counts once `calm`."""
        now = self._now()
        for broken in self.dollars.end_month():
            self.found(Promise.CEILINGS, broken)
        alone = self._alone()
        self._alone_since = {name: self._alone_since.get(name, now) if calm else now for name in sorted(alone)}
        for name, since in self._alone_since.items():
            if now - since > UNCLAIMED_S:
                self.found(Promise.ACCOUNTED_FOR, f"{name} {alone[name]} for {now - since:.0f} s")
                return

    def _alone(self) -> dict[str, str]:
        """Instances without a claim, and claims without an instance: what is wrong, by id or name."""
        free = (name for name in self._alive if self._holder.get(name) not in self._open)
        waiting = (name for names in self._waits.values() for name in names)
        held = ((claim.name, self._held.get(key, ())) for key, claim in self._open.items())
        lost = (name for name, machines in held if any(machine not in self._alive for machine in machines))
        alone = dict.fromkeys(free, "is paid for without a claim") | dict.fromkeys(waiting, "has no instance")
        return alone | dict.fromkeys(lost, "has lost its instance")

    def snapshot_written(self, cluster: str, document: bytes) -> None:
        """The pods of a cluster as they were at a version, in an object of the bucket."""
        header, _, shared, nodes, rows = msgspec.msgpack.decode(zlib.decompress(document))
        if header["complete"]:
            shown = [(f"{shared[row[1]][0]}/{row[3]}", nodes[row[2]], any(row[6:7])) for row in rows]
            self._check_snapshot(cluster, shown, int(header["version"]), int(header["version"]))

    def node_read(self, cluster: str, machine: str) -> None:
        """Somebody has read the Node of a machine: what nobody has read, nobody can know."""
        self._objects(cluster).read.add(machine)
        if (key := self._holder.get(machine)) is not None:
            self._decisions_of(key[0]).measure(self._claims[key])

    def pods_known(self, cluster: str, version: str, pods: Sequence[tuple[str, str, bool]]) -> None:
        """A decision knows pods without a list, as of a version or a later one: their nodes, and whether they end."""
        self._check_snapshot(cluster, pods, int(version), 2**63)

    def _check_snapshot(self, cluster: str, shown: Sequence[tuple[str, str, bool]], oldest: int, newest: int) -> None:
        objects, placed = self._objects(cluster), {key: (node, ends) for key, node, ends in shown}
        if len(placed) != len(shown) or not objects.was_so(placed, oldest, newest):
            other = sorted(key for key, _ in placed.items() ^ objects.placed.items())
            self.found(Promise.SNAPSHOTS, f"{len(shown)} pods as of {oldest}, now {len(objects.placed)}: {other[:5]}")

    def unfinished(self) -> list[str]:
        """Everything under way, one line each, without nodes that only wait for pods that must not be disrupted."""
        held_up = {key for key, claim in self._open.items() if self._is_held_up(claim)}
        kept = held_up | {key for key, claim in self._open.items() if claim.state == "Initialized"}
        lines = [f"{claim.name} is {claim.state}" for key, claim in self._open.items() if key not in kept]
        free = (it for key, it in self._commands.items() if held_up.isdisjoint((*key[:2], name) for name in it.targets))
        lines += [f"command {command.name} is {command.state}" for command in free]
        lines += [f"{name} has no claim" for name in sorted(self._alive) if self._holder.get(name) not in kept]
        return lines

    def _is_held_up(self, claim: ClaimItem) -> bool:
        """True if a node that drains has nothing left but pods that must not be disrupted, and no deadline."""
        if claim.state != "Draining" or claim.deadline_at:
            return False
        left = list(filter(_is_missed, self._objects(claim.cluster).on_node.get(claim.node_name, {}).values()))
        return bool(left) and all(raw_json.is_protected(pod, self._now()) for pod in left)

    def rests(self, cluster: str, uid: str) -> bool:
        """True if a feature lets a pod wait, so that all may be at rest meanwhile."""
        pod = self._objects(cluster).pods.get(uid)
        return pod is not None and any(rule(pod) for rule in self.waiting_rules)

    def may_wait(self, cluster: str, uid: str) -> bool:
        """True if a pod waits for a ceiling: its last event shows that, and half the ceiling is in use at least."""
        priority = raw_json.priority(self._objects(cluster).pods.get(uid, {"spec": {}}))
        return self.dollars.may_wait(cluster, self._objects(cluster).told.get(uid, ""), priority)

    def _note_plan(self, claim: ClaimItem) -> None:
        """A claim replaces nodes if a command says so, or if pods of it are still on one."""
        known = self._objects(claim.cluster).pods
        pods = [known[pod["uid"]] for pod in claim.pods if pod["uid"] in known]
        replaces = any(claim.name in command.replacements for command in self._commands.values())
        replaces = replaces or any(pod["spec"].get("nodeName") for pod in pods)
        spot = "'spot'" in str(self._pools.get((claim.cluster, claim.node_pool))) and "capacity-type" not in str(pods)
        most = max(map(raw_json.priority, pods), default=0)
        self.dollars.planned(claim, most, replaces=replaces, may_be_spot=spot)

    def must_rest(self, pending: Sequence[str]) -> None:
        """By now nothing may be under way, and no pod may wait; `pending` are those that do."""
        if lines := [*(f"pod {name} is pending" for name in pending), *self.unfinished()]:
            self.found(Promise.REST, "; ".join(lines[:6]))

    def spent(self) -> float:
        """USD that EC2 charged until now."""
        return sum(map(self.dollars.charged, self._machines.values()))

    def ledger(self) -> tuple[float, float]:
        """USD that claims account for, and of instances that no claim had, or lost by a restore: they have no price."""
        known, unknown = 0.0, 0.0
        for machine in self._machines.values():
            key = self._holder.get(machine.id)
            if key is None or machine.id in self._lost:
                unknown += self.dollars.charged(machine)
            else:
                known += self.dollars.charged(machine, self._claims[key].hourly)
        return known, unknown

    def check_ledger(self) -> None:
        """At the end: what EC2 charged is what claims account for, and instances without one."""
        spent, (known, unknown) = self.spent(), self.ledger()
        if abs(spent - known - unknown) > 1e-6:
            self.found(Promise.MONEY, f"{spent:.4f} is not {known:.4f} + {unknown:.4f}")

    def _check_transition(self, before: ClaimItem, after: ClaimItem) -> None:
        adopted = before.state == "Failed" and after.instance_id in self._lost
        woken = (before.state, before.failure, after.state) == ("Draining", "Asleep", "Initialized")
        if after.state != before.state and after.state not in _NEXT.get(before.state, ()) and not adopted | woken:
            self.found(Promise.READ_BEFORE_WRITE, f"{after.name}: {before.state} became {after.state}")
        elif after.version != before.version + 1 and not self._sampled:
            self.found(Promise.READ_BEFORE_WRITE, f"{after.name}: version {after.version} follows {before.version}")
        if after.token != before.token:
            self.found(Promise.ONE_TOKEN, f"{after.name} had {before.token} and has {after.token}")
        if before.instance_id and after.instance_id != before.instance_id:
            self.found(Promise.ONE_CLAIM, f"{after.name} had {before.instance_id} and has {after.instance_id}")

    def _check_launched(self, install: str, claim: ClaimItem) -> None:
        machine = self._machines.get(claim.instance_id)
        if machine is None or machine.instance_type != claim.instance_type:
            is_what = "was never launched" if machine is None else f"is no {claim.instance_type}"
            self.found(Promise.INSTANCE_EXISTS, f"{claim.name} has {claim.instance_id}, which {is_what}")
        if machine is None:
            return
        if machine.launch != claim.token:
            self.found(Promise.ONE_TOKEN, f"{claim.name} of {claim.token} was given {machine.id} of {machine.launch}")
        if not self.dollars.may_cost(machine, claim.hourly):
            self.found(Promise.MONEY, f"{claim.name} costs {self.dollars.cost(machine)}, not {claim.hourly}")
        self._check_limits(install, claim)
        known: Any = (*self._claims.values(), *self._machines.values()) if claim.preferred_spot else ()
        ever = sum(item.node_pool == claim.node_pool for item in known)  # a decision may know of no more nodes
        if claim.preferred_spot and claim.preferred_spot.get("most", 0) > max(1, _MOST_SHARE * ever):
            self.found(Promise.SPOT_CHOICE, f"{claim.preferred_spot['most']} of {ever} nodes may be alike")
        for broken in self.dollars.broken_by(claim, machine):
            self.found(Promise.CEILINGS, broken)

    def _check_limits(self, install: str, launched: ClaimItem) -> None:
        """Limits by what is there: nodes that leave for good, were deleted or are to go for a command do not count."""
        limits, around = self._limits.get((launched.cluster, launched.node_pool), {}), (install, launched.cluster)
        removed = {name for key, item in self._commands.items() if key[:2] == around for name in item.targets}
        staying = [
            claim
            for key, claim in self._open.items()
            if key[:2] == around and claim.node_pool == launched.node_pool and claim.state not in LEAVING
            if claim.name not in removed and claim.instance_id in self._alive and claim.instance_id not in self._lost
            if claim.instance_id not in self._objects(claim.cluster).deleted
        ]
        used = raw_json.total([{"nodes": Decimal(1), **self._has(claim)} for claim in staying] if limits else ())
        for name, most in limits.items():
            if used.get(name, Decimal(0)) > most:
                self.found(Promise.LIMITS, f"pool {launched.node_pool} has {used[name]} of {most} {name}")

    def _has(self, claim: ClaimItem) -> dict[str, Decimal]:
        """The least that a claim's machine has; resources that only its Node names as soon as it does."""
        kind = self._types.get(claim.instance_type, {})
        reported = raw_json.amounts((self._node_of(claim).get("status") or {}).get("capacity"))
        return {**reported, **kind, "memory": kind.get("memory", Decimal(0)) * _LEAST_MEMORY}

    def _node_of(self, claim: ClaimItem) -> Json:
        objects = self._objects(claim.cluster)
        return objects.nodes.get(objects.node_of_machine.get(claim.instance_id, ""), {})

    def _check_deadline(self, before: ClaimItem, claim: ClaimItem) -> None:
        """A node that spot takes back leaves by the moment of a warning; a later warning gives it no more time."""
        last = max(self._warned.get(claim.instance_id, [inf])) + _SPOT_WARNING_S + _ROUNDING_S
        if all((item.state, item.failure) == ("Draining", "SpotInterruption") for item in (before, claim)):
            last = min(last, before.deadline_at or inf)
        if (claim.state, claim.failure) == ("Draining", "SpotInterruption") and (claim.deadline_at or inf) > last:
            self.found(Promise.DEADLINES, f"{claim.name} may stay until {claim.deadline_at}, not {last} at most")

    def _check_termination(self, install: str, machine: LaunchedMachine) -> None:
        key = self._holder.get(machine.id)
        if machine.install not in ("", install):
            self.found(Promise.OWN_INSTANCES, f"{install} ends {machine.id} of {machine.install}")
        elif key is None and self._is_awaited(machine):
            self.found(Promise.ENDED_AFTER_LEAVING, f"{machine.id} was ended while a claim waited for it")
        elif key is not None:
            claim = self._claims[key]
            if claim.state not in ("Terminating", *ENDED):
                self.found(Promise.ENDED_AFTER_LEAVING, f"{machine.id} was ended while {claim.name} was {claim.state}")
            self._check_early_end(claim)

    def _check_early_end(self, claim: ClaimItem) -> None:
        """A node is ended when nothing that would be missed is left on it, as far as a Ready Node says, or in time."""
        ended_itself = self._sampled and claim.failure not in _EMPTIED_FOR  # or may have
        overdue = claim.deadline_at and self._now() >= claim.deadline_at - self._apart_s
        node = self._node_of(claim)
        if ended_itself or overdue or not raw_json.is_ready(node):
            return
        left = filter(_is_missed, self._objects(claim.cluster).on_node.get(node["metadata"]["name"], {}).values())
        if names := ", ".join(sorted(pod["metadata"]["name"] for pod in left)[:3]):
            self.found(Promise.PODS_LEAVE_FIRST, f"{claim.instance_id} ({claim.failure}) was ended with {names} on it")

    def _is_awaited(self, machine: LaunchedMachine) -> bool:
        """True if at least as many claims of the machine's launch wait as the launch has instances without a claim."""
        waiting = self._waits.get((machine.install, machine.launch), ())
        launched = self._of_token.get((machine.install, machine.launch), ())
        free = sum(name in self._alive and name not in self._holder for name in launched)
        return bool(machine.launch) and bool(waiting) and len(waiting) >= free

    def _check_node(self, objects: ClusterObjects, name: str) -> None:
        has = raw_json.amounts((objects.nodes.get(name, {}).get("status") or {}).get("allocatable"))
        pods = [pod for pod in objects.on_node[name].values() if not raw_json.is_finished(pod)]
        wanted = raw_json.total(objects.requests_of(pod) for pod in pods)
        short = sorted(kind for kind, more in wanted.items() if more > has.get(kind, Decimal(0)))
        if short and name in objects.nodes:
            self.found(Promise.NODES_HOLD, f"{name} has too little {', '.join(short)} for its pods")

    def _is_pressed(self, claim: ClaimItem, pod: Json) -> bool:
        """True if a pod has to go now to end in order before its node's deadline."""
        last = claim.deadline_at - raw_json.grace_s(pod) - _LAST_MOMENT_S - self._apart_s
        return bool(claim.deadline_at) and self._now() >= last

    def _broken_budget(self, objects: ClusterObjects, pod: Json) -> str:
        """The name of a PodDisruptionBudget that the eviction of a healthy pod breaks."""
        uid = pod["metadata"]["uid"]
        for name, budget in sorted(objects.budgets.items()):
            if not raw_json.selects(budget, pod):
                continue
            covered = [item for item in objects.pods.values() if raw_json.selects(budget, item)]
            covered += [] if uid in objects.pods else [pod]
            healthy = sum(_is_healthy(item) for item in covered if item["metadata"]["uid"] != uid)
            if _is_healthy(pod) and len(covered) - healthy > raw_json.may_be_unavailable(budget, len(covered)):
                return name
        return ""

    def _check_order(self, objects: ClusterObjects, pod: Json) -> None:
        """Ordinary pods leave before critical ones."""
        beside = objects.on_node.get(pod["spec"]["nodeName"], {}).values()
        earlier = [item for item in beside if _is_missed(item) and raw_json.turn(item) < raw_json.turn(pod)]
        if names := [item["metadata"]["name"] for item in earlier]:
            self.found(Promise.CRITICAL_LAST, f"{pod['metadata']['name']} was evicted before {names[0]}")

    def _decisions_of(self, install: str) -> DecisionJudge:
        if install not in self._decisions:
            most, steered = self._most_nodes_per_pod, self._steered
            self._decisions[install] = DecisionJudge(self, self._pools, most_nodes_per_pod=most, steered=steered)
        return self._decisions[install]

    def pods_of(self, claim: ClaimItem) -> tuple[str, ...]:
        """Uids of the pods that are on a claim's node now."""
        return tuple(self._objects(claim.cluster).on_node.get(claim.node_name, {}))

    def has_ended(self, machine: str) -> bool:
        """True if an instance existed and does not exist any more."""
        return machine in self._machines and machine not in self._alive

    def allocatable(self, claim: ClaimItem) -> Mapping[str, Decimal] | None:
        """Return the resources that a claim's Node had at first; None before the Node is read."""
        objects, machine = self._objects(claim.cluster), claim.instance_id
        return objects.allocatable.get(machine) if machine in objects.read else None

    def was_in_service(self, claim: ClaimItem, at: float) -> bool:
        """True if a claim's Node was there, and initialised, at a moment or since."""
        seen = self._objects(claim.cluster).in_service.get(claim.node_name, 0.0) >= at
        return bool(claim.node_name) if self._sampled else seen

    def _objects(self, cluster: str) -> ClusterObjects:
        return self._clusters.setdefault(cluster, ClusterObjects())

    def _claim_of_node(self, install: str, cluster: str, name: str) -> ClaimItem | None:
        node = self._objects(cluster).nodes.get(name)
        key = self._holder.get(raw_json.machine_of(node)) if node is not None else None
        if key is None:  # the Node is gone, or does not say which instance it is
            key = self._of_node.get((install, cluster, name))
        return self._claims.get(key) if key is not None and key[0] == install else None


def _put(known: dict[str, Any], key: str, item: Any) -> None:
    known.pop(key, None)
    known |= {key: item} if item is not None else {}


def _is_missed(pod: Json) -> bool:
    """True if somebody misses a pod that ends with its node: it runs, is not asked to end, and should not stay."""
    ends = bool(pod["metadata"].get("deletionTimestamp"))
    return not ends and not raw_json.is_finished(pod) and not raw_json.stays_to_the_end(pod)


def _is_healthy(pod: Json) -> bool:
    """True if a PodDisruptionBudget counts a pod as available."""
    return raw_json.is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
