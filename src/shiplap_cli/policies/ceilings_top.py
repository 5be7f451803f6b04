"""The lines of `shiplap top` about this month's dollars, and the ceiling that is nearest to its limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.flows.policies.ceilings_inputs import ceilings_in_use
from shiplap.policies.ceilings.ceiling_use import ClusterSpending, cluster_spending
from shiplap.policies.ceilings.ceilings import CeilingUse, dollars
from shiplap.spending.ledger import SpendingLedger
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.followed_resources import FollowedResources

UNSEEN = "what is spent is not seen"


def lines_reader(resources: FollowedResources, clock: Callable[[], float]) -> Callable[[], Sequence[str]]:
    """Reads from table `state` what a cluster has spent this month, if its ledger is kept.

    The ceilings are those that the functions had when they were first looked up.
    """

    def read() -> Sequence[str]:
        try:
            state = resources.state.read(resources.cluster, clock())
            if state.ledger is None:
                return ()
            claims = resources.state.ledger_claims(resources.cluster)
        except (AwsError, StoreError):  # whoever reads the claims from the same table says so
            return ()
        spending = cluster_spending(claims, state.ledger, clock())
        try:
            ceilings = ceilings_in_use(resources.settings, state, spending)
        except (AwsError, InvalidInput) as error:
            return (spending_words(state.ledger, spending), f"ceilings are not seen: {with_hint(error)}")
        return (spending_words(state.ledger, spending), *_nearest_ceiling(ceilings))

    return read


def spending_words(ledger: SpendingLedger, spending: ClusterSpending) -> str:
    """Return the month's spent and reserved amounts, and the forecast for all of it, in words."""
    spent, forecast = dollars(spending.total_spent), dollars(spending.forecast(ledger))
    return f"this month {spent} spent, {dollars(spending.total - spending.total_spent)} reserved, forecast {forecast}"


def _nearest_ceiling(ceilings: Sequence[CeilingUse]) -> Iterator[str]:
    """The ceiling of which the largest share is used."""
    for ceiling in sorted(ceilings, key=lambda item: (-item.share, item.title))[:1]:
        yield f"{ceiling.share:.0%} of {ceiling.title}, mode {ceiling.mode}"
