"""Nodes with pods that are spread over zones as far as that is possible, and NodePools that pay for balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import ZONE_BALANCE, ZONE_BALANCE_MAX_HOURLY
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type

EVERYWHERE = tuple(("on-demand", zone) for zone in (Z1, Z2, Z3))
TYPE = fake_type("small", cpu="4", memory="8Gi", pods="20", price=1.0, offerings=EVERYWHERE)
SOLD_OUT = fake_type(
    "small", cpu="4", memory="8Gi", pods="20", price=1.0, offerings=EVERYWHERE, unavailable=[("on-demand", Z3)]
)


def spread(app: str = "web", *, skew: int = 1, when: str = "ScheduleAnyway", **fields: Any) -> dict[str, Any]:
    """A constraint over zones; `fields` replace its own."""
    return {
        "maxSkew": skew,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": app}},
        **fields,
    }


def on(
    node: str,
    number: int,
    app: str = "web",
    *rules: Mapping[str, Any],
    cpu: str = "1200m",
    labels: Mapping[str, str] | None = None,
) -> list[Pod]:
    """So many pods of an app on a node, spread over zones."""
    constraints = [dict(each) for each in rules or (spread(app),)]
    return [
        pod(
            f"{app}-{node}-{place}",
            cpu,
            node=node,
            labels={"app": app, **(labels or {})},
            spec={"topologySpreadConstraints": constraints},
            owner=app,
            owner_kind="ReplicaSet",
        )
        for place in range(number)
    ]


def balanced(most: str = "10", hourly: str | None = None, name: str = "default", **fields: Any) -> NodePool:
    """A NodePool that pays for balance with so many pods at a time, and USD per hour."""
    annotations = {ZONE_BALANCE: most} | ({} if hourly is None else {ZONE_BALANCE_MAX_HOURLY: hourly})
    return pool(name, annotations=annotations, **fields)
