"""Manifests, a catalogue and pods for files that commands read."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from tests.builders.pods import pod_object
from tests.commands import listed
from tests.unit.manifests.manifest_samples import NODE_POOL, changed

pod = partial(pod_object, namespace="web", tolerations=[{"key": "dedicated", "operator": "Exists"}])

POOL = changed(
    changed(
        NODE_POOL,
        "spec.template.spec.requirements",
        [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
    ),
    "spec.template.spec.taints",
    [{"key": "dedicated", "effect": "NoSchedule"}],
)


CATALOG = {
    "instanceTypes": [
        {
            "name": name,
            "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "10"},
            "overhead": {"cpu": "100m"},
            "offerings": [
                {"zone": "z1", "capacityType": "on-demand", "price": price},
                {"zone": "z2", "capacityType": "spot", "price": price / 2},
            ],
        }
        for name, cpu, price in (("small", "2", 0.1), ("large", "8", 0.4))
    ]
}


def plan_of(folder: Path, *objects: dict[str, Any]) -> list[str]:
    for name, text in (("objects", listed(*objects)), ("pool", listed(POOL)), ("catalog", json.dumps(CATALOG))):
        (folder / f"{name}.json").write_text(text)
    sources = {"-f": "objects", "--manifests": "pool", "--catalog": "catalog"}
    return ["plan", *(word for option, name in sources.items() for word in (option, str(folder / f"{name}.json")))]
