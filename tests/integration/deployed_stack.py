"""A stack as CloudFormation deploys it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

REGION = "us-east-1"


VERSION = "1.34"


PRICES = {"c7i-flex.large": 0.08479, "c7i-flex.xlarge": 0.16958, "m5.large": 0.096}


MANIFESTS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: shiplap-node-demo
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [c7i-flex.large, m5.large]}
"""


class Clock:
    def now(self) -> float:
        return time.time()


def written(folder: Path, endpoint: str) -> Path:
    """An install of one cluster, whose API is at the endpoint."""
    (folder / "nodes.yaml").write_text(MANIFESTS)
    settings = folder / "shiplap.yaml"
    demo = {
        "name": "demo",
        "manifests": "nodes.yaml",
        "endpoint": endpoint,
        "token": "local",
        "certificateAuthority": "Q0E=",
        "kubernetesVersion": VERSION,
        "serviceCIDR": "10.100.0.0/16",
        "audit": True,
    }
    settings.write_bytes(msgspec.json.encode({"region": REGION, "clusters": [demo]}))
    return settings
