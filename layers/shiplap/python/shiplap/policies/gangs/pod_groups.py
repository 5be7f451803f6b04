"""Reads PodGroups: how many pods a gang needs, where, and before which others, in the fields of each API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.policies.gangs.gang import PodGroupFacts
from shiplap.policies.gangs.gang_membership import (
    KAI,
    KUBERNETES,
    POD_GROUP_APIS,
    SCHEDULER_PLUGINS,
    VOLCANO,
    Asked,
)

KIND = "PodGroup"
VERSIONS = {
    KUBERNETES: ("v1beta1", "v1alpha3", "v1alpha2"),
    SCHEDULER_PLUGINS: ("v1alpha1",),
    VOLCANO: ("v1beta1",),
    KAI: ("v2alpha2",),
}
"""The versions of each group of APIs that have PodGroups, the newest first."""

_INT32 = 2**31
_DEFAULT_NAMESPACE = "default"


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _GangPolicy(_Fields, frozen=True):
    min_count: int | None = None


class _SchedulingPolicy(_Fields, frozen=True):
    basic: dict[str, object] | None = None
    gang: _GangPolicy | None = None


class _Topology(_Fields, frozen=True):
    key: str = ""
    topology_key: str = ""
    """The same in v1alpha2."""


class _SchedulingConstraints(_Fields, frozen=True):
    topology: tuple[_Topology, ...] = ()
    topology_constraints: tuple[_Topology, ...] = ()
    """The same in v1alpha2."""


class _KaiTopology(_Fields, frozen=True):
    required_topology_level: str = ""


class _SubGroup(_Fields, frozen=True):
    name: str = ""
    min_member: int | None = None
    parent: str = ""


class _Spec(_Fields, frozen=True):
    scheduling_policy: _SchedulingPolicy = _SchedulingPolicy()
    """Kubernetes."""

    scheduling_constraints: _SchedulingConstraints = _SchedulingConstraints()
    """Kubernetes."""

    priority: int | None = None
    """Kubernetes."""

    priority_class_name: str = ""
    """All but scheduler-plugins."""

    min_member: int | None = None
    """All but Kubernetes."""

    topology_constraint: _KaiTopology = _KaiTopology()
    """KAI."""

    sub_groups: tuple[_SubGroup, ...] = ()
    """KAI."""


class PodGroupObject(_Fields, frozen=True):
    """A PodGroup of any API. Other fields, such as Volcano's tiers of a network, have no meaning for new nodes."""

    metadata: ObjectMeta
    api_version: str = ""
    """Also the group alone: objects of a list do not say it."""

    spec: _Spec = _Spec()

    @property
    def api(self) -> str:
        """The group of its API."""
        return group_of(self.api_version)

    @property
    def key(self) -> tuple[str, str, str]:
        """Group of the API, namespace and name."""
        return self.api, self.metadata.namespace or _DEFAULT_NAMESPACE, self.metadata.name


def group_of(api_version: object) -> str:
    """Return the group of an `apiVersion` if it has PodGroups, else nothing."""
    group = api_version.partition("/")[0] if isinstance(api_version, str) else ""
    return group if group in POD_GROUP_APIS else ""


def pod_group_problems(group: PodGroupObject) -> Iterator[tuple[str, str]]:
    """Yield fields that say nothing that a gang can have, each with the reason."""
    spec = group.spec
    if group.api == KUBERNETES:
        yield from _policy_problems(spec.scheduling_policy)
    else:
        yield from _number_problems("spec.minMember", spec.min_member, 1 if group.api == KAI else 0)
    for place, part in enumerate(spec.sub_groups):
        yield from _number_problems(f"spec.subGroups[{place}].minMember", part.min_member, 1)
    for field, topology in (
        ("topology", spec.scheduling_constraints.topology),
        ("topologyConstraints", spec.scheduling_constraints.topology_constraints),
    ):
        if len(topology) > 1:
            yield f"spec.schedulingConstraints.{field}", f"has {len(topology)} entries: one is possible"
        for place, each in enumerate(topology):
            if not (each.key or each.topology_key):
                yield f"spec.schedulingConstraints.{field}[{place}]", "names no label of nodes"
    if spec.priority is not None and not -_INT32 <= spec.priority < _INT32:
        yield "spec.priority", f"must fit 32 bits, is {spec.priority}"


