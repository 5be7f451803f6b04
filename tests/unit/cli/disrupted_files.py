"""`shiplap disrupt` on files that a test writes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shiplap_cli.main import run
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
  disruption: {consolidateAfter: %s, consolidationPolicy: WhenEmptyOrUnderutilized, budgets: [{%s}]}
"""
OFFERING = {"zone": "z", "capacityType": "on-demand"}
CATALOG = {
    "instanceTypes": [
        {
            "name": name,
            "capacity": {"cpu": cpu, "memory": "64Gi", "pods": "50"},
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [name]}],
            "offerings": [{**OFFERING, "price": price}],
        }
        for name, cpu, price in (("small", "4", 1.0), ("large", "16", 4.0))
    ]
}


disrupted_node = partial(
    node_object,
    cpu="16",
    memory="64Gi",
    pods="50",
    instance_type="large",
    zone="z",
    capacity_type="on-demand",
    labels={"karpenter.sh/nodepool": "default", "karpenter.sh/initialized": "true"},
    ready=True,
    metadata={"creationTimestamp": "2026-11-01T00:00:00Z"},
)
disrupted_pod = partial(pod_object, cpu="1", namespace="shop", phase="Running")


class Files:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def disrupt(
        self,
        *objects: dict[str, Any],
        after: str = "0s",
        output: str = "json",
        more: tuple[str, ...] = (),
        command: tuple[str, ...] = ("disrupt",),
        budget: str = 'nodes: "100%"',
        pool: str = POOL,
    ) -> Any:
        (self._folder / "pool.yaml").write_text(pool % (after, budget))
        (self._folder / "catalog.json").write_text(json.dumps(CATALOG))
        (self._folder / "state.json").write_text(json.dumps({"kind": "List", "items": list(objects)}))
        self.code = run(
            [
                *command,
                *("--cluster-state", str(self._folder / "state.json")),
                *("--manifests", str(self._folder / "pool.yaml")),
                *("--catalog", str(self._folder / "catalog.json")),
                *("--now", "2026-11-20T12:00:00Z", "-o", output),
                *more,
            ]
        )
        written = self._capsys.readouterr()
        self.errors = written.err
        return json.loads(written.out) if output == "json" and self.code != 2 else written.out
