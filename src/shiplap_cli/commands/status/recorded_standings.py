"""What optional features say of clusters in `shiplap status`, by the newest decision that an install recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET, UnsetType
from rich.console import RenderableType
from rich.text import Text

from shiplap.errors import InvalidInput, StoreError
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.output import Printed
from shiplap_cli.render.status_page import ClusterStatusDocument

_WITHIN_S = 3600.0
"""Decisions that are older say nothing of now, in seconds: whatever waits is planned every minute."""

_MOST_LINES = 10


class FeatureStanding(Printed, frozen=True):
    """What a feature counts in a cluster by the decision of `at`, and a line on each."""

    cluster: str
    feature: str
    at: str
    counts: dict[str, int]
    lines: tuple[str, ...]


class Standings(Printed, frozen=True):
    """What features say of clusters; nothing where none has anything to say."""

    standings: tuple[FeatureStanding, ...] | UnsetType = UNSET


def read_standings(
    install: DeployedInstall, clusters: Iterable[ClusterStatusDocument], now: float
) -> tuple[Standings, list[str]]:
    """Return what features say, and what could not be read. Only clusters with such features have a record read."""
    unread: list[str] = []
    found: list[FeatureStanding] = []
    for each in clusters:
        if each.features:
            try:
                found += _of_cluster(install, each, now)
            except (StoreError, InvalidInput) as error:
                unread.append(f"the newest decision on {each.cluster}: {error}")
    return Standings(tuple(found) or UNSET), unread


def _of_cluster(install: DeployedInstall, known: ClusterStatusDocument, now: float) -> Iterator[FeatureStanding]:
    """Raises StoreError, InvalidInput."""
    from shiplap.records.disruption_record import is_disruption, read  # noqa: PLC0415 - most clusters need no planner
    from shiplap.records.scheduling_record import SchedulingRecord  # noqa: PLC0415 - as above
    from shiplap_cli.policy_views import views  # noqa: PLC0415 - as above

    asked = [(name, view) for name, view in views() if name in (known.features or ()) and view.has_standing]
    records = install.records()
    recent = records.ids(known.cluster, now - _WITHIN_S, now) if asked else ()
    ids = [name for name in recent if not is_disruption(name)]
    if not ids:
        return
    recorded = read(records.document(ids[-1]), ids[-1]).record
    if not isinstance(recorded, SchedulingRecord):
        raise InvalidInput(ids[-1], "is of a version that this one cannot read")
    for name, view in asked:
        standing = view.standing(recorded.snapshot, recorded.plan)
        if standing is not None:
            at = rfc3339(recorded.snapshot.now)
            yield FeatureStanding(known.cluster, name, at, dict(standing.counts), tuple(standing.lines))


def standings_page(found: Standings) -> Iterator[RenderableType]:
    """Yield a few lines on each feature of a cluster."""
    for each in found.standings or ():
        yield Text(f"\n{each.feature} of {each.cluster}, by the decision of {each.at}", style="italic")
        yield from (Text(f"  {line}") for line in each.lines[:_MOST_LINES])
        if len(each.lines) > _MOST_LINES:
            yield Text(f"  and {len(each.lines) - _MOST_LINES} more")
