"""Pods grouped into classes of pods that the planner cannot tell apart.

A decision's work grows with the number of classes, not of pods. Grouping runs over every pod of the cluster, so it
works on an encoding of the few fields that matter (one C call per pod) and derives requirements and requests once per
class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import le
from typing import Any, TypeVar

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Affinity,
    ContainerPort,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Toleration,
)
from shiplap.kubernetes.pod_requests import is_resize_infeasible, pod_requests
from shiplap.kubernetes.requirements import Requirement, Requirements, contradiction, requirement
from shiplap.scheduling.model.merged_terms import merged_over
from shiplap.scheduling.model.pod_volumes import NO_VOLUMES, VolumeNeeds
from shiplap.scheduling.model.preferences import NO_PREFERENCES, Preferences, preferred_nodes
from shiplap.scheduling.model.topology_constraints import (
    TOO_MANY,
    UNCONSTRAINED,
    Constraints,
    Terms,
    beyond_the_bound,
    reads_own_labels,
    written_terms,
)

T = TypeVar("T")

_CAPACITY_TYPES = frozenset({labels.ON_DEMAND, labels.SPOT, labels.RESERVED})

NODE_NAME = "field metadata.name"
"""Stands for the name of a node, by which matchFields choose, among labels; no label has such a name."""

HostPort = tuple[int, str, str]
"""Port, protocol and address; an empty address stands for all of them."""


class PodClass(msgspec.Struct, eq=False):
    """Pods with equal constraints and requests.

    `terms` are the alternatives a node is chosen by: node selector, required node affinity and volumes, in the order
    written; there is at least one. `own_terms` holds, for each of them, the part the pod itself asks for: what its
    volumes add says nothing about the domains its pods may spread over. `problem` says why none of them can be planned
    at all; `members` are in placing order. `selected` are the numbers of the topology terms that count these pods,
    `constraints` what they demand themselves, `preferences` what they would like besides. Classes of one grouping that
    differ only in requests, priority and problem have the same object as `shape`. `unread`: what they prefer of
    topology is beyond what a decision reads.
    """

    requests: dict[str, int]
    terms: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...] = ()
    ports: frozenset[HostPort] = frozenset()
    priority: int = 0
    missed: bool = False
    problem: str = ""
    keeps_off: bool = False
    own_terms: tuple[Requirements, ...] = ()
    volumes: VolumeNeeds = NO_VOLUMES
    constraints: Constraints = UNCONSTRAINED
    preferences: Preferences = NO_PREFERENCES
    selected: frozenset[int] = frozenset()
    members: list[Pod] = msgspec.field(default_factory=list)
    index: int = -1
    shape: object = None
    unread: bool = False
    company: tuple[int, ...] = ()
    """The required terms of its pod affinity, without those of its volumes."""
    starts_series: bool = False
    """True if its pods meet their own required affinity, so that the first of them may start a series."""
    opening: tuple[int, ...] = ()
    """The affinity terms that its pods may be the first to meet: where they go, the others have to follow."""
    topological: bool = False
    """True if any topology constraint, of these pods or of other pods, depends on where these pods go."""

    def series(self, term: int) -> tuple[int, ...]:
        """The affinity terms that begin together: required ones of pods all at once, others each for itself."""
        together = self.company
        return together if term in together else (term,)


class InvalidPod(ValueError):
    """A pod asks for something no node can have; the text says what. Never leaves this package."""


_encode = msgspec.msgpack.Encoder().encode


def signature(spec: PodSpec) -> bytes:
    """Equal bytes mean equal constraints and requests, volumes aside."""
    return _encode(
        (
            spec.containers,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.priority,
            spec.resource_claims,
            spec.host_network,
        )
    )


def encode_status(status: PodStatus) -> bytes:
    """The part of a status that changes what a pod takes, a resize under way; empty without one."""
    held = (status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources)
    return _encode((*held, is_resize_infeasible(status))) if any(held) else b""


def group(
    pods: Iterable[Pod],
    missed: Collection[str] = (),
    volumes: Mapping[str, VolumeNeeds] | None = None,
    terms: Terms | None = None,
) -> list[PodClass]:
    """The classes of these pods, in placing order: cpu, then memory descending, then age and name of the first member.

    Args:
        pods: pending pods, in any order.
        missed: uids of pods that may not rely on unverified estimates.
        volumes: what the volumes of a pod ask for, by `namespace/name`.
        terms: the topology terms of pods that stand already; those of these pods are added.
    """
    listed = list(pods)
    ages = [_age(pod.metadata) for pod in listed]
    in_order = all(map(le, ages, ages[1:]))
    specifications = _specifications(listed, missed, volumes)
    if not in_order:
        specifications = _by_age(specifications, ages)
    classes = _classes(listed, specifications, Terms() if terms is None else terms)
    for pod_class, places in classes:
        if len(places) > 1:
            places.sort(key=None if in_order else ages.__getitem__)
        pod_class.members = [listed[place] for place in places]
    classes.sort(key=lambda pair: (_largest_first(pair[0].requests), ages[pair[1][0]]))
    for index, (pod_class, _) in enumerate(classes):
        pod_class.index = index
    return [pod_class for pod_class, _ in classes]


Places = list[int]
"""Where pods stand in the list of all that are grouped. Pods themselves are read in the order of that list, which is
mostly the order in which they lie in memory."""


class _Specification(msgspec.Struct, frozen=True):
    """Pods of equal specification and volumes by their namespace; all of them are `missed`, or none."""

    places: dict[str, Places]
    missed: bool = False
    needs: VolumeNeeds = NO_VOLUMES

    @property
    def first(self) -> int:
        """The place of the first pod of the first namespace."""
        return next(iter(self.places.values()))[0]


def _specifications(
    pods: Sequence[Pod], missed: Collection[str], volumes: Mapping[str, VolumeNeeds] | None
) -> list[_Specification]:
    """The specifications of pods and their namespaces, each by their first pod in the list."""
    plain: dict[bytes, dict[str, Places]] = {}
    kinds = {(False, NO_VOLUMES): plain}
    by_signature = plain
    for place, pod in enumerate(pods):
        if missed or volumes:
            needs = volumes.get(pod.key, NO_VOLUMES) if volumes else NO_VOLUMES
            by_signature = kinds.setdefault((pod.metadata.uid in missed, needs), {})
        encoded = signature(pod.spec)
        by_namespace = by_signature.get(encoded)
        if by_namespace is None:
            by_namespace = by_signature[encoded] = {}
        namespace = pod.metadata.namespace
        places = by_namespace.get(namespace)
        if places is None:
            by_namespace[namespace] = [place]
        else:
            places.append(place)
    found = [_Specification(places, *kind) for kind, alike in kinds.items() for places in alike.values()]
    if len(kinds) > 1:
        found.sort(key=lambda specification: specification.first)
    return found


def _by_age(specifications: Iterable[_Specification], ages: Sequence[Age]) -> list[_Specification]:
    """The same specifications, the oldest pods first: how topology terms are numbered must not depend on the list."""
    age = ages.__getitem__
    found = []
    for specification in specifications:
        sorted_places = [(name, sorted(places, key=age)) for name, places in specification.places.items()]
        sorted_places.sort(key=lambda pair: age(pair[1][0]))
        found.append(msgspec.structs.replace(specification, places=dict(sorted_places)))
    found.sort(key=lambda specification: age(specification.first))
    return found


def _classes(
    pods: Sequence[Pod], specifications: Sequence[_Specification], terms: Terms
) -> list[tuple[PodClass, Places]]:
    """Pods of equal specification, told apart by what they demand and how topology terms see their labels."""
    parts = _Parts()
    too_many, unread = _unread(pods, specifications, terms)
    reader = _DemandReader(pods, terms, parts)
    demands = [
        _Demands(dict.fromkeys(specification.places, parts.value(_TOO_MANY)), {})
        if place in too_many
        else reader.demands_of(specification, prefer=place not in unread)
        if terms.constrains(pods[specification.first].spec)
        else None
        for place, specification in enumerate(specifications)
    ]
    of_volumes = [terms.of_volumes(specification.needs.together) for specification in specifications]
    selections = terms.selecting_each(pods) if terms.all else [_UNSELECTED] * len(pods)
    merged: dict[object, tuple[PodClass, Places]] = {}
    shapes: dict[object, object] = {}
    nothing = parts.value(_NOTHING)
    requests = _requests_or_problems([pods[specification.first] for specification in specifications])
    for place, (specification, demanded, volumes) in enumerate(zip(specifications, demands, of_volumes, strict=True)):
        spec, missed, needs = pods[specification.first].spec, specification.missed, specification.needs
        common = _described(spec, requests[place], missed=missed, volumes=needs, prefer=terms.prefer, parts=parts)
        common.unread = place in unread
        but_for_size = parts.shape(common)
        described = (but_for_size, id(parts.requests(common.requests)), common.priority, common.problem, common.unread)
        for namespace, together in specification.places.items():
            shared = nothing if demanded is None else demanded.by_namespace.get(namespace)
            each = {} if demanded is None else demanded.by_place
            for demand, selected, places in _alike(together, shared, each, selections):
                identity = (described, id(demand), id(selected))
                known = merged.get(identity)
                if known is not None:
                    known[1].extend(places)
                    continue
                shape = shapes.setdefault((but_for_size, id(demand), id(selected)), object())
                merged[identity] = (_held_by(_bound_by(common, demand, selected, shape), volumes), places)
    return list(merged.values())


def _unread(
    pods: Sequence[Pod], specifications: Sequence[_Specification], terms: Terms
) -> tuple[frozenset[int], frozenset[int]]:
    """The places of the specifications with too many required topology constraints, and with too many preferences."""
    numbers = []
    for specification in specifications:
        spec = pods[specification.first].spec
        required, preferred = written_terms(spec) if terms.constrains(spec) else (0, 0)
        own = reads_own_labels(spec) if required or preferred else False
        copies = sum(map(len, specification.places.values())) if own else len(specification.places)
        numbers.append((required * copies, preferred * copies if terms.prefer else 0))

    def written(place: int) -> tuple[bytes, tuple[str, ...]]:
        spec = pods[specifications[place].first].spec
        return _encode((spec.affinity, spec.topology_spread_constraints)), tuple(specifications[place].places)

    too_many = beyond_the_bound([required for required, _ in numbers], written)
    return too_many, beyond_the_bound([preferred for _, preferred in numbers], written)


def _alike(
    places: Places, shared: Demand | None, each: Mapping[int, Demand], selections: Sequence[frozenset[int]]
) -> Iterable[tuple[Demand, frozenset[int], Places]]:
    """Pods of one specification and namespace by the terms that count them, and their demand if they do not share one.

    What is returned may be changed: nobody else has these lists.
    """
    counting = [selections[place] for place in places]
    if shared is not None and counting.count(counting[0]) == len(counting):
        return [(shared, counting[0], places)]
    found: dict[tuple[int, int], tuple[Demand, frozenset[int], Places]] = {}
    for place, selected in zip(places, counting, strict=True):
        demand = shared or each[place]
        key = (id(demand), id(selected))
        known = found.get(key)
        if known is None:
            found[key] = (demand, selected, [place])
        else:
            known[2].append(place)
    return found.values()


def _bound_by(common: PodClass, demand: Demand, selected: frozenset[int], shape: object) -> PodClass:
    """A class of pods that are described alike, with what topology asks of them."""
    pod_class = msgspec.structs.replace(common)
    pod_class.constraints, preferred, problem = demand
    pod_class.selected, pod_class.shape = selected, shape
    if preferred != UNCONSTRAINED:
        pod_class.preferences = Preferences(common.preferences.node, preferred)
    if len(common.terms) > 1:
        spread_over = {spread.key for spread in (*pod_class.constraints.spreads, *preferred.spreads)}
        pairs = list(zip(common.own_terms, common.terms, strict=True))
        for key in sorted(spread_over - {labels.HOSTNAME}):
            pairs = merged_over(key, pairs)
        pod_class.own_terms, pod_class.terms = tuple(own for own, _ in pairs), tuple(term for _, term in pairs)
    pod_class.problem = common.problem or problem
    return pod_class


def _held_by(pod_class: PodClass, volumes: tuple[int, ...]) -> PodClass:
    """The class with the terms that hold its pods together with the others of their volumes, and what follows."""
    own, required = pod_class.constraints, pod_class.constraints.affinity
    if volumes:
        pod_class.constraints = own = msgspec.structs.replace(own, affinity=(*required, *volumes), volumes=volumes)
        pod_class.selected = pod_class.selected.union(volumes)
    pod_class.company = tuple(term for term in own.affinity if term not in volumes) if volumes else required
    pod_class.starts_series = bool(pod_class.company) and pod_class.selected.issuperset(pod_class.company)
    pod_class.opening = own.affinity if pod_class.starts_series else volumes
    preferred = pod_class.preferences.topology
    pod_class.topological = bool(pod_class.selected) or own != UNCONSTRAINED or preferred != UNCONSTRAINED
    return pod_class


class _Parts:
    """Parts of classes, each kept once, so that equal ones are the same object and classes compare by identity."""

    def __init__(self) -> None:
        self._values: dict[object, Any] = {}
        self._made: dict[bytes, Any] = {}
        self._shapes: dict[object, int] = {}

    def value(self, value: T) -> T:
        """The one object that stands for all equal to this; values of different types are never equal."""
        known: T = self._values.setdefault((type(value), value), value)
        return known

    def made(self, encoded: bytes, make: Callable[[], T]) -> T:
        """Return what `make` made of these bytes before, or makes now."""
        known: T | None = self._made.get(encoded)
        if known is None:
            known = self._made[encoded] = make()
        return known

    def requests(self, amounts: dict[str, int]) -> dict[str, int]:
        """The one resource list that stands for all equal to this."""
        known: dict[str, int] = self._values.setdefault(frozenset(amounts.items()), amounts)
        return known

    def shape(self, pod_class: PodClass) -> int:
        """A number for what tells described classes apart, but for topology, requests, priority and problem."""
        key = (
            id(self.value(pod_class.terms)),
            id(self.value(pod_class.own_terms)),
            pod_class.volumes.private,
            pod_class.volumes.shared,
            pod_class.volumes.together,
            id(self.value(pod_class.tolerations)),
            pod_class.ports,
            pod_class.missed,
            id(self.value(pod_class.preferences)),
        )
        return self._shapes.setdefault(key, len(self._shapes))


Demand = tuple[Constraints, Constraints, str]
"""What a pod demands of topology and what it prefers; or neither, and why it cannot be planned."""

_NOTHING: Demand = (UNCONSTRAINED, UNCONSTRAINED, "")
_TOO_MANY: Demand = (UNCONSTRAINED, UNCONSTRAINED, TOO_MANY)
_UNSELECTED: frozenset[int] = frozenset()


class _Demands(msgspec.Struct, frozen=True):
    """The demands of pods of one specification: by namespace, unless labels of their own or of their workload count."""

    by_namespace: dict[str, Demand]
    by_place: dict[int, Demand]


class _DemandReader:
    """Reads what pods demand: once for all of a namespace whose topology constraints are written alike."""

    def __init__(self, pods: Sequence[Pod], terms: Terms, parts: _Parts) -> None:
        self._pods, self._terms, self._parts = pods, terms, parts
        self._known: dict[tuple[bytes, str, bool], Demand] = {}

    def demands_of(self, specification: _Specification, *, prefer: bool = True) -> _Demands:
        """Read what pods of one specification demand; unless `prefer`, their preferences are not read."""
        spec, by_namespace = self._pods[specification.first].spec, specification.places
        if not reads_own_labels(spec) and self._terms.defaults is None:
            written = _encode((spec.affinity, spec.topology_spread_constraints))
            firsts = {namespace: self._pods[places[0]] for namespace, places in by_namespace.items()}
            return _Demands({name: self._of_all(written, pod, prefer=prefer) for name, pod in firsts.items()}, {})
        of = partial(self._of_one, prefer=prefer) if reads_own_labels(spec) else self._by_default(prefer=prefer)
        return _Demands({}, {place: of(self._pods[place]) for places in by_namespace.values() for place in places})

    def _of_all(self, written: bytes, pod: Pod, *, prefer: bool) -> Demand:
        """Return what all pods of a namespace demand whose constraints are `written` like this pod's."""
        key = (written, pod.metadata.namespace, prefer)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._of_one(pod, prefer=prefer)
        return known

    def _by_default(self, *, prefer: bool) -> Callable[[Pod], Demand]:
        """Return a reader of what pods demand: the same demand where the same default constraints apply."""
        shared: dict[tuple[str, int], Demand] = {}

        def of(pod: Pod) -> Demand:
            key = (pod.metadata.namespace, self._terms.default_number(pod))
            demand = shared.get(key)
            if demand is None:
                demand = shared[key] = self._of_one(pod, prefer=prefer)
            return demand

        return of

    def _of_one(self, pod: Pod, *, prefer: bool) -> Demand:
        return self._parts.value(_demands(pod, self._terms, prefer=prefer))


