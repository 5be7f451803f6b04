"""The invariants, checked at every write, launch, end and join.

The checker counts effects, not plans: once a pool is over its limit, nothing more is planned for it, so a check of
plans would never see the breach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from math import ceil

import msgspec

from shiplap.disruption.commands import Reason
from shiplap.disruption.progress import OVER, CommandState, DisruptionCommand
from shiplap.flows.lifecycle.drain import MARGIN_S, grace_s, must_leave
from shiplap.instances.capacity.learned_capacity import shortfall
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import CPU, add_resources, parse_resources
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import FINAL, GOING_FOR_GOOD, LEAVING, TRANSITIONS, ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance
from shiplap.scheduling.model.planned_pods import do_not_disrupt

UNACCOUNTED_S = 900.0
"""How long an instance may have no claim, or a claim no instance, while nothing goes wrong, in seconds."""

_SLACK_S = 15.0
"""How much earlier than a pod's last moment its deletion may be, in seconds: rounds are not exact."""

_COMMANDS = frozenset(str(reason) for reason in Reason)


class Promise(StrEnum):
    """Everything that always holds."""

    WRITTEN_FIRST = "a claim is written before its instance exists"
    NO_SECOND_LAUNCH = "never more instances than claims"
    INSTANCE_EXISTS = "a claim's instance exists"
    ONE_CLAIM = "an instance has one claim"
    READ_BEFORE_WRITE = "nothing is written over what was not read"
    ONE_DECISION = "decisions are made one after the other"
    ACCOUNTED_FOR = "no instance unaccounted for"
    OWN_INSTANCES = "nothing is ended that is not ours"
    OWN_PODS = "nothing is emptied that is not ours"
    ENDED_AFTER_LEAVING = "only what leaves is ended"
    PODS_LEAVE_FIRST = "no pod ends with its node"
    POD_BUDGETS = "budgets of pods are kept"
    DO_NOT_DISRUPT = "do-not-disrupt is kept"
    LIMITS = "limits are kept"
    DISRUPTION_BUDGETS = "disruption budgets are kept"
    NODES_HOLD = "no node holds more than it has"
    NO_SECOND_MISS = "nothing misses twice"
    FEW_NODES = "few nodes for one pod"
    MONEY = "money spent equals the ledger"
    PATIENCE = "no pod waits longer than stated"
    MESSAGES = "every message can be read"
    FLOWS = "no flow breaks down"
    REST = "all comes to rest"
    EXPECTED = "every step brings about what it expects"


class Violation(msgspec.Struct, frozen=True):
    """An invariant that did not hold; `at` in seconds since the start."""

    promise: Promise
    detail: str
    at: float


