"""Decides for a cluster of an install as its functions would: by their assembly, with what the caller may read.

Policies read through the same classes as in the functions. A port that refuses is noted, and the policy goes on with
what it takes for unknown. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot
from shiplap.disruption.node_history import observe_nodes
from shiplap.flows.context import FlowContext
from shiplap.flows.live_settings import AS_DEPLOYED, ManifestState
from shiplap.flows.planning.decision_inputs import (
    DecisionInputs,
    LaunchSupply,
    leaving_names,
    missed_pods,
    needs_budgets,
)
from shiplap.flows.planning.decision_snapshots import (
    PricedSnapshot,
    ServiceInputs,
    barred_launches,
    disruption_of_install,
    sold_snapshot,
    with_policies,
)
from shiplap.flows.planning.futile_launches import HeldBackPods, held_back_pods, refused
from shiplap.flows.planning.moves_under_way import plan_without_moves_under_way
from shiplap.flows.policies.active import NO_POLICIES, ActivePolicies
from shiplap.instances.readiness.joins import BlockedLaunches
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.ports import ClusterApi, DecisionState
from shiplap.scheduling.model.scheduling_plan import Plan, Unschedulable
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.settings import ClusterSettings
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.installs.installed import InstalledCluster, read_or_note
from shiplap_cli.installs.objects_for_caller import ObjectsForCaller
from shiplap_cli.policy_views import FeatureObjects, views

Port = TypeVar("Port")


class InstalledDecision(msgspec.Struct, frozen=True):
    """The inputs of the decisions on a cluster of an install, as its functions have them."""

    installed: InstalledCluster
    settings: ClusterSettings
    inputs: DecisionInputs
    supply: LaunchSupply
    policies: ActivePolicies
    snapshot: Snapshot
    manifest_state: ManifestState = AS_DEPLOYED

    def decided(self, snapshot: Snapshot) -> tuple[Snapshot, Plan]:
        """The plan of the schedule function, and the snapshot that it is made of.

        Like it, this leaves out pods that nodes were launched for in vain, and launches nothing for the pods of nodes
        whose disruption command waits. Raises InvalidInput as `planner.plan`.
        """
        held = self._held_back(snapshot)
        priced, made = plan_without_moves_under_way(PricedSnapshot(replace(snapshot, view=held.view)))
        return priced.snapshot, replace(
            made,
            unschedulable=(*made.unschedulable, *held.unschedulable),
            ignored=(*made.ignored, *_expected(snapshot.view, held)),
        )

    def _held_back(self, snapshot: Snapshot) -> HeldBackPods:
        """The view without the pods that no node is launched for now."""
        state, claims = self.installed.state, self.installed.claims
        if state is None or claims is None:
            return HeldBackPods(snapshot.view)
        return held_back_pods(snapshot.view, state, lambda: claims, snapshot.now)

    def disruption(
        self,
        snapshot: Snapshot,
        claims: tuple[NodeClaim, ...],
        budgets: tuple[PodDisruptionBudget, ...],
        settings: DisruptionSettings,
    ) -> DisruptionSnapshot:
        """Return the snapshot of the disrupt function; `claims` are all that are not over."""
        view, known, now = snapshot.view, self.inputs.state.refused, snapshot.now
        service = ServiceInputs(
            claims=claims,
            histories=observe_nodes(self.installed.memory.histories, view, claims, now),
            refused={**known, **refused(claims, view, known, now)},
            busy=self.installed.busy,
            pod_disruption_budgets=budgets,
            unsettled_pools=self.manifest_state.unsettled_pools,
        )
        going = with_policies(snapshot, self.inputs, self.supply, self.policies, replaces=True)
        return disruption_of_install(going, self.inputs, self.supply, service, settings, self.policies)


def installed_decision(
    installed: InstalledCluster,
    settings: ClusterSettings,
    view: ClusterView,
    claims: Sequence[NodeClaim],
    supply: LaunchSupply,
    manifest_state: ManifestState = AS_DEPLOYED,
    of_features: FeatureObjects | None = None,
) -> InstalledDecision:
    """Return the inputs of the functions' decisions.

    Args:
        installed: the install as it was read.
        settings: of the cluster, with the manifests to decide by.
        view: the cluster.
        claims: those of the cluster, which count where table `state` could not be read. Policies are left out then.
        supply: what can be bought.
        manifest_state: what was found out about live manifests.
        of_features: the objects that only policies read; None where they may not be listed.
    """
    state, at = installed.state or DecisionState(0, tuple(claims)), installed.at
    barred = barred_launches(installed.joins, state.claims, at)
    if barred != BlockedLaunches():
        names = sorted(barred.amis | {f"{kind} of {ami}" for ami, kind in barred.types})
        installed.notes.append(f"nothing is launched of {', '.join(names)}: its nodes do not join")
    if not needs_budgets(view, leaving_names(state.claims)):
        view = replace(view, pod_disruption_budgets=())
    inputs = DecisionInputs(at, state, view, state.missed_pods | missed_pods(state, view))
    policies = NO_POLICIES
    if installed.install is not None and installed.state is not None and settings.policies_on:
        policies = ActivePolicies.of(settings, _ports(installed.install, installed, settings, of_features))
        policies.look_up()
        read_or_note(installed.notes, "what nodes cost", "no ceiling counts", lambda: policies.read(state, at), None)
        inputs = replace(inputs, view=policies.with_pods_without_objects(view, at))
    snapshot = sold_snapshot(settings, inputs, supply, installed.capacity, NoMetrics())
    snapshot = with_policies(snapshot, inputs, supply, policies)
    return InstalledDecision(installed, settings, inputs, supply, policies, snapshot, manifest_state)


def _ports(
    install: DeployedInstall, installed: InstalledCluster, settings: ClusterSettings, objects: FeatureObjects | None
) -> FlowContext:
    """Return the ports that policies read by; a function would have the rest."""
    absent = cast("Any", None)
    return FlowContext(
        clock=_Moment(installed.at),
        cluster=cast("ClusterApi", ObjectsForCaller(objects)),
        compute=absent,
        state=install.state(),
        capacity=install.capacity(),
        catalog=absent,
        bus=absent,
        timers=absent,
        recorder=absent,
        meter=NoMetrics(),
        joins=install.joins(),
        policy_ports=dict(_policy_ports(install, settings, installed.notes)),
        policies=settings.policies_on,
    )


def _policy_ports(
    install: DeployedInstall, settings: ClusterSettings, notes: list[str]
) -> Iterator[tuple[str, object]]:
    """Yield the ports of optional features that are found by their names."""
    unread = {port: said for _, view in views() for port, said in view.unread.items()}
    for policy in settings.policies_on:
        for name, make in install.policy_ports(policy, settings).items():
            said = unread.get(name)
            yield name, make() if said is None else _noted(make(), notes, *said)


def _noted(port: Port, notes: list[str], what: str, consequence: str, otherwise: object) -> Port:
    """Return the port, which answers `otherwise` where it refuses; a note says so."""
    return cast("Port", _NotedPort(port, notes, what, consequence, otherwise))


class _NotedPort:
    def __init__(self, port: object, notes: list[str], what: str, consequence: str, otherwise: object) -> None:
        self._port, self._notes, self._what = port, notes, what
        self._consequence, self._otherwise = consequence, otherwise

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._port, name)

        def answered(*arguments: object) -> object:
            return read_or_note(self._notes, self._what, self._consequence, lambda: asked(*arguments), self._otherwise)

        return answered


class _Moment:
    """A Clock that stands at the moment of the decision."""

    def __init__(self, at: float) -> None:
        self._at = at

    def now(self) -> float:
        return self._at


class NoMetrics:
    """A Meter that counts nothing."""

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        """Nothing."""


def _expected(view: ClusterView, held: HeldBackPods) -> Iterator[Unschedulable]:
    """Pods that are held back without a reason to wait: a node of theirs is there, or is to come."""
    seen = {pod.key for pod in held.view.pods} | {entry.pod.key for entry in held.unschedulable}
    for pod in sorted((pod for pod in view.pods if pod.key not in seen), key=lambda item: item.key):
        message = "a node that was launched for it is there or on its way: it waits for that one"
        yield Unschedulable(PodReference.of(pod), message)
