"""A plan in which each gang has all the nodes that it needs, or none.

The first plan has all pods. Where gangs are short in it, fewer gangs are planned: those before others in halves, until
it is known which of them fit beside each other. The pods that are in no gang are in every one of these plans, so they
get the room of gangs that are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property

import msgspec
from msgspec import json
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import PodReference
from shiplap.policies.gangs.gang import GangMembers
from shiplap.policies.gangs.memory.gang_tries import GANGS, GangSupply, GangTries
from shiplap.policies.gangs.search.gang_room import GangRoom, PodKinds
from shiplap.policies.gangs.search.remembered_gangs import RememberedGangs
from shiplap.scheduling.model.scheduling_plan import (
    Placement,
    Plan,
    PlannedClaim,
    Unschedulable,
    is_asleep,
    left_by_priority,
    shortened,
)
from shiplap.scheduling.model.snapshot import Snapshot

_MOST_PLANS = 48
"""Plans of one decision to find out which gangs fit. They go without the search for cheaper nodes."""

_TURN_S = 60.0
"""Seconds between two sweeps: in each minute other gangs have the second half of the plans."""

ITS_TURN = "its turn is at"
"""Words of a reason that say when a gang is planned again."""

Decide = Callable[[Snapshot], Plan]


def with_whole_gangs(
    snapshot: Snapshot,
    gangs: Sequence[GangMembers],
    decide: Decide,
    set_aside_s: float = 0.0,
    tries: Sequence[GangTries] | None = None,
) -> Plan:
    """Return a plan that leaves out the gangs that are short, and says why. Raises as `decide`.

    Args:
        snapshot: the snapshot.
        gangs: those that wait, in the order in which they are served.
        decide: plans a snapshot regardless of gangs.
        set_aside_s: a gang that has waited so long keeps gangs after it from the room that it lacks; 0 for none.
        tries: what is remembered of gangs that were short; None where nothing is.
    """
    search = _GangSearch(snapshot, gangs, decide, set_aside_s, tries)
    able = search.able
    everything = [_Choice(members) for members in able]
    if not any(members.gang.topology for members in able) and not search.sets_aside and not search.lack(able):
        first = search.plan(everything)
        if _are_whole(first, everything):
            return search.told(first)
    return search.told(search.best(search.admitted(able, (), is_short=True)))


class _Choice(msgspec.Struct, frozen=True):
    """A gang that is planned for, in the one zone that its members share; without a zone they may be anywhere."""

    members: GangMembers
    zone: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    """The reason for which a gang gets nothing. `cause` is what the plan says of the first member without a place."""

    text: str
    cause: Unschedulable | None = None


class _GangSearch:
    """Finds out which gangs fit beside each other, by a bounded number of plans."""

    def __init__(
        self,
        snapshot: Snapshot,
        gangs: Sequence[GangMembers],
        decide: Decide,
        set_aside_s: float,
        tries: Sequence[GangTries] | None,
    ) -> None:
        self._set_aside_s = set_aside_s
        self._waited: list[tuple[GangMembers, frozenset[str]]] = []
        """The gangs that have room set aside, each with the resources that it lacks."""
        self._snapshot, self._gangs, self._decide = snapshot, gangs, decide
        self._plans_left = _MOST_PLANS
        self._refused = {id(item): _Refusal(item.gang.problem) for item in gangs if item.gang.problem}
        self._short: dict[object, _Refusal] = {}
        """The refusals of gangs that found no room, by what they ask for: equal ones find none after them."""
        self._has_refused = False
        """True once a plan has found a gang short: the words of a plan say more, so the first one is planned."""
        self._kinds = PodKinds()
        self._able = [item for item in gangs if not item.gang.problem]
        self._place = {id(item): place for place, item in enumerate(gangs)}
        self._room = _room(snapshot, self._able, self._kinds) if len(self._able) > 1 else None
        of_gangs = {pod.key for members in gangs for pod in members.waiting}
        self._others = tuple([pod for pod in snapshot.view.pods if pod.spec.node_name or pod.key not in of_gangs])
        """The pods that every plan has."""
        self._priorities = {pod.key: pod.spec.priority for pod in snapshot.view.pods}
        self._memory = RememberedGangs(tries, self._able, self._seen, snapshot.now) if tries is not None else None
        self._rest()

    def _rest(self) -> None:
        """Refuse the gangs that rest. What they lack stays set aside for them."""
        resting = self._memory.resting if self._memory is not None else {}
        for members in self._able:
            item = resting.get(id(members))
            if item is not None:
                self._refused[id(members)] = _Refusal(item.text)
                if self._has_waited(members) and item.lacks:
                    self._waited.append((members, frozenset(item.lacks)))

    @property
    def able(self) -> list[GangMembers]:
        """The gangs that are tried now."""
        return [members for members in self._able if id(members) not in self._refused]

    @property
    def sets_aside(self) -> bool:
        """True if a gang that is not tried now has room set aside."""
        return bool(self._waited)

    @cached_property
    def _any_room(self) -> GangRoom | None:
        return self._room or _room(self._snapshot, self._able, self._kinds)

    def _seen(self, members: GangMembers) -> GangSupply | None:
        return self._any_room.seen(members) if self._any_room is not None else None

    def lack(self, gangs: Iterable[GangMembers]) -> str:
        """What gangs have certainly too little of together, which needs no plan; nothing where a plan has to tell."""
        return self._room.lack(gangs) if self._room is not None else ""

    def _shortfall(self, members: GangMembers, ahead: Iterable[GangMembers]) -> str:
        """What a gang lacks in all under limits, behind others; nothing where that is not certain."""
        return self._any_room.shortfall(members, ahead) if self._any_room is not None else ""

    def plan(self, choices: Sequence[_Choice], *, is_trial: bool = False) -> Plan:
        """Plan the chosen gangs beside all pods that are in no gang."""
        going = self._snapshot
        if len(choices) < len(self._gangs) or any(choice.zone for choice in choices):
            members = (_in_zone(pod, choice.zone) for choice in choices for pod in choice.members.waiting)
            going = replace(going, view=replace(going.view, pods=(*self._others, *members)))
        if is_trial:
            self._plans_left -= 1
            going = replace(going, settings=replace(going.settings, improve_s=0.0))
        return self._decide(going)

    def best(self, choices: Sequence[_Choice]) -> Plan:
        """The plan of gangs that fit, with the cheapest nodes for them."""
        plan = self.plan(choices)
        return plan if _are_whole(plan, choices) else self.plan(choices, is_trial=True)

    def admitted(
        self, gangs: Sequence[GangMembers], before: Sequence[_Choice], *, is_short: bool = False
    ) -> list[_Choice]:
        """The gangs that fit beside those before them; with `is_short` it is known that not all of them do."""
        ahead = [choice.members for choice in before]
        gangs = [item for item in gangs if not (self._is_held_back(item) or self._is_known_short(item, ahead))]
        if len(gangs) <= 1:
            return self._alone(gangs[0], before) if gangs else []
        if not is_short and self._has_plans_for_all and not self._are_certainly_short(gangs, before):
            choices = [*before, *map(_Choice, gangs)]
            if _are_whole(self.plan(choices, is_trial=True), choices):
                return choices[len(before) :]
        half = 1 if is_short else (len(gangs) + 1) // 2  # often all are equal, and not even the first fits
        first = self.admitted(gangs[:half], before)
        return [*first, *self.admitted(gangs[half:], [*before, *first])]

    @cached_property
    def _turns(self) -> _Turns:
        plans_each = len(self._known_zones) if any(members.gang.topology for members in self._able) else 1
        return _Turns([members for members in self._able if not self.lack([members])], plans_each, self._snapshot.now)

    @property
    def _has_plans_for_all(self) -> bool:
        """True in the first half of the plans, which go to gangs in the order in which they are served."""
        return self._plans_left > _MOST_PLANS // 2

    def _must_wait(self, members: GangMembers) -> bool:
        """True, and the gang is refused, if the plans that are left are for gangs whose turn it is."""
        again = "" if self._has_plans_for_all else self._turns.next_of(members)
        if again:
            why = f"more gangs wait than one decision has plans for, {ITS_TURN} {again}"
            self._refused[id(members)] = _Refusal(why)
        return bool(again)

    def _are_certainly_short(self, gangs: Sequence[GangMembers], before: Sequence[_Choice]) -> bool:
        """True if a plan cannot tell that all these gangs fit: there is too little room, or it has to try zones."""
        if any(members.gang.topology for members in gangs):
            return True
        return bool(self.lack((*(choice.members for choice in before), *gangs)))

    def _refuse(
        self, members: GangMembers, refusal: _Refusal, ahead: Sequence[GangMembers], *, is_tried: bool = True
    ) -> None:
        """Leave a gang out that is short, and keep later ones from what it lacks if it can have that one day."""
        lacks = cache(lambda: self._lacks(members, ahead))
        if self._has_waited(members) and lacks():
            self._waited.append((members, lacks()))
        is_tried = is_tried and (refusal.cause is None or not is_asleep(refusal.cause))
        if self._memory is not None and is_tried:
            refusal = replace(refusal, text=self._memory.tried(members, refusal.text, lacks))
        self._refused[id(members)] = refusal

    def _lacks(self, members: GangMembers, ahead: Sequence[GangMembers]) -> frozenset[str]:
        """The resources that a gang lacks behind others, if enough nodes may end; none where no gang is behind it."""
        return self._room.wait_for(members, ahead) if self._room is not None else frozenset()

    def _has_waited(self, members: GangMembers) -> bool:
        """True if a gang has waited so long that gangs after it must not overtake it."""
        began = members.gang.began
        return bool(self._set_aside_s) and began is not None and self._snapshot.now >= began + self._set_aside_s

    def _is_held_back(self, members: GangMembers) -> bool:
        """True, and the gang is refused, if it would take what is set aside. What runs gets back what it has lost."""
        if self._room is None or members.placed:
            return False
        for earlier, lacks in self._waited:
            if self._place[id(earlier)] < self._place[id(members)] and self._room.competes(members, earlier, lacks):
                gang = earlier.gang
                what = ", ".join(sorted(lacks))
                why = f"{what} is set aside for gang {gang.key}, which waits since {gang.created_at}"
                self._refused[id(members)] = _Refusal(why)
                return True
        return False

    def _is_known_short(self, members: GangMembers, ahead: Sequence[GangMembers]) -> bool:
        """True, and the gang is refused, if an equal one found no room."""
        wants = self._wants(members) if self._short else None
        known = self._short.get(wants) if wants is not None else None
        if known is not None:
            self._refuse(members, known, ahead)
        return known is not None

    def _alone(self, members: GangMembers, before: Sequence[_Choice]) -> list[_Choice]:
        """The gang, in the best zone if its members share one; nothing where it is short.

        That is the zone in which most pods have a place, important ones first; of equal ones the cheapest.
        """
        ahead = [choice.members for choice in before]
        lack = self.lack((*ahead, members)) if self._has_refused else ""
        if lack:
            self._refuse(members, _Refusal(self._shortfall(members, ahead) or lack), ahead)
            return []
        if self._must_wait(members):
            return []
        found: list[tuple[list[int], float, str]] = []
        refusals: list[tuple[int, str, _Refusal]] = []
        zones = self._zones(members)
        if not zones:
            self._refused[id(members)] = _Refusal("its members must share a zone, but select different ones")
            return []
        is_tried = True
        for zone in zones:
            if self._plans_left <= 0:
                is_tried = False
                refusals.append((0, zone, _Refusal(f"the {_MOST_PLANS} plans of a decision went to gangs before it")))
                break
            choices = [*before, _Choice(members, zone)]
            plan = self.plan(choices, is_trial=True)
            if _are_whole(plan, choices):
                found.append((left_by_priority(plan, self._priorities), plan.hourly, zone))
            else:
                placed = _placed(plan, members)
                refusals.append((-placed, zone, _refusal(members, zone, plan, placed)))
        if found:
            return [_Choice(members, min(found)[2])]
        refusal = _with_shortfall(min(refusals, key=lambda item: item[:2])[2], self._shortfall(members, ahead))
        self._refuse(members, refusal, ahead, is_tried=is_tried)
        self._has_refused = True
        wants = self._wants(members)
        if wants is not None and self._plans_left > 0:
            self._short[wants] = refusal
        return []

    def _zones(self, members: GangMembers) -> Sequence[str]:
        """The zones to try for a gang: those of the members that have a node, else all that are sold.

        No zone is left where a member selects another zone than the rest.
        """
        if not members.gang.topology:
            return ("",)
        selected = {zone for pod in members.waiting if (zone := labels.value_of(pod.spec.node_selector, labels.ZONE))}
        of_nodes = {
            labels.value_of(node.metadata.labels, labels.ZONE)
            for node in self._snapshot.view.nodes
            if node.metadata.name in members.nodes
        }
        zones = of_nodes or selected or self._known_zones
        return [zone for zone in sorted(filter(None, zones)) or [""] if selected <= {zone}]

    @cached_property
    def _known_zones(self) -> frozenset[str]:
        """The zones that are sold, or have a node."""
        sold = {
            offering.zone
            for catalog in self._snapshot.catalogs
            for item in catalog.instance_types
            for offering in item.offerings
            if offering.available
        }
        there = {labels.value_of(node.metadata.labels, labels.ZONE) for node in self._snapshot.view.nodes}
        return frozenset(sold | there)

    def _wants(self, members: GangMembers) -> tuple[str, str, int, tuple[int, ...]] | None:
        """What a gang asks for, without its name: equal gangs fit into the same room. None if others decide its place.

        Labels of pods matter to affinity and spread, and their volumes to zones: gangs with these are each tried.
        """
        if members.placed:
            return None
        for pod in members.waiting:
            affinity = pod.spec.affinity
            if pod.spec.topology_spread_constraints or pod.spec.volumes:
                return None
            if affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None):
                return None
        gang = members.gang
        return gang.namespace, gang.topology, members.needed, tuple(self._kinds.of(members))

    def told(self, plan: Plan) -> Plan:
        """The plan with the reasons for which gangs are left out."""
        waiting = [
            entry
            for members in self._gangs
            if id(members) in self._refused
            for entry in _entries(members, self._refused[id(members)])
        ]
        if self._memory is not None:
            tries = json.decode(json.encode(self._memory.after()))  # as a plan that was recorded has them
            plan = replace(plan, remembered={GANGS: tries})
        if not waiting:
            return plan
        return replace(plan, unschedulable=tuple(sorted((*plan.unschedulable, *waiting), key=lambda entry: entry.pod)))


class _Turns:
    """The minutes in which gangs have the second half of the plans: so many in each minute, and then others.

    Gangs at the head of the queue that are short take all plans that go by its order. Those behind them would never be
    planned, although they may fit.
    """

    def __init__(self, gangs: Sequence[GangMembers], plans_each: int, now: float) -> None:
        in_a_minute = max(_MOST_PLANS // 2 // max(plans_each, 1), 1)
        self._minutes = {id(members): place // in_a_minute for place, members in enumerate(gangs)}
        self._round = -(-len(gangs) // in_a_minute)
        self._minute = int(now // _TURN_S)

    def next_of(self, members: GangMembers) -> str:
        """Return when a gang has its turn; nothing if that is now."""
        minutes = (self._minutes.get(id(members), self._minute) - self._minute) % max(self._round, 1)
        return rfc3339((self._minute + minutes) * _TURN_S) if minutes else ""


def _room(snapshot: Snapshot, gangs: Sequence[GangMembers], kinds: PodKinds) -> GangRoom | None:
    try:
        return GangRoom(snapshot, gangs, kinds)
    except ValueError:
        return None  # plans raise the same, in words for whoever wrote the object


def _in_zone(pod: Pod, zone: str) -> Pod:
    if not zone:
        return pod
    selector = {**pod.spec.node_selector, labels.ZONE: zone}
    return replace(pod, spec=replace(pod.spec, node_selector=selector))


def _are_whole(plan: Plan, choices: Sequence[_Choice]) -> bool:
    served = served_pods(plan)
    return all(sum(pod.key in served for pod in choice.members.waiting) >= choice.members.needed for choice in choices)


def _placed(plan: Plan, members: GangMembers) -> int:
    served = served_pods(plan)
    return sum(pod.key in served for pod in members.waiting)


def served_pods(plan: Plan) -> frozenset[str]:
    """The pods that have a place in a plan, by `namespace/name`."""
    parts: tuple[PlannedClaim | Placement, ...] = (*plan.node_claims, *plan.existing_nodes)
    return frozenset(pod.key for part in parts for pod in part.pods)


def _refusal(members: GangMembers, zone: str, plan: Plan, placed: int) -> _Refusal:
    """Return why a gang is short in a plan: its first member without a place, or a gang that it would push out."""
    keys = {pod.key for pod in members.waiting}
    cause = next((entry for entry in (*plan.unschedulable, *plan.ignored) if entry.pod.key in keys), None)
    if placed >= members.needed or cause is None:
        return _Refusal("its nodes would take the room of a gang before it")
    where = f" in zone {zone}" if zone else ""
    count = f"{members.placed + placed} of {members.gang.minimum} members would have a place{where}"
    return _Refusal(f"{count}: {cause.message}", cause)


def _with_shortfall(refusal: _Refusal, shortfall: str) -> _Refusal:
    """Return a refusal that says what the whole gang lacks, before what a plan says of its next member."""
    cause = refusal.cause
    if not shortfall or cause is None:
        return refusal
    return replace(refusal, text=f"{refusal.text.removesuffix(cause.message)}{shortfall}; {cause.message}")


def _entries(members: GangMembers, refusal: _Refusal) -> list[Unschedulable]:
    """Return what the waiting pods of a gang are told. A gang that sleeps says only that."""
    cause = refusal.cause
    message = shortened(f"nothing is launched for gang {members.gang.key}: {refusal.text}")
    if cause is not None and is_asleep(cause):
        message = cause.message
    nearest = cause.nearest if cause is not None else None
    return [Unschedulable(PodReference.of(pod), message, nearest) for pod in members.waiting]
