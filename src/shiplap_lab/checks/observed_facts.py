"""Feeds the judge with what differs between two observations of a Region.

The simulation tells the judge of each fact as it happens. `shiplap lab dev` sees the world from outside, a few times a
second. What happened in between is filled in: the states that a claim has passed, and the order of writes, launches and
joins. Nothing here judges; the judge does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.disruption.progress import OVER, CommandState, DisruptionCommand
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.nodeclaim import LEAVING, TRANSITIONS, ClaimState, NodeClaim
from shiplap.ports import Instance, written_claim, written_command
from shiplap_lab.checks.observation import ENDED, ClusterObservation, RegionObservation
from shiplap_lab.judge.judge import Judge
from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.raw_json import Json

UNSEEN = frozenset(
    {
        Promise.FLOWS,
        Promise.PATIENCE,
        Promise.OWN_INSTANCES,
        Promise.EXPECTED,
        Promise.ONE_TOKEN,
        Promise.CRITICAL_LAST,
        Promise.DEADLINES,
        Promise.REPEATABLE,
        Promise.SNAPSHOTS,
        Promise.TOLD,
        Promise.AT_ONCE,
        Promise.CEILINGS,
        Promise.COMMITMENTS,
        Promise.ASLEEP,
        Promise.GANGS,
        Promise.REQUESTS,
    }
)
"""Invariants about which observations say nothing: what was told, and what settings bound, is not among them.