class InvariantChecker:
    """Checks the invariants of one install.

    Args:
        manifests: of each cluster.

    Attributes:
        claims: every claim as it was last written, by cluster and name.
        violations: in the order they were found.
        pods_of: the pods that are on a claim's node now.
        was_in_service: whether a claim's Node was there, and initialised, at a moment or since.
    """

    def __init__(
        self,
        manifests: Mapping[str, Manifests],
        *,
        now: Callable[[], float],
        price: Callable[[Instance], float],
        capacity: Callable[[NodeClaim], dict[str, int]],
        most_nodes_per_pod: int,
        steered: bool,
        found: Callable[[], object],
    ) -> None:
        self.claims: dict[tuple[str, str], NodeClaim] = {}
        self.commands: dict[str, DisruptionCommand] = {}
        self.instances: dict[str, Instance] = {}
        self.ended: dict[str, float] = {}
        self.violations: list[Violation] = []
        self._pools = {
            (cluster, pool.metadata.name): pool for cluster, each in manifests.items() for pool in each.node_pools
        }
        self._limits = {
            key: parse_resources(pool.spec.limits)[CPU] for key, pool in self._pools.items() if CPU in pool.spec.limits
        }
        self._now, self._start, self.price, self._capacity = now, now(), price, capacity
        self._most_nodes_per_pod, self._steered, self._found = most_nodes_per_pod, steered, found
        self.pods_of: Callable[[NodeClaim], Sequence[Pod]] = lambda _: ()
        self.was_in_service: Callable[[NodeClaim, float], bool] = lambda claim, _: bool(claim.node_name)
        self._holder: dict[str, NodeClaim] = {}
        self._tokens: Counter[str] = Counter()
        self._launched: Counter[str] = Counter()
        self._of_pod: dict[tuple[str, str], dict[str, NodeClaim]] = {}
        self._of_node: dict[str, tuple[str, str]] = {}
        self._of_pool: dict[tuple[str, str], dict[str, NodeClaim]] = {}
        self._cpu: dict[str, int] = {}
        self._command_of: dict[tuple[str, str], str] = {}
        self._nodes_of: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._taken_from: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._leaves_since: dict[tuple[str, str], float] = {}
        self._allocatable: dict[str, dict[str, int]] = {}
        self._judged: set[str] = set()
        self._misses: Counter[tuple[str, ...]] = Counter()
        self._unaccounted: dict[str, float] = {}

    def violated(self, promise: Promise, detail: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(promise, detail, round(self._now() - self._start, 3)))
        self._found()

    # Facts: all that the checker learns. They are writes, events, and what is there.

    def claim_written(self, claim: NodeClaim) -> None:
        """A claim is durable."""
        key = (claim.cluster, claim.name)
        before = self.claims.get(key)
        self.claims[key] = claim
        self._index(claim)
        if before is not None and claim.state not in (before.state, *TRANSITIONS.get(before.state, ())):
            self.violated(Promise.READ_BEFORE_WRITE, f"{claim.name}: {before.state} became {claim.state}")
        if before is None:
            self._tokens[claim.launch.token] += 1
            if claim.launch.owner:  # replacements are written with their command, and stand beside what they replace
                self._check_limit(claim.cluster, claim.plan.node_pool)
            self._check_duplicate(claim)
        elif _is_taken(claim) and not _is_taken(before):
            for pod in self.pods_of(claim):
                self._taken_from.setdefault((claim.cluster, pod.metadata.uid), set()).add(key)
        if not claim.instance_id:
            return
        holder = self._holder.get(claim.instance_id)
        if holder is not None and (holder.cluster, holder.name) != key:
            self.violated(Promise.ONE_CLAIM, f"{claim.instance_id} was given to {holder.name} and {claim.name}")
        self._holder[claim.instance_id] = claim
        if claim.state is ClaimState.LAUNCHED and before is not None and before.state is not ClaimState.LAUNCHED:
            self._check_launched(claim)

    def _index(self, claim: NodeClaim) -> None:
        """Update the indexes by pod, node and pool; claims that have ended leave them."""
        if claim.state in LEAVING:
            self._leaves_since.setdefault((claim.cluster, claim.name), self._now())
        else:
            self._leaves_since.pop((claim.cluster, claim.name), None)
        of_pool = self._of_pool.setdefault((claim.cluster, claim.plan.node_pool), {})
        if claim.state in FINAL:
            of_pool.pop(claim.name, None)
        else:
            of_pool[claim.name] = claim
        if claim.node_name:
            self._of_node[claim.node_name] = (claim.cluster, claim.name)
        for pod in claim.plan.pods:
            of_pod = self._of_pod.setdefault((claim.cluster, pod.uid), {})
            if claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED):
                of_pod[claim.name] = claim
            else:
                of_pod.pop(claim.name, None)

    def command_written(self, command: DisruptionCommand) -> None:
        """A disruption command is durable."""
        fresh = command.name not in self.commands
        self.commands[command.name] = command
        if fresh:
            self._command_of.update(((command.cluster, name), command.name) for name in command.replacements)
            self._check_budgets(command)
            made = (self.claims.get((command.cluster, name)) for name in command.replacements)
            for pool in sorted({claim.plan.node_pool for claim in made if claim is not None}):
                self._check_limit(command.cluster, pool, without=command.targets)

    def launched(self, instance: Instance, claims: Sequence[NodeClaim]) -> None:
        """EC2 has started an instance, for one of these claims."""
        self.instances[instance.id] = instance
        token = claims[0].launch.token if claims else instance.launch
        self._launched[token] += 1
        if self._launched[token] > self._tokens[token]:
            have = f"launch {token} has {self._launched[token]} instances for {self._tokens[token]} claims"
            self.violated(Promise.NO_SECOND_LAUNCH, have)
        if not claims:
            self.violated(Promise.WRITTEN_FIRST, f"{instance.id} was launched, and no claim was written")
        for claim in claims:
            known = self.claims.get((claim.cluster, claim.name))
            if known is None or known.created_at > instance.launched_at:
                self.violated(Promise.WRITTEN_FIRST, f"{claim.name} was not written before {instance.id} was launched")

    def instance_ended(self, instance_id: str) -> None:
        """An instance has ended."""
        self.ended.setdefault(instance_id, self._now())

    def terminating(self, instance: Instance, pods: Sequence[Pod]) -> None:
        """A function ends an instance that has these pods."""
        claim = self._holder.get(instance.id)
        now = self._now()
        if claim is None:
            if self._is_awaited(instance):
                self.violated(Promise.ENDED_AFTER_LEAVING, f"{instance.id} was ended while a claim waited for it")
            return
        if claim.state not in FINAL and claim.state is not ClaimState.TERMINATING:
            self.violated(Promise.ENDED_AFTER_LEAVING, f"{instance.id} was ended while {claim.name} was {claim.state}")
        overdue = bool(claim.deadline_at) and now >= claim.deadline_at
        left = [pod.key for pod in pods if must_leave(pod, now) and not pod.metadata.deletion_timestamp]
        if left and not overdue and claim.failure in (*_COMMANDS, "SpotInterruption", "RebalanceRecommendation"):
            self.violated(Promise.PODS_LEAVE_FIRST, f"{instance.id} ({claim.failure}) was ended with {left[0]} on it")

    def _is_awaited(self, instance: Instance) -> bool:
        """Whether as many claims of the instance's launch have none yet as there are instances that nobody has."""
        waiting = sum(
            claim.launch.token == instance.launch and claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING)
            for claim in self._of_pool.get((instance.cluster, instance.node_pool), {}).values()
        )
        free = sum(
            item.launch == instance.launch and item.id not in self.ended and item.id not in self._holder
            for item in self.instances.values()
        )
        return bool(instance.launch) and waiting >= free

    def evicted(self, pod: Pod, *, forced: bool) -> None:
        """A function deletes a pod; `forced`: without regard to its PodDisruptionBudgets."""
        now = self._now()
        claim = self.claims.get(self._of_node.get(pod.spec.node_name, ("", "")))
        if claim is None:
            self.violated(Promise.OWN_PODS, f"{pod.key} on {pod.spec.node_name}")
        deadline = claim.deadline_at if claim is not None else 0.0
        last = deadline - grace_s(pod) - MARGIN_S - _SLACK_S if deadline else float("inf")
        if now >= last or pod.metadata.deletion_timestamp:
            return
        if forced:
            self.violated(Promise.POD_BUDGETS, f"{pod.key} was deleted before its last moment")
        if do_not_disrupt(pod, now):
            self.violated(Promise.DO_NOT_DISRUPT, f"{pod.key} was evicted before its last moment")

    def joined(self, instance: Instance, allocatable: dict[str, int]) -> None:
        """A Node has reported what it has."""
        self._allocatable[instance.id] = allocatable
        claim = self._holder.get(instance.id)
        if claim is not None:
            self._judge(claim)

    def node_filled(self, node: Node, pods: Sequence[Pod]) -> None:
        """These pods are bound to a node."""
        has = parse_resources(node.status.allocatable)
        wanted = add_resources(*(pod_requests(pod) for pod in pods))
        if short := sorted(name for name, amount in wanted.items() if amount > has.get(name, 0)):
            self.violated(Promise.NODES_HOLD, f"{node.metadata.name} has too little {', '.join(short)} for its pods")

    def message_given_up(self, message: str) -> None:
        """A message is in a dead-letter queue."""
        self.violated(Promise.MESSAGES, message[:300])

    # Periodic checks

    def look(self, *, calm: bool) -> None:
        """Check for instances without claims and claims without instances; their time counts once `calm`."""
        now = self._now()
        missing: dict[str, str] = {}
        for instance_id in self.instances.keys() - self.ended.keys():
            claim = self._holder.get(instance_id)
            if claim is None or claim.state in FINAL:
                missing[instance_id] = "has no claim"
        for claim in self.claims.values():
            if claim.state not in FINAL and claim.instance_id in self.ended:
                missing[claim.name] = "has lost its instance"
            elif claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING):
                missing[claim.name] = "has no instance"
        self._unaccounted = {name: self._unaccounted.get(name, now) if calm else now for name in sorted(missing)}
        for name, since in self._unaccounted.items():
            if now - since > UNACCOUNTED_S:
                self.violated(Promise.ACCOUNTED_FOR, f"{name} {missing[name]} for {now - since:.0f} s")
                return

    def unfinished(self) -> list[str]:
        """Everything under way, one line each, without nodes that only wait for pods that must not be disrupted."""
        held_up = {
            claim.name
            for claim in self.claims.values()
            if claim.state is ClaimState.DRAINING and self._is_held_up(claim)
        }
        lines = [
            f"{c.name} is {c.state}"
            for c in self.claims.values()
            if c.state not in (*FINAL, ClaimState.INITIALIZED) and c.name not in held_up
        ]
        under_way = [c for c in self.commands.values() if c.state not in OVER and not held_up & set(c.targets)]
        lines += [f"command {c.name} is {c.state}" for c in under_way]
        kept = (c for c in self.claims.values() if c.state is ClaimState.INITIALIZED or c.name in held_up)
        held = {c.instance_id for c in kept}
        lines += [f"{name} has no claim" for name in sorted(self.instances.keys() - self.ended.keys() - held)]
        return lines

    def _is_held_up(self, claim: NodeClaim) -> bool:
        """Whether a node that drains has nothing left but pods that must not be disrupted, and no deadline."""
        pods = self.pods_of(claim)
        now = self._now()
        return bool(pods) and not claim.deadline_at and all(do_not_disrupt(pod, now) for pod in pods)

    def must_rest(self, pending: Sequence[Pod]) -> None:
        """By now nothing may be under way, and no pod may wait but those that are meant to."""
        lines = [*(f"pod {pod.key} is pending" for pod in pending), *self.unfinished()]
        if lines:
            self.violated(Promise.REST, "; ".join(lines[:6]))

    def spent(self) -> float:
        """USD that EC2 charged until now."""
        return sum(self.price(instance) * self._hours(instance) for instance in self.instances.values())

    def ledger(self) -> tuple[float, float]:
        """USD that the claims account for, and those of instances that no claim ever had."""
        known, unknown = 0.0, 0.0
        for instance in self.instances.values():
            claim = self._holder.get(instance.id)
            if claim is None:
                unknown += self.price(instance) * self._hours(instance)
            else:
                known += claim.hourly * self._hours(instance)
        return known, unknown

    def _hours(self, instance: Instance) -> float:
        return (self.ended.get(instance.id, self._now()) - instance.launched_at) / 3600

    def _check_launched(self, claim: NodeClaim) -> None:
        instance = self.instances.get(claim.instance_id)
        if instance is None:
            self.violated(Promise.INSTANCE_EXISTS, f"{claim.name} has {claim.instance_id}, which was never launched")
            return
        if abs(claim.hourly - self.price(instance)) > 1e-9:
            self.violated(Promise.MONEY, f"{claim.name} costs {self.price(instance)}, not {claim.hourly}")
        self._judge(claim)
        if (claim.cluster, claim.plan.node_pool) in self._limits:
            self._check_limit(claim.cluster, claim.plan.node_pool, without=self._given_back(claim.cluster))
        for pod in claim.plan.pods:
            self._nodes_of.setdefault((claim.cluster, pod.uid), []).append((claim.cluster, claim.name))
            self._check_nodes_of(claim.cluster, pod)

    def _given_back(self, cluster: str) -> set[str]:
        """Claims whose capacity unfinished commands have counted as free."""
        live = (known for known in self.commands.values() if known.state not in OVER and known.cluster == cluster)
        return {name for command in live for name in command.targets}

    def _check_nodes_of(self, cluster: str, pod: PodReference) -> None:
        """Count the nodes launched for a pod. A node that the pod lost, launched for it or not, may be replaced once.

        Where pods are not steered, kube-scheduler gives a new node to the pods that have waited longest, for example
        pods whose own nodes never join. No decision of Shiplap can prevent that, so such nodes do not count.
        A command that moves a pod deletes it, and its controller creates another pod. A pod that still exists was
        therefore moved by no command, or is about to be moved by one; other replacements belong to commands that were
        undone.
        """
        nodes = self._nodes_of[cluster, pod.uid]
        moved = [key for key in nodes if key in self._command_of]
        waited = [key for key in nodes if key not in self._command_of]
        taken = {key for key in nodes if _is_taken(self.claims[key])}
        given_away = set() if self._steered else {key for key in waited if self._is_given_away(self.claims[key])}
        made_up_for = len((taken - set(moved)) | self._taken_from.get((cluster, pod.uid), set()) | given_away)
        names = ", ".join(name for _, name in nodes)
        if len(waited) - made_up_for > self._most_nodes_per_pod:
            self.violated(Promise.FEW_NODES, f"{pod.name} got {len(waited)} nodes as it waited: {names}")
        if len(moved) - len(taken & set(moved)) > self._most_nodes_per_pod:
            self.violated(Promise.FEW_NODES, f"{pod.name} got {len(moved)} nodes by commands: {names}")
        commands = {self._command_of[key] for key in moved}
        kept = sorted(name for name in commands if self.commands[name].state is not CommandState.UNDONE)
        if len(kept) > 1:
            self.violated(Promise.FEW_NODES, f"{pod.name} is moved by {len(kept)} commands: {', '.join(kept)}")

    def _is_given_away(self, claim: NodeClaim) -> bool:
        """Whether pods are on its node that it was not launched for."""
        mine = {pod.uid for pod in claim.plan.pods}
        return any(pod.metadata.uid not in mine for pod in self.pods_of(claim))

    def _judge(self, claim: NodeClaim) -> None:
        allocatable = self._allocatable.get(claim.instance_id)
        if allocatable is None or claim.instance_id in self._judged:
            return
        self._judged.add(claim.instance_id)
        short = shortfall(claim.plan.requests, allocatable)
        if not short:
            return
        self._misses[claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash] += 1
        for pod in claim.plan.pods:
            self._misses[claim.cluster, pod.uid] += 1
        twice = [key for key, number in self._misses.items() if number > 1]
        if twice:
            self.violated(
                Promise.NO_SECOND_MISS, f"{claim.name} misses {sorted(short)}; again for {' '.join(twice[0])}"
            )

    def _check_limit(self, cluster: str, pool: str, without: Collection[str] = ()) -> None:
        """Check a pool's limit. Nodes that leave for good do not count, nor do instances that have ended, even if their
        claim does not say so yet; nodes that a command may give back count.
        """
        limit = self._limits.get((cluster, pool))
        if limit is None:
            return
        staying = [
            known
            for known in self._of_pool.get((cluster, pool), {}).values()
            if known.state not in GOING_FOR_GOOD and known.name not in without and known.instance_id not in self.ended
        ]
        used = sum(self._cpu_of(known) for known in staying if known.known_instance.type)
        if used > limit:
            self.violated(Promise.LIMITS, f"pool {pool} has {used} of {limit} millicores")

    def _cpu_of(self, claim: NodeClaim) -> int:
        """Millicores; they do not depend on the AMI."""
        if claim.known_instance.type not in self._cpu:
            self._cpu[claim.known_instance.type] = self._capacity(claim).get(CPU, 0)
        return self._cpu[claim.known_instance.type]

    def _check_duplicate(self, claim: NodeClaim) -> None:
        """Check that no open claim serves these pods already. Replacements are exempt: their pods still run."""
        if not claim.launch.owner:
            return
        pods = {pod.uid for pod in claim.plan.pods}
        # A claim for all of these pods is one for the first of them.
        near = self._of_pod[claim.cluster, min(pods)].values() if pods else ()
        for known in near:
            if (
                known is claim
                or known.missed
                or known.instance_id in self.ended
                or known.instance_id in self._allocatable
            ):
                continue
            # All types it may become may have turned out too small for its pods meanwhile.
            if not known.instance_id and set(known.plan.instance_types) <= set(known.plan.relies_on_estimate):
                continue
            # What it was launched as may be computed to be smaller by now: its siblings have reported meanwhile.
            if known.instance_id and shortfall(known.plan.requests, known.plan.allocatable):
                continue
            if pods <= {pod.uid for pod in known.plan.pods}:
                self.violated(Promise.ONE_DECISION, f"{claim.name} is for pods of {known.name}")
                return

    def _check_budgets(self, command: DisruptionCommand) -> None:
        """Check budgets as Karpenter counts them: each node in service that leaves, for any reason, uses the budget; a
        node whose instance is terminating does not count. Compare with the state at which the decision began.
        """
        live = (
            known for known in self.commands.values() if known.state not in OVER and known.cluster == command.cluster
        )
        going = {name for known in live for name in known.targets}
        begun_at = command.created_at
        for (cluster, name), pool in sorted(self._pools.items()):
            if cluster != command.cluster:
                continue
            nodes = [
                claim
                for claim in self._of_pool.get((command.cluster, name), {}).values()
                if claim.state is not ClaimState.TERMINATING and self.was_in_service(claim, begun_at)
            ]
            leaving = [
                claim
                for claim in nodes
                if claim.name in going or self._leaves_since.get((claim.cluster, claim.name), begun_at) < begun_at
            ]
            most = _allowed(pool, str(command.reason), len(nodes))
            mine = any(claim.name in command.targets for claim in leaving)
            if mine and len(leaving) > most:
                have = f"{len(leaving)} nodes of {name} leave, {most} of {len(nodes)} may"
                self.violated(Promise.DISRUPTION_BUDGETS, have)


def _is_taken(claim: NodeClaim) -> bool:
    """Whether its pods have lost the node, or will, through no decision of Shiplap."""
    return claim.missed or (bool(claim.failure) and claim.failure not in _COMMANDS)


def _allowed(pool: NodePool, reason: str, nodes: int) -> int:
    """How many nodes the budgets without a schedule allow to leave at once."""
    counts = [nodes]
    for budget in pool.spec.disruption.budgets:
        if budget.schedule or (budget.reasons and reason not in budget.reasons):
            continue
        text = str(budget.nodes)
        counts.append(ceil(nodes * int(text[:-1]) / 100) if text.endswith("%") else int(text))
    return min(counts)
