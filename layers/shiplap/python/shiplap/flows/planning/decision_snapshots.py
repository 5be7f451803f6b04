"""Assembles the snapshots of decisions from inputs that were read: the one place that does, for flows and commands.

What enters is typed: `DecisionInputs` is the state and the cluster, `LaunchSupply` what can be bought, `ServiceInputs`
what a decision on disruption needs beyond a plan. Functions read all of it through their ports, commands with the
caller's rights or from files. Policies add their inputs through `ActivePolicies`. Nothing is written here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionInput, DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.errors import InvalidInput
from shiplap.flows.context import FlowContext
from shiplap.flows.planning.decision_inputs import DecisionInputs, LaunchSupply
from shiplap.flows.planning.futile_launches import without_held_pods
from shiplap.flows.planning.offering_market import OfferingMarket, unavailable_in_group, unavailable_offerings
from shiplap.flows.policies.active import NO_POLICIES, ActivePolicies
from shiplap.flows.policies.policy import DecisionFacts
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ami_families import first_hashes, spec_hash
from shiplap.instances.catalog.drain_times import drain_time_s
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import InstanceType, pilot_key
from shiplap.instances.offerings.offerings import with_all_zones, without_zones
from shiplap.instances.offerings.remedies import with_remedy
from shiplap.instances.readiness.joins import (
    BlockedLaunches,
    JoinHistory,
    blocked_launches,
    node_class_scope,
    without_blocked,
)
from shiplap.instances.resolve import remembered_types
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import KnownCapacity, Meter, Refusals, UnavailableOffering
from shiplap.scheduling.model.snapshot import NodeClassCatalog, SchedulingSettings, Snapshot
from shiplap.scheduling.supply.pool_catalogs import SoldTypes
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


class ServiceInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a decision on disruption beyond those of a plan: what is in service, and since when."""

    claims: tuple[NodeClaim, ...]
    """Every claim that has a node or is on its way to one."""

    histories: tuple[NodeHistory, ...] = ()
    """What is remembered of nodes, with what this look at the cluster adds."""

    refused: Mapping[str, Refusals] = {}
    """Pods that nodes were launched for in vain, by uid."""

    busy: frozenset[str] = frozenset()
    """Names of the nodes and claims that commands under way have taken."""

    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()

    unsettled_pools: tuple[str, ...] = ()
    """Names of NodePools whose spec may still be taken back."""


class PricedSnapshot:
    """The snapshot to decide on, and the instance types that it sells to each claim, computed once per pool."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._types = SoldTypes(snapshot)

    def types_for(self, claim: NodeClaim) -> Mapping[str, InstanceType]:
        """By name, what the claim's NodeClass sells as the claim's NodePool sees it: the plan's overlays and prices."""
        return self._types.of(claim.plan.node_class, claim.plan.node_pool)

    def types_in_all_zones(self, claim: NodeClaim, catalog: Catalog) -> dict[str, InstanceType]:
        """As `types_for`; types of the launch list have prices in the zones, too, that are not selected any more."""
        listed = frozenset(claim.plan.instance_types)
        sold = next((item for item in self.snapshot.catalogs if item.node_class == claim.plan.node_class), None)
        types = sold.instance_types if sold is not None else ()
        everywhere = with_all_zones((item for item in types if item.name in listed), catalog)
        return {**self.types_for(claim), **self._types.seen_by(claim.plan.node_pool, everywhere)}


def decision_facts(inputs: DecisionInputs, supply: LaunchSupply, snapshot: Snapshot) -> DecisionFacts:
    """Return the facts that policies use for their inputs of a decision on this snapshot."""
    return DecisionFacts(snapshot, inputs.state, supply.catalog, supply.joins)


def priced_snapshot(
    settings: ClusterSettings,
    inputs: DecisionInputs,
    supply: LaunchSupply,
    context: FlowContext,
    policies: ActivePolicies = NO_POLICIES,
    *,
    replaces: bool = False,
) -> PricedSnapshot:
    """Return the snapshot to decide on: what was read, and what can be bought for it now. Raises StoreError.

    With `replaces` only replacements are planned with it.
    """
    snapshot = sold_snapshot(settings, inputs, supply, context.capacity, context.meter)
    return PricedSnapshot(with_policies(snapshot, inputs, supply, policies, replaces=replaces))


