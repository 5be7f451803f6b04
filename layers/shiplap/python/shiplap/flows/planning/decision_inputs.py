"""Reads the inputs of a decision, in the order that keeps the decision sound.

The epoch is read before the state and the state before the cluster, so that whatever leaves the state for the cluster
meanwhile is read at least once. Pilot leases are read before learned capacity: a lease is given up only after its
node's truth is stored, so a key can never look both unexplored and unlearned.

Bound pods of a large cluster are not listed: they come from the compact snapshot in the bucket and the changes since.
Everything else is listed fresh, including the pods of a node that is drained or about to be disrupted. So a snapshot
that is out of date can put a pod where it does not fit, or launch a node too many or too late. The next minute's
decision corrects both.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence, Set

import msgspec

from shiplap.errors import AwsError, AwsThrottled, ClusterError, InvalidInput, ResourceVersionGone, StoreError
from shiplap.flows.catalog.refresh import refresh, stored
from shiplap.flows.context import FlowContext
from shiplap.flows.learn import has_reported, instance_of, learn_from_joined, seems_broken
from shiplap.flows.optional.optional_calls import INSPECTION, JOINS, SNAPSHOTS, ZONAL_SHIFTS
from shiplap.flows.policies.active import NO_POLICIES, ActivePolicies
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.instances.readiness.joins import (
    JoinHistory,
)
from shiplap.instances.readiness.nodeclass_status import InstallStatus, known_problem
from shiplap.kubernetes.compact_pods import decode_pods, lean_pod
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.related_objects import ScalableName
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.ports import ClusterApi, DecisionState, WatchEvent
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

FEWEST_NODES = 30
"""A cluster of fewer nodes has few pages of pods: to list them is quicker than to catch up."""

OLDEST_S = 600.0
"""A snapshot that is older was left behind by its keeper, in seconds."""

_CATCH_UP_S = 1.0
"""How long changes are waited for where none says that there are no more, in seconds; API servers know no less."""

CARRIED_S = 150.0
"""For how long what was caught up before is gone on from, in seconds: a minute's look may miss its turn once."""

WHOLE_LOOK_S = 900.0
"""After so many seconds pods are loaded anew, so that a change that no watch told of is found."""

MOST_CARRIED = 150_000
"""A process carries no more pods of all clusters together from one look to the next, beside those looked at last."""


class BoundPods:
    """The bound pods of a cluster that a process knows: loaded once, caught up at each look.

    See `ports.KnownPods`.
    """

    def __init__(self, cluster: str, context: FlowContext) -> None:
        self._cluster, self._context = cluster, context
        self._pods: dict[str, Pod] = {}
        self._version = ""
        self._seen_at = self._loaded_at = 0.0
        self._last = ClusterView()

    @property
    def number(self) -> int:
        """The number of pods that are carried to the next look."""
        return len(self._pods)

    def remembering(self, view: ClusterView) -> ClusterView:
        """The view of a look; what was found out about the same pods after the last one is known."""
        seen = view.after(self._last)
        self._last = ClusterView(pods=seen.pods).after(seen)
        return seen

    def __call__(self, nodes: int, version: str) -> Sequence[Pod] | None:
        """The bound pods, lean, at least as of `version` where the API server shows so; None if they must be listed.

        Whatever goes wrong with the snapshot is logged and counted, and means a list.
        """
        if nodes < FEWEST_NODES or self._context.snapshots is None:
            return None
        if not self._caught_up(version):
            self._load()
            if not self._caught_up(version):
                self._version = ""
                return None
        return tuple(self._pods.values())

    def _load(self) -> None:
        """Begin from the snapshot in the bucket, if there is one that serves."""
        about = {"cluster": self._cluster}
        self._version = ""
        snapshots = self._context.snapshots
        try:
            if snapshots is None:
                return
            document = self._context.within(SNAPSHOTS, snapshots).load(self._cluster)
            if document is None:
                return
            standing, pods = decode_pods(document)
        except (StoreError, InvalidInput) as error:
            self._context.meter.count("SnapshotsNotRead")
            _LOG.warning("snapshot not read, pods are listed: %s", error, extra=about)
            return
        age = self._context.clock.now() - standing.taken_at
        if standing.cluster != self._cluster or not standing.complete:
            return
        if age > OLDEST_S:
            _LOG.info("snapshot is %d s old, pods are listed", age, extra=about)
            return
        self._pods = {pod.metadata.uid: pod for pod in pods}
        self._version = standing.version
        self._seen_at = self._loaded_at = self._context.clock.now()

    def _caught_up(self, version: str) -> bool:
        """Apply what has changed since; whether there was something to go on from."""
        now = self._context.clock.now()
        if not self._version or now - self._seen_at > CARRIED_S or now - self._loaded_at > WHOLE_LOOK_S:
            return False
        try:
            for event in self._context.cluster.watch("bound", self._version, _CATCH_UP_S):
                self._apply(event)
                if _reached(event.resource_version, version):
                    break
        except ResourceVersionGone as error:
            _LOG.info("snapshot is too old to catch up: %s", error, extra={"cluster": self._cluster})
            return False
        except ClusterError as error:
            self._context.meter.count("SnapshotsNotCaughtUp")
            _LOG.warning("not caught up with the snapshot: %s", error, extra={"cluster": self._cluster})
            return False
        self._seen_at = self._context.clock.now()
        return True

    def _apply(self, event: WatchEvent) -> None:
        self._version = event.resource_version
        pod = event.object
        if event.type == "BOOKMARK" or not isinstance(pod, Pod):
            return
        if event.type == "DELETED":
            self._pods.pop(pod.metadata.uid, None)
        else:
            self._pods[pod.metadata.uid] = lean_pod(pod)


