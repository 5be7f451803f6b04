"""Names of labels, annotations and taints that carry meaning, and the older spellings of them."""

from __future__ import annotations

from collections.abc import Mapping

from shiplap.kubernetes.names import label_value_of

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ZONE_ID = "topology.k8s.aws/zone-id"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
NODE_POOL = "karpenter.sh/nodepool"
NODE_CLAIM = "karpenter.sh/nodeclaim"
NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
DO_NOT_REPAIR = "karpenter.sh/do-not-repair"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""How much a pod's controller would rather keep it."""
DISRUPTION_COST = "karpenter.sh/disruption-cost"
"""How much its users would rather keep a pod where it is; instead of the cost above."""
ANNOTATIONS_OF_GROUPS = (
    "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/podset-required-topology",
    "pod-group-name",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "shiplap.dev/gang-deadline",
    "shiplap.dev/gang-minimum",
)
"""By these, pods say which group they are of and how many of it are needed together."""
ANNOTATIONS_OF_CONSUMERS = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
"""By these, pods name the ProvisioningRequest whose capacity they take; the second one is deprecated."""
ROLLOUT = "shiplap.dev/rollout"
"""On a NodePool or a pod template: pods move by restarts of their Deployments; one of ROLLOUT_WORDS."""
ROLLOUT_WORDS = ("evict", "stay", "never")
"""What becomes of a pod whose Deployment is not restarted in time; `never` evicts at once, as without it."""
ROLLOUT_WITHIN = "shiplap.dev/rollout-within"
"""Beside `ROLLOUT`: how long a pod waits for that, such as 10m."""
MANAGED_COST = "shiplap.dev/deletion-cost"
"""On a NodePool or a pod template: Shiplap writes the deletion costs of pods; one of MANAGED_COST_WORDS."""
MANAGED_COST_WORDS = ("managed", "never")
WRITTEN_COST = "shiplap.dev/written-deletion-cost"
"""On a pod: the deletion cost that Shiplap wrote. Where the pod has another one, or none, somebody changed it."""
ANNOTATIONS_OF_PODS = (
    DO_NOT_DISRUPT,
    DELETION_COST,
    DISRUPTION_COST,
    *ANNOTATIONS_OF_GROUPS,
    *ANNOTATIONS_OF_CONSUMERS,
    ROLLOUT,
    ROLLOUT_WITHIN,
    MANAGED_COST,
    WRITTEN_COST,
)
"""No decision reads another annotation of a pod."""
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
UNREGISTERED_TAINT = "karpenter.sh/unregistered"
DISRUPTED_TAINT = "karpenter.sh/disrupted"
REBOOTING_TAINT = "karpenter.sh/rebooting"
EXCLUDE_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
"""An annotation of claims that have fewer values than minValues of their pool, for lack of capacity."""
AWS_PREFIX = "karpenter.k8s.aws/"
RESERVATION_ID = AWS_PREFIX + "capacity-reservation-id"
RESERVATION_TYPE = AWS_PREFIX + "capacity-reservation-type"
PARTITION = AWS_PREFIX + "placement-group-partition"
RESERVATION_INTERRUPTIBLE = AWS_PREFIX + "capacity-reservation-interruptible"

ON_DEMAND = "on-demand"
SPOT = "spot"
RESERVED = "reserved"

NORMALIZED = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "topology.ebs.csi.aws.com/zone": ZONE,
}
"""Older or driver-specific keys that mean the same as a stable one."""


def value_of(node_labels: Mapping[str, str], name: str) -> str:
    """The value of a label by its stable name, else by an older one; empty without any."""
    older = (node_labels.get(old) for old, stable in NORMALIZED.items() if stable == name)
    return node_labels.get(name) or next(filter(None, older), "")


AWS_WELL_KNOWN = frozenset(
    AWS_PREFIX + name
    for name in (
        "capacity-reservation-id",
        "capacity-reservation-interruptible",
        "capacity-reservation-type",
        "instance-accelerator-count",
        "instance-accelerator-manufacturer",
        "instance-accelerator-name",
        "instance-capability-flex",
        "instance-category",
        "instance-cpu",
        "instance-cpu-manufacturer",
        "instance-cpu-sustained-clock-speed-mhz",
        "instance-ebs-bandwidth",
        "instance-encryption-in-transit-supported",
        "instance-family",
        "instance-generation",
        "instance-gpu-count",
        "instance-gpu-manufacturer",
        "instance-gpu-memory",
        "instance-gpu-name",
        "instance-hypervisor",
        "instance-local-nvme",
        "instance-memory",
        "instance-network-bandwidth",
        "instance-size",
        "instance-tenancy",
        "nitro-sandbox",
        "placement-group-id",
        "placement-group-partition",
    )
)

WELL_KNOWN = AWS_WELL_KNOWN | {
    NODE_POOL,
    CAPACITY_TYPE,
    ZONE,
    ZONE_ID,
    REGION,
    INSTANCE_TYPE,
    ARCH,
    OS,
    WINDOWS_BUILD,
}
"""Labels a pod may ask for although its NodePool does not mention them: the instance type has them."""


def of_pool(node_pool: str) -> dict[str, str]:
    """The label by which a Node says what its NodePool is; none where there is no NodePool."""
    return {NODE_POOL: label_value_of(node_pool)} if node_pool else {}
