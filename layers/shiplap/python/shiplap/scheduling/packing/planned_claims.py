"""From a packed claim to the node claim of a plan: its list of types, labels, requirements, launch choice and name."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import claim_name_stem
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement_lines
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from shiplap.manifests.nodeclaim import ClaimPlan, PodReference
from shiplap.manifests.template_hash import marks_of
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.pod_volumes import ATTACHED
from shiplap.scheduling.model.resources import Bools, Ints, distinct_lines, rows_holding
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, PlannedClaim
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.open_claims import ClaimGroup, OpenClaim

_MARKS = (labels.REGISTERED, labels.INITIALIZED)
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NAME_PAIRS = [first + second for second in _NAME_ALPHABET for first in _NAME_ALPHABET]
_PAIRS = len(_NAME_PAIRS)
_QUADS = _PAIRS**2
_NAMES = _QUADS**2
_SUFFIX = 8
"""Characters of a name behind that of the NodePool: 27**8 names, so that two of a million claims hardly share one."""

_OUTLIVES = tuple(name for name in ClaimPlan.__struct_fields__ if name in PlannedClaim.__struct_fields__)


class TypeList(msgspec.Struct, frozen=True):
    """The types a claim may launch, cheapest first, as rows of its catalogue: one row per type."""

    rows: Ints
    names: tuple[str, ...]
    estimated: tuple[str, ...]


def plan_of(planned: PlannedClaim) -> ClaimPlan:
    """Return the part of a planned claim that outlives the decision."""
    kept = {name: getattr(planned, name) for name in _OUTLIVES}
    return ClaimPlan(**{name: value for name, value in kept.items() if value is not msgspec.UNSET})


PodName = tuple[str, str, str]
"""Namespace, name and uid."""


def _sorted_names(parts: Iterable[tuple[PodClass, Sequence[Pod]]]) -> list[PodName]:
    """These pods as plans refer to them, sorted. Tuples sort and join much faster than structs."""
    named = [((meta := pod.metadata).namespace or "default", meta.name, meta.uid) for _, pods in parts for pod in pods]
    named.sort()
    return named


def _references(names: Iterable[PodName]) -> tuple[PodReference, ...]:
    return tuple([PodReference(namespace, name, uid) for namespace, name, uid in names])


class _ClaimForm(msgspec.Struct, frozen=True):
    """The common form of claims of one group with the same list of types; `daemons` [resources] is their overhead.

    `blank` is such a claim without a name, pods and the requests of these pods.
    """

    blank: PlannedClaim
    daemons: Ints


class ClaimWriter:
    """Writes the claims of one plan; names are unique within it and among `taken`."""

    def __init__(
        self,
        origin: str,
        epoch: int,
        max_instance_types: int,
        taken: Collection[str],
        virtual: Collection[int] = frozenset(),
    ) -> None:
        """`origin` is the install and the cluster; `virtual` are the indexes of classes whose pods do not exist."""
        self._virtual = virtual
        self._seed = f"{origin}\0{epoch}"
        self._max_types = max_instance_types
        self._taken = set(taken)
        self._annotations: dict[str, dict[str, str]] = {}
        self._stems: dict[str, str] = {}
        self._forms: dict[tuple[int, bytes], _ClaimForm | None] = {}
        """By the group and its rows that hold a load. Groups of static pools have numbers of their own, so groups are
        told apart by identity."""

    def write(self, claims: Sequence[OpenClaim], used: Ints) -> list[PlannedClaim | None]:
        """The planned claims for loads of `used` [claims, resources], in this order.

        None where no list short enough keeps minValues.
        """
        return [
            None if blank is None else self._filled_in(blank, claim)
            for blank, claim in zip(self._loaded(claims, used), claims, strict=True)
        ]

    def _loaded(self, claims: Sequence[OpenClaim], used: Ints) -> list[PlannedClaim | None]:
        """For each claim one without name and pods that requests what its load does; made once for equal loads."""
        members: dict[int, list[int]] = {}
        for place, claim in enumerate(claims):
            members.setdefault(claim.group.index, []).append(place)
        result: list[PlannedClaim | None] = [None] * len(claims)
        for places in members.values():
            group, loads = claims[places[0]].group, used[places]
            first, load_of = distinct_lines(loads)
            loads = loads[first]
            holding = rows_holding(group.net, loads)
            loaded = [self._with_load(group, load, holds) for load, holds in zip(loads, holding, strict=True)]
            for place, number in zip(places, load_of.tolist(), strict=True):
                result[place] = loaded[number]
        return result

    def _with_load(self, group: ClaimGroup, load: Ints, holds: Bools) -> PlannedClaim | None:
        form = self._form(group, holds)
        if form is None:
            return None
        amounts = zip(group.template.table.axis.names, (load + form.daemons).tolist(), strict=True)
        return replace(form.blank, requests=_kubelet_resources(amounts))

    def _filled_in(self, blank: PlannedClaim, claim: OpenClaim) -> PlannedClaim:
        """A claim with its name and pods."""
        if claim.relaxed:
            blank = replace(blank, annotations={**blank.annotations, labels.MIN_VALUES_RELAXED: "true"})
        if self._virtual:
            return self._with_virtual_pods(blank, claim)
        pods = _sorted_names(claim.pods)
        # Changing a struct is several times as quick as making one of so many fields.
        return replace(blank, name=self._name(blank.node_pool, pods), pods=_references(pods))

    def _with_virtual_pods(self, blank: PlannedClaim, claim: OpenClaim) -> PlannedClaim:
        virtual = _sorted_names(part for part in claim.pods if part[0].index in self._virtual)
        pods = _sorted_names(part for part in claim.pods if part[0].index not in self._virtual)
        return replace(
            blank,
            name=self._name(blank.node_pool, pods or virtual),
            pods=_references(pods),
            virtual_pods=_references(virtual),
        )

    def _annotations_of(self, pool: NodePool) -> dict[str, str]:
        known = self._annotations.get(pool.metadata.name)
        if known is None:
            known = {**pool.spec.template.metadata.annotations, **marks_of(pool)}
            self._annotations[pool.metadata.name] = known
        return known

    def _name(self, pool: str, pods: Sequence[PodName]) -> str:
        """`<pool>-<digest>`: a DNS label that depends on origin, epoch and content only."""
        stem = self._stems.get(pool)
        if stem is None:
            stem = self._stems[pool] = claim_name_stem(pool, _SUFFIX)
        content = f"{self._seed}\0{pool}\0" + "\0".join([f"{namespace}/{name}/{uid}" for namespace, name, uid in pods])
        name, attempt = _named(stem, content, 0), 0
        while name in self._taken:
            attempt += 1
            name = _named(stem, content, attempt)
        self._taken.add(name)
        return name

    def _form(self, group: ClaimGroup, holds: Bools) -> _ClaimForm | None:
        """The form of claims of a group that these of its rows [rows] hold."""
        key = (id(group), holds.tobytes())
        if key not in self._forms:
            types = choose_types(group, np.flatnonzero(holds), self._max_types)
            self._forms[key] = None if types is None else self._fill_in(group, holds, types)
        return self._forms[key]

    def _fill_in(self, group: ClaimGroup, holds: Bools, types: TypeList) -> _ClaimForm:
        template, node_template = group.template, group.template.pool.spec.template
        requirements = _in_one_partition(_narrowed(group, holds, types))
        types = _cheapest_first(template.table, requirements, types)
        blank = PlannedClaim(
            name="",
            node_pool=template.pool.metadata.name,
            node_class=node_template.spec.node_class_ref.name,
            tier=template.tier.index,
            requirements=_requirement_specs(requirements, group),
            taints=node_template.spec.taints,
            startup_taints=node_template.spec.startup_taints,
            labels=_labels(requirements, group),
            annotations=self._annotations_of(template.pool),
            instance_types=types.names,
            launch=_launch_choice(group, requirements, types),
            requests={},
            pods=(),
            allocatable=_smallest_allocatable(template.table, types),
            relies_on_estimate=types.estimated,
        )
        places = template.table.row_type[types.rows].tolist()
        return _ClaimForm(blank, template.daemons_of_sold_types(places, requirements).min(axis=0))


def _smallest_allocatable(table: TypeTable, types: TypeList) -> dict[str, int]:
    """The smallest allocatable amount of each resource over the list."""
    lists = [table.allocatable_amounts(row) for row in types.rows.tolist()]
    # A resource that some type lacks cannot be counted on.
    common = sorted(lists[0].keys() & set.intersection(*map(set, lists)))
    smallest = {resource: min(map(itemgetter(resource), lists)) for resource in common}
    return {resource: amount for resource, amount in smallest.items() if amount > 0}


def _named(stem: str, content: str, attempt: int) -> str:
    """A name with a digest of the content, of which the last digits stand in the alphabet of names, the last first."""
    digest = int.from_bytes(hashlib.sha256(f"{content}\0{attempt}".encode()).digest()[:16]) % _NAMES
    high, low = divmod(digest, _QUADS)
    pairs = _NAME_PAIRS
    return f"{stem}{pairs[low % _PAIRS]}{pairs[low // _PAIRS]}{pairs[high % _PAIRS]}{pairs[high // _PAIRS]}"


def _kubelet_resources(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The resources that a kubelet counts, as far as there is any of them; CSI drivers count volumes."""
    return {name: amount for name, amount in amounts if amount and not name.startswith(ATTACHED)}


