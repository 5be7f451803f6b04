"""The answers of `shiplap plan` and `shiplap disrupt`, as `-o json` prints them."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from shiplap_cli.commands.plan.monthly_costs import MonthlyCosts
from shiplap_cli.joined_documents import joined_type
from shiplap_cli.output import Printed
from shiplap_cli.policy_views import policy_answers
from shiplap_cli.render.arm_comparison import ArmDocument
from shiplap_cli.render.decision_documents import Caveats, DisruptDocument, PlanDocument
from shiplap_cli.render.totals import PlanDifference, Totals


class RejectedOverlays(Printed, frozen=True, omit_defaults=True):
    """Names of NodeOverlays that conflict with others of equal weight."""

    rejected_overlays: tuple[str, ...] = ()


class PlanCosts(Printed, frozen=True):
    """What nodes cost now and after the plan; of files without a node that has a price it is left out."""

    totals: Totals | UnsetType = UNSET
    monthly_costs: MonthlyCosts | UnsetType = UNSET


PlanAnswer = joined_type(PlanDocument, Caveats, RejectedOverlays, policy_answers(), PlanCosts)
ArmAnswer = joined_type(ArmDocument, Caveats)
DifferenceAnswer = joined_type(PlanDifference, Caveats)
DisruptAnswer = joined_type(DisruptDocument, Caveats)
