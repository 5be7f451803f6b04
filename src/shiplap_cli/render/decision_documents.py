"""Decisions in the fixed formats of the commands, and the caveats of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType
from rich.console import RenderableType

from shiplap.disruption.commands import Decision, DisruptionProposal, PlacementGap
from shiplap.instances.offerings.node_prices import Price
from shiplap.kubernetes.objects import Taint
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import (
    BufferState,
    LaunchChoice,
    Placement,
    Plan,
    PlannedClaim,
    StaticPool,
    Unschedulable,
)
from shiplap_cli.inputs.cluster_listing import MissingPermission
from shiplap_cli.inputs.loaded_inputs import LoadedInputs
from shiplap_cli.money import Money
from shiplap_cli.output import Printed, warning_line


class Caveats(Printed, frozen=True, omit_defaults=True):
    """The Region of its prices and zones, and what an answer does not rest on: rights that are missing, AWS not asked.

    Each is there where there is any of it.
    """

    region: str = ""
    unseen: tuple[MissingPermission, ...] = ()
    notes: tuple[str, ...] = ()


def caveats_of(inputs: LoadedInputs) -> Caveats:
    """The caveats of an answer that rests on these inputs."""
    return Caveats(inputs.region, inputs.unseen, inputs.notes)


class LaunchDocument(Printed, frozen=True):
    """The offering that is the cheapest; a reservation is named only where one is used."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float
    reservation_id: str | UnsetType = UNSET
    price_estimated: bool | UnsetType = UNSET


class ClaimDocument(Printed, frozen=True, kw_only=True):
    """A node to launch: resources as quantities, pods as `namespace/name`."""

    name: str
    node_pool: str
    tier: int
    requirements: tuple[RequirementSpec, ...]
    taints: tuple[Taint, ...]
    labels: dict[str, str]
    instance_types: tuple[str, ...]
    launch: LaunchDocument
    requests: dict[str, str]
    pods: tuple[str, ...]
    reasons: tuple[str, ...]
    gave_up: tuple[str, ...] | UnsetType = UNSET
    virtual_pods: tuple[str, ...] | UnsetType = UNSET


class NodeWithPods(Printed, frozen=True):
    """A Node that is there, and the pods that are placed on it."""

    name: str
    pods: tuple[str, ...]


class NearestOffer(Printed, frozen=True):
    """The instance type that comes closest for a pod, and what it lacks of which resource."""

    instance_type: str
    node_pool: str
    resource: str
    short: str


class PodDocument(Printed, frozen=True):
    """A pod that gets no node, and why."""

    pod: str
    message: str
    nearest: NearestOffer | UnsetType = UNSET


class PlanCost(Printed, frozen=True):
    """USD per hour of all launches, and whether a price of them is estimated."""

    hourly: float
    estimated: bool


class PlanFigures(Printed, frozen=True):
    """The size of the problem, and how long the plan took."""

    pods: int
    classes: int
    solve_seconds: float


class PlanDocument(Printed, frozen=True, kw_only=True):
    """A plan. Static pools and CapacityBuffers are there where there are any."""

    node_claims: tuple[ClaimDocument, ...]
    existing_nodes: tuple[NodeWithPods, ...]
    unschedulable: tuple[PodDocument, ...]
    ignored: tuple[PodDocument, ...]
    cost: PlanCost
    stats: PlanFigures
    static_pools: tuple[StaticPool, ...] | UnsetType = UNSET
    buffers: tuple[BufferState, ...] | UnsetType = UNSET


class CommandDocument(Printed, frozen=True, kw_only=True):
    """A command of a decision to disrupt nodes.

    `replacements` and `existing_nodes` have the pods that move there, as planned; pods in neither wait for a place.
    """

    reason: str
    method: str
    nodes: tuple[str, ...]
    replacements: tuple[ClaimDocument, ...]
    existing_nodes: tuple[NodeWithPods, ...]
    savings_hourly: float
    savings_estimated: bool
    moved_pods: int
    detail: str
    gap: PlacementGap | UnsetType = UNSET


class KeptNode(Printed, frozen=True):
    """A node that stays, and why."""

    node: str
    reason: str


