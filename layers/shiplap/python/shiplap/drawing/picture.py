"""The data of a picture of a cluster: nodes with their pods, waiting pods, and prices.

It is plain data, apart from how it is drawn, so that pages, the CloudWatch widget and the terminal show one truth.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from shiplap.kubernetes.names import namespaced_name


class NodePictureState(StrEnum):
    """`Planned` would be launched; `Starting` is in flight: launched or about to be, and no Node takes pods yet."""

    PLANNED = "Planned"
    STARTING = "Starting"
    READY = "Ready"
    NOT_READY = "NotReady"
    LEAVING = "Leaving"


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resources that pictures show: millicores, bytes of memory, number of pods, devices like GPUs."""

    millicores: int = 0
    memory_bytes: int = 0
    pods: int = 0
    accelerators: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.millicores + other.millicores,
            self.memory_bytes + other.memory_bytes,
            self.pods + other.pods,
            self.accelerators + other.accelerators,
        )

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.millicores - other.millicores,
            self.memory_bytes - other.memory_bytes,
            self.pods - other.pods,
            self.accelerators - other.accelerators,
        )


class PodPicture(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod on a node by what it requests. `fresh`: it is not there yet, a plan puts it there."""

    namespace: str
    name: str
    millicores: int = 0
    memory_bytes: int = 0
    fresh: bool = False
    accelerators: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return namespaced_name(self.namespace, self.name)

    @property
    def amounts(self) -> Amounts:
        """The amounts that the pod requests, itself counted as one pod."""
        return Amounts(self.millicores, self.memory_bytes, 1, self.accelerators)


class NodePicture(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node, or what will be one. Prices in USD per hour.

    `pool` is empty for nodes that are not Shiplap's; `tier` 0 is the preferred one, higher ones are fallbacks. `hourly`
    is what is paid, `estimated` when that is guessed, `list_hourly` the on-demand list price, each 0 when it is not
    known. `used` is what all pods request, also those that are not among `pods`: daemons that are still to come, or
    pods that were not listed. `note` says in words what is special, for example why it leaves. `created_at` in epoch
    seconds, 0 if not known.
    """

    name: str
    pool: str = ""
    tier: int = 0
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    hourly: float = 0.0
    estimated: bool = False
    list_hourly: float = 0.0
    state: NodePictureState = NodePictureState.READY
    note: str = ""
    allocatable: Amounts = Amounts()
    used: Amounts = Amounts()
    pods: tuple[PodPicture, ...] = ()
    created_at: float = 0.0


class PendingPicture(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that waits for a node; `age_s` seconds since it was made, `reason` why it still waits.

    `group` says in words which pods wait together with it, if any do.
    """

    namespace: str
    name: str
    millicores: int = 0
    memory_bytes: int = 0
    age_s: float = 0.0
    reason: str = ""
    group: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return namespaced_name(self.namespace, self.name)


class ClusterPicture(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cluster at a moment (`taken_at`, epoch seconds); nodes by name, pending pods the oldest first.

    `bound_hourly` is what no packing of the pods on nodes with a pool could undercut, USD per hour, if it is known.
    `missing` says in words what could not be seen, a line each. `limits` are words about the use of each pool's
    limits, by pool. `install_lines` are what the install says of this month's dollars and of sleep, where it has any.
    """

    cluster: str
    taken_at: float
    limits: dict[str, str] = {}
    nodes: tuple[NodePicture, ...] = ()
    pending: tuple[PendingPicture, ...] = ()
    bound_hourly: float | None = None
    missing: tuple[str, ...] = ()
    install_lines: tuple[str, ...] = ()

    @property
    def hourly(self) -> float:
        """The cost of all nodes, USD per hour."""
        return sum(node.hourly for node in self.nodes)

    @property
    def estimated(self) -> bool:
        """True if the price of any node is guessed."""
        return any(node.estimated for node in self.nodes)

    @property
    def unpriced(self) -> int:
        """The number of nodes that have no price, which count as nothing in dollars."""
        return sum(1 for node in self.nodes if not node.hourly)

    @property
    def list_hourly(self) -> float:
        """The cost of the nodes at on-demand list price; a node whose list price is not known counts as it is paid."""
        return sum(node.list_hourly or node.hourly for node in self.nodes)

    @property
    def allocatable(self) -> Amounts:
        """The amounts that all nodes together offer to pods."""
        return sum((node.allocatable for node in self.nodes), Amounts())

    @property
    def used(self) -> Amounts:
        """The amounts that the pods on all nodes request."""
        return sum((node.used for node in self.nodes), Amounts())

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools that have nodes, sorted; the empty name of foreign nodes last."""
        return tuple(sorted({node.pool for node in self.nodes}, key=lambda pool: (not pool, pool)))