def _policy_problems(policy: _SchedulingPolicy) -> Iterator[tuple[str, str]]:
    if (policy.basic is None) == (policy.gang is None):
        yield "spec.schedulingPolicy", "needs one of basic and gang"
    elif policy.gang is not None and policy.gang.min_count is None:
        yield "spec.schedulingPolicy.gang.minCount", "is missing"
    elif policy.gang is not None:
        yield from _number_problems("spec.schedulingPolicy.gang.minCount", policy.gang.min_count, 1)


def _number_problems(field: str, number: int | None, least: int) -> Iterator[tuple[str, str]]:
    if number is not None and not least <= number < _INT32:
        yield field, f"must be from {least} to {_INT32 - 1}, is {number}"


def pod_group_facts(group: PodGroupObject, priority_of_class: int | None = None) -> PodGroupFacts:
    """Return what a PodGroup without problems says of its gang; `priority_of_class` is that of its PriorityClass."""
    api, namespace, name = group.key
    spec = group.spec
    topology = (*spec.scheduling_constraints.topology, *spec.scheduling_constraints.topology_constraints)
    labels = [each.key or each.topology_key for each in topology]
    return PodGroupFacts(
        api,
        namespace,
        name,
        max(_minimum(group), 1),
        labels[0] if labels else spec.topology_constraint.required_topology_level,
        spec.priority if spec.priority is not None else priority_of_class,
        group.metadata.creation_timestamp or "",
    )


def read_facts(group: PodGroupObject) -> PodGroupFacts:
    """Return what a PodGroup of a cluster says of its gang, or what is wrong with it."""
    wrong = next(pod_group_problems(group), None)
    return pod_group_facts(group) if wrong is None else unread_facts(group.key, ": ".join(wrong))


def unread_facts(asked: Asked, reason: str) -> PodGroupFacts:
    """Return what is known of a PodGroup that cannot be read."""
    return PodGroupFacts(*asked, problem=f"its PodGroup cannot be read: {reason}", unread=True)


def _minimum(group: PodGroupObject) -> int:
    """KAI's groups without others below them each need their own members; a policy other than gang needs none."""
    spec = group.spec
    if group.api == KUBERNETES:
        return (spec.scheduling_policy.gang.min_count or 1) if spec.scheduling_policy.gang is not None else 1
    parents = {part.parent for part in spec.sub_groups}
    return max(spec.min_member or 0, sum(part.min_member or 0 for part in spec.sub_groups if part.name not in parents))


def named_facts(named: Iterable[Asked], facts: Sequence[PodGroupFacts], where: str) -> tuple[PodGroupFacts, ...]:
    """Return the facts of the PodGroups that pods name; those of one that nobody has made are a problem.

    Args:
        named: what `named_pod_groups` finds.
        facts: of all PodGroups that there are.
        where: the place that was looked in, such as `among the files`.
    """
    known = {(item.api, item.namespace, item.name): item for item in facts}
    namespaces: dict[tuple[str, str], list[str]] = {}
    for api, namespace, name in sorted(known):
        namespaces.setdefault((api, name), []).append(namespace)
    return tuple(
        known.get(asked) or PodGroupFacts(*asked, problem=_missing(asked, namespaces, where)) for asked in named
    )


def _missing(asked: tuple[str, str, str], namespaces: Mapping[tuple[str, str], Sequence[str]], where: str) -> str:
    api, namespace, name = asked
    there = namespaces.get((api, name), ())
    other = f": namespace {' and '.join(there)} has one, whose members are in its namespace only" if there else ""
    return f"there is no PodGroup {namespaced_name(namespace, name)} of {api} {where}{other}"
