"""The answers of `shiplap explain` about pods, claims, nodes and NodePools, as `-o json` prints them."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import UNSET, UnsetType

from shiplap.instances.offerings.node_prices import Price
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, PlannedClaim
from shiplap_cli.accounts.claim_account import ClaimAccount
from shiplap_cli.accounts.node_account import NodeAccount
from shiplap_cli.accounts.pod_account import PodAccount, PodPlacement
from shiplap_cli.accounts.pool_account import PoolAccount
from shiplap_cli.commands.explain.history import History
from shiplap_cli.commands.explain.present_state import PresentState
from shiplap_cli.joined_documents import joined_type
from shiplap_cli.output import Printed
from shiplap_cli.render.decision_documents import Caveats, CommandDocument


class PricedLaunch(Printed, frozen=True):
    """The cheapest offering of a claim; `price_estimated` where AWS told no price."""

    instance_type: str
    zone: str
    capacity_type: str
    price: float
    reservation_id: str
    price_estimated: bool


def priced(launch: LaunchChoice, price: Price) -> PricedLaunch:
    """The launch of a plan with its price."""
    kind = (launch.instance_type, launch.zone, launch.capacity_type)
    return PricedLaunch(*kind, launch.price, launch.reservation_id, price.estimated)


class OfLaunch(Printed, frozen=True):
    """Takes the place of `launch`: what the decision knows as a plain offering is printed with its price."""

    launch: PricedLaunch | None


PodHome = joined_type(PodPlacement, OfLaunch)


class OfHome(Printed, frozen=True):
    """Takes the place of `home`."""

    home: PodHome | None  # type: ignore[valid-type]


PlannedNode = joined_type(PlannedClaim, OfLaunch)


class OfPlan(Printed, frozen=True):
    """A claim of the plan, and why it is as it is."""

    claim: PlannedNode  # type: ignore[valid-type]
    account: ClaimAccount


class OfCommand(Printed, frozen=True):
    """Takes the place of `command`."""

    command: CommandDocument | None


Now = TypeVar("Now")


class Story(Printed, Generic[Now], frozen=True):
    """The history on a live install, and the answer of now; `unseen` says why there is none."""

    story: History
    now: Now | None
    unseen: tuple[str, ...] | UnsetType = UNSET


PodAnswer = joined_type(PodAccount, OfHome, Caveats)
ClaimAnswer = joined_type(OfPlan, Caveats)
NodeAnswer = joined_type(NodeAccount, OfCommand, Caveats)
PoolAnswer = joined_type(PoolAccount, Caveats)
StoryOfPod = Story[PodAnswer]  # type: ignore[valid-type]
StoryOfClaim = Story[PresentState]
StoryOfNode = Story[NodeAnswer]  # type: ignore[valid-type]
StoryOfPool = Story[PoolAnswer]  # type: ignore[valid-type]