def _demands(pod: Pod, terms: Terms, *, prefer: bool) -> Demand:
    try:
        return terms.constraints_of(pod), terms.preferences_of(pod) if prefer else UNCONSTRAINED, ""
    except ValueError as error:
        return UNCONSTRAINED, UNCONSTRAINED, str(error)


def _requests_or_problems(pods: Iterable[Pod]) -> list[dict[str, int] | str]:
    """The requests of each pod, or what is wrong with them."""
    found: list[dict[str, int] | str] = []
    for pod in pods:
        try:
            found.append(pod_requests(pod))
        except ValueError as error:
            found.append(str(error))
    return found


def _described(
    spec: PodSpec, requests: dict[str, int] | str, *, missed: bool, volumes: VolumeNeeds, prefer: bool, parts: _Parts
) -> PodClass:
    """The class of pods of a specification, without members. What is wrong with it, or with the requests, is a problem.

    With `prefer` off, preferred node affinity is not read. `parts` remembers what other pods were made of.
    """
    try:
        own_terms, terms = parts.made(
            _encode((spec.node_selector, spec.affinity)), lambda: _both(node_terms(spec, strict=True))
        )
        if volumes is not NO_VOLUMES:
            own_terms, terms = _with_volumes(own_terms, volumes)
    except ValueError as error:
        return PodClass({"pods": 1}, (Requirements(),), priority=spec.priority, problem=str(error))
    if isinstance(requests, str):
        return PodClass({"pods": 1}, (Requirements(),), priority=spec.priority, problem=requests)
    return PodClass(
        requests,
        terms,
        tolerations=parts.made(_encode(spec.tolerations), lambda: tuple(sorted(spec.tolerations, key=_encode))),
        ports=host_ports(spec),
        priority=spec.priority,
        missed=missed,
        # Planning such a pod anyway would break a promise.
        problem="not supported yet: dynamic resource claims" if spec.resource_claims else "",
        keeps_off=any(_keeps_off(term) for term in terms),
        own_terms=own_terms,
        volumes=volumes,
        preferences=_node_preferences(spec) if prefer else NO_PREFERENCES,
    )


