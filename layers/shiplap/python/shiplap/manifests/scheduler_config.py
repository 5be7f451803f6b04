"""The part of kube-scheduler's configuration that decides about pods which say nothing themselves: default spread.

Its fields are those of kube-scheduler's PodTopologySpreadArgs, as Karpenter's SCHEDULER_CONFIG has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from shiplap.kubernetes.labels import HOSTNAME, ZONE
from shiplap.kubernetes.objects import TopologySpreadConstraint
from shiplap.manifests.decoding import demands

_MOST = 2**31 - 1


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all parts: unknown fields are refused."""


class DefaultConstraint(_Part, frozen=True):
    """A spread constraint without a selector: pods are selected by the Services and the controller they belong to."""

    max_skew: Annotated[int, demands(least=1, most=_MOST)]
    """How many more pods a domain may have than the one with the fewest."""
    topology_key: Annotated[str, demands(shortest=1)]
    """The label of nodes whose values are the domains."""
    when_unsatisfiable: Annotated[str, demands(choices=("DoNotSchedule", "ScheduleAnyway"))]
    """`ScheduleAnyway` makes it a preference."""
    min_domains: Annotated[int, demands(least=1, most=_MOST)] | None = None
    """While there are fewer domains, the fewest counts as 0; only with `DoNotSchedule`."""
    node_affinity_policy: Annotated[str, demands(choices=("Honor", "Ignore"))] = "Honor"
    """`Honor` leaves out domains of nodes that the pod's node selector and affinity rule out."""
    node_taints_policy: Annotated[str, demands(choices=("Honor", "Ignore"))] = "Ignore"
    """`Honor` leaves out domains of nodes whose taints the pod does not tolerate."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Fields with what is wrong with them."""
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            yield "minDomains", "needs whenUnsatisfiable DoNotSchedule"


class PodTopologySpread(_Part, frozen=True):
    """The spread of pods that have no spread constraints of their own."""

    default_constraints: tuple[DefaultConstraint, ...] = ()
    """The constraints that such pods get."""
    defaulting_type: Annotated[str, demands(choices=("List", "System"))] = "List"
    """`System` stands for kube-scheduler's built-in constraints, `List` for those written here."""

    def constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        """The default constraints, their selectors still open."""
        if self.defaulting_type == "System":
            return _SYSTEM
        return tuple(
            TopologySpreadConstraint(
                constraint.max_skew,
                constraint.topology_key,
                constraint.when_unsatisfiable,
                min_domains=constraint.min_domains,
                node_affinity_policy=constraint.node_affinity_policy,
                node_taints_policy=constraint.node_taints_policy,
            )
            for constraint in self.default_constraints
        )

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the path and the reason of each setting that kube-scheduler would refuse at its start."""
        if self.defaulting_type == "System" and self.default_constraints:
            yield ("defaultConstraints",), "must be empty with defaultingType System"
        seen = set()
        for place, constraint in enumerate(self.default_constraints):
            where = ("defaultConstraints", place)
            yield from (((*where, field), reason) for field, reason in constraint.problems())
            if (constraint.topology_key, constraint.when_unsatisfiable) in seen:
                yield where, f"{constraint.topology_key} with {constraint.when_unsatisfiable} is there twice"
            seen.add((constraint.topology_key, constraint.when_unsatisfiable))


class SchedulerConfig(_Part, frozen=True):
    """A file of kube-scheduler's settings that plans follow."""

    pod_topology_spread: PodTopologySpread = PodTopologySpread()


_SYSTEM = (
    TopologySpreadConstraint(3, HOSTNAME, "ScheduleAnyway"),
    TopologySpreadConstraint(5, ZONE, "ScheduleAnyway"),
)
