"""The judge beside a real cluster: what crosses the ports there, several times a second, as JSON.

Versions of items, requests and the order of evictions cannot be seen that way, as in `shiplap lab dev`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Any, Protocol

import yaml

from shiplap.aws import tags
from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import ClusterUnreachable
from shiplap_lab.api_server.server import ObjectList
from shiplap_lab.catalogue import embedded
from shiplap_lab.checks.observation import ClusterObservation, ListedState, RegionObservation, SeenClaims
from shiplap_lab.checks.observed_facts import ObservedFacts
from shiplap_lab.dev.local_region import described_instance
from shiplap_lab.emulated_ec2.control import EmulatedInstance
from shiplap_lab.emulated_ec2.regional_prices import Prices
from shiplap_lab.judge.promises import Violation

_POLL_S = 0.5
_MOST_NODES_PER_POD = 3


class ListedObjects(Protocol):
    """Lists the objects of an API server."""

    def list(self, plural: str) -> ObjectList: ...


class ListedInstances(Protocol):
    """Lists the instances of EC2."""

    def instances(self) -> Sequence[EmulatedInstance]: ...


class StateWithCommands(ListedState, Protocol):
    """Reads table `state`, with its disruption commands."""

    def commands(self, cluster: str) -> tuple[DisruptionCommand, ...]: ...


def pools_in(manifests: str) -> dict[str, dict[str, Any]]:
    """The spec of each NodePool among documents, by name."""
    documents = (document for document in yaml.safe_load_all(manifests) if document)
    return {item["metadata"]["name"]: item["spec"] for item in documents if item["kind"] == "NodePool"}


class JudgedCluster:
    """Looks at one cluster; a context manager does so all the time, in a thread. `pools` are specs by name."""

    def __init__(
        self,
        cluster: str,
        api: ListedObjects,
        state: StateWithCommands,
        ec2: ListedInstances,
        pools: Mapping[str, Mapping[str, Any]],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._api, self._state, self._ec2, self._now = cluster, api, state, ec2, now
        catalog = embedded.load()
        self._facts = ObservedFacts(
            {(cluster, name): spec for name, spec in pools.items()},
            now(),
            Prices.of(catalog).price,
            embedded.stated_hardware(catalog),
            most_nodes_per_pod=_MOST_NODES_PER_POD,
        )
        self._claims = SeenClaims(cluster)
        self._stopping, self._looking = Event(), Lock()
        self._thread = Thread(target=self._run, name="judge", daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> JudgedCluster:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def violations(self) -> Sequence[Violation]:
        """In the order in which they were found."""
        return tuple(self._facts.judge.violations)

    def look(self) -> None:
        """Pass on what there is: instances first, then claims and commands, then the cluster. Raises ClusterError."""
        with self._looking:
            found = [item for item in self._ec2.instances() if item.tags.get(tags.CLUSTER) == self._cluster]
            claims, commands = self._claims.look(self._state), self._state.commands(self._cluster)
            stored = {plural: self._api.list(plural).items for plural in ("nodes", "pods")}
            seen = ClusterObservation(
                name=self._cluster,
                claims=claims,
                commands=commands,
                instances=tuple(map(described_instance, found)),
                stored=stored,
            )
            self._facts.see(RegionObservation((seen,)), self._now())

    def warned(self, body: Mapping[str, Any]) -> None:
        """EC2 has sent an event."""
        with self._looking:
            self._facts.judge.event_sent(body)

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_S):
            try:
                self.look()
            except ClusterUnreachable:
                continue  # the API server restarts
            except Exception as error:  # noqa: BLE001 - kept for whoever ends the world: a thread has no caller
                self.failure = error
                return