def with_policies(
    snapshot: Snapshot,
    inputs: DecisionInputs,
    supply: LaunchSupply,
    policies: ActivePolicies,
    *,
    replaces: bool = False,
) -> Snapshot:
    """Return the snapshot with the inputs of the optional features that are on."""
    facts = decision_facts(inputs, supply, snapshot)
    return snapshot.with_policies(policies.replacement_inputs(facts) if replaces else policies.planning_inputs(facts))


def sold_snapshot(
    settings: ClusterSettings, inputs: DecisionInputs, supply: LaunchSupply, capacity: KnownCapacity, meter: Meter
) -> Snapshot:
    """As `priced_snapshot`, without policies; of the capacity it only reads."""
    leased = capacity.pilots(supply.amis, inputs.at)
    catalogs = _catalogs(settings, supply, inputs, capacity, meter)
    sold = {catalog.node_class: catalog.instance_types for catalog in catalogs}
    return snapshot_of(settings, inputs, catalogs, leased | exploring(inputs.state.claims, sold))


def snapshot_of(
    settings: ClusterSettings,
    inputs: DecisionInputs,
    catalogs: tuple[NodeClassCatalog, ...],
    piloted: frozenset[str] = frozenset(),
) -> Snapshot:
    """Return the snapshot of a plan for what was read, with the instance types of each EC2NodeClass."""
    return Snapshot(
        cluster=settings.name,
        install=settings.install,
        now=inputs.at,
        view=inputs.view,
        claims=inputs.state.claims,
        manifests=_without_user_data(settings.manifests),
        catalogs=catalogs,
        missed_pods=inputs.missed_pods,
        piloted=piloted,
        settings=SchedulingSettings(
            preference_policy=settings.preference_policy,
            min_values_policy=settings.min_values_policy,
            reserved_policy=settings.reserved_policy,
            improve_s=settings.improve_s,
            default_spread=settings.pod_topology_spread.constraints(),
            claim_rules=settings.claim_rules,
        ),
        epoch=inputs.state.epoch,
        standalone_claims=inputs.standalone_claims,
    )


def disruption_snapshot(
    snapshot: Snapshot,
    service: ServiceInputs,
    settings: DisruptionSettings,
    policies: tuple[DisruptionInput, ...] = (),
) -> DisruptionSnapshot:
    """Return the snapshot of a decision on disruption.

    Args:
        snapshot: as of a plan at the same moment, with the policies that disruption needs.
        service: what is in service.
        settings: of the cluster.
        policies: inputs of optional features that plans do not need.
    """
    view = without_held_pods(snapshot.view, service.claims, service.refused, snapshot.now)
    return DisruptionSnapshot(
        scheduling=replace(snapshot, claims=service.claims, view=view),
        pod_disruption_budgets=service.pod_disruption_budgets,
        histories=service.histories,
        busy=service.busy,
        settings=settings,
        unsettled_pools=service.unsettled_pools,
        policies=policies,
    )


def disruption_of_install(
    snapshot: Snapshot,
    inputs: DecisionInputs,
    supply: LaunchSupply,
    service: ServiceInputs,
    settings: DisruptionSettings,
    policies: ActivePolicies,
) -> DisruptionSnapshot:
    """As `disruption_snapshot`, with what the policies of an install add; `snapshot` as of `priced_snapshot`."""
    going = replace(snapshot, policies=policies.disruption_policies(snapshot))
    further = policies.disruption_inputs(decision_facts(inputs, supply, snapshot))
    return disruption_snapshot(going, service, settings, further)


def _without_user_data(manifests: Manifests) -> Manifests:
    """Snapshots are recorded, users keep secrets in user data, and no decision reads it."""
    change = replace
    bare = (change(node_class, spec=change(node_class.spec, user_data=None)) for node_class in manifests.node_classes)
    return change(manifests, node_classes=tuple(bare))


