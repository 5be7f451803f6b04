"""Gathers what a decision looks at, in the order that keeps the decision sound.

The epoch is read before the state and the state before the cluster, so that whatever leaves the state for the cluster
meanwhile is seen at least once. Pilot leases are read before learned capacity: a lease is given up only after its
node's truth is stored, so a key can never look both unexplored and unlearned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.api.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.api.types import EC2NodeClass, Manifests
from shiplap.errors import AwsError, AwsThrottled, InvalidInput, StoreError
from shiplap.instances.catalog import Catalog
from shiplap.instances.families import first_hashes, spec_hash
from shiplap.instances.joins import Bars, JoinHistory, bars, without_barred
from shiplap.instances.launch_deaths import node_class_scope, with_advice
from shiplap.instances.nodeclass import ResolvedNodeClass
from shiplap.instances.remembered import remembered_types
from shiplap.instances.setting import from_cluster
from shiplap.instances.status import InstallStatus, known_problem
from shiplap.instances.types import InstanceType, pilot_key
from shiplap.instances.zones import without_zones
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.kubernetes.workloads import ScalableName
from shiplap.ports import ClusterApi, DecisionState, KnownCapacity, KnownPods, Meter, UnavailableOffering
from shiplap.provisioning.learn import has_reported, instance_of, learn_from_crowd
from shiplap.provisioning.market import Market, resting_in_group, resting_offerings
from shiplap.provisioning.refresh import refresh, stored
from shiplap.provisioning.standing import StandingPods
from shiplap.provisioning.world import World
from shiplap.scheduling.catalogues import accepted_overlays, as_seen_by
from shiplap.scheduling.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


class NodeClassSupply(msgspec.Struct, frozen=True):
    """An EC2NodeClass with its selectors answered, or why that is not possible."""

    node_class: EC2NodeClass
    resolved: ResolvedNodeClass | None = None
    not_ready: str = ""


class Supply(msgspec.Struct, frozen=True):
    """What can be bought, looked up once per invocation; NodeClasses by name, `shifted` zones by id."""

    catalog: Catalog
    node_classes: dict[str, NodeClassSupply]
    shifted: frozenset[str] = frozenset()
    joins: JoinHistory = JoinHistory()

    @property
    def amis(self) -> tuple[str, ...]:
        """The ids of all AMIs that may be launched, sorted."""
        known = (supply.resolved for supply in self.node_classes.values())
        return tuple(sorted({ami.id for resolved in known if resolved is not None for ami in resolved.amis}))

    def without(self, node_class: str, reason: str) -> Supply:
        """The same with one NodeClass that cannot be launched from after all."""
        changed = msgspec.structs.replace(self.node_classes[node_class], not_ready=reason)
        return msgspec.structs.replace(self, node_classes={**self.node_classes, node_class: changed})


class Glance(msgspec.Struct, frozen=True):
    """The state and the cluster as they were at `at`, epoch seconds; `missed_pods` by uid."""

    at: float
    state: DecisionState
    view: ClusterView
    missed_pods: frozenset[str]

    @property
    def has_pending_pods(self) -> bool:
        """Whether there is any pod to plan for; most sweeps find none, and need not look at what EC2 sells.

        Pods of nodes on their way out are to be planned for, too.
        """
        leaving = {node.metadata.name for node in self.view.nodes if node.metadata.deletion_timestamp}
        leaving |= {claim.node_name for claim in self.state.claims if claim.state in LEAVING}
        return bool(self.view.unbound) or not leaving.isdisjoint(self.view.by_node)


class Sight:
    """One look at everything: the snapshot to decide on, and what it sells to each claim, reckoned once per pool."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._sold = {catalog.node_class: catalog.instance_types for catalog in snapshot.catalogs}
        self._types: dict[tuple[str, str], dict[str, InstanceType]] = {}

    def types_for(self, claim: NodeClaim) -> dict[str, InstanceType]:
        """By name, what the claim's NodeClass sells as the claim's NodePool sees it: the plan's overlays and prices."""
        key = (claim.node_class, claim.node_pool)
        if key not in self._types:
            self._types[key] = {item.name: item for item in self._seen_by(claim)}
        return self._types[key]

    def _seen_by(self, claim: NodeClaim) -> Sequence[InstanceType]:
        sold = self._sold.get(claim.node_class, ())
        accepted = accepted_overlays(self.snapshot)
        pools = self.snapshot.manifests.node_pools
        pool = next((pool for pool in pools if pool.metadata.name == claim.node_pool), None)
        return sold if pool is None else as_seen_by(pool, sold, accepted)