def _both(terms: tuple[Requirements, ...]) -> tuple[tuple[Requirements, ...], tuple[Requirements, ...]]:
    return terms, terms


def _node_preferences(spec: PodSpec) -> Preferences:
    preferred = preferred_nodes(spec.affinity)
    return Preferences(preferred) if preferred else NO_PREFERENCES


def node_terms(spec: PodSpec, *, strict: bool) -> tuple[Requirements, ...]:
    """Node selector joined with each required node-affinity term that can be met, in the order written; at least one.

    Args:
        spec: the pod's.
        strict: refuse labels that a pod may not select, as Karpenter does.

    Raises:
        InvalidPod: an operator, key or value cannot be used, or no term can ever be met; the message says which.
    """
    affinity = _affinity_terms(spec.affinity)
    if affinity and not (affinity := [term for term in affinity if term.match_expressions or term.match_fields]):
        raise InvalidPod("contradicts itself: an empty node affinity term matches no node")
    if strict and any(term.match_fields for term in affinity):
        raise InvalidPod("matchFields in node affinity is not supported")
    try:
        selector = [requirement(key, "In", (value,)) for key, value in spec.node_selector.items()]
        written = [
            [*selector, *map(_requirement, term.match_expressions), *map(_of_field, term.match_fields)]
            for term in affinity
        ] or [selector]
    except ValueError as error:
        raise InvalidPod(str(error)) from error
    if strict:
        for entry in (entry for entries in written for entry in entries):
            _refuse_restricted(entry)
    possible = [entries for entries in written if contradiction(entries) is None]
    if not possible:
        raise InvalidPod(f"contradicts itself: {contradiction(written[0])}")
    return tuple(map(Requirements, possible))


