"""Promises about decisions, by their effects: made one after the other, within disruption budgets, few nodes for a pod,
and no node that turns out too small for the second time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from math import inf
from typing import Protocol

from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.raw_json import ClaimItem, CommandItem, Json, amounts, share

OVER = ("Done", "Undone")
COMMAND_REASONS = ("Empty", "Drifted", "Underutilized", "Expired", "Unhealthy", "ScaledDown", "Asleep")

_COMING, _LEAVING = ("Planned", "Launching", "Launched"), ("Disrupting", "Draining", "Terminating")
ENDED = ("Gone", "Failed")
_ALWAYS_REPORTED = ("cpu", "memory", "pods", "ephemeral-storage")
_STATED = frozenset({"cpu", "pods"})  # EC2 states the CPUs, and the kubelet is told how many pods it takes
_DECISION_S = 60.0  # what a decision has seen may be so much older than what it writes

ClaimKey = tuple[str, str]  # cluster and name


class Surroundings(Protocol):
    """The knowledge of the Judge of the Region about clusters and EC2; see `judge.py`."""

    def now(self) -> float: ...
    def found(self, promise: Promise, detail: str) -> None: ...
    def pods_of(self, claim: ClaimItem) -> Collection[str]: ...
    def has_ended(self, machine: str) -> bool: ...
    def allocatable(self, claim: ClaimItem) -> Mapping[str, Decimal] | None: ...
    def was_in_service(self, claim: ClaimItem, at: float) -> bool: ...


class DecisionJudge:
    """Judges the decisions of one install."""

    def __init__(
        self, around: Surroundings, pools: Mapping[ClaimKey, Json], *, most_nodes_per_pod: int, steered: bool
    ) -> None:
        self._around, self._pools = around, pools
        self._most_nodes_per_pod, self._steered = most_nodes_per_pod, steered
        self._measured: set[str] = set()
        # How many nodes had been measured when a claim was written, a type or pod had missed, a node of a type shown.
        self._written: dict[ClaimKey, int] = {}
        self._missed: dict[tuple[str, ...], int] = {}
        self._shown: dict[tuple[str, ...], list[tuple[int, Mapping[str, Decimal]]]] = {}
        self._daemons_since: dict[str, float] = {}
        self._forget()

    def _forget(self) -> None:
        self._claims: dict[ClaimKey, ClaimItem] = {}
        self._commands: dict[str, CommandItem] = {}
        self._of_pod: dict[ClaimKey, dict[str, ClaimItem]] = {}
        self._of_pool: dict[ClaimKey, dict[str, ClaimItem]] = {}
        self._command_of: dict[ClaimKey, str] = {}
        self._nodes_of: dict[ClaimKey, list[ClaimKey]] = {}
        self._taken_from: dict[ClaimKey, set[ClaimKey]] = {}
        self._leaves_since: dict[ClaimKey, float] = {}

    def claim_written(self, claim: ClaimItem) -> None:
        """A claim is durable."""
        key = (claim.cluster, claim.name)
        before = self._claims.get(key)
        self._index(claim)
        self._written.setdefault(key, len(self._measured))
        if before is None:
            self._check_duplicate(claim)
        elif _is_taken(claim) and not _is_taken(before):
            for uid in self._around.pods_of(claim):
                self._taken_from.setdefault((claim.cluster, uid), set()).add(key)
        if claim.instance_id and claim.state == "Launched" and before is not None and before.state != "Launched":
            self.measure(claim)
            for pod in claim.pods:
                self._nodes_of.setdefault((claim.cluster, pod["uid"]), []).append(key)
                self._check_nodes_of(claim.cluster, pod)

    def command_written(self, command: CommandItem) -> None:
        """A disruption command is durable."""
        fresh = command.name not in self._commands
        self._commands[command.name] = command
        if fresh:
            self._command_of.update(((command.cluster, name), command.name) for name in command.replacements)
            self._check_budgets(command)

    def restored(self, claims: Sequence[ClaimItem], commands: Sequence[CommandItem]) -> None:
        """The table is as it was at an earlier moment."""
        self._forget()
        for claim in claims:
            self._index(claim)
        for command in commands:
            self._commands[command.name] = command
            self._command_of.update(((command.cluster, name), command.name) for name in command.replacements)

    def daemon_set_added(self, cluster: str) -> None:
        """A DaemonSet takes some of each node from now on: nodes of decisions without it may hold fewer pods."""
        self._daemons_since[cluster] = self._around.now() + _DECISION_S

    def measure(self, claim: ClaimItem) -> None:
        """Compare what a claim's Node has, once it is known, with what was planned for it.

        What all nodes of a type had when a claim was written was enough to go by, and what one had until the first
        miss. A type that none has shown is tried once, unless all that a node lacks is stated and not estimated. What a
        pod missed counts by resource: too little of one says nothing about another, nor of a stated one on a new type.
        """
        has = self._around.allocatable(claim)
        if not has or claim.instance_id in self._measured:
            return
        self._measured.add(claim.instance_id)
        now, kind = len(self._measured), (claim.ami, claim.instance_type, claim.kubelet_hash)
        of_kind = self._shown.setdefault(kind, [])
        of_kind.append((now, has))
        short = _short(claim.requests, has)
        if not short:
            return
        written = self._written.get((claim.cluster, claim.name), now)
        shown = [each for at, each in of_kind if at <= written]
        missed = [(claim.cluster, pod["uid"], resource) for pod in claim.pods for resource in short]
        if not (shown or _STATED.issuperset(short)) or written >= self._missed.setdefault(kind, now):
            missed.append(kind)
        again = [key for key in missed if self._missed.setdefault(key, now) < now and (shown or key[-1] not in _STATED)]
        was_enough = shown and not any(set(short).intersection(_short(claim.requests, each)) for each in shown)
        if again and not was_enough:
            self._around.found(Promise.NO_SECOND_MISS, f"{claim.name} misses {short}; again for {' '.join(again[0])}")

    def _index(self, claim: ClaimItem) -> None:
        """Update the indexes by pod and pool; claims that have ended leave them."""
        key = (claim.cluster, claim.name)
        self._claims[key] = claim
        if claim.state in _LEAVING:
            self._leaves_since.setdefault(key, self._around.now())
        else:
            self._leaves_since.pop(key, None)
        of_pool = self._of_pool.setdefault((claim.cluster, claim.node_pool), {})
        of_pool[claim.name] = claim
        if claim.state in ENDED:
            del of_pool[claim.name]
        for pod in claim.pods:
            of_pod = self._of_pod.setdefault((claim.cluster, pod["uid"]), {})
            of_pod[claim.name] = claim
            if claim.state not in _COMING:
                del of_pod[claim.name]

    def _check_nodes_of(self, cluster: str, pod: Json) -> None:
        """Count the nodes launched for a pod. A node that the pod lost, launched for it or not, may be replaced once.

        Nodes that kube-scheduler gives to other pods do not count where pods are not steered, nor while a pod is on a
        node that is being emptied. A command that moves a pod deletes it: a pod that exists was moved by none, or is
        about to be; its other replacements belong to commands that were undone.
        """
        nodes = self._nodes_of[cluster, pod["uid"]]
        moved = [key for key in nodes if key in self._command_of]
        waited = [key for key in nodes if key not in self._command_of]
        taken = {key for key in nodes if _is_taken(self._claims[key])}
        steered = self._steered and not self._is_on_leaving_node(cluster, pod["uid"])
        given_away = set() if steered else {key for key in waited if self._is_given_away(self._claims[key])}
        made_up_for = len((taken - set(moved)) | self._taken_from.get((cluster, pod["uid"]), set()) | given_away)
        names, found = ", ".join(name for _, name in nodes), self._around.found
        if len(waited) - made_up_for > self._most_nodes_per_pod:
            found(Promise.FEW_NODES, f"{pod['name']} got {len(waited)} nodes as it waited: {names}")
        if len(moved) - len(taken & set(moved)) > self._most_nodes_per_pod:
            found(Promise.FEW_NODES, f"{pod['name']} got {len(moved)} nodes by commands: {names}")
        commands = {self._command_of[key] for key in moved}
        kept = sorted(name for name in commands if self._commands[name].state != "Undone")
        if len(kept) > 1:
            found(Promise.FEW_NODES, f"{pod['name']} is moved by {len(kept)} commands: {', '.join(kept)}")

    def _is_on_leaving_node(self, cluster: str, uid: str) -> bool:
        """True if a pod still runs on a leaving node."""
        return any(uid in self._around.pods_of(self._claims[key]) for key in self._leaves_since if key[0] == cluster)

    def _is_given_away(self, claim: ClaimItem) -> bool:
        """True if the claim's node has pods that the claim was not launched for."""
        return not {pod["uid"] for pod in claim.pods}.issuperset(self._around.pods_of(claim))

    def _check_duplicate(self, claim: ClaimItem) -> None:
        """Check that no open claim serves these pods already. Replacements are exempt: their pods still run."""
        pods = {pod["uid"] for pod in claim.pods}
        if not claim.owner or not pods:
            return
        for known in self._of_pod[claim.cluster, min(pods)].values():
            if known is not claim and self._still_serves(known) and pods <= {pod["uid"] for pod in known.pods}:
                self._around.found(Promise.ONE_DECISION, f"{claim.name} is for pods of {known.name}")
                return

    def _still_serves(self, claim: ClaimItem) -> bool:
        """True if a decision has to count on a claim that is on its way."""
        if claim.missed or claim.created_at < self._daemons_since.get(claim.cluster, -inf):
            return False
        if not claim.instance_id:  # all types it may become may have turned out too small for its pods meanwhile
            return not set(claim.instance_types) <= set(claim.relies_on_estimate)
        if self._around.has_ended(claim.instance_id) or self._around.allocatable(claim) is not None:
            return False
        # What it was launched as may be computed to be smaller by now: its siblings have reported meanwhile.
        return not _short(claim.requests, claim.allocatable)

    def _check_budgets(self, command: CommandItem) -> None:
        """Budgets as Karpenter counts them: what leaves for any reason uses them, but not what is terminating."""
        open_commands = (known for known in self._commands.values() if known.state not in OVER)
        going = {name for known in open_commands if known.cluster == command.cluster for name in known.targets}
        begun_at = command.created_at
        for (cluster, name), pool in sorted(item for item in self._pools.items() if item[0][0] == command.cluster):
            nodes = [claim for claim in self._of_pool.get((cluster, name), {}).values() if claim.state != "Terminating"]
            nodes = [claim for claim in nodes if self._around.was_in_service(claim, begun_at)]
            since = {claim.name: self._leaves_since.get((cluster, claim.name), begun_at) for claim in nodes}
            leaving = [name for name, left_at in since.items() if name in going or left_at < begun_at]
            most = _allowed(pool, command.reason, len(nodes))
            if set(leaving) & set(command.targets) and len(leaving) > most:
                have = f"{len(leaving)} nodes of {name} leave, {most} of {len(nodes)} may"
                self._around.found(Promise.DISRUPTION_BUDGETS, have)