def supply_of(settings: ClusterSettings, world: World, *, fresh: bool = False) -> Supply:
    """Load the catalogue and answer the selectors of every EC2NodeClass that a NodePool uses.

    Warm functions remember answers for minutes, each since another moment. What one of them decides because of a newer
    answer, another one must not carry out with an older one: then the answers are to be `fresh`.

    Raises:
        StoreError: there is no catalogue and none can be fetched.
        AwsThrottled: worth another try later.
    """
    used = {pool.spec.template.spec.node_class_ref.name for pool in settings.manifests.node_pools}
    inspected = _inspected(settings, world)
    node_classes = {}
    for node_class in settings.manifests.node_classes:
        name = node_class.metadata.name
        if name in used:
            node_classes[name] = _resolve(settings.name, node_class, inspected, world, fresh=fresh)
    return Supply(_catalog(world), node_classes, _shifted(settings, world), _joins(settings.name, world))


def _joins(cluster: str, world: World) -> JoinHistory:
    """How nodes have joined. Not knowing it must not keep pods waiting."""
    if world.joins is None:
        return JoinHistory()
    try:
        return world.joins.read(cluster)
    except StoreError as error:
        world.meter.count("JoinsNotRead")
        _LOG.warning("history of joins not read: %s", error, extra={"cluster": cluster})
        return JoinHistory()


def _shifted(settings: ClusterSettings, world: World) -> frozenset[str]:
    """Zones to keep out of. Not knowing them must not keep pods waiting."""
    if not settings.zonal_shift or world.health is None:
        return frozenset()
    try:
        shifted = world.health.shifted_zones()
    except AwsError as error:
        world.meter.count("ZonalShiftsNotRead")
        _LOG.warning("zonal shifts not read: %s", error, extra={"cluster": settings.name, "code": error.code})
        return frozenset()
    if shifted:
        world.meter.count("ZonesShifted", len(shifted))
        _LOG.warning("nothing is launched in %s", ", ".join(sorted(shifted)), extra={"cluster": settings.name})
    return shifted


def _inspected(settings: ClusterSettings, world: World) -> InstallStatus:
    """What the last inspection found. Not knowing it must not keep pods waiting."""
    if world.status is None:
        return InstallStatus()
    try:
        return world.status.load()
    except StoreError as error:
        _LOG.info("status of node classes not read: %s", error, extra={"cluster": settings.name})
        return InstallStatus()


def _resolve(
    cluster: str, node_class: EC2NodeClass, inspected: InstallStatus, world: World, *, fresh: bool
) -> NodeClassSupply:
    problem = known_problem(inspected, cluster, node_class, world.clock.now())
    if problem:
        world.meter.count("NodeClassNotReady")
        _LOG.warning("node class is not ready: %s", problem, extra={"cluster": cluster})
        return NodeClassSupply(node_class, not_ready=problem)
    try:
        return NodeClassSupply(node_class, world.compute.resolve(node_class, fresh=fresh))
    except AwsThrottled:
        raise
    except AwsError as error:  # the pools of the other NodeClasses go on
        world.meter.count("NodeClassNotReady")
        _LOG.warning("node class is not ready: %s", error, extra={"cluster": cluster, "code": error.code})
        return NodeClassSupply(node_class, not_ready=str(error))


def _catalog(world: World) -> Catalog:
    """The stored catalogue. Before the first refresh there is none: then it is fetched here, once, and stored."""
    if world.source is None:
        return world.catalog.load()
    known = stored(world.catalog)
    return known if known is not None else refresh(world.source, world.catalog, world.meter)


