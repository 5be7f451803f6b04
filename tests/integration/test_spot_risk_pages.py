"""Tests the output of `shiplap plan` and `shiplap explain claim` on the risk of spot while it is only observed."""

from __future__ import annotations

import time
from collections.abc import Collection
from itertools import pairwise
from statistics import mean

import msgspec
import pytest

from shiplap.aws import session
from shiplap.aws.policies.spot_risk_adapters import DynamoSpotEvidence
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.policies.policy_settings import chosen
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, DAY_S, EvidenceChange
from shiplap.policies.spot_risk.risk_rates import RiskRates
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.records.scheduling_record import SchedulingRecord, encode
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.main import run
from tests.integration.live_install import LiveInstall

NODE_HOURS = 10_000.0


class Listed(msgspec.Struct, frozen=True):
    """A spot offering of a launch list: USD per hour, and interruptions per million node-hours."""

    key: str
    zone_id: str
    price: float
    per_million: float


def observing(live: LiveInstall, without: Collection[str] = ()) -> None:
    """The install observes the risk of the spot that its only NodePool launches, without some instance types."""
    (pool,) = live.settings.manifests.node_pools
    template = pool.spec.template
    rules = [RequirementSpec(labels.CAPACITY_TYPE, "In", ("spot",))]
    if without:
        rules.append(RequirementSpec(labels.INSTANCE_TYPE, "NotIn", tuple(sorted(without))))
    spot = msgspec.structs.replace(template, spec=msgspec.structs.replace(template.spec, requirements=tuple(rules)))
    pools = (msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, template=spot)),)
    manifests = msgspec.structs.replace(live.settings.manifests, node_pools=pools)
    on = chosen(SpotRiskSettings("observe"))
    live.settings = msgspec.structs.replace(live.settings, manifests=manifests, policies=on)


def spot_list(snapshot: Snapshot, claim: PlannedClaim) -> list[Listed]:
    risk = snapshot.policy(SpotRiskInput)
    assert risk is not None
    rates = RiskRates(risk.known.evidence, snapshot.now)
    (zones,) = (entry.values for entry in claim.requirements if entry.key == labels.ZONE)
    return [
        Listed(
            f"{item.name}/{offering.zone}",
            offering.zone_id,
            offering.price,
            rates.of(offering.zone_id, item.name) * 1e6,
        )
        for item in snapshot.catalogs[0].instance_types
        for offering in item.offerings
        if item.name in claim.instance_types
        and offering.capacity_type == labels.SPOT
        and offering.available
        and offering.zone in zones
    ]


def with_one_as_cheap(listed: Collection[Listed]) -> Listed:
    """The cheapest offering next to which another one costs a little more, at most 2 %."""
    ordered = sorted(listed, key=lambda item: item.price)
    return next(one for one, other in pairwise(ordered) if one.price * 1.005 < other.price <= one.price * 1.02)


def fear(live: LiveInstall, listed: Collection[Listed], feared: Listed) -> None:
    """As much evidence of each offering; one of them is interrupted once a month, evenly over the day."""
    store = DynamoSpotEvidence(session.client("dynamodb"), "capacity")
    now = time.time()
    hours = (NODE_HOURS / DAY_PARTS,) * DAY_PARTS
    for item in listed:
        name = item.key.partition("/")[0]
        store.add([EvidenceChange(zone_id=item.zone_id, instance_type=name, at=now, node_hours=hours)])
    name = feared.key.partition("/")[0]
    for part in range(DAY_PARTS):
        at = now - part * DAY_S / DAY_PARTS
        store.add([EvidenceChange(zone_id=feared.zone_id, instance_type=name, at=at, interruptions=2)])


def per_month(offerings: Collection[Listed]) -> float:
    """Of the mean offering, in per cent of the nodes; records keep whole numbers per million node-hours."""
    return round(mean(item.per_million for item in offerings)) * 730 * 100 / 1e6


def said_of_risk(snapshot: Snapshot, claim: PlannedClaim) -> str:
    """The numbers, from the list and from what would be left of it."""
    listed, risk = spot_list(snapshot, claim), claim.spot_risk
    assert risk is not None
    left = [item for item in listed if item.key in risk.offerings]
    rates = f"{per_month(listed):.1f} -> {per_month(left):.1f} %/month"
    prices = f"${min(item.price for item in listed):.4f} -> ${min(item.price for item in left):.4f}"
    return f"{len(listed) - len(left)} of {len(listed)} would be left out: {rates}, {prices}"


def test_the_numbers_of_observed_risk_are_shown_of_a_plan_and_of_a_claim(
    live: LiveInstall, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "c"):
        live.http.api.delete("pods", name, "web", grace_s=0)
    observing(live)
    snapshot, decided = live.decided()
    listed = spot_list(snapshot, decided.node_claims[0])
    feared = with_one_as_cheap(listed)
    observing(live, without=[item.key.partition("/")[0] for item in listed if item.price < feared.price])
    fear(live, listed, feared)
    snapshot, decided = live.decided()
    claim = decided.node_claims[0]
    assert claim.spot_risk is not None
    assert claim.spot_risk.as_is.offering == feared.key
    assert feared.key not in claim.spot_risk.offerings
    numbers = said_of_risk(snapshot, claim)

    config = ["--kubeconfig", str(live.folder / "config"), "--cluster", "blue"]
    assert run(["plan", *config]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert f": spot risk, {numbers}" in page
    assert run(["plan", *config, "--details"]) == 0
    assert f"spot risk {numbers}" in " ".join(capsys.readouterr().out.split())

    (live.folder / "record").write_bytes(encode(SchedulingRecord(snapshot, decided)))
    assert run(["explain", "claim", claim.name, "--record", str(live.folder / "record")]) == 0
    assert f"spot risk {numbers}" in " ".join(capsys.readouterr().out.split())
