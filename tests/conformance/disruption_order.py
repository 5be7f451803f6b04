"""Cases in which more nodes may go than may go at once."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.manifests.custom_resources import NodePool
from tests.builders.pods import pod_on
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import BOTH, ON_DEMAND, Standing, disrupted, small


def static(name: str, replicas: int, *rules: Any, **fields: Any) -> NodePool:
    made = pool(name, *rules, replicas=replicas, after="Never", **fields)
    return structs.replace(made, spec=structs.replace(made.spec, limits={}))


ORDERED = rule("node.kubernetes.io/instance-type", "In", "large", "small", "*")


TINY = fake_type("tiny", cpu="4", memory="8Gi", pods="20", price=0.9)


def fallen(*nodes: Standing, after_s: float = 3600.0, **fields: Any) -> Any:
    case: dict[str, Any] = {
        "pods": [pod_on(f"p{item.node.metadata.name}", item.node.metadata.name, cpu="3") for item in nodes],
        "pools": [pool("default", ON_DEMAND, ORDERED)],
        "types": [*BOTH, TINY],
        "settings": DisruptionSettings(climb_back_s=after_s),
    }
    return disrupted(*nodes, **case | fields)


def tiny(name: str, **fields: Any) -> Standing:
    made = small(name, **fields)
    marks = {**made.node.metadata.labels, "node.kubernetes.io/instance-type": "tiny"}
    node = structs.replace(made.node, metadata=structs.replace(made.node.metadata, labels=marks))
    return Standing(node, made.claim)