def glance_at(
    settings: ClusterSettings,
    world: World,
    known: KnownPods | None = None,
    before: tuple[float, DecisionState] | None = None,
) -> Glance:
    """Read the state, then the cluster, and learn from nodes that have joined.

    `known` may know bound pods from a look before; without it, the cluster's compact snapshot is asked. `before` is the
    state if it has just been read, and when.

    Raises:
        ClusterError: the cluster cannot be read.
        StoreError: the state cannot be read, or a joined node's truth cannot be stored.
    """
    now, state = read_state(settings, world) if before is None else before
    leaving = {
        name for claim in state.claims if claim.state in LEAVING for name in (claim.node_name, claim.name) if name
    }
    view = world.cluster.view(
        leaving,
        workloads=bool(settings.pod_topology_spread.constraints()),
        known=StandingPods(settings.name, world) if known is None else known,
    )
    view = _with_what_few_need(view, leaving, settings.manifests, world.cluster)
    reported = {pod.uid for claim in state.claims if claim.missed for pod in claim.pods if pod.uid}
    return Glance(now, state, view, state.missed_pods | reported | _learn_from_joined(state, view, world))


def read_state(settings: ClusterSettings, world: World) -> tuple[float, DecisionState]:
    """The state, and the time of the look that begins with it, epoch seconds. Raises StoreError."""
    now = world.clock.now()
    return now, world.state.read(settings.name, now)


def _with_what_few_need(view: ClusterView, leaving: set[str], manifests: Manifests, cluster: ClusterApi) -> ClusterView:
    """PodDisruptionBudgets while pods are on nodes on their way out, and the workloads CapacityBuffers are made of."""
    going = leaving | {node.metadata.name for node in view.nodes if node.metadata.deletion_timestamp}
    if going and not going.isdisjoint(view.by_node):
        view = msgspec.structs.replace(view, pod_disruption_budgets=cluster.disruption_budgets())
    names = {
        ScalableName(buffer.metadata.namespace or "default", ref.kind, ref.name)
        for buffer in manifests.capacity_buffers
        if (ref := buffer.spec.scalable_ref) is not None
    }
    return msgspec.structs.replace(view, scalables=cluster.scalables(sorted(names))) if names else view


def sight_of(settings: ClusterSettings, glance: Glance, supply: Supply, world: World) -> Sight:
    """The snapshot to decide on: what was glanced at, and what can be bought for it now. Raises StoreError."""
    return Sight(snapshot_of(settings, glance, supply, world.capacity, world.meter))


def snapshot_of(
    settings: ClusterSettings, glance: Glance, supply: Supply, capacity: KnownCapacity, meter: Meter
) -> Snapshot:
    """As `sight_of`, for who has looked by other means than a world's; of the capacity it only reads."""
    leased = capacity.pilots(supply.amis, glance.at)
    catalogs = _catalogs(settings, supply, glance, capacity, meter)
    sold = {catalog.node_class: catalog.instance_types for catalog in catalogs}
    return Snapshot(
        cluster=settings.name,
        install=settings.install,
        now=glance.at,
        view=glance.view,
        claims=glance.state.claims,
        manifests=_without_user_data(settings.manifests),
        catalogs=catalogs,
        missed_pods=glance.missed_pods,
        piloted=leased | exploring(glance.state.claims, sold),
        settings=SchedulingSettings(
            preference_policy=settings.preference_policy,
            min_values_policy=settings.min_values_policy,
            reserved_policy=settings.reserved_policy,
            improve_s=settings.improve_s,
            default_spread=settings.pod_topology_spread.constraints(),
            claim_rules=settings.claim_rules,
        ),
        epoch=glance.state.epoch,
    )


def _without_user_data(manifests: Manifests) -> Manifests:
    """Snapshots are recorded, users keep secrets in user data, and no decision reads it."""
    change = msgspec.structs.replace
    bare = (change(item, spec=change(item.spec, user_data=None)) for item in manifests.node_classes)
    return change(manifests, node_classes=tuple(bare))