def _with_volumes(
    own: tuple[Requirements, ...], volumes: VolumeNeeds
) -> tuple[tuple[Requirements, ...], tuple[Requirements, ...]]:
    """The pod's own terms, each repeated for the alternatives of its volumes that it can be met with, and both joined.

    Raises:
        InvalidPod: no combination can ever be met.
    """
    if volumes.alternatives == NO_VOLUMES.alternatives:
        return own, own
    if not volumes.alternatives:
        raise InvalidPod("incompatible volume requirements: its volumes cannot be used on one node")
    pairs = [(term, other) for term in own for other in volumes.alternatives]
    conflicts = [contradicted(term, other) for term, other in pairs]
    possible = [pair for pair, conflict in zip(pairs, conflicts, strict=True) if not conflict]
    if not possible:
        (term, other), label = pairs[0], conflicts[0][0]
        raise InvalidPod(
            f"incompatible volume requirements: the pod asks for {term[label]}, and its volumes for {other[label]}"
        )
    return tuple(term for term, _ in possible), tuple(term.and_(other.values()) for term, other in possible)


def contradicted(term: Requirements, other: Requirements) -> tuple[str, ...]:
    """Return the labels that no node can have for both."""
    return tuple(label for label in term if label in other and contradiction((term[label], other[label])) is not None)