def exploring(claims: tuple[NodeClaim, ...], sold: Mapping[str, tuple[InstanceType, ...]]) -> frozenset[str]:
    """`ami/instance type#kubelet hash` of every estimate that claims in flight rely on, whether leased yet or not."""
    keys = set()
    for claim in claims:
        if claim.state is ClaimState.LAUNCHED:
            if claim.known_instance.type in claim.plan.relies_on_estimate:
                keys.add(
                    pilot_key(claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash)
                )
        elif claim.state in (ClaimState.PLANNED, ClaimState.LAUNCHING):
            relied_on = [
                item for item in sold.get(claim.plan.node_class, ()) if item.name in claim.plan.relies_on_estimate
            ]
            keys.update(pilot_key(item.ami, item.name, item.kubelet_hash) for item in relied_on)
    return frozenset(keys)


def _ends_at_once(cluster: str, node_class: EC2NodeClass, resting: Iterable[UnavailableOffering]) -> str:
    """Return why an EC2NodeClass launches nothing whose last instances ended before they joined; empty if none did."""
    scope = node_class_scope(cluster, node_class)
    known = next((offering for offering in resting if offering.instance_type == scope), None)
    if known is None:
        return ""
    return (
        with_remedy(known.code, f"its instances end at once: {known.code}") + f"; tried again at {rfc3339(known.until)}"
    )


def barred_launches(joins: JoinHistory, claims: Iterable[NodeClaim], at: float) -> BlockedLaunches:
    """Return the AMIs, and types on AMIs, of which nothing is launched because nodes do not join."""
    joining = (
        (claim.known_instance.ami, claim.known_instance.type) for claim in claims if claim.state is ClaimState.LAUNCHED
    )
    return blocked_launches(joins, joining, at)


def _catalogs(
    settings: ClusterSettings, supply: LaunchSupply, inputs: DecisionInputs, capacity: KnownCapacity, meter: Meter
) -> tuple[NodeClassCatalog, ...]:
    learned = capacity.learned(supply.amis)
    unavailable = unavailable_offerings(inputs.state.unavailable, supply.catalog)
    market = OfferingMarket(inputs.state)
    barred = barred_launches(supply.joins, inputs.state.claims, inputs.at)
    if barred != BlockedLaunches():
        meter.count("TypesBarred", len(barred.amis) + len(barred.types))
        _LOG.warning("not launched, nodes do not join: %s", barred, extra={"cluster": settings.name})
    setting = cluster_setting(settings, inputs.view.daemon_sets)
    catalogs = []
    for name, item in sorted(supply.node_classes.items()):
        problem = item.not_ready or _ends_at_once(settings.name, item.node_class, inputs.state.unavailable)
        if item.resolved is None or problem:
            catalogs.append(NodeClassCatalog(name, not_ready=problem))
            continue
        worth_asking = market.open(item.resolved, inputs.at, drain_time_s(settings.manifests, name))
        # What is sold in a zone does not change with its free addresses: nodes there would seem to have drifted.
        sold_in = replace(worth_asking, subnets=item.resolved.subnets)
        full = {net.zone for net in item.resolved.subnets} - {net.zone for net in worth_asking.subnets}
        try:
            sold = remembered_types(
                supply.catalog,
                item.node_class,
                setting,
                resolved=sold_in,
                learned=learned,
                unavailable=unavailable
                | unavailable_in_group(item.resolved.group, inputs.state.unavailable, supply.catalog),
                cluster=settings.name,
                now=inputs.at,
            )
        except InvalidInput as error:
            meter.count("NodeClassNotReady")
            _LOG.warning("node class cannot be read: %s", error, extra={"cluster": settings.name})
            catalogs.append(NodeClassCatalog(name, not_ready=error.what))
        else:
            open_now = without_blocked(without_zones(sold, supply.shifted | full), barred)
            says = spec_hash(item.node_class, item.resolved.cluster_ca)
            first, selection = first_hashes(item.node_class), item.resolved.selection
            catalogs.append(NodeClassCatalog(name, open_now, spec_hash=says, first_hashes=first, selection=selection))
    return tuple(catalogs)