class DisruptDocument(Printed, frozen=True):
    """A decision to disrupt nodes; what sleep rehearses or keeps awake is there where nodes may sleep."""

    commands: tuple[CommandDocument, ...]
    blocked: tuple[KeptNode, ...]
    rehearsed: tuple[str, ...] | UnsetType = UNSET
    kept_awake: tuple[str, ...] | UnsetType = UNSET


def caveat_lines(inputs: LoadedInputs) -> list[RenderableType]:
    """The caveats as lines of a page."""
    return [warning_line(line) for line in caveat_texts(inputs)]


def caveat_texts(inputs: LoadedInputs) -> tuple[str, ...]:
    """The caveats as plain lines."""
    return (*(missing.text for missing in inputs.unseen), *inputs.notes)


def plan_document(decided: Plan, solve_s: float, money: Money) -> PlanDocument:
    """A plan as a document."""
    return PlanDocument(
        node_claims=tuple(claim_document(claim, money) for claim in decided.node_claims),
        existing_nodes=_nodes_with_pods(decided.existing_nodes),
        unschedulable=tuple(map(_left_out, decided.unschedulable)),
        ignored=tuple(PodDocument(entry.pod.key, entry.message) for entry in decided.ignored),
        cost=PlanCost(decided.hourly, money.of_launches(decided.node_claims).estimated),
        stats=PlanFigures(decided.stats.pods, decided.stats.classes, round(solve_s, 6)),
        static_pools=decided.static_pools or UNSET,
        buffers=decided.buffers or UNSET,
    )


def claim_document(claim: PlannedClaim, money: Money) -> ClaimDocument:
    """A claim as a document."""
    return ClaimDocument(
        name=claim.name,
        node_pool=claim.node_pool,
        tier=claim.tier,
        requirements=claim.requirements,
        taints=claim.taints,
        labels=claim.labels,
        instance_types=claim.instance_types,
        launch=launch_document(claim.launch, money.of_launch(claim)),
        requests=format_resources(claim.requests),
        pods=_pod_keys(claim.pods),
        reasons=claim.reasons,
        gave_up=claim.gave_up or UNSET,
        virtual_pods=_pod_keys(claim.virtual_pods) or UNSET,
    )


def launch_document(launch: LaunchChoice, price: Price) -> LaunchDocument:
    """A launch as a document."""
    kind = (launch.instance_type, launch.zone, launch.capacity_type)
    return LaunchDocument(*kind, launch.price, launch.reservation_id or UNSET, price.estimated)


def _left_out(entry: Unschedulable) -> PodDocument:
    nearest = entry.nearest
    if nearest is None or not nearest.resource:
        return PodDocument(entry.pod.key, entry.message)
    short = format_amount(nearest.resource, nearest.short)
    offer = NearestOffer(nearest.instance_type, nearest.node_pool, nearest.resource, short)
    return PodDocument(entry.pod.key, entry.message, offer)


def _nodes_with_pods(placements: Sequence[Placement]) -> tuple[NodeWithPods, ...]:
    return tuple(NodeWithPods(node.name, _pod_keys(node.pods)) for node in placements)


def _pod_keys(pods: Sequence[PodReference]) -> tuple[str, ...]:
    return tuple(pod.key for pod in pods)


def disruption_document(decided: Decision, money: Money) -> DisruptDocument:
    """A decision as a document."""
    rehearsed, awake = decided.rehearsed, decided.kept_awake
    return DisruptDocument(
        tuple(command_document(command, money) for command in decided.commands),
        tuple(KeptNode(entry.node, entry.reason) for entry in decided.blocked),
        UNSET if rehearsed is UNSET else tuple(rehearsed),
        UNSET if awake is UNSET else tuple(awake),
    )


def command_document(command: DisruptionProposal, money: Money) -> CommandDocument:
    """One command of it."""
    return CommandDocument(
        reason=str(command.reason),
        method=str(command.method),
        nodes=tuple(command.nodes),
        replacements=tuple(claim_document(claim, money) for claim in command.replacements),
        existing_nodes=_nodes_with_pods(command.placements),
        savings_hourly=command.savings_hourly,
        savings_estimated=money.saved([command]).estimated,
        moved_pods=command.moved,
        detail=command.detail,
        gap=command.gap,
    )
