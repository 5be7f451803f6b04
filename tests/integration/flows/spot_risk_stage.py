"""A stage with spot, and with evidence about it."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.policies.policy_settings import chosen
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, DAY_S, EvidenceChange
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap_lab.fakes.stores import FakeCatalog
from shiplap_lab.policies.spot_risk_fakes import FakeSpotEvidence
from tests.builders.pools import family_pool
from tests.integration.flows.stage import ZONES, Stage, catalog

ANY_SPOT = (family_pool("any", ("c7i", "c7i-flex", "m6i", "r6i"), capacity_types=("spot", "on-demand")),)
ZONE_IDS = {zone: f"euw1-az{number}" for number, zone in enumerate(ZONES, 1)}
ZONE_OF = {zone_id: zone for zone, zone_id in ZONE_IDS.items()}
A_MONTH = (90.0,) * DAY_PARTS


def stage_with(mode: str, pods: int = 0, **size: str) -> Stage:
    """A stage with spot and `spotRisk`; prices of all types are near to each other."""
    stage = Stage(ANY_SPOT, spot=True)
    stage.clock.advance(86_400.0 - stage.clock.now() % 86_400.0 + 3_000.0)
    sold = catalog(spot=True)
    sizes = {"large": 1.0, "xlarge": 2.2, "2xlarge": 5.0}
    near = {
        name: replace(price, on_demand=sizes[name.partition(".")[2]] + place / 1000)
        for place, (name, price) in enumerate(sorted(sold.prices.items()))
    }
    sold = replace(sold, zone_ids=ZONE_IDS, prices=near)
    stage.settings = replace(stage.settings, policies=chosen(SpotRiskSettings(mode)))
    stage.context = replace(stage.with_policies().context, catalog=FakeCatalog(sold, stage.faults))
    if pods:
        stage.add_pods(pods, **{"cpu": "500m", "memory": "1Gi", **size})
    return stage


def evidence_of(stage: Stage) -> FakeSpotEvidence:
    """Return the evidence of the account."""
    store = stage.policy_ports["spot_risk"]["spot_evidence"]
    assert isinstance(store, FakeSpotEvidence)
    return store


def feared(stage: Stage, *offerings: tuple[str, str]) -> None:
    """Much evidence, calm everywhere but for these (type, zone id)."""
    now = stage.clock.now()
    for name in sorted(stage.types):
        for zone_id in ZONE_OF:
            often = 5 if (name, zone_id) in offerings else 0
            for _ in range(20):
                hours = EvidenceChange(zone_id=zone_id, instance_type=name, at=now, node_hours=A_MONTH)
                evidence_of(stage).add([hours])
            evidence_of(stage).add([EvidenceChange(zone_id=zone_id, instance_type=name, at=now, refusals=1)])
            for part in range(DAY_PARTS):  # one by one: what comes together tells less
                at = now - part * DAY_S / DAY_PARTS
                evidence_of(stage).add(
                    [EvidenceChange(zone_id=zone_id, instance_type=name, at=at, interruptions=often)]
                )