def _is_taken(claim: ClaimItem) -> bool:
    """True if the claim's pods have lost the node, or will, through no decision of Shiplap."""
    return claim.missed or (bool(claim.failure) and claim.failure not in COMMAND_REASONS)


def _short(requests: Mapping[str, int], has: Mapping[str, Decimal] | Mapping[str, int]) -> list[str]:
    """Resources that a node has too little of. Device plugins may not have reported yet."""
    known = (name for name in requests if name in _ALWAYS_REPORTED or has.get(name))
    return sorted(name for name in known if has.get(name, 0) < requests[name])


def canonical(allocatable: Json | None) -> dict[str, Decimal]:
    """Quantities in the units of items: CPU in thousandths."""
    return {**(has := amounts(allocatable)), "cpu": has.get("cpu", Decimal(0)) * 1000}


def _allowed(pool: Json, reason: str, nodes: int) -> int:
    """Return how many nodes the budgets without a schedule allow to leave at once; a tenth where none is written."""
    budgets = (pool.get("disruption") or {}).get("budgets")
    written = [{}] if budgets is None else budgets
    bounding = [item for item in written if not item.get("schedule") and reason in (item.get("reasons") or (reason,))]
    return min([nodes, *(share(item.get("nodes", "10%"), nodes) for item in bounding)])