def choose_types(group: ClaimGroup, columns: Ints, most: int) -> TypeList | None:
    """Cheapest first, at most `most` types; types that minValues needs go before cheaper ones it does not.

    Exotic types are left out while there are plain ones, unless minValues asks for variety. All are of one variant of
    the node, that of the cheapest if it keeps minValues.
    """
    table, number = group.template.table, len(group.template.variants.all)
    if number > 1 and len(columns):
        variant_of = group.rows[columns] % number
        plain = columns[~table.exotic[table.row_type[group.rows[columns]]]]
        first = (plain if len(plain) and not group.minimums else columns)[0]
        ordered = dict.fromkeys((int(group.rows[first]) % number, *variant_of.tolist()))
        lists = (_choose(group, columns[variant_of == variant], most) for variant in ordered)
        return next((types for types in lists if types is not None), None)
    return _choose(group, columns, most)


def _choose(group: ClaimGroup, columns: Ints, most: int) -> TypeList | None:
    """As `choose_types`, of rows of one variant."""
    table = group.template.table
    kinds, guess = table.row_type[group.rows], table.row_estimate[group.rows]
    if guess.any():
        # Of a type's two rows the careful one is preferred: the list then relies on no estimate.
        columns = columns[np.argsort(guess[columns], kind="stable")]
        columns = np.sort(columns[np.unique(kinds[columns], return_index=True)[1]])
    plain = columns[~table.exotic[kinds[columns]]]
    chosen: list[int] = (plain if len(plain) and not group.minimums else columns).tolist()
    if len(chosen) > most:
        needed = _needed_for_minimums(group, chosen)
        others = [column for column in chosen if column not in needed] if needed else chosen
        chosen = sorted([*needed, *others[:most]][:most])
    for key, least in group.minimums.items():
        if int(group.values(key)[:, chosen].any(axis=1).sum()) < least:
            return None
    names = [table.names[kind] for kind in kinds[chosen].tolist()]
    estimated = tuple(name for name, guessed in zip(names, guess[chosen].tolist(), strict=True) if guessed)
    return TypeList(group.rows[chosen], tuple(names), estimated)


