"""Files of manifests and nodes of a Region."""

from __future__ import annotations

from tests.builders.pods import pod_object
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

ANY_CAPACITY = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]


MANIFESTS = [changed(NODE_POOL, "spec.template.spec.requirements", ANY_CAPACITY), EC2_NODE_CLASS]


POD = pod_object("api", "1", namespace="web")
