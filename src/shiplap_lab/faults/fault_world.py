"""The run that faults change, as far as they need to know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shiplap.instances.catalog.resolved_nodeclass import Ami, Subnet
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import BusEvent, Instance
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.faults.manifest_objects import ShownManifests

Seen = Pod | Node | DaemonSet


class SeenObjects(Protocol):
    """Typed objects of a cluster; `listeners` hear of kind, key, the object before and the object now."""

    nodes: dict[str, Node]
    listeners: list[Callable[[str, str, Seen | None, Seen | None], object]]

    def refresh(self) -> bool: ...


class FaultyCluster(Protocol):
    """A simulated cluster."""

    @property
    def informer(self) -> SeenObjects: ...
    @property
    def server(self) -> ApiServer: ...


class FaultyEc2(Protocol):
    """The simulated EC2. `freed_names` are host names of ended instances that the next ones are given."""

    install: str
    subnets: tuple[Subnet, ...]
    amis: dict[str, tuple[Ami, ...]]
    capacity: dict[tuple[str, str, str], int]
    quotas: dict[str, int]
    describe_lag_s: float
    freed_names: list[str]

    def alive(self) -> Sequence[Instance]: ...


class FaultyTable(Protocol):
    """Table `state` of an install."""

    written: dict[tuple[str, str], NodeClaim]

    def backup(self) -> dict[str, Any]: ...
    def restore(self, backup: Mapping[str, Any]) -> None: ...


class FaultyFunctions(Protocol):
    """The functions of an install."""

    def route(self, event: BusEvent) -> None: ...


class FaultyInstall(Protocol):
    """An install, with its table, functions and view of EC2."""

    @property
    def state(self) -> FaultyTable: ...
    @property
    def functions(self) -> FaultyFunctions: ...
    @property
    def compute(self) -> FaultyEc2: ...


class FaultWorld(NamedTuple):
    """The run that faults change."""

    compute: FaultyEc2
    clusters: Mapping[str, FaultyCluster]
    installs: Mapping[str, FaultyInstall]
    manifests: Mapping[str, Manifests]
    """By cluster, as the scenario has them."""
    objects: ShownManifests | None
    """The manifests in the clusters, where they are objects there."""
    offerings: Sequence[tuple[str, str, str]]
    """Type, zone and capacity type of everything that EC2 sells."""
    devices: Mapping[str, int]
    """Resources that device plugins report on each node."""
    say: Callable[..., object]
    """Send an event of EC2: its detail type, the id of the instance, the moment (0: now), and more of its detail."""
    lose: Callable[[str, str], object]
    """End an instance, with EC2's code for the reason."""
    add: Callable[[Instance], object]
    """Have an instance run that nobody has launched."""
    restart: Callable[[], object]
    """End all running functions and replace their containers."""
