"""The invariants, checked at every write, launch, end and join.

The checker counts effects, not plans: once a pool is over its limit, nothing more is planned for it, so a check of
plans would never see the breach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from shiplap.disruption.commands import Reason
from shiplap.disruption.progress import OVER, DisruptionCommand
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import FINAL, ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap.scheduling.model.planned_pods import do_not_disrupt

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
    ONE_TOKEN = "a token stands for one request"  # noqa: S105 - the name of a promise
    CRITICAL_LAST = "critical pods leave last"
    DEADLINES = "deadlines count from the event"
    REPEATABLE = "recorded decisions can be repeated"
    REST = "all comes to rest"
    EXPECTED = "every step brings about what it expects"


class Violation(msgspec.Struct, frozen=True):
    """An invariant that did not hold; `at` in seconds since the start."""

    promise: Promise
    detail: str
    at: float


class InvariantChecker:
    """Keeps what one install has written and launched, and checks that all comes to rest. The judge checks the rest.

    Attributes:
        claims: every claim as it was last written, by cluster and name.
        violations: in the order they were found.
        pods_of: the pods that are on a claim's node now.
    """

    def __init__(
        self, *, now: Callable[[], float], price: Callable[[Instance], float], found: Callable[[], object]
    ) -> None:
        self.claims: dict[tuple[str, str], NodeClaim] = {}
        self.commands: dict[str, DisruptionCommand] = {}
        self.instances: dict[str, Instance] = {}
        self.ended: dict[str, float] = {}
        self.violations: list[Violation] = []
        self._now, self._start, self.price, self._found = now, now(), price, found
        self.pods_of: Callable[[NodeClaim], Sequence[Pod]] = lambda _: ()
        self._holder: dict[str, NodeClaim] = {}
        self._lost: set[str] = set()

    def violated(self, promise: Promise, detail: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(promise, detail, round(self._now() - self._start, 3)))
        self._found()

    # Facts: all that the checker learns. They are writes, events, and what is there.

    def claim_written(self, claim: NodeClaim) -> None:
        """A claim is durable."""
        self.claims[claim.cluster, claim.name] = claim
        if claim.instance_id:
            self._holder[claim.instance_id] = claim

    def restored(self, claims: Sequence[NodeClaim], commands: Sequence[DisruptionCommand]) -> None:
        """The table is as it was at an earlier moment: nothing was written since, but EC2 has done what it did."""
        self.claims = {(claim.cluster, claim.name): claim for claim in claims}
        self.commands = {command.name: command for command in commands}
        self._holder = {claim.instance_id: claim for claim in claims if claim.instance_id}
        self._lost |= self.instances.keys() - self._holder.keys()

    def command_written(self, command: DisruptionCommand) -> None:
        """A disruption command is durable."""
        self.commands[command.name] = command

    def launched(self, instance: Instance) -> None:
        """EC2 has started an instance."""
        self.instances[instance.id] = instance

    def instance_ended(self, instance_id: str) -> None:
        """An instance has ended."""
        self.ended.setdefault(instance_id, self._now())

    def message_given_up(self, message: str) -> None:
        """A message is in a dead-letter queue."""
        self.violated(Promise.MESSAGES, message[:300])

    # Periodic checks

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
        """USD that the claims account for, and those of instances that no claim ever had, or that lost it by a restore:
        an adopted node has no price.
        """
        known, unknown = 0.0, 0.0
        for instance in self.instances.values():
            claim = self._holder.get(instance.id)
            if claim is None or instance.id in self._lost:
                unknown += self.price(instance) * self._hours(instance)
            else:
                known += claim.hourly * self._hours(instance)
        return known, unknown

    def _hours(self, instance: Instance) -> float:
        return (self.ended.get(instance.id, self._now()) - instance.launched_at) / 3600
