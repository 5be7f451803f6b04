"""Settings of kubelets with the user data that they lead to."""

from __future__ import annotations

from pathlib import Path

from shiplap.aws.userdata.bootstrap import Bootstrap
from shiplap.kubernetes.objects import Taint

GOLDEN = Path(__file__).parent / "golden"


PLAIN = Bootstrap(
    cluster="demo",
    endpoint="https://demo.example",
    ca="Q0E=",
    family="AL2023",
    service_cidr="10.100.0.0/16",
    dns="10.100.0.10",
    labels={"karpenter.sh/nodepool": "default", "team": "a"},
    taints=(Taint("dedicated", "NoSchedule", "batch"), Taint("karpenter.sh/unregistered", "NoExecute")),
    max_pods=29,
)


FULL_KUBELET = {
    "clusterDNS": ["10.100.0.53"],
    "cpuCFSQuota": False,
    "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"},
    "evictionMaxPodGracePeriod": 30,
    "evictionSoft": {"memory.available": "500Mi"},
    "evictionSoftGracePeriod": {"memory.available": "1m"},
    "imageGCHighThresholdPercent": 80,
    "imageGCLowThresholdPercent": 70,
    "kubeReserved": {"cpu": "100m", "memory": "1Gi"},
    "maxPods": 50,
    "podsPerCore": 10,
    "systemReserved": {"cpu": "50m"},
}