def exploring(claims: tuple[NodeClaim, ...], sold: Mapping[str, tuple[InstanceType, ...]]) -> frozenset[str]:
    """`ami/instance type#kubelet hash` of every estimate that claims in flight rely on, whether leased yet or not."""
    keys = set()
    for claim in claims:
        if claim.state is ClaimState.LAUNCHED:
            if claim.instance_type in claim.relies_on_estimate:
                keys.add(pilot_key(claim.ami, claim.instance_type, claim.kubelet_hash))
        elif claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING):
            relied_on = [item for item in sold.get(claim.node_class, ()) if item.name in claim.relies_on_estimate]
            keys.update(pilot_key(item.ami, item.name, item.kubelet_hash) for item in relied_on)
    return frozenset(keys)


def joined_nodes(claims: tuple[NodeClaim, ...], view: ClusterView) -> list[tuple[NodeClaim, Node]]:
    """Launched claims whose Node is in the view."""
    nodes = {instance_of(node.spec.provider_id): node for node in view.nodes}
    return [
        (claim, nodes[claim.instance_id])
        for claim in claims
        if claim.state is ClaimState.LAUNCHED and claim.instance_id in nodes
    ]


def _learn_from_joined(state: DecisionState, view: ClusterView, world: World) -> frozenset[str]:
    """Learn from nodes that joined but were not registered yet: their event may be late or lost.

    Returns the uids of pods whose node turned out too small.
    """
    joined = joined_nodes(state.claims, view)
    return learn_from_crowd(world, [(claim, node) for claim, node in joined if has_reported(node)])


def _ends_at_once(cluster: str, node_class: EC2NodeClass, resting: Iterable[UnavailableOffering]) -> str:
    """Why nothing is launched from an EC2NodeClass whose last instances ended before they joined; empty if none did."""
    scope = node_class_scope(cluster, node_class)
    known = next((item for item in resting if item.instance_type == scope), None)
    if known is None:
        return ""
    return (
        with_advice(known.code, f"its instances end at once: {known.code}") + f"; tried again at {rfc3339(known.until)}"
    )


def _catalogs(
    settings: ClusterSettings, supply: Supply, glance: Glance, capacity: KnownCapacity, meter: Meter
) -> tuple[NodeClassCatalog, ...]:
    learned = capacity.learned(supply.amis)
    unavailable = resting_offerings(glance.state.unavailable, supply.catalog)
    market = Market(glance.state)
    joining = ((claim.ami, claim.instance_type) for claim in glance.state.claims if claim.state is ClaimState.LAUNCHED)
    barred = bars(supply.joins, joining, glance.at)
    if barred != Bars():
        meter.count("TypesBarred", len(barred.amis) + len(barred.types))
        _LOG.warning("not launched, nodes do not join: %s", barred, extra={"cluster": settings.name})
    setting = from_cluster(settings, glance.view.daemon_sets)
    catalogs = []
    for name, item in sorted(supply.node_classes.items()):
        problem = item.not_ready or _ends_at_once(settings.name, item.node_class, glance.state.unavailable)
        if item.resolved is None or problem:
            catalogs.append(NodeClassCatalog(name, not_ready=problem))
            continue
        worth_asking = market.open(item.resolved, glance.at)
        # What is sold in a zone does not change with its free addresses: nodes there would seem to have drifted.
        sold_in = msgspec.structs.replace(worth_asking, subnets=item.resolved.subnets)
        full = {net.zone for net in item.resolved.subnets} - {net.zone for net in worth_asking.subnets}
        try:
            sold = remembered_types(
                supply.catalog,
                item.node_class,
                setting,
                resolved=sold_in,
                learned=learned,
                unavailable=unavailable
                | resting_in_group(item.resolved.group, glance.state.unavailable, supply.catalog),
            )
        except InvalidInput as error:
            meter.count("NodeClassNotReady")
            _LOG.warning("node class cannot be read: %s", error, extra={"cluster": settings.name})
            catalogs.append(NodeClassCatalog(name, not_ready=error.what))
        else:
            open_now = without_barred(without_zones(sold, supply.shifted | full), barred)
            says = spec_hash(item.node_class, item.resolved.cluster_ca)
            first, selection = first_hashes(item.node_class), item.resolved.selection
            catalogs.append(NodeClassCatalog(name, open_now, spec_hash=says, first_hashes=first, selection=selection))
    return tuple(catalogs)