def _needed_for_minimums(group: ClaimGroup, columns: Sequence[int]) -> list[int]:
    """The cheapest types that together keep every minValues; greedy, by price."""
    needed: list[int] = []
    for key, least in group.minimums.items():
        has = group.values(key)
        seen = has[:, needed].any(axis=1) if needed else np.zeros(len(has), np.bool_)
        for column in columns:
            if int(seen.sum()) >= least:
                break
            if bool((has[:, column] & ~seen).any()):
                seen |= has[:, column]
                if column not in needed:
                    needed.append(column)
    return needed


def _narrowed(group: ClaimGroup, holds: Bools, types: TypeList) -> Requirements:
    """The claim's requirements with type, zone and capacity type reduced to available offerings.

    They leave only variants of the node in which each type holds the claim.
    """
    table = group.template.table
    places = table.row_type[types.rows]
    requirements = group.requirements.and_(_kept_variants(group, holds, types))
    buyable = np.isfinite(table.prices[places]) & table.cells(requirements)
    zones = [zone for zone, has in zip(table.zones, buyable.any(axis=(0, 2)), strict=True) if has]
    kinds = [kind for kind, has in zip(table.capacity_types, buyable.any(axis=(0, 1)), strict=True) if has]
    return requirements.and_(
        (
            Requirement(labels.INSTANCE_TYPE, False, frozenset(types.names)),
            Requirement(labels.ZONE, False, frozenset(zones)),
            Requirement(labels.CAPACITY_TYPE, False, frozenset(kinds)),
        )
    )


def _cheapest_first(table: TypeTable, requirements: Requirements, types: TypeList) -> TypeList:
    """The list by what its types cost within these requirements.

    They may allow variants of the node beside that of the list, in which another type has the lowest price.
    """
    prices = np.where(table.cells(requirements), table.prices[table.row_type[types.rows]], np.inf).min(axis=(1, 2))
    order = np.argsort(prices, kind="stable").tolist()
    names = tuple(types.names[place] for place in order)
    return TypeList(types.rows[order], names, tuple(name for name in names if name in types.estimated))


