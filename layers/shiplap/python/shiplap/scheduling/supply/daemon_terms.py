"""The topology terms that count pods of DaemonSets, and the DaemonSets' own terms that keep other pods off their nodes.

A new node comes with the pods of its DaemonSets. So a pod that has to be near such a pod gets a node on which it runs,
and a pod that has to stay away from it, or that it keeps away, one on which it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.scheduling.model.resources import Bools
from shiplap.scheduling.model.topology_constraints import Constraints, Terms
from shiplap.scheduling.supply.daemons import Daemon, DaemonLoad, OwnerName


class Company(msgspec.Struct, frozen=True):
    """The DaemonSets that must run on a node for a pod, and the DaemonSets that must not.

    `near` are affinity terms, each with the DaemonSets of which one meets it; `away` are DaemonSets that must not run.
    """

    near: tuple[tuple[int, frozenset[OwnerName]], ...] = ()
    away: frozenset[OwnerName] = frozenset()

    def rows(self, load: DaemonLoad) -> Bools:
        """On which rows [rows] of a template the DaemonSets that run are the right ones."""
        right = np.ones(load.runs.shape[1], np.bool_)
        for daemon, runs in zip(load.daemons, load.runs, strict=True):
            if daemon.owner in self.away:
                right &= ~runs
        for _, owners in self.near:
            meeting = [daemon.owner in owners for daemon in load.daemons]
            right &= load.runs[meeting].any(axis=0)
        return right


NO_COMPANY = Company()


class DaemonTerms(msgspec.Struct, frozen=True, eq=False):
    """The terms that count the pods of a DaemonSet (`counting`), and those by which it keeps pods away (`keeping`).

    Both have only DaemonSets with any such term. `begun` are affinity terms that count a pod on some node already.
    """

    terms: Terms = Terms()
    counting: Mapping[OwnerName, frozenset[int]] = {}
    keeping: Mapping[OwnerName, frozenset[int]] = {}
    begun: frozenset[int] = frozenset()

    def company(self, constraints: Constraints, selected: frozenset[int]) -> Company:
        """Return which DaemonSets must run, and which must not, on the node of a pod with these constraints.

        `selected` are the terms that select the pod.
        Over another label than the hostname a pod joins the DaemonSets that are there already, if there are any.
        """
        if not self.counting and not self.keeping:
            return NO_COMPANY
        near = []
        for term in constraints.affinity:
            owners = frozenset(owner for owner, counting in self.counting.items() if term in counting)
            if owners and (self.terms.all[term].key == HOSTNAME or term not in self.begun):
                near.append((term, owners))
        away = {owner for owner, counting in self.counting.items() if not counting.isdisjoint(constraints.anti)}
        away |= {owner for owner, keeping in self.keeping.items() if not keeping.isdisjoint(selected)}
        return Company(tuple(near), frozenset(away)) if near or away else NO_COMPANY


def daemon_terms(daemons: Iterable[Daemon], terms: Terms) -> DaemonTerms:
    """The terms of these daemons, only after the last term was numbered; `begun` is left out."""
    counting = {daemon.owner: terms.selecting(daemon.pod) for daemon in daemons}
    keeping = {daemon.owner: frozenset(terms.constraints_of(daemon.pod, standing=True).anti) for daemon in daemons}
    return DaemonTerms(
        terms,
        {owner: numbers for owner, numbers in counting.items() if numbers},
        {owner: numbers for owner, numbers in keeping.items() if numbers},
    )
