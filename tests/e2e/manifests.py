"""Manifests as users write them: NodePools, and workloads of every kind."""

from __future__ import annotations

NODES = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: shiplap-node-real
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  weight: 10
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: 100%}]}
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [c6i, m6i, r6i]}
        - {key: karpenter.k8s.aws/instance-size, operator: In, values: [large, xlarge, 2xlarge]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: short-lived}
spec:
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1h, budgets: [{nodes: 100%}]}
  template:
    spec:
      expireAfter: 30s
      taints: [{key: short-lived, effect: NoSchedule}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [c6i.large, m6i.large]}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: surprising}
spec:
  template:
    spec:
      expireAfter: Never
      taints: [{key: surprising, effect: NoSchedule}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: drifting}
spec:
  amiFamily: AL2023
  amiSelectorTerms: [{tags: {image: own}}]
  role: shiplap-node-real
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: drifting}
spec:
  template:
    spec:
      expireAfter: Never
      taints: [{key: drifting, effect: NoSchedule}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: drifting}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [c6i.large]}
"""
"""`drifting` selects AMIs by tag, which a function believes for a minute; what SSM says it believes for five."""

MANY_NODES = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: shiplap-node-real
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: shared}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      expireAfter: Never
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [c6i.xlarge]}
"""
"""Nodes that take ten pods of 370m each, and not eleven."""


def deployment(name: str, replicas: int, spec: str, *, cpu: str = "500m", memory: str = "512Mi") -> str:
    """A Deployment; `spec` is added to its pods', as one line of YAML within braces."""
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - {{name: main, image: main, resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}}}
{_indented(spec)}
"""


def on_pool(name: str) -> str:
    """The part of a pod's spec that keeps it on nodes of one NodePool, whose taint is called like it."""
    return f"""\
nodeSelector: {{karpenter.sh/nodepool: {name}}}
tolerations: [{{key: {name}, operator: Exists}}]
"""


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in text.splitlines())


AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers:
        - {name: main, image: main, resources: {requests: {cpu: 50m, memory: 64Mi}}}
"""

SPREAD_OVER_ZONES = """\
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: DoNotSchedule
    labelSelector: {matchLabels: {app: web}}
"""

ONE_PER_NODE = """\
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: apart}}}
"""

NEAR_WEB_IN_SOME_ZONES = """\
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [us-east-1b, us-east-1c]}]
"""

WEB = deployment("web", 7, SPREAD_OVER_ZONES)
APART = deployment("apart", 3, ONE_PER_NODE, cpu="100m", memory="128Mi")
NEAR = deployment("near", 2, NEAR_WEB_IN_SOME_ZONES, cpu="900m", memory="256Mi")

BUDGET = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
"""

DATABASE = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: main
          image: main
          resources: {requests: {cpu: 250m, memory: 1Gi}}
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        accessModes: [ReadWriteOnce]
        storageClassName: fast
        resources: {requests: {storage: 10Gi}}
"""

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec:
  completions: 3
  parallelism: 3
  template:
    metadata: {labels: {app: batch}}
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: main, resources: {requests: {cpu: "1", memory: 1Gi}}}
"""