def _kept_variants(group: ClaimGroup, holds: Bools, types: TypeList) -> list[Requirement]:
    """Return the requirements that narrow a claim to some variants of its types.

    These are the variant of its types, and other variants in which each of these types that is sold holds the claim.
    """
    variants = group.template.variants
    if not variants.choices:
        return []
    number = len(variants.all)
    sold = np.isfinite(group.template.prices_of_rows(group.requirements))
    able = np.zeros(len(sold), np.bool_)
    able[group.rows[holds]] = True
    base, own = types.rows // number * number, int(types.rows[0]) % number
    chosen: list[list[int]] = []
    for options in reversed(variants.choices):
        own, place = divmod(own, len(options))
        chosen.insert(0, [place])
    for label, options in enumerate(variants.choices):
        if any(option.complement for option in options):
            tries = [list(range(len(options)))]
        else:
            tries = [[*chosen[label], place] for place in range(len(options))]
        for wider in tries:
            tried = [*chosen[:label], sorted({*chosen[label], *wider}), *chosen[label + 1 :]]
            rows = base[:, None] + np.array(variants.places(tried), np.int64)
            if not (sold[rows] & ~able[rows]).any():
                chosen = tried
    return [
        _union([options[place] for place in places])
        for options, places in zip(variants.choices, chosen, strict=True)
        if len(places) < len(options)
    ]


def _in_one_partition(requirements: Requirements) -> Requirements:
    """The requirements with one partition of a placement group where several are allowed: the first by number.

    A launch asks EC2 for one partition or for any. What EC2 would choose among all may be none of those.
    """
    entry = requirements.get(labels.PARTITION)
    if entry is None or entry.complement or len(entry.values) < 2:
        return requirements
    first = min(entry.values, key=lambda value: (len(value), value))
    return requirements.and_(Requirements.of_labels({labels.PARTITION: first}).values())


def _union(parts: Sequence[Requirement]) -> Requirement:
    """The values that one of these requirements on one label allows; several of them list their values."""
    if len(parts) == 1:
        return parts[0]
    return Requirement(parts[0].key, False, frozenset().union(*(part.values for part in parts)))


def _requirement_specs(requirements: Requirements, group: ClaimGroup) -> tuple[RequirementSpec, ...]:
    return tuple(
        RequirementSpec(key, operator, values, group.minimums.get(key))
        for name in sorted(requirements)
        if name not in _MARKS and name != labels.HOSTNAME
        for key, operator, values in requirement_lines(requirements[name])
    )


def _labels(requirements: Requirements, group: ClaimGroup) -> dict[str, str]:
    """Labels the node is certain to carry: the pool's, one per custom key, and well-known keys left with one value."""
    result = {}
    for key in sorted(requirements):
        entry = requirements[key]
        if key in _MARKS or key == labels.HOSTNAME:
            continue
        if key in group.template.allow_undefined and key not in group.template.given:
            if not entry.complement and len(entry.values) == 1:
                result[key] = next(iter(entry.values))
            continue
        # A label that only a pod mentions (NotIn, DoesNotExist) is met by its absence.
        value = any_value(entry) if key in group.template.requirements else None
        if value is not None:
            result[key] = value
    return result


def any_value(entry: Requirement) -> str | None:
    """The value a custom label gets on the node: the smallest by name, or the smallest number an open set allows."""
    if not entry.complement:
        return min(entry.values, default=None)
    if entry.at_least is None and entry.at_most is not None:
        number, step = entry.at_most, -1
    else:
        number, step = max(entry.at_least or 0, 0), 1
    while str(number) in entry.values:
        number += step
    return str(number) if entry.has(str(number)) else None


def _launch_choice(group: ClaimGroup, requirements: Requirements, types: TypeList) -> LaunchChoice:
    """The cheapest available offering of the cheapest type; ties go to spot, then to the zone first by name."""
    table = group.template.table
    place = int(table.row_type[types.rows[0]])
    prices = np.where(table.cells(requirements)[0], table.prices[place], np.inf)
    kind, zone = divmod(int(np.argmin(prices.T)), len(table.zones))
    return LaunchChoice(
        table.names[place],
        table.zones[zone],
        table.capacity_types[kind],
        float(table.listed[place, zone, kind]),
        table.reservations[kind],
    )
