"""Audit records as the control plane of EKS writes them, and the envelope in which CloudWatch Logs hands them over.

The fields, their order and their values follow what an API server writes (audit.k8s.io/v1); names and ids are made up.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

SCHEDULER = "system:kube-scheduler"
AT_MS = 1_769_860_800_250


def pending_pod(name: str = "web-7f9c-x2x", *, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    """A pod that kube-scheduler has found no node for, as the API server answers with it."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "generateName": "web-7f9c-",
            "namespace": namespace,
            "uid": f"uid-of-{namespace}-{name}",
            "resourceVersion": "1273834",
            "creationTimestamp": "2026-01-31T11:58:02Z",
            "labels": {"app": "web", "pod-template-hash": "7f9c"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-7f9c",
                    "uid": "0a55ff19-2657-4346-b446-ff4df961e3f6",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [
                {
                    "name": "web",
                    "image": "example/web:v1",
                    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            "priority": 0,
            **spec,
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-01-31T11:58:02Z",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 Insufficient cpu.",
                }
            ],
            "qosClass": "Burstable",
        },
    }


def record(pod: Mapping[str, Any] | None = None, **other: Any) -> dict[str, Any]:
    """kube-scheduler's write of a pod's status; `other` replaces fields, and takes them away where it says None."""
    about = pending_pod() if pod is None else pod
    namespace, name = about["metadata"]["namespace"], about["metadata"]["name"]
    written = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": f"audit-of-{name}",
        "stage": "ResponseComplete",
        "requestURI": f"/api/v1/namespaces/{namespace}/pods/{name}/status",
        "verb": "patch",
        "user": {"username": SCHEDULER, "groups": ["system:authenticated"]},
        "sourceIPs": ["10.0.118.36"],
        "userAgent": "kube-scheduler/v1.34.1 (linux/amd64) kubernetes/a1b2c3d/scheduler",
        "objectRef": {
            "resource": "pods",
            "namespace": namespace,
            "name": name,
            "apiVersion": "v1",
            "subresource": "status",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        # A later try changes the message only: what the patch says is not what the pod is.
        "requestObject": {
            "status": {
                "$setElementOrder/conditions": [{"type": "PodScheduled"}],
                "conditions": [{"message": "0/3 nodes are available: 3 Insufficient cpu.", "type": "PodScheduled"}],
            }
        },
        "responseObject": about,
        "requestReceivedTimestamp": "2026-01-31T12:00:00.243411Z",
        "stageTimestamp": "2026-01-31T12:00:00.250000Z",
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "RBAC: allowed"},
    } | other
    return {field: value for field, value in written.items() if value is not None}


def left_out(pod: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The same when it was too large for the API server's limit: the objects are missing, an annotation says so."""
    whole = record(pod)
    return record(
        pod,
        requestObject=None,
        responseObject=None,
        annotations=whole["annotations"] | {"audit.k8s.io/truncated": "true"},
    )


def of_kubelet(pod: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A kubelet's write of a pod's status: by far the most frequent ones, logged without the answer."""
    user = {
        "username": "system:node:ip-10-0-1-2.eu-west-1.compute.internal",
        "groups": ["system:nodes", "system:authenticated"],
    }
    return record(pod, level="Request", user=user, responseObject=None, userAgent="kubelet/v1.34.1")


def text(written: Mapping[str, Any]) -> str:
    """A record as one line of the log."""
    return json.dumps(written, separators=(",", ":"))


def delivery(
    *lines: str, cluster: str = "demo", kind: str = "DATA_MESSAGE", group: str | None = None
) -> dict[str, dict[str, str]]:
    """Return the event that Lambda passes to the audit function for some lines of a cluster's audit log."""
    return packed(
        {
            "messageType": kind,
            "owner": "123456789012",
            "logGroup": f"/aws/eks/{cluster}/cluster" if group is None else group,
            "logStream": "kube-apiserver-audit-0123456789abcdef0123456789abcdef",
            "subscriptionFilters": ["shiplap"],
            "logEvents": events(lines),
        }
    )


def events(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Log events as CloudWatch Logs numbers them."""
    return [
        {"id": f"{38_000_000_000 + number:056}", "timestamp": AT_MS, "message": line}
        for number, line in enumerate(lines)
    ]


def packed(document: Any) -> dict[str, dict[str, str]]:
    """A document in the envelope."""
    data = base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()
    return {"awslogs": {"data": data}}