Expectations are listed by the report, by their names.
"""

_INSTALL = ""
"""A play has one install."""


class ObservedFacts:
    """The judge of a played Region, and its facts: `see` is called with each observation.

    `price` is USD per hour of an instance type, in a zone, of a capacity type; `machine_types` are the vCPUs (`cpu`)
    and the memory of each instance type, as quantities; `pools` is the spec of each NodePool, by cluster and name.
    """

    def __init__(
        self,
        pools: Mapping[tuple[str, str], Json],
        started_at: float,
        price: Callable[[str, str, str], float],
        machine_types: Mapping[str, Json],
        *,
        most_nodes_per_pod: int,
    ) -> None:
        self._now = started_at
        self._objects: dict[tuple[str, str], dict[str, Json]] = {}
        self._without_instance: set[tuple[str, str]] = set()
        self._deletions: dict[str, int] = {}
        self._dead_letters = 0
        self._claims: dict[tuple[str, str], NodeClaim] = {}
        self._commands: dict[str, DisruptionCommand] = {}
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self.judge = Judge(
            lambda: self._now,
            lambda _: None,
            machine_types=machine_types,
            pools=pools,
            price=price,
            most_nodes_per_pod=most_nodes_per_pod,
            sampled=True,
        )

    def see(self, region: RegionObservation, now: float) -> None:
        """Pass on everything that is new."""
        self._now = now
        for cluster in region.clusters:
            self._see_cluster(cluster)
        if region.dead_letters > self._dead_letters:
            self.judge.found(Promise.MESSAGES, f"{region.dead_letters} messages are in dead-letter queues")
        self._dead_letters = region.dead_letters
        self.judge.tick(calm=True)

    def verdicts(self) -> dict[str, bool]:
        """Return True for each invariant that has held, of the invariants that can be seen."""
        broken = {violation.promise for violation in self.judge.violations}
        return {str(promise): promise not in broken for promise in Promise if promise not in UNSEEN}

    def _see_cluster(self, seen: ClusterObservation) -> None:
        self._see_objects(seen.name, "nodes", _stored(seen, "nodes", seen.nodes))
        self._see_commands(seen)
        launches = _launches(seen.claims)
        for token, claims in launches.items():
            self._see_launch(claims, [item for item in seen.instances if item.launch == token])
        for instance in seen.instances:
            if instance.launch not in launches and instance.id not in self._started:
                self._start(instance)
        self._see_objects(seen.name, "pods", _stored(seen, "pods", seen.pods))
        for instance in seen.instances:
            if instance.state in ENDED and instance.id not in self._ended:
                self.judge.termination_requested(_INSTALL, [instance.id])
                self.judge.machine_ended(instance.id)
                self._ended.add(instance.id)
        for deletion in seen.deletions[self._deletions.get(seen.name, 0) :]:
            self.judge.pod_deleted(_INSTALL, seen.name, msgspec.to_builtins(deletion.pod), deletion.forced)
        self._deletions[seen.name] = len(seen.deletions)

    def _see_objects(self, cluster: str, plural: str, items: Sequence[Json]) -> None:
        """Objects that are gone, then those that are new or other than before."""
        known = self._objects.get((cluster, plural), {})
        listed = {item["metadata"].get("uid") or item["metadata"]["name"]: item for item in items}
        for key in sorted(known.keys() - listed.keys()):
            self.judge.object_written(cluster, "DELETED", plural, known[key])
        for key, item in listed.items():
            if known.get(key) != item:
                self.judge.object_written(cluster, "MODIFIED", plural, item)
        self._objects[cluster, plural] = listed

    def _start(self, instance: Instance) -> None:
        """The tag of the install is left out: what a play launches belongs to its one install."""
        self._started.add(instance.id)
        self.judge.machine_started(msgspec.json.encode(replace(instance, install=_INSTALL)))

    def _write(self, claim: NodeClaim) -> None:
        self._claims[claim.cluster, claim.name] = claim
        self.judge.claim_written(_INSTALL, written_claim(claim))

    def _see_commands(self, seen: ClusterObservation) -> None:
        """Replacements are written with their command. One that is no longer listed is over; it may have been undone,
        which is the state in which the judge expects least of it.
        """
        for claim in sorted(seen.claims, key=_age):
            if not claim.launch.owner and (claim.cluster, claim.name) not in self._claims:
                self._write(_as_it_was(claim, ClaimState.PLANNED))
        for command in sorted(seen.commands, key=lambda item: (item.created_at, item.name)):
            if self._commands.get(command.name) != command:
                self._write_command(command)
        listed = {command.name for command in seen.commands}
        for command in list(self._commands.values()):
            if command.cluster == seen.name and command.name not in listed and command.state not in OVER:
                self._write_command(replace(command, state=CommandState.UNDONE))

    def _write_command(self, command: DisruptionCommand) -> None:
        self._commands[command.name] = command
        self.judge.command_written(_INSTALL, written_command(command))

    def _see_launch(self, claims: Sequence[NodeClaim], instances: Iterable[Instance]) -> None:
        """The claims of one launch: they are written, their instances start, they go on."""
        for claim in claims:
            if (claim.cluster, claim.name) not in self._claims:
                self._write(_as_it_was(claim, ClaimState.PLANNED))
        for instance in instances:
            if instance.id not in self._started:
                self._start(instance)
        for claim in claims:
            self._follow(claim)

    def _follow(self, claim: NodeClaim) -> None:
        """A claim goes on from the state in which it was last seen. Instances are read before claims: one that was
        launched in between is seen with the next observation, and so is its claim.
        """
        key = (claim.cluster, claim.name)
        if claim.instance_id and claim.instance_id not in self._started and key not in self._without_instance:
            self._without_instance.add(key)
            return
        known = self._claims[key]
        if known == claim:
            return
        for state in _way(known.state, claim.state)[:-1]:
            self._write(_as_it_was(claim, state))
        self._write(claim)


def _stored(seen: ClusterObservation, plural: str, typed: Sequence[Pod | Node]) -> Sequence[Json]:
    """Objects as the API server has them."""
    return seen.stored[plural] if plural in seen.stored else [msgspec.to_builtins(item) for item in typed]


def _launches(claims: Iterable[NodeClaim]) -> dict[str, list[NodeClaim]]:
    """Claims by the token of their launch, the oldest launch first."""
    by_launch: dict[str, list[NodeClaim]] = {}
    for claim in sorted(claims, key=_age):
        by_launch.setdefault(claim.launch.token, []).append(claim)
    return by_launch


def _age(claim: NodeClaim) -> tuple[float, str]:
    return claim.created_at, claim.name


def _as_it_was(claim: NodeClaim, state: ClaimState) -> NodeClaim:
    """A claim in a state that it has passed."""
    earlier = replace(claim, state=state)
    if state not in LEAVING:
        earlier = replace(earlier, failure="", missed=False, deadline_at=0.0)
    if state in (ClaimState.PLANNED, ClaimState.LAUNCHING):
        earlier = replace(earlier, instance=None)
    if state in (ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED):
        earlier = replace(earlier, node_name="")
    return earlier


def _way(before: ClaimState, after: ClaimState) -> list[ClaimState]:
    """The shortest way from one state to another, without the first; only the last where no way leads there."""
    ways = deque([[before]])
    passed = {before}
    while ways:
        way = ways.popleft()
        if way[-1] is after:
            return way[1:] or [after]
        for state in sorted(TRANSITIONS.get(way[-1], frozenset()) - passed):
            if (way[-1], state) == (ClaimState.DRAINING, ClaimState.INITIALIZED) and before is not ClaimState.DRAINING:
                continue  # only what was seen to leave has come back
            passed.add(state)
            ways.append([*way, state])
    return [after]