class CarriedPods:
    """The bound pods that a process carries from one invocation to the next, by cluster."""

    def __init__(self) -> None:
        self._of: dict[str, BoundPods] = {}

    def of(self, cluster: str, context: FlowContext) -> BoundPods:
        """Those of a cluster that is looked at now; those looked at longest ago are dropped if there are too many."""
        known = self._of.pop(cluster, None) or BoundPods(cluster, context)
        while sum(pods.number for pods in self._of.values()) > MOST_CARRIED:
            del self._of[next(iter(self._of))]
        self._of[cluster] = known
        return known


def _reached(version: str, wanted: str) -> bool:
    """True if a version is no older than another; the API promises an order only where both are numbers."""
    return version.isdecimal() and wanted.isdecimal() and int(version) >= int(wanted)


class NodeClassSupply(msgspec.Struct, frozen=True):
    """An EC2NodeClass with its selectors answered, or why that is not possible."""

    node_class: EC2NodeClass
    resolved: ResolvedNodeClass | None = None
    not_ready: str = ""


class LaunchSupply(msgspec.Struct, frozen=True):
    """The supply that can be bought, looked up once per invocation; NodeClasses by name, `shifted` zones by id."""

    catalog: Catalog
    node_classes: dict[str, NodeClassSupply]
    shifted: frozenset[str] = frozenset()
    joins: JoinHistory = JoinHistory()

    @property
    def amis(self) -> tuple[str, ...]:
        """The ids of all AMIs that may be launched, sorted."""
        known = (supply.resolved for supply in self.node_classes.values())
        return tuple(sorted({ami.id for resolved in known if resolved is not None for ami in resolved.amis}))

    def without(self, node_class: str, reason: str) -> LaunchSupply:
        """The same with one NodeClass that cannot be launched from after all."""
        changed = msgspec.structs.replace(self.node_classes[node_class], not_ready=reason)
        return msgspec.structs.replace(self, node_classes={**self.node_classes, node_class: changed})


class DecisionInputs(msgspec.Struct, frozen=True):
    """The state and the cluster as they were at `at`, epoch seconds; `missed_pods` by uid.

    `standalone_claims` are NodeClaims that users wrote and that nothing was launched for yet, sorted by name.
    """

    at: float
    state: DecisionState
    view: ClusterView
    missed_pods: frozenset[str]
    standalone_claims: tuple[StandaloneClaim, ...] = ()

    @property
    def has_pending_pods(self) -> bool:
        """True if there is any pod to plan for. Most sweeps find none, and need not look at what EC2 sells.

        Pods of nodes on their way out are to be planned for, too.
        """
        leaving = {node.metadata.name for node in self.view.nodes if node.metadata.deletion_timestamp}
        leaving |= {claim.node_name for claim in self.state.claims if claim.state in LEAVING}
        return bool(self.view.unbound) or not leaving.isdisjoint(self.view.by_node)


