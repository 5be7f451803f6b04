"""Gangs drawn by a seed, EC2 capacity that comes and goes, and a cluster that is played minute by minute.

Each gang has 1 to 64 members of 1, 4 or 8 GPUs, runs for some time, and may have a deadline to start by; each tenth has
a leader of another size. EC2 has so many instances of each type and zone left, which changes every half hour or so;
what runs keeps running. A request for several instances is one for all or nothing where a plan asks for that; else it
gives what there is. A type and zone that a request found empty is left aside for three minutes. A node takes pods two
minutes after its launch, and ends in the minute after its last pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec
from msgspec import convert
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.policies.gangs.gang_launches import launched_together
from shiplap.policies.gangs.memory.gang_tries import GANGS, GangTries
from shiplap.policies.gangs.waiting_gangs import waiting_gangs
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import NOW, snapshot_of

GPU = "nvidia.com/gpu"
GPUS_ALLOWED = 512
"""The limit of the NodePool."""

BOOT_MIN = 2
EMPTY_FOR_MIN = 3
"""How long a type and zone that was found empty is not asked for."""

_SIZES = {"gpu1": (1, 1.0), "gpu4": (4, 4.4), "gpu8": (8, 10.0)}
"""GPUs and USD per hour of each instance type."""

Offering = tuple[str, str]


class DrawnGang(msgspec.Struct, frozen=True):
    """A gang: when it arrives, how long it runs, and by when it has to start, in minutes; GPUs of each member."""

    name: str
    arrives: int
    lasts: int
    gpus: tuple[int, ...]
    deadline: int | None


class Day(msgspec.Struct, frozen=True):
    """What is drawn: the gangs, and how many instances EC2 has of each type and zone in each minute."""

    minutes: int
    gangs: tuple[DrawnGang, ...]
    capacity: dict[Offering, list[int]]


def drawn_day(seed: int, minutes: int = 360, gangs: int = 40, *, mixed: float = 0.1) -> Day:
    """Draw a day; so large a part of the gangs has a leader of another size."""
    draw = Random(seed)
    made = []
    for number in range(gangs):
        members = min(64, max(1, round(draw.lognormvariate(1.6, 1.0))))
        size = draw.choices((1, 4, 8), (5, 2, 3))[0]
        if members * size > GPUS_ALLOWED // 2:
            members = GPUS_ALLOWED // 2 // size
        sizes = [size] * members
        if members > 1 and draw.random() < mixed:
            sizes[0] = draw.choice([other for other in (1, 4, 8) if other != size])
        arrives = draw.randrange(minutes * 2 // 3)
        deadline = arrives + draw.randint(20, 120) if draw.random() < 0.4 else None
        made.append(DrawnGang(f"g{number:03}", arrives, draw.randint(15, 90), tuple(sizes), deadline))
    capacity = {}
    for name, most in (("gpu1", 40), ("gpu4", 12), ("gpu8", 30)):
        for zone in (Z1, Z2):
            left: list[int] = []
            while len(left) < minutes:
                left += [draw.choice((0, 0, draw.randint(0, most), most))] * draw.randint(15, 60)
            capacity[name, zone] = left[:minutes]
    return Day(minutes, tuple(made), capacity)


def types_without(empty: frozenset[Offering]) -> tuple[InstanceType, ...]:
    """The instance types, with offerings marked that were found empty."""
    return tuple(
        fake_type(
            name,
            cpu=str(gpus * 12),
            memory=f"{gpus * 48}Gi",
            pods="30",
            price=price,
            extra={GPU: str(gpus)},
            offerings=[("on-demand", Z1), ("on-demand", Z2)],
            unavailable=[("on-demand", zone) for kind, zone in empty if kind == name],
        )
        for name, (gpus, price) in _SIZES.items()
    )


class _Machine(msgspec.Struct):
    """An instance: its node, the pods that it was launched for or that run there, and when it was launched."""

    node: Node
    kind: str
    zone: str
    launched: int
    pods: set[str]


class Played(msgspec.Struct):
    """What became of a day: minutes from arrival to start by gang, and USD by gang; `idle` is for nodes of no gang.

    `given_up` is how long gangs waited that never started. GPU minutes are those that were paid, and those in which a
    gang ran. `stepwise` are the gangs for which one request did not suffice: they had several, or room on nodes.
    """

    started: dict[str, int] = {}
    given_up: dict[str, int] = {}
    dollars: dict[str, float] = {}
    idle: float = 0.0
    gpu_minutes: int = 0
    used_gpu_minutes: int = 0
    most_at_risk: float = 0.0
    stepwise: set[str] = set()

    @property
    def total(self) -> float:
        """USD in all."""
        return sum(self.dollars.values()) + self.idle

    @property
    def in_vain(self) -> float:
        """USD for gangs that did not start, and for nodes of no gang."""
        return sum(amount for name, amount in self.dollars.items() if name not in self.started) + self.idle

    @property
    def in_vain_at_once(self) -> float:
        """USD for gangs that did not start although one request for all or nothing sufficed."""
        gone = self.dollars.keys() - self.started.keys() - self.stepwise
        return sum(self.dollars[name] for name in sorted(gone))

    @property
    def mean_wait(self) -> float:
        """Minutes to start, those of gangs that were given up included."""
        waits = [*self.started.values(), *self.given_up.values()]
        return sum(waits) / len(waits)


class Player:
    """Plays a day. `whole`: gangs are planned whole. `in_turn`: only the first that waits is planned for.

    With `knows` requests that EC2 would refuse cost no time: the planner is told at once and plans again. With
    `remembers` a decision knows what the ones before it found out about gangs that are short, as in an install.
    """

    def __init__(
        self, day: Day, *, whole: bool = True, in_turn: bool = False, knows: bool = False, remembers: bool = False
    ) -> None:
        self._tries: tuple[GangTries, ...] | None = () if remembers else None
        self._day, self._whole, self._in_turn, self._knows = day, whole, in_turn, knows
        self._machines: dict[str, _Machine] = {}
        self._waiting: dict[str, DrawnGang] = {}
        self._running: dict[str, tuple[DrawnGang, int]] = {}
        self._home: dict[str, str] = {}
        self._pods = {gang.name: _pods_of(gang) for gang in day.gangs}
        self._empty: dict[Offering, int] = {}
        self._launches = 0
        self.result = Played()

    def play(self) -> Played:
        """Play all minutes."""
        for minute in range(self._day.minutes):
            self._end(minute)
            self._waiting |= {gang.name: gang for gang in self._day.gangs if gang.arrives == minute}
            self._give_up(minute)
            for _ in range(24 if self._knows else 1):
                if not self._waiting or not self._decide(minute):
                    break
            self._start(minute)
            self._pay()
            if self._knows:
                self._empty.clear()
        for name, gang in self._waiting.items():
            self.result.given_up[name] = self._day.minutes - gang.arrives
        return self.result

    def _end(self, minute: int) -> None:
        for name, (_, until) in list(self._running.items()):
            if until <= minute:
                del self._running[name]
                self._forget(name)
        for name, machine in list(self._machines.items()):
            if not machine.pods and minute > machine.launched:
                del self._machines[name]

    def _forget(self, gang: str) -> None:
        for each in self._pods[gang]:
            home = self._home.pop(each.metadata.name, "")
            if home in self._machines:
                self._machines[home].pods.discard(each.metadata.name)

    def _give_up(self, minute: int) -> None:
        for name, gang in list(self._waiting.items()):
            if gang.deadline is not None and minute >= gang.deadline:
                del self._waiting[name]
                self.result.given_up[name] = minute - gang.arrives
                self._forget(name)

    def _decide(self, minute: int) -> bool:
        """Plan and launch; True if a request was refused, so that another plan may do better."""
        now = NOW + minute * 60
        gangs = sorted(self._waiting.values(), key=lambda gang: (gang.arrives, gang.name))
        chosen = gangs[:1] if self._in_turn else gangs
        empty = frozenset(at for at, since in self._empty.items() if self._knows or minute < since + EMPTY_FOR_MIN)
        snapshot = self._snapshot(chosen, empty, now)
        made = plan(snapshot)
        if self._tries is not None and made.remembered:
            self._tries = convert(made.remembered[GANGS], tuple[GangTries, ...])
        for place in made.existing_nodes:
            for found in place.pods:
                self._place(found.name, place.name)
        requests = self._requests(made, snapshot, now)
        parts = [{found.name for claim in claims for found in claim.pods} for claims in requests]
        parts += [{found.name} for place in made.existing_nodes for found in place.pods]
        several = Counter(gang for part in parts for gang in {name.rpartition("-")[0] for name in part})
        self.result.stepwise |= {gang for gang, number in several.items() if number > 1}
        refused = False
        for together in requests:
            refused |= not self._launch(together, minute)
        return refused

    def _snapshot(self, chosen: Sequence[DrawnGang], empty: frozenset[Offering], now: float) -> Snapshot:
        pods = [each for gang in chosen for each in self._pods[gang.name]]
        pods += [each for name in self._running for each in self._pods[name]]
        pods += [each for gang in self._waiting.values() if gang not in chosen for each in self._pods[gang.name]]
        shown = [
            self._bound(each)
            for each in pods
            if each.metadata.name in self._home or _gang_of(each) in {g.name for g in chosen}
        ]
        made = snapshot_of(
            shown,
            [machine.node for machine in self._machines.values()],
            pools=[pool(limits={GPU: str(GPUS_ALLOWED)})],
            types=types_without(empty),
            now=now,
        )
        known = KnownGangs(set_aside_s=1800.0, tries=self._tries)
        return made.with_policies([GangInput(known)]) if self._whole else made

    def _bound(self, each: Pod) -> Pod:
        home = self._home.get(each.metadata.name)
        if home is None:
            return each
        return replace(each, spec=replace(each.spec, node_name=home), status=replace(each.status, conditions=()))

    def _requests(self, made: Plan, snapshot: Snapshot, now: float) -> list[list[PlannedClaim]]:
        """The claims of each request: those of a gang that are equal are one request for all or nothing."""
        if not self._whole:
            return [[claim] for claim in made.node_claims]
        gangs = waiting_gangs(snapshot.view, KnownGangs(), now)
        together = launched_together(made.node_claims, gangs)
        found: dict[object, list[PlannedClaim]] = {}
        for claim in made.node_claims:
            key = (
                (together[claim.name], claim.instance_types, claim.requirements)
                if claim.name in together
                else claim.name
            )
            found.setdefault(key, []).append(claim)
        return list(found.values())

    def _launch(self, claims: Sequence[PlannedClaim], minute: int) -> bool:
        """Launch all claims in one zone, each as the cheapest type that EC2 has, or none of them."""
        tried: set[Offering] = set()
        for zone in sorted((Z1, Z2), key=lambda zone: (zone != claims[0].launch.zone, zone)):
            left = {name: self._left(name, zone, minute) for name in _SIZES}
            kinds = []
            for claim in claims:
                kind = next((name for name in claim.instance_types if left[name] > 0), "")
                tried |= {(name, zone) for name in claim.instance_types if left[name] <= 0}
                if not kind:
                    break
                left[kind] -= 1
                kinds.append(kind)
            if len(kinds) == len(claims):
                for claim, kind in zip(claims, kinds, strict=True):
                    self._add(claim, kind, zone, minute)
                return True
        self._empty |= dict.fromkeys(tried, minute)
        return False

    def _left(self, kind: str, zone: str, minute: int) -> int:
        here = sum(machine.kind == kind and machine.zone == zone for machine in self._machines.values())
        return self._day.capacity[kind, zone][minute] - here

    def _add(self, claim: PlannedClaim, kind: str, zone: str, minute: int) -> None:
        self._launches += 1
        name, gpus = f"n{self._launches:05}", _SIZES[kind][0]
        amounts = {"cpu": str(gpus * 12), "memory": f"{gpus * 48}Gi", "pods": "30", GPU: str(gpus)}
        made = node(name, pool="default", zone=zone, instance_type=kind, capacity=amounts, capacity_type="on-demand")
        made = replace(made, status=replace(made.status, allocatable=amounts))
        self._machines[name] = _Machine(made, kind, zone, minute, set())
        for found in claim.pods:
            self._place(found.name, name)

    def _place(self, name: str, home: str) -> None:
        self._home[name] = home
        self._machines[home].pods.add(name)

    def _start(self, minute: int) -> None:
        for name, gang in list(self._waiting.items()):
            homes = [self._home.get(each.metadata.name) for each in self._pods[name]]
            if None in homes:
                continue
            begins = max(minute, *(self._machines[home].launched + BOOT_MIN for home in homes if home is not None))
            del self._waiting[name]
            self._running[name] = (gang, begins + gang.lasts)
            self.result.started[name] = begins - gang.arrives

    def _pay(self) -> None:
        at_risk = 0.0
        for machine in self._machines.values():
            gpus, price = _SIZES[machine.kind]
            there = {name.rpartition("-")[0] for name in machine.pods}
            owners = sorted(there & self._running.keys() or there)  # what waits beside a gang that runs costs nothing
            self.result.gpu_minutes += gpus
            for owner in owners:
                self.result.dollars[owner] = self.result.dollars.get(owner, 0.0) + price / 60 / len(owners)
            self.result.idle += 0.0 if owners else price / 60
            at_risk += price if any(owner in self._waiting for owner in owners) or not owners else 0.0
        self.result.used_gpu_minutes += sum(sum(gang.gpus) for gang, _ in self._running.values())
        self.result.most_at_risk = max(self.result.most_at_risk, at_risk)


def _gang_of(each: Pod) -> str:
    return each.metadata.name.rpartition("-")[0]


def _pods_of(gang: DrawnGang) -> list[Pod]:
    labels = {"kueue.x-k8s.io/pod-group-name": gang.name}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(len(gang.gpus))}
    created = rfc3339(NOW + gang.arrives * 60)
    return [
        pod(
            f"{gang.name}-{number}",
            str(gpus * 8),
            f"{gpus * 32}Gi",
            requests={GPU: str(gpus)},
            labels=labels,
            annotations=annotations,
            metadata={"creationTimestamp": created},
        )
        for number, gpus in enumerate(gang.gpus)
    ]