def _requirement(expression: NodeSelectorRequirement) -> Requirement:
    return requirement(expression.key, expression.operator, expression.values)


def _of_field(expression: NodeSelectorRequirement) -> Requirement:
    """A requirement on a node's name. Raises ValueError for a field that nodes are not chosen by."""
    if expression.key != "metadata.name":
        raise ValueError(f"matchFields of {expression.key}: a node is only chosen by metadata.name")
    return requirement(NODE_NAME, expression.operator, expression.values)


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The node's ports that a pod takes; in the node's network, as the API server has it, those of its containers."""
    containers = (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    return frozenset(
        _host_port(port, number)
        for container in containers
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    )


def ports_collide(mine: Iterable[HostPort], other: Collection[HostPort]) -> bool:
    """True if two sets claim one port: same number and protocol, and the same address or one of them all addresses."""
    return any(
        port == taken and protocol == taken_protocol and (address == taken_address or not address or not taken_address)
        for port, protocol, address in mine
        for taken, taken_protocol, taken_address in other
    )


def _affinity_terms(affinity: Affinity | None) -> Sequence[NodeSelectorTerm]:
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return ()
    return affinity.node_affinity.required.node_selector_terms


def _host_port(port: ContainerPort, number: int) -> HostPort:
    address = "" if port.host_ip in ("0.0.0.0", "::") else port.host_ip  # noqa: S104 - compared, not listened on
    return (number, port.protocol or "TCP", address)


def _refuse_restricted(rule: Requirement) -> None:
    """Raises InvalidPod for labels that nobody can promise before the node exists."""
    key = rule.key
    if key == labels.HOSTNAME:
        raise InvalidPod(f'label "{key}" is restricted: a node that does not exist yet cannot be selected by name')
    domain = key.partition("/")[0] if "/" in key else ""
    if key not in labels.WELL_KNOWN and (domain == "karpenter.sh" or domain.endswith(".karpenter.sh")):
        raise InvalidPod(f'label "{key}" is restricted: the domain karpenter.sh is not for selecting nodes')
    if key == labels.CAPACITY_TYPE and rule.operator == "In" and not rule.values & _CAPACITY_TYPES:
        known = ", ".join(sorted(_CAPACITY_TYPES))
        raise InvalidPod(f'label "{key}" must be one of {known}, not {", ".join(sorted(rule.values))}')


def _keeps_off(term: Requirements) -> bool:
    """Pods that demand to stay off provisioned nodes are somebody else's."""
    wanted = term.get(labels.NODE_POOL)
    return wanted is not None and wanted.operator == "DoesNotExist"


Age = tuple[str, str, str, str]
"""When a pod was created; then its uid, namespace and name, so that no two pods are of one age."""


def _age(meta: ObjectMeta) -> Age:
    return (meta.creation_timestamp or "", meta.uid, meta.namespace, meta.name)


def _largest_first(requests: Mapping[str, int]) -> tuple[int, int]:
    return (-requests.get("cpu", 0), -requests.get("memory", 0))