def read_supply(
    settings: ClusterSettings,
    context: FlowContext,
    *,
    fresh: bool = False,
    others: Collection[str] = (),
    policies: ActivePolicies = NO_POLICIES,
) -> LaunchSupply:
    """Load the catalogue and answer the selectors of every EC2NodeClass that a NodePool uses, and of `others` by name.

    Warm functions remember answers for minutes, each since another moment. What one of them decides because of a newer
    answer, another one must not carry out with an older one: then the answers are to be `fresh`. The `policies` look up
    what they need as well.

    Raises:
        StoreError: there is no catalogue and none can be fetched.
        AwsThrottled: worth another try later.
    """
    used = {pool.spec.template.spec.node_class_ref.name for pool in settings.manifests.node_pools} | {*others}
    inspected = _inspected(settings, context)
    node_classes = {}
    for node_class in settings.manifests.node_classes:
        name = node_class.metadata.name
        if name in used:
            node_classes[name] = _resolve(settings.name, node_class, inspected, context, fresh=fresh)
    made = LaunchSupply(_catalog(context), node_classes, _shifted(settings, context), _joins(settings.name, context))
    policies.look_up()
    return made


def _joins(cluster: str, context: FlowContext) -> JoinHistory:
    """Return how nodes have joined. A history that cannot be read must not keep pods waiting."""
    if context.joins is None:
        return JoinHistory()
    try:
        return context.within(JOINS, context.joins).read(cluster)
    except StoreError as error:
        context.meter.count("JoinsNotRead")
        _LOG.warning("history of joins not read: %s", error, extra={"cluster": cluster})
        return JoinHistory()


def _shifted(settings: ClusterSettings, context: FlowContext) -> frozenset[str]:
    """Zones to keep out of. Not knowing them must not keep pods waiting."""
    if not settings.zonal_shift or context.health is None:
        return frozenset()
    try:
        shifted = context.within(ZONAL_SHIFTS, context.health).shifted_zones()
    except AwsError as error:
        context.meter.count("ZonalShiftsNotRead")
        _LOG.warning("zonal shifts not read: %s", error, extra={"cluster": settings.name, "code": error.code})
        return frozenset()
    if shifted:
        context.meter.count("ZonesShifted", len(shifted))
        _LOG.warning("nothing is launched in %s", ", ".join(sorted(shifted)), extra={"cluster": settings.name})
    return shifted


def _inspected(settings: ClusterSettings, context: FlowContext) -> InstallStatus:
    """Return the result of the last inspection. A status that cannot be read must not keep pods waiting."""
    if context.status is None:
        return InstallStatus()
    try:
        return context.within(INSPECTION, context.status).load()
    except StoreError as error:
        _LOG.info("status of node classes not read: %s", error, extra={"cluster": settings.name})
        return InstallStatus()


def _resolve(
    cluster: str, node_class: EC2NodeClass, inspected: InstallStatus, context: FlowContext, *, fresh: bool
) -> NodeClassSupply:
    problem = known_problem(inspected, cluster, node_class, context.clock.now())
    if problem:
        context.meter.count("NodeClassNotReady")
        _LOG.warning("node class is not ready: %s", problem, extra={"cluster": cluster})
        return NodeClassSupply(node_class, not_ready=problem)
    try:
        return NodeClassSupply(node_class, context.compute.resolve(node_class, fresh=fresh))
    except AwsThrottled:
        raise
    except AwsError as error:  # the pools of the other NodeClasses go on
        context.meter.count("NodeClassNotReady")
        _LOG.warning("node class is not ready: %s", error, extra={"cluster": cluster, "code": error.code})
        return NodeClassSupply(node_class, not_ready=str(error))


def _catalog(context: FlowContext) -> Catalog:
    """The stored catalogue. Before the first refresh there is none: then it is fetched here, once, and stored."""
    if context.source is None:
        return context.catalog.load()
    known = stored(context.catalog)
    return known if known is not None else refresh(context.source, context.catalog, context.meter)


def read_inputs(
    settings: ClusterSettings,
    context: FlowContext,
    known: BoundPods | None = None,
    before: tuple[float, DecisionState] | None = None,
    *,
    policies: ActivePolicies = NO_POLICIES,
) -> DecisionInputs:
    """Read the state, then the cluster, and learn from nodes that have joined.

    `known` may know bound pods from a look before; without it, the cluster's compact snapshot is asked. `before` is the
    state if it has just been read, and when. `policies` read what belongs to it.

    Raises:
        ClusterError: the cluster cannot be read.
        StoreError: the state cannot be read, or a joined node's truth cannot be stored.
    """
    now, state = read_state(settings, context) if before is None else before
    leaving = leaving_names(state.claims)
    known = BoundPods(settings.name, context) if known is None else known
    view = context.cluster.view(leaving, workloads=bool(settings.pod_topology_spread.constraints()), known=known)
    view = known.remembering(view)
    view = _with_what_few_need(view, leaving, settings.manifests, context.cluster)
    missed = state.missed_pods | missed_pods(state, view) | _learn_from_joined(state, view, context)
    policies.read(state, now)
    view = policies.with_pods_without_objects(view, now)  # last: everything above is about objects
    return DecisionInputs(now, state, view, missed)


def read_state(settings: ClusterSettings, context: FlowContext) -> tuple[float, DecisionState]:
    """The state, and the time of the look that begins with it, epoch seconds. Raises StoreError."""
    now = context.clock.now()
    return now, context.state.read(settings.name, now)


def leaving_names(claims: Iterable[NodeClaim]) -> set[str]:
    """Return the names of nodes on their way out, and of their claims."""
    return {name for claim in claims if claim.state in LEAVING for name in (claim.node_name, claim.name) if name}


def needs_budgets(view: ClusterView, leaving: Set[str]) -> bool:
    """True if pods are on nodes on their way out, so that a plan looks at PodDisruptionBudgets."""
    going = leaving | {node.metadata.name for node in view.nodes if node.metadata.deletion_timestamp}
    return bool(going) and not going.isdisjoint(view.by_node)


def _with_what_few_need(view: ClusterView, leaving: set[str], manifests: Manifests, cluster: ClusterApi) -> ClusterView:
    """PodDisruptionBudgets while pods are on nodes on their way out, and the workloads CapacityBuffers are made of."""
    if needs_budgets(view, leaving):
        view = msgspec.structs.replace(view, pod_disruption_budgets=cluster.disruption_budgets())
    names = {
        ScalableName(buffer.metadata.namespace or "default", ref.kind, ref.name)
        for buffer in manifests.capacity_buffers
        if (ref := buffer.spec.scalable_ref) is not None
    }
    return msgspec.structs.replace(view, scalables=cluster.scalables(sorted(names))) if names else view


def joined_nodes(claims: tuple[NodeClaim, ...], view: ClusterView) -> list[tuple[NodeClaim, Node]]:
    """Launched claims whose Node is in the view."""
    nodes = {instance_of(node.spec.provider_id): node for node in view.nodes}
    return [
        (claim, nodes[claim.instance_id])
        for claim in claims
        if claim.state is ClaimState.LAUNCHED and claim.instance_id in nodes
    ]


def missed_pods(state: DecisionState, view: ClusterView) -> set[str]:
    """The uids of pods of claims whose node has missed; a node that seems broken says nothing about other nodes."""
    nodes = {node.metadata.name: node for node in view.nodes}
    missed = [
        claim
        for claim in state.claims
        if claim.missed and not (claim.node_name in nodes and seems_broken(claim, nodes[claim.node_name]))
    ]
    return {pod.uid for claim in missed for pod in claim.plan.pods if pod.uid}


def _learn_from_joined(state: DecisionState, view: ClusterView, context: FlowContext) -> frozenset[str]:
    """Learn from nodes that joined but were not registered yet: their event may be late or lost.

    Returns the uids of pods whose node turned out too small.
    """
    joined = joined_nodes(state.claims, view)
    return learn_from_joined(context, [(claim, node) for claim, node in joined if has_reported(node)])
